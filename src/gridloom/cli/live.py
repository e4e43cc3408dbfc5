"""The live state as `eta` and `whatif` look at it, and what is known of how long its jobs run."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from gridloom.base.system import SystemClock
from gridloom.base.units import format_duration
from gridloom.cli.lookup import look
from gridloom.cli.plan_progress import reported
from gridloom.cli.views import progress_of, total_steps
from gridloom.cli.wiring import Plane
from gridloom.core.progress import done_s, speed
from gridloom.core.state import State
from gridloom.model.event import AnyEvent, InventoryChanged
from gridloom.model.inventory import Inventory
from gridloom.model.life import HOLDING, OVER, Job
from gridloom.sim.forecast import Outlook, unknown_durations

LEVELS = (10, 50, 90)
"""Percentiles that are told: the outer two bound an interval of 80 %."""

REMEDY = "write `forecast: {duration: 8h}` or `budget: {max_time: 12h}` into the job file"


@dataclass(frozen=True, kw_only=True)
class Live:
    """What there is now.

    Attributes:
        state: What the scheduler knows.
        pending: Facts that were handed in and not taken up yet.
        jobs: All jobs, those of pending facts too.
        inventory: The grid, or what it will be once these are taken up.
        now_s: The time.
        durations: How long jobs run on their first option, where more is known than was stated.
    """

    state: State
    pending: tuple[AnyEvent, ...]
    jobs: Mapping[str, Job]
    inventory: Inventory | None
    now_s: float
    durations: dict[str, float]

    def under_way(self) -> list[Job]:
        """Return the jobs that are not over, in the order in which they were handed in."""
        jobs = [job for job in self.jobs.values() if job.state not in OVER]
        return sorted(jobs, key=lambda job: (job.submitted_s, job.job_id))

    def unknown(self, *more: Job) -> list[str]:
        """Return the jobs, some more besides, of which nobody knows how long they run."""
        jobs = {job.job_id: job for job in (*self.under_way(), *more)}
        return [job.job_id for job in unknown_durations(State(jobs=jobs), self.durations)]


def live(plane: Plane | None) -> Live:
    """Return what there is in a state directory; nothing at all without one."""
    if plane is None:
        now_s = SystemClock().now_s()
        return Live(state=State(), pending=(), jobs={}, inventory=None, now_s=now_s, durations={})
    letters = tuple(letter.event for letter in plane.journal.letters())
    seen = look(plane)
    grids = [fact.inventory for fact in letters if isinstance(fact, InventoryChanged)]
    return Live(
        state=seen.state,
        pending=letters,
        jobs=seen.jobs,
        inventory=grids[-1] if grids else seen.state.inventory,
        now_s=seen.now_s,
        durations=_durations(plane, seen.jobs, seen.now_s),
    )


def predicted_s(job: Job) -> float:
    """Return the predicted duration of a job by its training steps; 0 when there is none."""
    if job.spec.forecast.duration_s or not job.spec.options:
        return 0.0
    return total_steps(job) * job.spec.options[0].step_s


def _durations(plane: Plane, jobs: Mapping[str, Job], now_s: float) -> dict[str, float]:
    """Return how long jobs of gridloom's own training program run.

    One that trains tells by its speed; one that does not yet, by the predicted time of a step.
    """
    found = {}
    for job in jobs.values():
        if job.state in OVER or not total_steps(job):
            continue
        duration_s = _measured_s(plane, job, now_s) or predicted_s(job)
        if duration_s > 0:
            found[job.job_id] = duration_s
    return found


def _measured_s(plane: Plane, job: Job, now_s: float) -> float:
    if job.state not in HOLDING:
        return 0.0
    left_s = progress_of(plane, job).eta_s
    if left_s is None:
        return 0.0
    attempt = job.attempts[-1]
    pace = speed(job, attempt.placement.option, attempt.placement.step_s)
    return done_s(job, attempt, now_s) + left_s * pace


@contextmanager
def futures_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what is told how many futures were looked at; a bar shows when that takes a while."""
    with reported(what) as report:
        yield lambda done, total: report(float(done), float(total))


def times_json(outlook: Outlook, which: str) -> dict[str, float | None]:
    """Return the percentiles of a start or an end, in seconds since the epoch; null for never."""
    at_s = outlook.start_s if which == "start" else outlook.end_s
    return {f"p{level}_s": _finite(at_s(level)) for level in LEVELS}


def times_text(outlook: Outlook, which: str, now_s: float) -> str:
    """Return a start or an end as a sentence: how long from now, its interval, the time of day."""
    at_s = outlook.start_s if which == "start" else outlook.end_s
    low_s, half_s, high_s = (at_s(level) for level in LEVELS)
    if not math.isfinite(half_s):
        return "nobody knows"
    moment = datetime.fromtimestamp(half_s, UTC)
    said = f"{_from_now(half_s, now_s)}, at {moment:%Y-%m-%d %H:%M} UTC"
    if high_s - low_s < 1:
        return said
    high = _from_now(high_s, now_s) if math.isfinite(high_s) else "no known time"
    return f"{said}; 80 %: {_from_now(low_s, now_s)} to {high}"


def _from_now(at_s: float, now_s: float) -> str:
    passed_s = at_s - now_s
    if passed_s < -1:
        return f"{format_duration(-passed_s)} ago"
    return "now" if passed_s < 1 else f"in {format_duration(passed_s)}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
