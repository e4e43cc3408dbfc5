"""Promised starts: when what runs will have made room, and what may pass without delaying that."""

import bisect
import copy
import heapq
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from gridloom.core import budget, progress
from gridloom.core.capacity import Holding
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot
from gridloom.core.index import Index
from gridloom.core.profile import Bools
from gridloom.core.topology import Ints
from gridloom.model.life import Job


class Promise(msgspec.Struct):
    """The latest start of a blocked job, and the places that are then its own.

    Attributes:
        job_id: The job.
        start_s: By when it starts if all predictions hold.
        slack: For each unit the devices that others may still have at that time.
        released: Jobs that run now and are predicted to have ended by then.
    """

    job_id: str
    start_s: float
    slack: Ints
    released: frozenset[str]


class Releases:
    """The devices that jobs are predicted to give back, in order of time.

    Those for which places are kept count as running there from when the places are free.

    Attributes:
        ends: When, and which job.
        at: What it follows from; another cycle, or another start in this one, has another.
    """

    def __init__(self, index: Index, now: float) -> None:
        self.at = index.changes, index.charges
        jobs, ends = index.state.jobs, index.ends
        late = bisect.bisect_left(ends, (now, ""))
        overrun = sorted(
            (progress.overrun_end_s(jobs[job_id].attempts[-1], now), job_id)
            for _, job_id in ends[:late]
        )
        self._kept = _kept_runs(index, now)
        moved = bool(late or self._kept)
        self.ends = list(heapq.merge(overrun, ends[late:], sorted(self._kept))) if moved else ends
        self._holdings = index.holdings
        self._open = index.capacity.openings()
        self._owed = index.capacity.owed()

    def __len__(self) -> int:
        return len(self.ends)

    def beside(self, closed: Bools) -> "Releases":
        """Return the same for a job to which some units are closed."""
        other = copy.copy(self)
        other._open = self._open & ~closed
        return other

    def after(self, available: Ints, count: int) -> Ints:
        """Return what is available once the first ``count`` of them have happened."""
        held = [self._kept.get(end) or self._holdings[end[1]] for end in self.ends[:count]]
        units = np.concatenate([one.units for one in held])
        devices = np.concatenate([one.devices for one in held])
        freed = np.bincount(units, weights=devices, minlength=len(available))
        return np.maximum(available + (freed.astype(np.int64) - self._owed) * self._open, 0)


def _kept_runs(index: Index, now: float) -> dict[tuple[float, str], Holding]:
    """Return the runs of jobs for which places are kept: when each ends, and what it then has."""
    jobs = index.state.jobs
    runs: dict[tuple[float, str], Holding] = {}
    if not index.capacity.keepers():
        return runs
    leaving = (jobs[name].attempts[-1] for name in index.holdings)
    gone_s = max((one.grace_until_s for one in leaving if one.stop_sent), default=now)
    for job_id in index.capacity.keepers():
        job = jobs[job_id]
        if job.reservation is None:  # spare nodes are kept for good
            continue
        run_s = progress.run_s(job, job.reservation.option, job.reservation.step_s)
        if run_s < math.inf:
            end = max(gone_s, now) + run_s, job_id
            runs[end] = index.capacity.holding(job.reservation)
    return runs


def promise(
    index: Index, job: Job, demands: Sequence[Demand], available: Ints, releases: Releases
) -> Promise | None:
    """Return the earliest start that can be promised to a job; nothing if none is known.

    Args:
        index: The grid and what runs.
        job: A job that cannot start now.
        demands: Its options.
        available: For each unit what it could have now.
        releases: What is given back later.
    """
    best: Promise | None = None
    for demand in demands:
        dear = budget.dear_units(index, job, demand)
        own, to_own = np.where(dear, 0, available), releases.beside(dear)
        count = _enough(index, demand, own, to_own)
        if count is None:
            continue
        start_s = releases.ends[count - 1][0]
        if best is not None and start_s >= best.start_s:
            continue
        while count < len(releases) and releases.ends[count][0] == start_s:
            count += 1
        spot = Finder(demand, index.capacity, to_own.after(own, count)).best(index.ranker)
        assert spot is not None
        released = frozenset(job_id for _, job_id in releases.ends[:count])
        slack = _less(releases.after(available, count), spot)
        best = Promise(job.job_id, start_s, slack, released)
    return best


def _enough(index: Index, demand: Demand, available: Ints, releases: Releases) -> int | None:
    """Return after how many releases the shape fits; more of them never hurt."""
    low, high = 0, 1
    while high <= len(releases) and not _fits(index, demand, releases.after(available, high)):
        low, high = high, min(2 * high, len(releases)) if high < len(releases) else high + 1
    if high > len(releases):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(index, demand, releases.after(available, middle)):
            high = middle
        else:
            low = middle
    return high


def _fits(index: Index, demand: Demand, available: Ints) -> bool:
    return Finder(demand, index.capacity, available).fits()


def _less(available: Ints, spot: Spot) -> Ints:
    left = available.copy()
    left[spot.units] -= spot.devices
    return left
