"""Which files a task there writes that are wanted here, and what of its reports is its last (pure).

Names are relative to the directory of all run directories, here as there.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from gridloom.wire.agent import REPORTS_FILE, TaskOrder, task_directory
from gridloom.wire.reports import REPORTS, Ended

_METRICS_FILE = "metrics.jsonl"
_SITE_METRICS_FILE = "metrics-{site}.jsonl"
_RESULT_FILE = "result.json"


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one task.

    Attributes:
        reports: Where its supervisor appends what it has to say.
        growing: Other files that are appended to.
        replaced: Files that are replaced whole.
    """

    reports: str
    growing: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def watched(order: TaskOrder, runs_there: str, more: Iterable[str] = ()) -> Watched:
    """Return the files of a task that are wanted here.

    Args:
        order: As it is carried out there.
        runs_there: Directory of all run directories there.
        more: Names of further files that grow.
    """
    task, rank = order.task, order.ranks[0].rank
    is_first = rank.site_ranks[0][0] == task.site
    metrics = _METRICS_FILE if is_first else _SITE_METRICS_FILE.format(site=task.site)
    logs = (relative(one.log_file, runs_there) for one in order.ranks)
    return Watched(
        reports=str(task_directory(PurePosixPath(), task) / REPORTS_FILE),
        growing=(*logs, f"{task.job_id}/{metrics}", *more),
        replaced=(f"{task.job_id}/{_RESULT_FILE}",) if is_first else (),
    )


def relative(path: str, runs_there: str) -> str:
    """Return the name of a file below the directory of all run directories."""
    return str(PurePosixPath(path).relative_to(runs_there))


def without_end(lines: bytes) -> tuple[bytes, bytes]:
    """Return what a supervisor has reported before the end of its task, and that with what follows.

    Args:
        lines: Whole lines of its reports.
    """
    at = 0
    for line in lines.splitlines(keepends=True):
        if _is_end(line):
            return lines[:at], lines[at:]
        at += len(line)
    return lines, b""


def _is_end(line: bytes) -> bool:
    try:
        return isinstance(REPORTS.decode(line), Ended)
    except msgspec.MsgspecError:
        return False
