"""What is free at every time to come: a step function with a number for each unit and each host.

Times are the beginnings of its rows; the last row holds for ever. The first row is the present
moment alone: what is late to end is still there in it, and gone in the second.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gridloom.core.capacity import Capacity, Holding
from gridloom.core.demand import Demand
from gridloom.core.topology import Ints, Tree
from gridloom.model.life import Placement

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Run(msgspec.Struct, frozen=True):
    """How long an attempt would run; added up as ``progress.end_s`` does, to the last bit.

    Attributes:
        restart_s: Before it trains.
        left_s: Of training, with caution; infinity when unknown.
    """

    restart_s: float
    left_s: float

    def end_s(self, start_s: float) -> float:
        """Return when it ends if it starts then."""
        return start_s + self.restart_s + self.left_s


class Part(msgspec.Struct, frozen=True):
    """What one placement has of the grid.

    Attributes:
        columns: Of the profile, ascending.
        amounts: Of each.
        units: How many of the columns, the first ones, are units.
    """

    columns: Ints
    amounts: Ints
    units: int


class Claim(msgspec.Struct, frozen=True):
    """A part of the grid from one time to another; infinity for ever."""

    start_s: float
    end_s: float
    part: Part


class Layout:
    """The columns: each unit's devices, each node's host resources, sums over sets of units.

    Attributes:
        tree: The grid.
        names: Of the host resources.
        masks: The sets of units; a grid of one unit needs none.
        plain: How many columns are no sums.
    """

    def __init__(self, tree: Tree, names: tuple[str, ...], masks: Sequence[Bools]) -> None:
        self.tree, self.names = tree, names
        units = len(tree.unit_devices)
        self.plain = units + len(names) * len(tree.nodes)
        self.masks = np.array(masks, np.int64).reshape(len(masks), units)
        hosts = [[node.resources.get(name, 0) for node in tree.nodes] for name in names]
        self.empty = np.array([*tree.unit_devices, *(n for of in hosts for n in of)], np.int64)

    def part(self, held: Holding) -> Part:
        """Return what a placement has."""
        columns, amounts = [held.units], [held.devices]
        first = len(self.tree.unit_devices)
        each = dict(held.resources)
        for number, name in enumerate(self.names):
            if name in each:
                columns.append(first + number * len(self.tree.nodes) + held.nodes)
                amounts.append(held.ranks * each[name])
        return Part(np.concatenate(columns), np.concatenate(amounts), len(held.units))

    def column(self, number: int) -> int:
        """Return the column of a set's sum."""
        return self.plain + number if len(self.masks) else 0

    def open(self, units: Bools) -> Bools:
        """Return, for each column that is no sum, whether it counts."""
        rest = np.ones(self.plain - len(units), np.bool_)
        return np.concatenate([units, rest])


class Window(Capacity):
    """The host resources that are free for a whole time; devices are handed over apart."""

    def __init__(self, layout: Layout, least: Ints) -> None:
        super().__init__(layout.tree)
        nodes, first = len(layout.tree.nodes), len(layout.tree.unit_devices)
        for number, name in enumerate(layout.names):
            start = first + number * nodes
            self._host[name] = least[start : start + nodes]


