"""What one pool can do in a pipeline over several: its ways to cut stages, their time and memory.

A pool is asked what a pipeline of equal stages would take on it: the time of one more micro-batch
is a stage's, what remains is paid once a step. Time and memory of a stage are read off a straight
line between one layer and the most that it could hold, which is above both wherever they are
convex.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import Cases, take
from gridloom.planner.pools import Pool, PoolSpace, space_of
from gridloom.planner.search import spread
from gridloom.planner.search_grid import Grid, blocks, grid

Numbers = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Key: TypeAlias = tuple[int, ...]
"""Copies, context ranks and micro-batch, which all pools of a chain have in common."""

_WHOLE = ("tensor", "pipeline", "context", "expert")
"""Degrees that are 1 where a pool is one stage, in whole copies."""


@dataclass(frozen=True)
class Line:
    """Values on a straight line: at one layer, and for each layer more."""

    at_one: Numbers
    slope: Numbers

    def at(self, layers: Numbers, rows: Index) -> Numbers:
        """Return the values of ``rows`` at ``layers``; shapes broadcast."""
        return self.at_one[rows] + self.slope[rows] * (layers - 1)


@dataclass(frozen=True)
class StageOptions:
    """What one pool of a chain can do; one entry a way to cut its stages.

    Attributes:
        grid: All ways.
        cases: The same in numbers.
        degree: Row of the degrees of each.
        knob: Row of the other knobs.
        stages: Of the pool.
        key: Copies, context ranks and micro-batch: three columns.
        slot_s: Of one micro-batch through one stage, forward and backward.
        once_s: Of a step, paid once.
    """

    grid: Grid
    cases: Cases
    degree: Index
    knob: Index
    stages: Numbers
    key: npt.NDArray[np.int64]
    slot_s: Line
    once_s: Line

    @cached_property
    def rows(self) -> dict[Key, Index]:
        """The options by what a chain has in common."""
        keys, group = np.unique(self.key, axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(group.ravel(), minlength=len(keys)))[:-1]
        return dict(zip(map(tuple, keys.tolist()), np.split(order, ends), strict=True))

    def is_whole(self, row: int) -> bool:
        """Return whether the pool is one stage, in whole copies."""
        degrees, degree = self.grid.degrees, int(self.degree[row])
        return not degrees["zero"][degree] and all(degrees[one][degree] == 1 for one in _WHOLE)

    def plan(self, row: int) -> ParallelPlan:
        """Return how the pool's part is cut, its layers aside."""
        return self.grid.plan(int(self.degree[row]), int(self.knob[row]))


