"""Every placement that there is, tried rank by rank, and the check of one that was found."""

from collections.abc import Sequence

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement
from gridloom.model.spec import GroupNeed, JobSpec, Option

Free = dict[str, list[int]]
"""Devices by number that are free, by ``site/node``."""


def domains(site: Site, node: Node, device: int) -> dict[str, tuple[object, ...]]:
    """Return the domain of a device at each level that its site has, by the level's name."""
    named: dict[str, tuple[object, ...]] = {"site": (site.name,)}
    path = (*node.path, *[""] * len(site.levels))[: len(site.levels)]
    for position, level in enumerate(site.levels):
        named[level] = (site.name, *path[: position + 1])
    named["node"] = (site.name, *path, "node", node.name)
    island = device // node.island if 0 < node.island < node.count else 0
    named["island"] = (*named["node"], island)
    return named


def needs_of(option: Option) -> list[GroupNeed]:
    """Return all that must sit together, also what no option has to say."""
    plan = option.plan
    return [
        GroupNeed(ranks=plan.tensor, level="node"),
        GroupNeed(ranks=plan.replica_ranks, level="site"),
        *(need for need in option.groups if need.required),
    ]


def may_use(spec: JobSpec, option: Option, site: Site, node: Node) -> bool:
    return (
        node.accelerator == option.accelerator
        and (node.memory_bytes == 0 or node.memory_bytes >= option.memory_bytes)
        and (not spec.sites or site.name in spec.sites)
        and (not spec.nodes or f"{site.name}/{node.name}" in spec.nodes)
        and (not site.queues or spec.queue in site.queues)
        and (not spec.data_required or site.name in spec.data_sites)
        and spec.labels.items() <= node.labels.items()
    )


def host_room(spec: JobSpec, option: Option, node: Node, used: dict[str, int]) -> int:
    """Return how many ranks the node can host, whatever devices it has."""
    room = spec.ranks_per_node_max or option.plan.world_size
    for name, each in option.rank_resources:
        room = min(room, (node.resources.get(name, 0) - used.get(name, 0)) // each)
    return max(room, 0)


class Search:
    """Tries every unit for every rank, in any order of units."""

    def __init__(
        self,
        spec: JobSpec,
        option: Option,
        inventory: Inventory,
        free: Free,
        used: dict[str, dict[str, int]],
        extra: Sequence[GroupNeed] = (),
    ) -> None:
        """Prepare.

        Args:
            spec: The job's wishes.
            option: The shape.
            inventory: The grid.
            free: Its free devices.
            used: Of the host resources of each node, by name.
            extra: What else must be together.
        """
        self.spec, self.ranks = spec, option.plan.world_size
        self.needs = [*needs_of(option), *extra]
        self.units: list[dict[str, tuple[object, ...]]] = []
        self.rooms: list[int] = []
        self.hosts: dict[tuple[object, ...], int] = {}
        for site in inventory.sites:
            for node in site.nodes:
                if not may_use(spec, option, site, node):
                    continue
                domain = f"{site.name}/{node.name}"
                counts: dict[tuple[object, ...], int] = {}
                for device in free[domain]:
                    at = domains(site, node, device)
                    counts[at["island"]] = counts.get(at["island"], 0) + 1
                    if counts[at["island"]] == 1:
                        self.units.append(at)
                        self.hosts[at["node"]] = host_room(spec, option, node, used.get(domain, {}))
                self.rooms += [count // option.rank_devices for count in counts.values()]
        self.seen: set[tuple[object, ...]] = set()

    def exists(self, *, least: int, most: int, at: str = "") -> bool:
        """Return whether a placement exists at ``least`` to ``most`` sites, one of them ``at``."""
        self.seen.clear()
        self.least, self.most, self.at = least, most, at
        return self._from(0, tuple(self.rooms), (None,) * len(self.needs))

    def _from(self, rank: int, left: tuple[int, ...], blocks: tuple[object, ...]) -> bool:
        """Return whether the ranks from ``rank`` on can be placed.

        Args:
            rank: The next.
            left: Room of every unit.
            blocks: For each need the domain in which its present group is.
        """
        used = self._sites(left)
        if len(used) > self.most:
            return False
        if rank == self.ranks:
            return len(used) >= self.least and (not self.at or self.at in used)
        key = (rank, left, blocks)
        if key in self.seen:
            return False
        self.seen.add(key)
        for unit, at in enumerate(self.units):
            if not left[unit] or not self._host_left(left, at["node"]):
                continue
            entered = self._enter(rank, at, blocks)
            if entered is None:
                continue
            fewer = (*left[:unit], left[unit] - 1, *left[unit + 1 :])
            if self._from(rank + 1, fewer, entered):
                return True
        return False

    def _enter(
        self, rank: int, at: dict[str, tuple[object, ...]], blocks: tuple[object, ...]
    ) -> tuple[object, ...] | None:
        entered = []
        for need, block in zip(self.needs, blocks, strict=True):
            domain = at.get(need.level)
            if domain is None or (rank % need.ranks and domain != block):
                return None
            entered.append(domain if (rank + 1) % need.ranks else None)
        return tuple(entered)

    def _sites(self, left: tuple[int, ...]) -> set[object]:
        return {
            at["site"][0]
            for at, now, room in zip(self.units, left, self.rooms, strict=True)
            if now < room
        }

    def _host_left(self, left: tuple[int, ...], node: tuple[object, ...]) -> bool:
        used = sum(
            room - now
            for at, now, room in zip(self.units, left, self.rooms, strict=True)
            if at["node"] == node
        )
        return used < self.hosts[node]


def check_legal(
    placement: Placement,
    spec: JobSpec,
    inventory: Inventory,
    free: Free,
    used: dict[str, dict[str, int]],
) -> None:
    """See that a placement obeys every need, from its tasks alone, rank by rank."""
    option, plan = placement.option, placement.option.plan
    ranks: list[dict[str, tuple[object, ...]]] = []
    price = 0.0
    for task in placement.tasks:
        site = inventory.site(task.site)
        node = next(node for node in site.nodes if node.name == task.node)
        assert may_use(spec, option, site, node)
        assert task.address == node.address
        assert task.devices
        assert list(task.devices) == sorted(set(task.devices))
        assert set(task.devices) <= set(free[task.domain])
        assert len(task.devices) % option.rank_devices == 0
        on_node = len(task.devices) // option.rank_devices
        assert on_node <= host_room(spec, option, node, used.get(task.domain, {}))
        price += len(task.devices) * site.price_per_accelerator_hour
        for first in range(0, len(task.devices), option.rank_devices):
            of_rank = task.devices[first : first + option.rank_devices]
            where = [domains(site, node, device) for device in of_rank]
            assert all(at == where[0] for at in where), "a rank is in one island"
            ranks.append(where[0])
    assert len(ranks) == plan.world_size
    assert placement.price_per_hour == price
    for need in needs_of(option):
        for first in range(0, len(ranks), need.ranks):
            group = {at[need.level] for at in ranks[first : first + need.ranks]}
            assert len(group) == 1, need
    sites = [task.site for task in placement.tasks]
    assert spec.min_sites <= len(set(sites)) <= max(spec.max_sites, 1)
    assert sites == sorted(sites, key=sites.index), "nodes of one site are neighbours"
    assert len({task.domain for task in placement.tasks}) == len(placement.tasks)
