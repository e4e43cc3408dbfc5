"""What a Slurm is handed for the tasks that start together at a site (pure)."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from gridloom.model.inventory import SlurmAccess
from gridloom.sites.remote.places import Places, moved_order
from gridloom.sites.slurm.batch import batch_order, render_batch, rest_submission
from gridloom.sites.slurm.gang import gang, interpreter, submission, supervisor_argv
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.tasks import plane_of, with_given_devices
from gridloom.wire.agent import Gang, TaskOrder, gang_directory


class HandedIn(msgspec.Struct, frozen=True, kw_only=True):
    """One job of Slurm.

    Attributes:
        asked: What it is asked for.
        script: The same as a batch script, with what it runs.
        orders: Of its tasks, in rank order, as their supervisors are to have them.
        gang: What tells a supervisor which of them is its own.
    """

    asked: Submission
    script: str
    orders: tuple[TaskOrder, ...]
    gang: Gang


def handed_in(
    orders: Sequence[TaskOrder],
    runs: PurePath,
    access: SlurmAccess,
    python: str,
    to: Places | None = None,
) -> HandedIn:
    """Return what Slurm is handed.

    Args:
        orders: Of the tasks, in rank order.
        runs: Directory of all run directories.
        access: How jobs are handed in.
        python: The interpreter where the site names none.
        to: Where everything is at a site that sees nothing of ours.

    Raises:
        InputError: It cannot be written as a batch script.
    """
    python = interpreter(access, python)
    plane = plane_of(runs)
    if to is not None:
        runs, orders = PurePath(to.runs_there), [moved_order(order, to) for order in orders]
    asked = submission(orders, runs, access, plane)
    given = tuple(map(with_given_devices, orders))
    if orders[0].batch is None:
        argv = supervisor_argv(python, gang_directory(runs, orders[0].task))
        script = render(asked, argv)
    else:
        script = render_batch(orders, runs, access, plane, python)
        if access.rest is not None:
            asked = rest_submission(script, orders[0].batch, access)
        given = tuple(map(batch_order, given))
    return HandedIn(asked=asked, script=script, orders=given, gang=gang(orders, runs, access))