@dataclass(frozen=True, eq=False)
class StagePool:
    """Some devices of one pool in a chain; what they can do is computed once for all chains.

    Attributes:
        asked: The plans that are sought.
        pool: The pool.
        devices: How many of it.
        is_last: It computes the logits.
        is_whole: It is one stage, in whole copies.
    """

    asked: PoolSpace
    pool: Pool
    devices: int
    is_last: bool
    is_whole: bool

    @property
    def memory_limit_bytes(self) -> float:
        """Of a device."""
        return self.pool.accelerator.memory_bytes * self.asked.goal.memory_share

    @cached_property
    def options(self) -> StageOptions | None:
        """What it can do, or nothing where no number of stages can be cut."""
        narrowed = replace(
            space_of(self.asked.space, self.pool, self.devices),
            schedule=("1f1b",),
            pipeline=(),
            uneven_stages=True,
        )
        if self.is_whole:
            one = (1,)
            narrowed = replace(
                narrowed, tensor=one, pipeline=one, context=one, expert=one, zero=(0,)
            )
        table = grid(narrowed)
        if not table.degree_rows:
            return None
        block = next(blocks(table, table.degree_rows * table.knob_rows))
        degree, knob = block.pairs
        cases = block.cases
        stages = table.degrees["pipeline"][degree].astype(np.float64)
        names = ("data", "context", "micro_batch")
        most = self._layers_most(stages)
        ends = [self.times(cases, layers, stages) for layers in (np.ones(len(stages)), most)]
        slot_s, once_s = (
            Line(ends[0][kind], (ends[1][kind] - ends[0][kind]) / (most - 1)) for kind in (0, 1)
        )
        return StageOptions(
            grid=table,
            cases=cases,
            degree=degree,
            knob=knob,
            stages=stages,
            key=np.stack([table.degrees[name][degree] for name in names], axis=1),
            slot_s=slot_s,
            once_s=once_s,
        )

    def limits(self, options: StageOptions, behind: int) -> Numbers:
        """Return the layers a stage that memory holds, by option; arguments as below."""
        if behind not in self._limits:
            self._limits[behind] = self.layers_max(options.cases, options.stages, behind)
        return self._limits[behind]

    @cached_property
    def _limits(self) -> dict[int, Numbers]:
        return {}

    def times(self, cases: Cases, layers: Numbers, stages: Numbers) -> tuple[Numbers, Numbers]:
        """Return the seconds of one micro-batch through a stage, and those paid once a step.

        Args:
            cases: How it is cut.
            layers: Of a stage.
            stages: Of the pool.
        """
        asked = _alike(cases, layers, stages)
        if not self.is_last:
            asked = replace(asked, model=replace(asked.model, vocabulary=1.0))
        count, costs, plan = len(layers), self.asked.costs, asked.plan
        micro_batches = spread(asked.global_batch / (plan.data * plan.micro_batch), count)
        once = spread(costs.step_s(asked), count)
        twice = spread(costs.step_s(replace(asked, global_batch=2 * asked.global_batch)), count)
        slot_s = (twice - once) / micro_batches
        rest = once - (micro_batches + stages - 1) * slot_s
        return slot_s, np.maximum(rest, 0.0)

    def memory_bytes(
        self, cases: Cases, layers: Numbers, stages: Numbers, behind: Numbers | float
    ) -> Numbers:
        """Return the bytes of the pool's first stage, which has most micro-batches in flight.

        Args:
            cases: How it is cut.
            layers: Of a stage.
            stages: Of the pool.
            behind: Micro-batches that it holds beyond as many: of stages and links behind it.
        """
        asked = _alike(cases, layers, stages + behind)
        return spread(self.asked.costs.memory_bytes(asked), len(layers))

    def layers_max(self, cases: Cases, stages: Numbers, behind: Numbers | float) -> Numbers:
        """Return the layers a stage that memory holds; arguments as above."""
        most = self._layers_most(stages)
        low = self.memory_bytes(cases, np.ones(len(stages)), stages, behind)
        high = self.memory_bytes(cases, most, stages, behind)
        slope = np.maximum((high - low) / (most - 1), 1e-9)
        room = np.floor((self.memory_limit_bytes - low) / slope) + 1
        return np.asarray(np.clip(room, 0.0, most))

    def depth_max(self, cases: Cases, cut: tuple[int, int], least: int, micro_batches: int) -> int:
        """Return how many micro-batches memory holds; 0 where not even the least.

        Args:
            cases: How it is cut, one case.
            cut: Layers of a stage, stages of the pool.
            least: Micro-batches that its first stage holds in 1F1B, by the stages from it on.
            micro_batches: Of a step: more are never held.
        """
        more = np.arange(float(max(1, micro_batches - least + 1)))
        layers, stages = (np.full(len(more), float(count)) for count in cut)
        cases = take(cases, np.zeros(len(more), dtype=np.intp))
        held = self.memory_bytes(cases, layers, stages, least - stages + more)
        fitting = int((held <= self.memory_limit_bytes).sum())
        return least + fitting - 1 if fitting else 0

    def _layers_most(self, stages: Numbers) -> Numbers:
        most: Numbers = np.maximum(np.ceil(self.asked.space.model.layers / stages), 2.0)
        return most


def _alike(cases: Cases, layers: Numbers, stages: Numbers) -> Cases:
    """Return the cases as pipelines of ``stages`` stages of ``layers`` layers each."""
    whole = layers * stages
    model = cases.model
    share = model.expert_layers / model.layers
    return replace(
        cases,
        model=replace(model, layers=whole, expert_layers=whole * share),
        plan=replace(
            cases.plan,
            pipeline=stages,
            stage_layers_max=0.0,
            stage_layers_first=0.0,
            stage_layers_last=0.0,
        ),
    )
