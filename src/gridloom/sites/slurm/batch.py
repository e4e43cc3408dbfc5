"""From a user's own batch script to the one that Slurm is handed in its place (pure).

Ours asks for what the user's asks for, and starts the supervisor where Slurm would have started the
user's: in the batch step of the first node. So `srun` works in it as ever, and its output is in the
file that Slurm has opened for it.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.model.inventory import SlurmAccess
from gridloom.model.spec import Batch
from gridloom.sites.slurm.directives import directive
from gridloom.sites.slurm.gang import LOG_FILE, comment, supervisor_argv
from gridloom.sites.slurm.hostlist import compress
from gridloom.sites.slurm.sbatch_file import parse
from gridloom.sites.slurm.script import signal_text
from gridloom.sites.slurm.submission import Signal, Submission
from gridloom.wire.agent import TaskOrder, gang_directory
from gridloom.wire.launch import ARRAY_INDEX_VARIABLE

_ERRORS_VARIABLE = "GRIDLOOM_ERRORS"
"""Where the errors of a script go that has asked for a file of their own."""

# One file under two names, the user's and gridloom's
_BODY = """\
output=$(readlink /proc/$$/fd/1)
case "$output" in /*) ln -sfn "$output" %(log)s ;; esac
%(exports)s
exec %(supervisor)s >>%(own_log)s 2>&1
"""
# Of whoever calls sbatch a job has these; through slurmrestd nobody says them
_LOGIN = """\
IFS=: read -r user _ _ _ _ home shell < <(getent passwd "$(id -u)")
export USER="${USER:-$user}" LOGNAME="${LOGNAME:-$user}" HOME="${HOME:-$home}" SHELL="$shell\""""
_ERRORS = f"export {_ERRORS_VARIABLE}=$(readlink /proc/$$/fd/2)"


def batch_order(order: TaskOrder) -> TaskOrder:
    """Return the order of a script's task such that its errors go where it says."""
    assert order.batch is not None
    if "error" not in dict(order.batch.options):
        return order
    return replace(
        order, argv=("/bin/bash", "-c", f'exec "$@" 2>>"${_ERRORS_VARIABLE}"', "bash", *order.argv)
    )


def render_batch(
    orders: Sequence[TaskOrder], runs: PurePath, access: SlurmAccess, plane: str, python: str
) -> str:
    """Return the batch script that runs the user's own under a supervisor.

    What the user's says goes before what the grid file says of the site.

    Args:
        orders: The tasks at the site, one a node, each with the same ``batch``.
        runs: Directory of all run directories.
        access: How jobs are handed in there.
        plane: Names the control plane among all whose jobs the site may have.
        python: Interpreter there with gridloom.

    Raises:
        InputError: An option cannot be written on a line of its own.
    """
    first = orders[0]
    assert first.batch is not None
    directory = gang_directory(runs, first.task)
    said = [*first.batch.options, *_of_site(first.batch, orders, access), *_ours(orders, plane)]
    return (
        "\n".join(["#!/bin/bash", *_directives(said), ""])
        + "\n"
        + _BODY
        % {
            "log": shlex.quote(first.ranks[0].log_file),
            "exports": "\n".join(_exports(first, first.batch, access)),
            "supervisor": shlex.join(supervisor_argv(python, directory)),
            "own_log": shlex.quote(str(directory / LOG_FILE)),
        }
    )


def rest_submission(script: str, batch: Batch, access: SlurmAccess) -> Submission:
    """Return what a script asks for where nobody reads its lines.

    Args:
        script: As ``render_batch`` made it.
        batch: Of the user.
        access: How jobs are handed in there.

    Raises:
        InputError: A value is none.
    """
    read = parse(script)
    said = {setting.name: setting.value for setting in read.settings}
    variables = access.environment | read.submission.environment
    # What is ours can give way where it cannot be said, what is the user's cannot
    is_theirs = "signal" in dict(batch.options)
    options = tuple((name, said[name]) for name in said if name != "signal" or is_theirs)
    return replace(read.submission, environment=variables, options=options)


def _directives(said: Sequence[tuple[str, str]]) -> list[str]:
    lines, problems = [], []
    for option, value in said:
        try:
            lines.append(directive(option, value))
        except ValueError as error:
            problems.append(Problem(f"{value[:60]!r} cannot be asked for: {error}", field=option))
    if problems:
        raise InputError(problems)
    return lines


def _of_site(
    batch: Batch, orders: Sequence[TaskOrder], access: SlurmAccess
) -> Iterator[tuple[str, str]]:
    """Yield what the grid file says of the site, where the script says nothing."""
    asked = {option for option, _ in batch.options}
    minutes = math.ceil(access.time_limit_s / 60)
    nodes = compress([order.task.node for order in orders]) if access.placement == "pin" else ""
    told = {
        "account": access.account,
        "partition": access.partition,
        "qos": access.qos,
        "reservation": access.reservation,
        "constraint": access.constraint,
        "time": str(minutes or ""),
        "nodelist": nodes,
        "signal": signal_text(Signal(before_s=math.ceil(orders[0].grace_s))),
    }
    yield from ((option, value) for option, value in told.items() if value and option not in asked)


def _ours(orders: Sequence[TaskOrder], plane: str) -> Iterator[tuple[str, str]]:
    """Yield what gridloom must say itself: of an option that stands there twice the last counts."""
    first = orders[0]
    yield "comment", comment(plane, first.task)
    yield "chdir", first.workdir
    if index := first.env.get(ARRAY_INDEX_VARIABLE):
        yield "array", index  # of one, so that the script finds its number where it looks for it


def _exports(first: TaskOrder, batch: Batch, access: SlurmAccess) -> Iterator[str]:
    """Yield what sbatch would have set otherwise had the user called it."""
    if access.rest is not None:
        yield _LOGIN
    yield f"export SLURM_SUBMIT_DIR={shlex.quote(batch.submitted_in)}"
    if first.ranks[0].rank.restart_count:
        yield f"export SLURM_RESTART_COUNT={first.ranks[0].rank.restart_count}"
    if "error" in dict(batch.options):
        yield _ERRORS
