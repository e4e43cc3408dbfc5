"""Jobs that have ended, what was known of them at any moment, and the features drawn from that.

Nothing here looks ahead: what is told about a moment is drawn from the jobs that had ended by then,
so that a row of training holds what could have been known when its job was submitted. No identity
enters a row: a user, a name or a queue counts by how long its own jobs have taken.
"""

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from gridloom.base.errors import InputError, Problem

DURATION_S_MIN = 1.0
"""A shorter job counts as this long, for its logarithm's sake."""

WINDOW = 100
"""Jobs, the latest of their kind, that a running median is taken over."""

INTERVAL_SPREADS = 1.2815515655446004
"""Quantile 0.9 of the standard normal: half of an 80 % interval in standard deviations."""

LAST = 5
"""Of the latest jobs of whose job it is, each duration is a feature of its own."""

_DAY_S = 86_400

_NUMBER = re.compile(r"[0-9]+|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,}")

_SEPARATORS = re.compile(r"[-_.,:/\s]+")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when it is submitted.

    Attributes:
        submit_s: When, in seconds since the epoch.
        user: Whose it is; empty when the log does not say: then the queue stands for the user.
        name: Given by the user.
        devices: Accelerators in all.
        queue: Where it waits.
        requested_s: Time after which it is stopped, as the user asked; 0 for no such limit.
    """

    submit_s: float
    user: str = ""
    name: str = ""
    devices: int = 1
    queue: str = ""
    requested_s: float = 0.0


class Finished(Ask, frozen=True, kw_only=True):
    """A job that has ended.

    Attributes:
        end_s: When, in seconds since the epoch.
        duration_s: How long it ran, without its wait.
    """

    end_s: float
    duration_s: float


class Habit(NamedTuple):
    """How long the latest jobs of one kind took.

    Attributes:
        median: Of the natural logarithm of seconds.
        spread: Standard deviation of it, from its quantiles 0.1 and 0.9.
        jobs: How many, at most `WINDOW`.
    """

    median: float
    spread: float
    jobs: int


NO_HABIT = Habit(math.nan, math.nan, 0)


class History:
    """Jobs that have ended, in whatever order they are told; best in the order of their ends."""

    def __init__(self, jobs: Iterable[Finished] = ()) -> None:
        self._kinds: dict[tuple[str | int, ...], _Series] = {}
        self._ends_s: list[float] = []
        self._logs: list[float] = []
        self._rows: list[bytes] = []
        for job in sorted(jobs, key=_by_end):
            self.append(job)

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, job: Finished) -> None:
        """Take in a job that has ended; its row of features is what was known at its submission.

        Raises:
            InputError: A time of it cannot be.
        """
        _check(job)
        log = math.log(max(job.duration_s, DURATION_S_MIN))
        row = array("d", self.row(job, job.submit_s)).tobytes()
        place = bisect_right(self._ends_s, job.end_s)
        self._ends_s.insert(place, job.end_s)
        self._logs.insert(place, log)
        self._rows.insert(place, row)
        for kind in _kinds(job):
            self._kinds.setdefault(kind, _Series()).insert(job.end_s, log)

    def known(self, at_s: float) -> int:
        """Return how many jobs had ended by then."""
        return bisect_right(self._ends_s, at_s)

    def ended(self, at_s: float, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the latest jobs that had ended by then, in the order of their ends.

        Args:
            at_s: No job that ended later is among them.
            most: So many at most.

        Returns:
            Their rows of features and the logarithms of their durations.
        """
        known = self.known(at_s)
        took = slice(max(0, known - most), known)
        rows = np.frombuffer(b"".join(self._rows[took])).reshape(-1, len(COLUMNS))
        return rows, np.array(self._logs[took])

    def habits(self, ask: Ask, at_s: float) -> list[Habit]:
        """Return how long jobs like it took that had ended by then: `KINDS`, most like it first."""
        return [self._series(kind).habit(at_s) for kind in _kinds(ask)]

    def row(self, ask: Ask, at_s: float) -> tuple[float, ...]:
        """Return the features of a job by what was known at ``at_s``, in the order of `COLUMNS`.

        Logarithms are natural, of seconds; NaN stands for what is unknown.
        """
        habits = self.habits(ask, at_s)
        whose = self._series((_WHOSE, _whose(ask)))
        days = ask.submit_s / _DAY_S
        return (
            math.log2(max(ask.devices, 1)),
            math.log(ask.requested_s) if ask.requested_s > 0 else math.nan,
            days % 1.0 * 24.0,
            float(math.floor(days + 3.0) % 7),  # the epoch began on a Thursday; Monday is 0
            whose.idle(at_s),
            *whose.last(at_s, LAST),
            *self._series((_STEM, _whose(ask), stem(ask.name))).last(at_s, 1),
            *(habit.median for habit in habits),
            *(habit.spread for habit in habits),
            *(float(habit.jobs) for habit in habits),
        )

    def _series(self, kind: tuple[str | int, ...]) -> "_Series":
        return self._kinds.get(kind, _EMPTY)


