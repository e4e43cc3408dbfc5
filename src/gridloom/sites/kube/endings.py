"""How work on a cluster ended: kinds, and what exit codes say (pure)."""

from enum import StrEnum

import msgspec

from gridloom.model.reason import Why
from gridloom.wire import launch


class EndKind(StrEnum):
    """What ended it."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    LAUNCH_FAILED = "launch_failed"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod, or all of them, ended.

    Attributes:
        kind: What ended it.
        why: The cause as gridloom's own policy knows it.
        sentence: What happened, with the cluster's own words.
        exit_code: Of the process that ended, as the cluster has it; nothing when none did.
        signal: That killed it; 0 for none.
        ended_s: When, in seconds since the epoch; 0 when unknown.
    """

    kind: EndKind
    why: Why
    sentence: str
    exit_code: int | None = None
    signal: int = 0
    ended_s: float = 0.0


CAUSES: dict[EndKind, Why] = {
    EndKind.DONE: Why.COMPLETED,
    EndKind.FAILED: Why.EXITED,
    EndKind.CANCELLED: Why.CANCELLED_AT_SITE,
    EndKind.TIME_LIMIT: Why.TIME_LIMIT,
    EndKind.NODE_FAILED: Why.NODE_LOST,
    EndKind.PREEMPTED: Why.PREEMPTED,
    EndKind.OUT_OF_MEMORY: Why.OUT_OF_MEMORY,
    EndKind.LAUNCH_FAILED: Why.REFUSED,
}
"""For each kind the cause that it is, where no exit code says more."""

EXITS: dict[int, tuple[Why, str]] = {
    launch.EXIT_DONE: (Why.COMPLETED, "it is done"),
    launch.EXIT_IO: (Why.IO, "a file could not be read or written"),
    launch.EXIT_STOPPED: (Why.STOP_REQUESTED, "it was asked to stop and saved what it had"),
    launch.EXIT_PEER_LOST: (Why.PEER_LOST, "another rank went away"),
    launch.EXIT_CONFIG: (Why.CONFIG, "what the job says cannot be run"),
    launch.EXIT_POISONED: (Why.POISONED, "the loss is no longer a number"),
}
"""What the exit codes of the launch contract say."""

_SIGNAL_BASE = 128
_SIGNAL_MAX = 64
_STANDING = (
    EndKind.LAUNCH_FAILED,
    EndKind.OUT_OF_MEMORY,
    EndKind.NODE_FAILED,
    EndKind.PREEMPTED,
    EndKind.TIME_LIMIT,
    EndKind.FAILED,
    EndKind.CANCELLED,
    EndKind.DONE,
)


def signal_of(exit_code: int, told: int = 0) -> int:
    """Return the signal that an exit code stands for, as runtimes report it; 0 for none."""
    number = told or exit_code - _SIGNAL_BASE
    return number if 1 <= number <= _SIGNAL_MAX else 0


def first_cause(endings: list[Ending]) -> Ending | None:
    """Return the ending that explains the others; nothing when there is none.

    When one pod of a gang is lost, its peers fail for lack of it: a victim says least of those
    that did not end well, what befell a pod from outside says more than an exit, and of two that
    say as much the earlier one counts.
    """
    return min(endings, key=_rank, default=None)


def _rank(ending: Ending) -> tuple[bool, bool, int, float, str]:
    done, victim = ending.kind is EndKind.DONE, ending.why is Why.PEER_LOST
    ended_s = ending.ended_s or float("inf")
    return (done, victim, _STANDING.index(ending.kind), ended_s, ending.sentence)
