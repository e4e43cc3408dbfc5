"""From a domain that has room to the units that are used: large parts first, then the best fit."""

from collections.abc import Iterable, Sequence

import numpy as np

from gridloom.core.demand import Blocks
from gridloom.core.topology import Ints, Tree

Picks = list[tuple[int, int]]
"""Children, by position, and the blocks that go to each."""


class Spread:
    """Hands out the blocks of one domain to the units below it."""

    def __init__(self, tree: Tree, blocks: Blocks, full: Blocks | None, *, bounded: bool) -> None:
        """Prepare.

        Args:
            tree: Of the grid.
            blocks: What there is room for.
            full: What there is room for on the empty grid, to spare domains that are wholly free;
                nothing to fill them like others.
            bounded: Whether nodes take fewer ranks than their units have room for.
        """
        self._tree, self._blocks, self._full = tree, blocks, full
        # Whoever fills a domain of this level or further in fills all of its units
        self._plain = tree.unit_level + 1
        if not bounded or tree.unit_level == tree.node_level:
            self._plain = blocks.sizes.index(blocks.sizes[-1])

    def over(self, level: int, domain: int, count: int) -> tuple[Ints, Ints]:
        """Return units, ascending, and the devices of each, for ``count`` blocks in a domain."""
        if level == self._tree.unit_level:
            return self._unit(domain, count)
        units: list[Ints] = []
        devices: list[Ints] = []
        for part_units, part_devices in self._parts(level, domain, count, sparing=True):
            units.append(part_units)
            devices.append(part_devices)
        if len(units) == 1:
            return units[0], devices[0]
        return np.concatenate(units), np.concatenate(devices)

    def _parts(
        self, level: int, domain: int, count: int, *, sparing: bool
    ) -> Iterable[tuple[Ints, Ints]]:
        tree, blocks = self._tree, self._blocks
        size = blocks.sizes[level]
        if level == tree.unit_level:
            yield self._unit(domain, count)
            return
        if level >= self._plain and count == int(blocks.counts[level][domain]):
            first, end = tree.span(level, domain)
            rooms = blocks.counts[tree.unit_level][first:end]
            used = np.flatnonzero(rooms)
            yield used + first, rooms[used] * size
            return
        first, end = (int(edge) for edge in tree.starts[level][domain : domain + 2])
        count *= size // blocks.sizes[level + 1]
        inner = blocks.counts[level + 1][first:end].tolist()
        for child, share in self._pick(level + 1, first, inner, count, sparing=sparing):
            yield from self._parts(level + 1, first + child, share, sparing=False)

    def _unit(self, unit: int, count: int) -> tuple[Ints, Ints]:
        return self._tree.one(unit), self._tree.one(count * self._blocks.sizes[-1])

    def _pick(
        self, level: int, first: int, rooms: list[int], count: int, *, sparing: bool
    ) -> Picks:
        if sparing and self._full is not None:
            whole = self._full.counts[level][first : first + len(rooms)].tolist()
            broken = [room if room < full else 0 for room, full in zip(rooms, whole, strict=True)]
            if sum(broken) >= count:
                return pick(broken, count)
        return pick(rooms, count)


def pick(rooms: Sequence[int], count: int) -> Picks:
    """Share out ``count`` over the fewest places: the largest while none holds the rest, then best.

    Returns:
        Places by position, ascending, and the share of each; their rooms suffice.
    """
    order = sorted((i for i in range(len(rooms)) if rooms[i]), key=lambda i: -rooms[i])
    shares: Picks = []
    for position, i in enumerate(order):
        if rooms[i] >= count:
            fitting = [j for j in order[position:] if rooms[j] >= count]
            least = min(rooms[j] for j in fitting)
            best = next(j for j in fitting if rooms[j] == least)
            shares.append((best, count))
            break
        shares.append((i, rooms[i]))
        count -= rooms[i]
    return sorted(shares)
