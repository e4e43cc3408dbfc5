"""What a Slurm is handed for the tasks that start together at a site (pure)."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from gridloom.model.inventory import SlurmAccess
from gridloom.sites.slurm.batch import batch_order, render_batch, rest_submission
from gridloom.sites.slurm.gang import interpreter, submission, supervisor_argv
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.tasks import plane_of, with_given_devices
from gridloom.wire.agent import TaskOrder, gang_directory


class HandedIn(msgspec.Struct, frozen=True, kw_only=True):
    """One job of Slurm.

    Attributes:
        asked: What it is asked for.
        script: The same as a batch script, with what it runs.
        orders: Of its tasks, in rank order, as their supervisors are to have them.
    """

    asked: Submission
    script: str
    orders: tuple[TaskOrder, ...]


def handed_in(
    orders: Sequence[TaskOrder], runs: PurePath, access: SlurmAccess, python: str
) -> HandedIn:
    """Return what Slurm is handed.

    Args:
        orders: Of the tasks, in rank order.
        runs: Directory of all run directories.
        access: How jobs are handed in.
        python: The interpreter where the site names none.

    Raises:
        InputError: It cannot be written as a batch script.
    """
    python = interpreter(access, python)
    plane = plane_of(runs)
    asked = submission(orders, runs, access, plane)
    given = tuple(map(with_given_devices, orders))
    if orders[0].batch is None:
        argv = supervisor_argv(python, gang_directory(runs, orders[0].task))
        return HandedIn(asked=asked, script=render(asked, argv), orders=given)
    script = render_batch(orders, runs, access, plane, python)
    if access.rest is not None:
        asked = rest_submission(script, orders[0].batch, access)
    return HandedIn(asked=asked, script=script, orders=tuple(map(batch_order, given)))
