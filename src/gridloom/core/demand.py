"""What one option of a job needs, compiled for one grid: blocks of ranks, and where they may go.

Devices are counted in *blocks*, from inside out: as many tensor groups as each node has room for,
as many replica groups as the tensor groups below each leaf make, and so on. What is left over
below one domain cannot be joined with what is left over below another; so capacity is a shape,
never a sum.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from gridloom.core.capacity import Capacity
from gridloom.core.topology import Ints, Tree
from gridloom.model.spec import GroupNeed, JobSpec, Option


class Chain(msgspec.Struct, frozen=True, cache_hash=True):
    """One way to keep the groups of a gang together.

    Attributes:
        groups: Devices of a group, and the level a domain of which holds it; smallest first.
        steps: By how many levels in all its groups sit further out than they should.
    """

    groups: tuple[tuple[int, int], ...]
    steps: int = 0

    @property
    def block(self) -> tuple[int, int]:
        """The largest group: its devices and its level."""
        return self.groups[-1]


class Blocks(msgspec.Struct, frozen=True):
    """Room by level, counted in blocks.

    Attributes:
        counts: For each level, the blocks that each domain has room for.
        sizes: For each level, the devices of such a block.
    """

    counts: tuple[Ints, ...]
    sizes: tuple[int, ...]


class Demand:
    """One option of a job on one grid.

    Attributes:
        option: The shape.
        spec: The job's other wishes.
        devices: Of the gang.
        together: Whether all ranks must be at one site.
        bounded: Whether nodes are limited by more than their devices.
        eligible: For each unit whether the job may use it, whatever is free.
        chains: For each site that it may use, the ways to keep its groups together, closest first.
        gang: For the same sites, the level one domain of which must hold all ranks, and the level
            that should.
    """

    def __init__(self, spec: JobSpec, option: Option, tree: Tree) -> None:
        self.spec, self.option, self.tree = spec, option, tree
        self.devices, world = option.devices, option.plan.world_size
        self.together = any(need.required and need.ranks >= world for need in option.groups)
        self.bounded = bool(option.rank_resources) or spec.ranks_per_node_max > 0
        per_kind = np.array([may_use(spec, option, tree, i) for i in tree.samples], np.bool_)
        per_node = per_kind[tree.kinds]
        if spec.nodes:
            chosen = np.zeros(len(tree.nodes), np.bool_)
            chosen[[tree.number[name] for name in spec.nodes if name in tree.number]] = True
            per_node &= chosen
        needs = needs_of(option)
        usable = np.unique(tree.node_site[per_node]).tolist()
        if any(world % need.ranks for need in needs):
            usable = []
        floors = [_floor(option, need, tree) for need in needs]
        self.chains = {site: self._chains(needs, floors, site) for site in usable}
        self.gang = {site: _gang(option, tree, site) for site in usable}
        for site in usable:
            if not self.chains[site] or self.gang[site][0] < 0:
                del self.chains[site], self.gang[site]
                per_node &= tree.node_site != site
        self.eligible = tree.per_unit(per_node)
        self._everywhere = bool(self.eligible.all())
        self._sizes: dict[Chain, tuple[int, ...]] = {}
        self._full: dict[Chain, Blocks] = {}
        self._largest: dict[tuple[Chain, int], list[int]] = {}

    def blocks(self, chain: Chain, available: Ints, capacity: Capacity | None) -> Blocks:
        """Return the room for the job's groups, kept together as ``chain`` says.

        Args:
            chain: One of ``chains``; at sites that do not have it the counts mean nothing.
            available: For each unit, the devices that may be taken.
            capacity: Whose host resources are free; nothing for an empty grid's.
        """
        tree = self.tree
        room = available if self._everywhere else available * self.eligible
        bound = self._bound(capacity) if self.bounded else None
        if bound is not None:  # one unit alone may have more devices than its node can host
            room = np.minimum(room, bound[tree.unit_node])
        sizes = self._sizes.get(chain) or self._sizes.setdefault(chain, _block_sizes(chain, tree))
        size = 1
        counts: list[Ints] = []
        for level in range(tree.unit_level, -1, -1):
            if level < tree.unit_level and not tree.single[level]:
                room = np.add.reduceat(room, tree.starts[level][:-1])
            if level == tree.node_level and bound is not None:
                room = np.minimum(room, bound // size)
            if sizes[level] > size:
                room = room // (sizes[level] // size)
                size = sizes[level]
            counts.append(room)
        counts.reverse()
        return Blocks(tuple(counts), sizes)

    def full(self, chain: Chain) -> Blocks:
        """Return the room on an empty grid all of whose nodes are open."""
        if chain not in self._full:
            self._full[chain] = self.blocks(chain, self.tree.unit_devices, None)
        return self._full[chain]

    def largest(self, chain: Chain, site: int) -> list[int]:
        """Return, for each level, the most blocks that one domain of a site ever has room for."""
        known = self._largest.get((chain, site))
        if known is None:
            counts = self.full(chain).counts
            spans = [of_level[site] for of_level in self.tree.of_site]
            known = [
                int(of_level[first:end].max())
                for of_level, (first, end) in zip(counts, spans, strict=True)
            ]
            self._largest[chain, site] = known
        return known

    def _chains(
        self, needs: Sequence[GroupNeed], floors: Sequence[int], site: int
    ) -> tuple[Chain, ...]:
        """Return the ways to keep the groups together at a site, closest first; none: it cannot.

        A wish gives way one level at a time, that of the largest group first, down to its floor.
        """
        levels = []
        for need, floor in zip(needs, floors, strict=True):
            level = self.tree.level(site, need.level)
            if level is None and need.required:
                return ()
            levels.append(max(level or 0, floor))
        wished = [i for i in reversed(range(len(needs))) if not needs[i].required]
        chains = {_nested(needs, levels): 0}
        steps = 0
        for i in wished:
            while levels[i] > floors[i]:
                levels[i] -= 1
                steps += 1
                chains.setdefault(_nested(needs, levels), steps)
        each = self.option.rank_devices
        return tuple(
            Chain(tuple((ranks * each, level) for ranks, level in groups), steps)
            for groups, steps in chains.items()
        )

    def _bound(self, capacity: Capacity | None) -> Ints:
        """Return the devices with whose ranks each node can cope, whatever devices it has."""
        most = self.spec.ranks_per_node_max or self.devices
        bound: Ints = np.full(len(self.tree.nodes), most, np.int64)
        for name, each in self.option.rank_resources:
            host = capacity.host(name) if capacity else self.tree.host(name)
            bound = np.minimum(bound, host // each)
        bound *= self.option.rank_devices
        return np.maximum(bound, 0)  # a node that was made smaller has less than nothing free


def needs_of(option: Option) -> list[GroupNeed]:
    """Return what the groups of ranks need, smallest first, but for that of the whole gang.

    Beside what the option says: a tensor group sits on one node, a replica group at one site.
    """
    plan = option.plan
    needs = {1: GroupNeed(ranks=1, level="node")}
    needs[plan.tensor] = GroupNeed(ranks=plan.tensor, level="node")
    needs.setdefault(plan.replica_ranks, GroupNeed(ranks=plan.replica_ranks, level="site"))
    for need in option.groups:
        if need.ranks < plan.world_size or need.ranks in needs:
            needs[need.ranks] = need
    return [needs[ranks] for ranks in sorted(needs)]


def may_use(spec: JobSpec, option: Option, tree: Tree, number: int) -> bool:
    """Return whether the node's kind, memory and labels and its site's rules allow the job."""
    node, site = tree.nodes[number], tree.sites[tree.node_site[number]]
    return (
        node.accelerator == option.accelerator
        and not 0 < node.memory_bytes < option.memory_bytes
        and all(node.labels.get(name) == value for name, value in spec.labels.items())
        and (not spec.sites or site.name in spec.sites)
        and (not site.queues or spec.queue in site.queues)
        and (not spec.data_required or site.name in spec.data_sites)
    )


def _floor(option: Option, need: GroupNeed, tree: Tree) -> int:
    """Return the level beyond which a group never spreads, whatever the option says.

    A rank stays on one island if it can, and a tensor group on one node.
    """
    if need.ranks == 1 < option.rank_devices <= tree.island_most:
        return tree.unit_level
    return tree.node_level if need.ranks in (1, option.plan.tensor) else 0


def _nested(needs: Sequence[GroupNeed], levels: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return groups and levels where each group sits at least as close as the one that holds it."""
    groups: list[tuple[int, int]] = []
    inner = 0
    for need, level in zip(reversed(needs), reversed(levels), strict=True):
        inner = max(inner, level)
        groups.append((need.ranks, inner))
    return tuple(reversed(groups))


def _block_sizes(chain: Chain, tree: Tree) -> tuple[int, ...]:
    """Return, for each level, the devices of the largest group that one domain of it must hold."""
    return tuple(
        max([devices for devices, at in chain.groups if at >= level], default=1)
        for level in range(tree.unit_level + 1)
    )


def _gang(option: Option, tree: Tree, site: int) -> tuple[int, int]:
    """Return the level at which all ranks must be together, -1 for never, and that which should."""
    must = liked = 0
    for need in option.groups:
        if need.ranks >= option.plan.world_size:
            level = tree.level(site, need.level)
            if need.required:
                must = max(must, -1 if level is None else level)
                if level is None:
                    return -1, -1
            liked = max(liked, level or 0)
    return must, max(must, liked)