class Profile:
    """Free devices and host resources from now on, less what is claimed.

    Attributes:
        now: The present.
        soon: The first moment after it.
        layout: The columns.
    """

    def __init__(
        self,
        layout: Layout,
        now: float,
        fixed: Sequence[Claim],
        promised: Sequence[Claim],
        opened: Bools,
        marks_s: Sequence[float] = (),
    ) -> None:
        """Build it from what is there and what is promised.

        Args:
            layout: The columns.
            now: The present.
            fixed: What runs or is kept.
            promised: What is promised besides; together it may be too much.
            opened: For each unit whether it takes new work.
            marks_s: Further times at which something may become possible.
        """
        self.layout, self.now, self.soon = layout, now, math.nextafter(now, math.inf)
        self._marks = frozenset(marks_s)
        times = {now, self.soon, *(at_s for at_s in marks_s if self.soon < at_s < math.inf)}
        for claim in (*fixed, *promised):
            times.add(max(claim.start_s, now))
            times.add(max(claim.end_s, self.soon))
        times.discard(math.inf)
        self._times: Floats = np.array(sorted(times))
        self._rows = len(self._times)
        free = np.maximum(self._sum(fixed) + layout.empty, 0)
        free[:, ~layout.open(opened)] = 0
        if promised:
            free += self._sum(promised)
        self._free: Ints = free
        if len(layout.masks):
            units = len(opened)
            self._free = np.concatenate([free, free[:, :units] @ layout.masks.T], axis=1)

    def __len__(self) -> int:
        return self._rows

    @property
    def times(self) -> Floats:
        """When each row begins."""
        return self._times[: self._rows]

    @property
    def free(self) -> Ints:
        """What is free in each row, by column."""
        return self._free[: self._rows]

    def overdrawn(self) -> bool:
        """Return whether more is promised than there is."""
        return bool(self.free.min() < 0) if self.free.size else False

    def fits(self, claim: Claim) -> bool:
        """Return whether a claim finds all it wants."""
        first, end = self._span(claim.start_s, claim.end_s)
        wanted = claim.part
        if len(wanted.columns) == 1:
            of_unit = self._free[first:end, wanted.columns[0]]
            return bool(of_unit.min() >= wanted.amounts[0])
        return bool((self._free[first:end, wanted.columns] >= wanted.amounts).all())

    def least(self, start_s: float, end_s: float) -> Ints:
        """Return, for each column, what is free all the time from one time to another."""
        first, end = self._span(start_s, end_s)
        found: Ints = self._free[first:end, : self.layout.plain].min(axis=0)
        return found

    def take(self, claim: Claim) -> None:
        """Let a claim have what it wants."""
        self._add(claim, -1)

    def give_back(self, claim: Claim) -> None:
        """Undo that."""
        self._add(claim, 1)

    def starts(
        self, column: int, need: int, run: Run, *, first_s: float, last_s: float
    ) -> Iterator[float]:
        """Yield the times, in order, at which a column has enough for a whole run.

        Only the first such time is told of those between which nothing is released.
        """
        row = self._row(first_s)
        times = self.times
        blocked = np.flatnonzero(self.free[row:, column] < need) + row
        begins = np.concatenate([[row], blocked + 1])
        ends = np.concatenate([blocked, [self._rows]])
        some = (begins < ends) & (times[np.minimum(begins, self._rows - 1)] <= last_s)
        begins, ends = begins[some], ends[some]
        starts = np.maximum(times[begins], first_s)
        stops = np.append(times, math.inf)[ends]
        long = (starts + run.restart_s) + run.left_s <= stops
        for gap in np.flatnonzero(long).tolist():
            stop_s = float(stops[gap])
            for at in range(int(begins[gap]), int(ends[gap])):
                start_s = max(float(times[at]), first_s)
                if start_s > last_s:
                    return
                if run.end_s(start_s) > stop_s:
                    break
                if at == begins[gap] or self._released(at) or float(times[at]) in self._marks:
                    yield start_s

    def grew(self, before: "Profile") -> bool:
        """Return whether anything is free at any time that was not so in an earlier profile."""
        at = np.union1d(self.times, before.times)
        at = at[at >= self.now]
        mine = self.free[self.times.searchsorted(at, side="right") - 1, : self.layout.plain]
        theirs = before.free[before.times.searchsorted(at, side="right") - 1]
        return bool((mine > theirs[:, : before.layout.plain]).any())

    def _sum(self, claims: Sequence[Claim]) -> Ints:
        """Return what claims change in each row, added up from the first row on."""
        changes = np.zeros((self._rows, self.layout.plain), np.int64)
        if not claims:
            return changes
        starts = self.times.searchsorted(np.array([max(c.start_s, self.now) for c in claims]))
        ends = self.times.searchsorted(np.array([max(c.end_s, self.soon) for c in claims]))
        sizes = [len(claim.part.columns) for claim in claims]
        columns = np.concatenate([claim.part.columns for claim in claims])
        amounts = np.concatenate([claim.part.amounts for claim in claims])
        np.subtract.at(changes, (np.repeat(starts, sizes), columns), amounts)
        rows = np.repeat(ends, sizes)
        over = rows < self._rows
        np.add.at(changes, (rows[over], columns[over]), amounts[over])
        return changes.cumsum(axis=0)

    def _add(self, claim: Claim, sign: int) -> None:
        first = self._cut(max(claim.start_s, self.now))
        end = self._cut(max(claim.end_s, self.soon))
        part = claim.part
        if len(part.columns) == 1:
            self._free[first:end, part.columns[0]] += sign * part.amounts[0]
        else:
            self._free[first:end, part.columns] += sign * part.amounts
        if len(masks := self.layout.masks):
            of_sums = masks[:, part.columns[: part.units]] @ part.amounts[: part.units]
            self._free[first:end, self.layout.plain :] += sign * of_sums

    def _cut(self, at_s: float) -> int:
        """Return the row that begins then; it is made if there is none."""
        if at_s == math.inf:
            return self._rows
        row = int(self.times.searchsorted(at_s))
        if row < self._rows and self._times[row] == at_s:
            return row
        if self._rows == len(self._times):
            self._times = np.concatenate([self._times, np.zeros_like(self._times)])
            self._free = np.concatenate([self._free, np.zeros_like(self._free)])
        self._times[row + 1 : self._rows + 1] = self._times[row : self._rows]
        self._free[row + 1 : self._rows + 1] = self._free[row : self._rows]
        self._times[row], self._free[row] = at_s, self._free[row - 1]
        self._rows += 1
        return row

    def _row(self, at_s: float) -> int:
        return int(self.times.searchsorted(at_s, side="right")) - 1

    def _span(self, start_s: float, end_s: float) -> tuple[int, int]:
        first = self._row(max(start_s, self.now))
        return first, max(int(self.times.searchsorted(end_s)), first + 1)

    def _released(self, row: int) -> bool:
        plain = self.layout.plain
        return bool((self._free[row, :plain] > self._free[row - 1, :plain]).any())


class Promised(msgspec.Struct, frozen=True):
    """What a job was promised.

    Attributes:
        places: As the state has them.
        demand: The shape.
        part: What of the grid that is.
        run: How long the job would run there.
    """

    places: Placement
    demand: Demand
    part: Part
    run: Run


class Kept:
    """What is derived for promises and kept from one cycle to the next.

    Attributes:
        parts: What each job holds, by its id, and of which holding that is.
        promised: What each job was promised, by its id.
        names: The host resources that the parts tell of.
        settled: The profile in which no job could start any earlier; nothing before the first.
        rules: What else that was so under.
    """

    def __init__(self) -> None:
        self.parts: dict[str, tuple[object, Part]] = {}
        self.promised: dict[str, Promised] = {}
        self.names: tuple[str, ...] = ()
        self.settled: Profile | None = None
        self.rules: object = None