def stem(name: str) -> str:
    """Return what the names of a user's repeated jobs have in common.

    Parts that are numbers, dates or hashes are dropped, and so is a number at the end of a later
    part: ``llama70b-lr3-run12-2024.05.01`` is a ``llama70b-lr-run``.
    """
    parts = [part for part in _SEPARATORS.split(name.lower()) if part]
    kept = [part for part in parts if not _NUMBER.fullmatch(part)]
    return "-".join(kept[:1] + [part.rstrip("0123456789") for part in kept[1:]])


class _Series:
    """Durations of one kind of jobs in the order of their ends."""

    __slots__ = ("ends_s", "logs")

    def __init__(self) -> None:
        self.ends_s: list[float] = []
        self.logs: list[float] = []

    def insert(self, end_s: float, log: float) -> None:
        place = bisect_right(self.ends_s, end_s)
        self.ends_s.insert(place, end_s)
        self.logs.insert(place, log)

    def habit(self, at_s: float) -> Habit:
        known = bisect_right(self.ends_s, at_s)
        if not known:
            return NO_HABIT
        logs = sorted(self.logs[max(0, known - WINDOW) : known])
        reach = _quantile(logs, 0.9) - _quantile(logs, 0.1)
        return Habit(_quantile(logs, 0.5), reach / (2.0 * INTERVAL_SPREADS), len(logs))

    def last(self, at_s: float, count: int) -> list[float]:
        """Return the latest durations, the latest first, with NaN for what there is not."""
        known = bisect_right(self.ends_s, at_s)
        found = self.logs[max(0, known - count) : known][::-1]
        return found + [math.nan] * (count - len(found))

    def idle(self, at_s: float) -> float:
        """Return the logarithm of the seconds since the latest of them ended."""
        known = bisect_right(self.ends_s, at_s)
        return math.log1p(at_s - self.ends_s[known - 1]) if known else math.nan


_EMPTY = _Series()

_WHOSE, _STEM = "whose", "stem"

KINDS = (
    "whose, name, devices",
    "whose, stem, devices",
    "whose, name",
    _STEM,
    "whose, devices",
    _WHOSE,
    "queue, devices",
    "queue",
    "name",
    "devices",
    "all",
)
"""Kinds of jobs that are like a job, in what they share with it."""

COLUMNS = (
    "log2 devices",
    "log requested",
    "hour",
    "weekday",
    "log idle",
    *(f"last {place}" for place in range(1, LAST + 1)),
    "last of stem",
    *(f"median: {kind}" for kind in KINDS),
    *(f"spread: {kind}" for kind in KINDS),
    *(f"jobs: {kind}" for kind in KINDS),
)
"""Names of the features; hours and weekdays are those of UTC."""


def _kinds(ask: Ask) -> list[tuple[str | int, ...]]:
    """Return the keys of `KINDS`, in that order."""
    whose, short = _whose(ask), stem(ask.name)
    return [
        ("name of whose, devices", whose, ask.name, ask.devices),
        ("stem, devices", whose, short, ask.devices),
        ("name of whose", whose, ask.name),
        (_STEM, whose, short),
        ("whose, devices", whose, ask.devices),
        (_WHOSE, whose),
        ("queue, devices", ask.queue, ask.devices),
        ("queue", ask.queue),
        ("name", ask.name),
        ("devices", ask.devices),
        ("all",),
    ]


def _whose(ask: Ask) -> str:
    return f"user {ask.user}" if ask.user else f"queue {ask.queue}"


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _by_end(job: Finished) -> tuple[float | int | str, ...]:
    return (
        job.end_s,
        job.submit_s,
        job.duration_s,
        job.user,
        job.name,
        job.queue,
        job.devices,
        job.requested_s,
    )


def _check(job: Finished) -> None:
    for field in ("submit_s", "end_s", "duration_s", "requested_s"):
        value = getattr(job, field)
        if not math.isfinite(value):
            raise InputError([Problem(f"{value} is no time", "give seconds", field=field)])
    if job.duration_s < 0:
        message = f"{job.duration_s} is negative"
        raise InputError([Problem(message, "give seconds of running", field="duration_s")])
    if job.end_s < job.submit_s:
        message = f"{job.end_s} lies before submit_s {job.submit_s}"
        raise InputError([Problem(message, "a job ends after it is submitted", field="end_s")])
