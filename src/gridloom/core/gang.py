"""All-or-nothing placement of one shape: which domain, at which site or over which sites.

A site takes whole blocks of the gang's largest groups, and any number of them up to its room, so a
placement over several sites exists exactly when the largest of them have room for all blocks:
nothing is searched blindly.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gridloom.core.capacity import Capacity
from gridloom.core.demand import Blocks, Chain, Demand
from gridloom.core.rank import Ranker, step_s_at
from gridloom.core.spread import Spread
from gridloom.core.topology import Ints

CHOICES_MAX = 2000
"""Sets of sites that are compared by price: all fours of 16 sites, all pairs of 63."""

_FAR = np.iinfo(np.int64).max


class Spot(msgspec.Struct, frozen=True):
    """Where a gang could go.

    Attributes:
        demand: The shape.
        units: Numbers of the units, ascending.
        devices: Of each.
        cost: By ``Ranker``, in percent of step time.
        site: Number of its site, of its first one when there are several.
        gang: The level one domain of which holds it; -1 for several sites.
        block: The level that keeps its largest groups together.
    """

    demand: Demand
    units: Ints
    devices: Ints
    cost: float
    site: int
    gang: int
    block: int


def predicted_step_s(spot: Spot) -> float:
    """Return the predicted step time of a gang at a spot; 0 when unknown."""
    demand = spot.demand
    return step_s_at(demand.option, demand.tree, spot.site, spot.gang, spot.block)


class Finder:
    """Looks for places in one state of the capacity; without one, host resources are all free."""

    def __init__(self, demand: Demand, capacity: Capacity | None, available: Ints) -> None:
        self.demand, self.capacity, self.available = demand, capacity, available
        self._blocks: dict[Chain, Blocks] = {}
        self._rooms: dict[Chain, list[int]] = {}

    def fits(self) -> bool:
        """Return whether there is any place."""
        demand = self.demand
        if demand.spec.min_sites <= 1:
            for site, chains in demand.chains.items():
                for chain in chains:
                    if self._room(chain)[site] >= demand.devices and self._within(
                        site, chain, demand.gang[site][0]
                    ):
                        return True
        return next(self._choices(list(demand.chains)), None) is not None

    def best(self, ranker: Ranker) -> Spot | None:
        """Return the best place: the fewest sites that the job allows, then the least cost."""
        spot = self._at_one_site(ranker) if self.demand.spec.min_sites <= 1 else None
        return spot or self._over_sites(ranker)

    def blocks(self, chain: Chain) -> Blocks:
        """Return the room for blocks, kept together as ``chain`` says."""
        if chain not in self._blocks:
            self._blocks[chain] = self.demand.blocks(chain, self.available, self.capacity)
        return self._blocks[chain]

    def _room(self, chain: Chain) -> list[int]:
        """Return the devices that each site has room for."""
        if chain not in self._rooms:
            blocks = self.blocks(chain)
            size = blocks.sizes[0]
            self._rooms[chain] = [count * size for count in blocks.counts[0].tolist()]
        return self._rooms[chain]

    def rooms(self, relaxed: int) -> dict[int, int]:
        """Return the blocks that each site has room for, its wishes having given way so often."""
        rooms = {}
        for site, chains in self.demand.chains.items():
            chain = chains[min(relaxed, len(chains) - 1)]
            rooms[site] = self._room(chain)[site] // self.blocks(chain).sizes[0]
        return rooms

    def _within(self, site: int, chain: Chain, level: int) -> bool:
        """Return whether one domain of ``level`` has room for all."""
        blocks = self.blocks(chain)
        first, end = self.demand.tree.of_site[level][site]
        need = self.demand.devices // blocks.sizes[level]
        return bool(blocks.counts[level][first:end].max() >= need)

    def _at_one_site(self, ranker: Ranker) -> Spot | None:
        best: Spot | None = None
        base = ranker.of_kind(self.demand)
        for at_site, site in ranker.sites(self.demand):
            if best is not None and base + at_site >= best.cost:
                break
            for chain in self.demand.chains[site]:
                if self._room(chain)[site] < self.demand.devices:
                    continue
                for spot in self._candidates(ranker, site, chain, base + at_site):
                    if best is None or spot.cost < best.cost:
                        best = spot
        return best

    def _candidates(self, ranker: Ranker, site: int, chain: Chain, base: float) -> Iterator[Spot]:
        """Yield the tightest domain of each level, from inside out, while a wider one may pay."""
        demand, tree = self.demand, self.demand.tree
        blocks = self.blocks(chain)
        must, liked = demand.gang[site]
        spare = False
        largest = demand.largest(chain, site)
        for level in range(tree.unit_level, must - 1, -1):
            first, end = tree.of_site[level][site]
            need = demand.devices // blocks.sizes[level]
            if need > largest[level]:
                continue
            domain = _tightest(blocks.counts[level], first, end, need)
            if domain is None or need * blocks.sizes[level] < demand.devices:
                continue
            block = max(chain.block[1], level)
            wishes = chain.steps + max(0, liked - level)
            cost = base + ranker.of_time(demand, site, level, block)
            if not demand.option.speeds:
                cost += ranker.weights.wish * wishes
            full = demand.full(chain) if spare else None
            spread = Spread(tree, blocks, full, bounded=demand.bounded)
            units, devices = spread.over(level, domain, need)
            weight = ranker.weights.fragmentation
            broken = self._broken(chain, site, (units, devices)) if weight > 0 else 0
            yield Spot(demand, units, devices, cost + weight * broken, site, level, block)
            if not broken:
                return
            spare = True

    def _broken(self, chain: Chain, site: int, parts: tuple[Ints, Ints]) -> int:
        """Return how many wholly free domains, from the rack up, the gang would break open."""
        tree, (units, devices) = self.demand.tree, parts
        blocks, full = self.blocks(chain), self.demand.full(chain)
        room = self._room(chain)[site]
        whole = room == self.demand.largest(chain, site)[0] * blocks.sizes[0]
        broken = int(whole and room > self.demand.devices)
        for level in range(tree.node_level - len(tree.sites[site].levels), tree.node_level):
            domains = tree.above_all(level, units)
            if domains[0] == domains[-1]:  # they ascend, so it is one
                room = int(blocks.counts[level][domains[0]])
                intact = room == full.counts[level][domains[0]]
                broken += intact and room * blocks.sizes[level] > self.demand.devices
                continue
            first = np.flatnonzero(np.diff(domains, prepend=-1))
            rooms = blocks.counts[level][domains[first]]
            intact_of = rooms == full.counts[level][domains[first]]
            used = np.add.reduceat(devices, first)
            broken += int((intact_of & (rooms * blocks.sizes[level] > used)).sum())
        return broken

    def _over_sites(self, ranker: Ranker) -> Spot | None:
        costs = {site: cost for cost, site in ranker.sites(self.demand)}  # the best first
        best: tuple[float, int, list[tuple[int, int]], int] | None = None
        for order, (count, relaxed, shares) in enumerate(self._choices(list(costs))):
            if order >= CHOICES_MAX or (best and (count, relaxed) > (best[1], best[3])):
                break
            total = sum(share for _, share in shares)
            cost = round(sum(costs[site] * share for site, share in shares) / total, 9)
            if best is None or cost < best[0]:
                best = (cost, count, shares, relaxed)
        return self._joined(ranker, best) if best else None

    def _choices(self, order: Sequence[int]) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Yield, fewest sites first, then closest, ways to share out all blocks over sites."""
        demand, spec = self.demand, self.demand.spec
        if not demand.chains or demand.together or (spec.min_sites <= 1 and spec.max_sites <= 1):
            return
        block = next(iter(demand.chains.values()))[0].block[0]
        need = demand.devices // block
        share_out = evenly if spec.min_sites > 1 else fill_first
        stages = range(max(map(len, demand.chains.values())))
        all_rooms = [self.rooms(relaxed) for relaxed in stages]
        most = min(spec.max_sites, need, len(order))
        for count in range(max(spec.min_sites, 1), most + 1):
            for relaxed, rooms in enumerate(all_rooms):
                sites = [site for site in order if rooms[site]]
                for chosen in choices([rooms[site] for site in sites], count, need):
                    shares = share_out([rooms[sites[i]] for i in chosen], need)
                    yield (
                        count,
                        relaxed,
                        [(sites[i], share) for i, share in zip(chosen, shares, strict=True)],
                    )

    def _joined(self, ranker: Ranker, best: tuple[float, int, list[tuple[int, int]], int]) -> Spot:
        cost, count, shares, relaxed = best
        demand, tree = self.demand, self.demand.tree
        parts = []
        block = tree.unit_level
        for site, share in sorted(shares):
            chain = demand.chains[site][min(relaxed, len(demand.chains[site]) - 1)]
            block = min(block, chain.block[1])
            spread = Spread(tree, self.blocks(chain), None, bounded=demand.bounded)
            parts.append(spread.over(0, site, share))
        gang = -1 if count > 1 else 0
        site = shares[0][0]
        return Spot(
            demand,
            np.concatenate([units for units, _ in parts]),
            np.concatenate([devices for _, devices in parts]),
            cost + ranker.of_kind(demand) + ranker.of_time(demand, site, gang, block),
            site,
            gang,
            block,
        )


