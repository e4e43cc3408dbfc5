"""The best plans of a space, exactly: every valid plan is looked at, none is sampled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import Column, take
from gridloom.planner.costs import CostModel
from gridloom.planner.pareto import Entries, Front, Numbers, Top, rounded
from gridloom.planner.search_grid import BLOCK_ROWS, Block, Grid, blocks, grid
from gridloom.planner.search_space import Rule, SearchSpace

Objective = Literal["time", "price", "energy", "deadline"]
"""What is to be smallest; ``deadline`` is the price of what is done in time."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is wanted of a plan; 0 means no limit.

    Attributes:
        objective: What is to be smallest.
        tokens: Of the whole training; 0 for those of one training step with the whole batch.
        deadline_s: Longest time of the training; needed for the objective ``deadline``.
        price_max: Of the training, in the grid's currency.
        devices_max: Of the plan.
        memory_share: Share of a device's memory that a plan may fill.
        top: How many plans are returned.
    """

    objective: Objective = "time"
    tokens: float = 0.0
    deadline_s: float = 0.0
    price_max: float = 0.0
    devices_max: int = 0
    memory_share: float = 1.0
    top: int = 5


@dataclass(frozen=True, kw_only=True)
class RankedPlan:
    """A plan with its predictions.

    Attributes:
        plan: How the model is cut.
        devices: How many it uses.
        global_batch: Sequences a training step.
        memory_bytes: Peak of the fullest rank.
        step_s: Seconds of a training step.
        time_s: Of the whole training.
        price: Of the whole training, in the grid's currency.
        energy_j: Of the whole training.
    """

    plan: ParallelPlan
    devices: int
    global_batch: int
    memory_bytes: float
    step_s: float
    time_s: float
    price: float
    energy_j: float


@dataclass(frozen=True)
class Lean:
    """The plan that needs least memory, whether or not it fits."""

    plan: ParallelPlan
    devices: int
    global_batch: int
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many plans were looked at.

    Attributes:
        asked: The full product of all values.
        pruned: Of these, no plans or repeated ones, by the first rule that they break.
        evaluated: All others: their memory was computed.
        fitting: Of these, fit into memory: their time was computed.
        accepted: Of these, within the limits of the goal.
    """

    asked: int
    pruned: Mapping[Rule, int]
    evaluated: int
    fitting: int
    accepted: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """The answer of a search.

    Attributes:
        plans: The best ones, best first.
        front: Those that no other plan beats in time and price, fastest first.
        counts: How many plans were looked at.
        leanest: What needs least memory; nothing when no combination is a plan.
        emptied_by: Where no combination of shared degrees is a plan, the rule that the last broke.
    """

    plans: tuple[RankedPlan, ...]
    front: tuple[RankedPlan, ...]
    counts: Counts
    leanest: Lean | None = None
    emptied_by: Rule | None = None


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        done: Pairs of rows looked at.
        total: Pairs in all.
        evaluated: Plans whose memory was computed.
        best_s: Training time of the best plan so far; infinite without one.
    """

    done: int
    total: int
    evaluated: int
    best_s: float


def search(
    space: SearchSpace,
    costs: CostModel,
    goal: Goal | None = None,
    progress: Callable[[Progress], None] | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Found:
    """Return the best plans of ``space``.

    The order of plans is total: the objective (to about eleven digits), then fewer devices, then
    less memory, then the columns of the plan from left to right. The answer therefore depends
    neither on the order in which values are given nor on the size of a block.

    Args:
        space: What to go through.
        costs: What a plan needs and takes.
        goal: What is wanted; the shortest time when nothing.
        progress: Called after each block, a few times a second.
        block_rows: Pairs of rows looked at at once.

    Raises:
        ValueError: The objective is ``deadline``, and no deadline is given.
    """
    goal = goal or Goal()
    if goal.objective == "deadline" and not goal.deadline_s:
        raise ValueError("the objective `deadline` needs a deadline")
    if goal.devices_max:
        allowed = tuple(count for count in space.devices if count <= goal.devices_max)
        space = replace(space, devices=allowed)
    found = grid(space)
    hunt = _Hunt(found, costs, goal)
    total, done = found.degree_rows * found.knob_rows, 0
    for block in blocks(found, block_rows):
        hunt.look(block)
        done += block.paired
        if progress:
            best = hunt.top.entries.time_s
            best_s = float(best[0]) if len(best) else float("inf")
            progress(Progress(done, total, hunt.evaluated, best_s))
    return hunt.found()


class _Hunt:
    """One search under way: what is best so far, and counts."""

    def __init__(self, grid_: Grid, costs: CostModel, goal: Goal) -> None:
        self.grid, self.costs, self.goal = grid_, costs, goal
        space = grid_.space
        self.limit_bytes = space.accelerator.memory_bytes * goal.memory_share
        self.tokens = goal.tokens or float(space.global_batch) * space.sequence
        self.top, self.front = Top(goal.top), Front()
        self.evaluated = self.fitting = self.accepted = 0
        self.leanest: tuple[float, int] = (float("inf"), -1)

    def look(self, block: Block) -> None:
        """Take what is best of ``block``."""
        rows = len(block.degree)
        self.evaluated += rows
        if not rows:
            return
        memory = spread(self.costs.memory_bytes(block.cases), rows)
        number = block.degree * self.grid.knob_rows + block.knob
        self._note_leanest(memory, number)
        fits = np.flatnonzero(memory <= self.limit_bytes)
        self.fitting += len(fits)
        if not len(fits):
            return
        cases = block.cases if len(fits) == rows else take(block.cases, fits)
        step_s = spread(self.costs.step_s(cases), len(fits))
        batch = spread(cases.global_batch, len(fits))
        devices = self.grid.degrees["devices"][block.degree[fits]].astype(np.float64)
        entries = self._entries(step_s, batch, devices, memory[fits], number[fits])
        entries = entries.take(self._accepted(entries))
        self.accepted += len(entries)
        self.top.offer(entries)
        self.front.offer(entries)

    def found(self) -> Found:
        """Return the answer."""
        counts = Counts(
            asked=self.grid.asked,
            pruned=dict(sorted(self.grid.pruned.items())),
            evaluated=self.evaluated,
            fitting=self.fitting,
            accepted=self.accepted,
        )
        memory, number = self.leanest
        leanest = None
        if number >= 0:
            degree, knob = divmod(number, self.grid.knob_rows)
            row = self.grid.degrees
            devices, batch = int(row["devices"][degree]), int(row["global_batch"][degree])
            leanest = Lean(self.grid.plan(degree, knob), devices, batch, memory)
        return Found(
            plans=self._ranked(self.top.entries),
            front=self._ranked(self.front.entries),
            counts=counts,
            leanest=leanest,
            emptied_by=self.grid.emptied_by,
        )

    def _note_leanest(self, memory: Numbers, number: npt.NDArray[np.int64]) -> None:
        place = int(np.argmin(np.rint(memory)))
        self.leanest = min(self.leanest, (float(np.rint(memory[place])), int(number[place])))

    def _entries(
        self,
        step_s: Numbers,
        batch: Numbers,
        devices: Numbers,
        memory: Numbers,
        number: npt.NDArray[np.int64],
    ) -> Entries:
        space = self.grid.space
        time_s = step_s * (self.tokens / space.sequence) / batch
        device_s = time_s * devices
        price = device_s * (space.price_per_device_hour / 3600)
        objective = {"time": time_s, "energy": device_s}.get(self.goal.objective, price)
        return Entries(rounded(objective), devices, np.rint(memory), number, time_s, price, step_s)

    def _accepted(self, entries: Entries) -> npt.NDArray[np.bool_]:
        accepted = np.isfinite(entries.time_s)
        if self.goal.deadline_s:
            accepted &= entries.time_s <= self.goal.deadline_s
        if self.goal.price_max:
            accepted &= entries.price <= self.goal.price_max
        return accepted

    def _ranked(self, entries: Entries) -> tuple[RankedPlan, ...]:
        return tuple(self._ranked_one(entries, place) for place in range(len(entries)))

    def _ranked_one(self, entries: Entries, place: int) -> RankedPlan:
        degree, knob = divmod(int(entries.number[place]), self.grid.knob_rows)
        devices, time_s = int(entries.devices[place]), float(entries.time_s[place])
        return RankedPlan(
            plan=self.grid.plan(degree, knob),
            devices=devices,
            global_batch=int(self.grid.degrees["global_batch"][degree]),
            memory_bytes=float(entries.memory_bytes[place]),
            step_s=float(entries.step_s[place]),
            time_s=time_s,
            price=float(entries.price[place]),
            energy_j=time_s * devices * self.grid.space.watts,
        )


def spread(column: Column, rows: int) -> Numbers:
    """Return ``column`` with one entry a row, a number repeated."""
    return np.broadcast_to(np.asarray(column, dtype=np.float64), (rows,))
