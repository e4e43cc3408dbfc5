"""The best plans of a space, exactly: every valid plan is looked at, none is sampled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import Column
from gridloom.planner.costs import CostModel
from gridloom.planner.pareto import Entries, Front, Index, Numbers, Top, rounded
from gridloom.planner.search_grid import BLOCK_ROWS, Block, Grid, blocks, cases_at, grid
from gridloom.planner.search_space import Rule, SearchSpace

Objective = Literal["time", "price", "energy", "deadline"]
"""What is to be smallest; ``deadline`` is the price of what is done in time. Where devices have no
price, device-hours stand in for it."""


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
        block_rows: Plans whose cost is computed at once.

    Raises:
        ValueError: The objective is ``deadline``, and no deadline is given.
    """
    goal = goal or Goal()
    if goal.objective == "deadline" and not goal.deadline_s:
        raise ValueError("the objective `deadline` needs a deadline")
    if goal.devices_max:
        allowed = tuple(count for count in space.devices if count <= goal.devices_max)
        space = replace(space, devices=allowed)
    if not space.devices:
        counts = Counts(asked=0, pruned={}, evaluated=0, fitting=0, accepted=0)
        return Found(plans=(), front=(), counts=counts)
    found = grid(space)
    hunt = _Hunt(found, costs, goal, block_rows)
    total, done = found.degree_rows * found.knob_rows, 0
    for block in blocks(found, hunt.pairs_at_once):
        hunt.look(block)
        done += block.valid.size
        if progress:
            best = hunt.top.entries.time_s
            best_s = float(best[0]) if len(best) else float("inf")
            progress(Progress(done, total, hunt.evaluated, best_s))
    return hunt.found()


class _Hunt:
    """One search under way: what is best so far, and counts."""

    def __init__(self, grid_: Grid, costs: CostModel, goal: Goal, block_rows: int) -> None:
        self.grid, self.costs, self.goal, self.block_rows = grid_, costs, goal, block_rows
        space = grid_.space
        self.limit_bytes = space.accelerator.memory_bytes * goal.memory_share
        self.tokens = goal.tokens or float(space.global_batch) * space.sequence
        self.top, self.front = Top(goal.top), Front()
        self.evaluated = self.fitting = self.accepted = 0
        self.leanest: tuple[float, int] = (float("inf"), -1)
        # Consecutive knobs that memory does not tell apart share a number.
        names = [name for name in grid_.knobs if name not in costs.memory_ignores]
        table = np.stack([grid_.knobs[name] for name in names])
        changes = (table[:, 1:] != table[:, :-1]).any(axis=0)
        self.kind = np.concatenate([[0], np.cumsum(changes)])

    @property
    def pairs_at_once(self) -> int:
        """Pairs of a block for which memory is computed about ``block_rows`` times."""
        return self.block_rows * len(self.kind) // (int(self.kind[-1]) + 1)

    def look(self, block: Block) -> None:
        """Take what is best of ``block``."""
        valid = block.valid
        self.evaluated += int(np.count_nonzero(valid))
        kind = self.kind[block.left : block.left + valid.shape[1]]
        kind = kind - kind[0]
        starts = np.flatnonzero(np.diff(kind, prepend=-1))
        degree, group = np.nonzero(np.logical_or.reduceat(valid, starts, axis=1))
        if not len(degree):
            return
        cases = cases_at(self.grid, degree + block.top, starts[group] + block.left)
        memory = np.full((len(valid), len(starts)), np.inf)
        memory[degree, group] = spread(self.costs.memory_bytes(cases), len(degree))
        self._note_leanest(block, memory, kind)
        degree, knob = np.nonzero(valid & (memory <= self.limit_bytes)[:, kind])
        self.fitting += len(degree)
        for start in range(0, len(degree), self.block_rows):
            part = slice(start, start + self.block_rows)
            need = memory[degree[part], kind[knob[part]]]
            self._rank(degree[part] + block.top, knob[part] + block.left, need)

    def _rank(self, degree: Index, knob: Index, memory: Numbers) -> None:
        """Take what is best of plans that fit."""
        rows = len(degree)
        cases = cases_at(self.grid, degree, knob)
        step_s = spread(self.costs.step_s(cases), rows)
        batch = spread(cases.global_batch, rows)
        devices = self.grid.degrees["devices"][degree].astype(np.float64)
        time_s = step_s * (self.tokens / self.grid.space.sequence) / batch
        # Without a price, device-hours stand in for it.
        price = time_s * devices * ((self.grid.space.price_per_device_hour or 1.0) / 3600)
        objectives = {"time": time_s, "energy": time_s * devices}
        objective = rounded(objectives.get(self.goal.objective, price))
        number = degree * self.grid.knob_rows + knob
        entries = Entries(objective, devices, np.rint(memory), number, time_s, price, step_s)
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

    def _note_leanest(self, block: Block, memory: Numbers, kind: Index) -> None:
        """Keep the plan that needs least memory, the first in order of equals."""
        least = float(np.rint(memory.min()))
        if least > self.leanest[0]:
            return
        degree, knob = np.nonzero(block.valid & (np.rint(memory) == least)[:, kind])
        number = (degree[0] + block.top) * self.grid.knob_rows + knob[0] + block.left
        self.leanest = min(self.leanest, (least, int(number)))

    def _accepted(self, entries: Entries) -> npt.NDArray[np.bool_]:
        accepted = np.isfinite(entries.time_s)
        if self.goal.deadline_s:
            accepted &= entries.time_s <= self.goal.deadline_s
        if self.goal.price_max and self.grid.space.price_per_device_hour:
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
            price=float(entries.price[place]) if self.grid.space.price_per_device_hour else 0.0,
            energy_j=time_s * devices * self.grid.space.watts,
        )


def spread(column: Column, rows: int) -> Numbers:
    """Return ``column`` with one entry a row, a number repeated."""
    return np.broadcast_to(np.asarray(column, dtype=np.float64), (rows,))