def _tightest(counts: Ints, first: int, end: int, need: int) -> int | None:
    """Return the domain that has room for ``need`` blocks and least beyond; nothing if none has."""
    if end - first == 1:
        return first if counts[first] >= need else None
    counts = counts[first:end]
    most = counts.max()
    if need > most:
        return None
    if most == need:
        return first + int(counts.argmax())
    return first + int(np.where(counts >= need, counts, _FAR).argmin())


def choices(
    rooms: Sequence[int], count: int, need: int, start: int = 0
) -> Iterator[tuple[int, ...]]:
    """Yield, in order, all ways to choose ``count`` places with ``need`` room in all.

    A place is entered only when the largest of those behind it can hold the rest, so every branch
    that is entered bears a choice, and the first comes quickly however many there are.
    """
    if count == 0:
        yield ()
        return
    for i in range(start, len(rooms) - count + 1):
        if rooms[i] + _largest(rooms[i + 1 :], count - 1) >= need:
            for rest in choices(rooms, count - 1, need - rooms[i], i + 1):
                yield (i, *rest)


def fill_first(rooms: Sequence[int], need: int) -> list[int]:
    """Share out ``need`` so that each place has as much as can be, but leaves one to the others."""
    shares = []
    for i, room in enumerate(rooms):
        shares.append(min(room, need - (len(rooms) - i - 1)))
        need -= shares[-1]
    return shares


def evenly(rooms: Sequence[int], need: int) -> list[int]:
    """Share out ``need`` so that the largest share is as small as can be; the first get the odd."""
    shares = list(rooms)
    left = sorted(range(len(rooms)), key=lambda i: rooms[i])
    while left and rooms[left[0]] <= need // len(left):
        need -= rooms[left.pop(0)]
    for position, i in enumerate(sorted(left)):
        shares[i] = need // len(left) + (position < need % len(left))
    return shares


def _largest(rooms: Sequence[int], count: int) -> int:
    return sum(sorted(rooms, reverse=True)[:count])
