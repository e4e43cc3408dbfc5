"""From the exits of a task's ranks to the one outcome that is reported (pure)."""

import re
import signal
from collections.abc import Sequence
from itertools import islice

import msgspec

from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.wire import launch

_CODES = {
    launch.EXIT_DONE: Why.COMPLETED,
    launch.EXIT_IO: Why.IO,
    launch.EXIT_STOPPED: Why.STOP_REQUESTED,
    launch.EXIT_PEER_LOST: Why.PEER_LOST,
    launch.EXIT_CONFIG: Why.CONFIG,
    launch.EXIT_POISONED: Why.POISONED,
}

_PORT_TAKEN = "address already in use"
"""How every program on a POSIX system says it: ``strerror(EADDRINUSE)``."""

_TELLING = (
    Why.CONFIG,
    Why.IO,
    Why.KILLED,
    Why.REFUSED,
    Why.POISONED,
    Why.EXITED,
    Why.STOP_REQUESTED,
    Why.PEER_LOST,
    Why.COMPLETED,
)
"""Causes from the most to the least telling: a victim's exit says less than its murderer's."""

_WORDS_MAX = 1000
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")


class RankExit(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank ended by itself.

    Attributes:
        rank: The global rank.
        exit_code: Its exit status; negative for a signal.
        ended_s: When it was seen to have ended.
        failure: What it said before it gave up, if anything.
        last_words: The last line of its output.
        speaks: It wrote lines as the launch contract says, so that its exit codes mean ours.
    """

    rank: int
    exit_code: int
    ended_s: float
    failure: launch.Failure | None = None
    last_words: str = ""
    speaks: bool = False


def verdict(exits: Sequence[RankExit]) -> Outcome:
    """Return the outcome of a task whose ranks ended in these ways, none of them by our hand."""
    first = min(exits, key=lambda e: (_TELLING.index(_code(e)), e.ended_s, e.rank))
    code = _code(first)
    return Outcome(
        code=code,
        sentence=_sentence(first, code),
        remedy=plain(first.failure.remedy) if first.failure else "",
        rank=first.rank,
        exit_code=first.exit_code,
        ended_s=first.ended_s,
    )


def plain(text: str) -> str:
    """Return text without what would colour or move something on a terminal, shortened."""
    shown = " ".join(_ANSI.sub("", text).split())
    return "".join(islice((c for c in shown if c.isprintable()), _WORDS_MAX)).strip()


def _code(rank_exit: RankExit) -> Why:
    if rank_exit.exit_code < 0:
        return Why.KILLED
    if rank_exit.exit_code == 0 or rank_exit.speaks:
        return _CODES.get(rank_exit.exit_code, Why.EXITED)
    if _PORT_TAKEN in rank_exit.last_words.lower():
        return Why.REFUSED  # somebody took the port between our look and rank 0's
    return Why.EXITED


def _sentence(rank_exit: RankExit, code: Why) -> str:
    who = f"rank {rank_exit.rank}"
    if code is Why.COMPLETED:
        return "all ranks ended well"
    if rank_exit.failure is not None:
        return f"{who}: {plain(rank_exit.failure.message)}"
    if code is Why.KILLED:
        return f"{who} was killed by {_signal_name(-rank_exit.exit_code)}"
    if code is Why.STOP_REQUESTED:
        return f"{who} saved its state and stopped"
    if code is Why.PEER_LOST:
        return f"{who} lost contact with another rank"
    said = f": {rank_exit.last_words}" if rank_exit.last_words else ""
    return f"{who} exited with status {rank_exit.exit_code}{said}"


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} (out of memory is a usual cause)" if name == "SIGKILL" else name
