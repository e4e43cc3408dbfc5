"""From the orders of tasks to all that Slurm is handed for them (pure)."""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from gridloom.base.errors import InputError
from gridloom.model.inventory import SlurmAccess
from gridloom.sites.slurm.batch import batch_order, render_batch
from gridloom.sites.slurm.gang import gang_directory, plane_of, submission, supervisor_argv
from gridloom.sites.slurm.script import render
from gridloom.sites.slurm.submission import Submission
from gridloom.wire.agent import TaskOrder, TaskRef


class HandedIn(msgspec.Struct, frozen=True, kw_only=True):
    """One job of Slurm.

    Attributes:
        asked: What it asks for.
        script: The same as a batch script, with what it runs.
        orders: What the supervisors find that it starts.
        speaker: Of a user's own script, the task whose supervisor speaks for all.
    """

    asked: Submission
    script: str
    orders: tuple[TaskOrder, ...]
    speaker: TaskRef | None = None


def handed_in(
    orders: Sequence[TaskOrder], runs: PurePath, access: SlurmAccess, python: str
) -> HandedIn:
    """Return the job that tasks of one site are.

    Args:
        orders: Of the tasks, in rank order.
        runs: Directory of all run directories.
        access: How jobs are handed in.
        python: The interpreter where the site names none.

    Raises:
        InputError: It cannot be written as a batch script, or not be handed in that way.
    """
    python, plane = access.python or python, plane_of(runs)
    asked = submission(orders, runs, access, plane)
    if orders[0].batch is None:
        argv = supervisor_argv(python, gang_directory(runs, orders[0].task))
        return HandedIn(asked=asked, script=render(asked, argv), orders=tuple(orders))
    if access.rest is not None:
        raise InputError("a batch script is handed in by sbatch, and not by slurmrestd")
    return HandedIn(
        asked=asked,
        script=render_batch(orders, runs, access, plane, python),
        orders=tuple(map(batch_order, orders)),
        speaker=orders[0].task,
    )
