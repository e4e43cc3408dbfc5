"""Who waits: jobs that ask alike stand in one bucket, of which the first speaks for all."""

import bisect
import math
from collections.abc import Iterator

import numpy as np

from gridloom.core import order, progress
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.rank import best_step_s
from gridloom.core.topology import Tree
from gridloom.model.life import Job
from gridloom.model.spec import JobSpec


class Shape:
    """Jobs that ask alike: where one cannot go, no other can.

    Attributes:
        spec: Of one of them.
        demands: Its options on the present grid, the best first.
        possible: Those that fit on the empty grid.
        eligible: For each unit whether any of these may use it.
        least: Devices of the smallest of them.
        needs: What each of them takes of a quota: a kind of device, and how many.
    """

    def __init__(self, spec: JobSpec, tree: Tree) -> None:
        self.spec = spec
        self.demands = tuple(Demand(spec, option, tree) for option in spec.options)
        self.possible = tuple(
            demand for demand in self.demands if Finder(demand, None, tree.unit_devices).fits()
        )
        self.eligible = np.zeros(len(tree.unit_devices), np.bool_)
        for demand in self.possible:
            self.eligible |= demand.eligible
        self.least = min((demand.option.devices for demand in self.possible), default=0)
        self.needs = tuple((demand.option.accelerator, demand.devices) for demand in self.possible)


class Bucket:
    """The waiting jobs of one shape in one queue, in order.

    Attributes:
        queue: Where they wait.
        shape: What they ask.
        failed: The state of the capacity in which the first found no place; nothing before.
        helpless: When nobody could be evicted for the first: ``Index.moment`` then, and who it
            was; nothing before.
        barred: The same of each shape by its number, with what others left to it.
    """

    def __init__(self, queue: str, shape: Shape) -> None:
        self.queue, self.shape = queue, shape
        self.failed: int | None = None
        self.helpless: tuple[tuple[int, ...], str] | None = None
        self.barred: dict[int, object] = {}
        self._keys: list[order.Key] = []
        self._members: dict[str, tuple[Job, order.Key, float]] = {}
        self._least_s: list[float] = []

    def __len__(self) -> int:
        return len(self._keys)

    def push(self, key: order.Key, job: Job) -> None:
        """Let a job wait here."""
        least_s = self._runs_at_least_s(job)
        self._members[job.job_id] = job, key, least_s
        bisect.insort(self._keys, key)
        bisect.insort(self._least_s, least_s)

    def drop(self, job: Job) -> None:
        """Let a job wait here no more."""
        _, key, least_s = self._members.pop(job.job_id)
        del self._keys[bisect.bisect_left(self._keys, key)]
        del self._least_s[bisect.bisect_left(self._least_s, least_s)]

    def head(self) -> tuple[order.Key, Job] | None:
        """Return the first job and its key."""
        if not self._keys:
            return None
        key = self._keys[0]
        return key, self._members[key[-1]][0]

    def shorter(self, after: order.Key, limit_s: float) -> tuple[order.Key, Job] | None:
        """Return the first job behind ``after`` that may run for no longer than that."""
        if not self._least_s or self._least_s[0] > limit_s:
            return None
        for position in range(bisect.bisect_right(self._keys, after), len(self._keys)):
            key = self._keys[position]
            job, _, least_s = self._members[key[-1]]
            if least_s <= limit_s:
                return key, job
        return None

    def jobs(self) -> Iterator[tuple[order.Key, Job]]:
        """Yield all jobs in order."""
        for key in self._keys:
            yield key, self._members[key[-1]][0]

    def _runs_at_least_s(self, job: Job) -> float:
        """Return how long the job is predicted to run on the fastest of its shapes."""
        return min(
            (
                progress.run_s(job, demand.option, best_step_s(demand.option))
                for demand in self.shape.possible
            ),
            default=math.inf,
        )
