"""The grid as arrays: its units in the order of the topology, and the domains over them.

A *unit* is the smallest domain that has devices: an island, or a whole node in a grid without
islands. Units stand in tree order, so every domain is a run of units, and the sum of anything over
all domains of a level is one pass over an array.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gridloom.model.inventory import Inventory, Node, Site

SITE, NODE, ISLAND = "site", "node", "island"
"""Names of the levels that every site has; ``island`` is ``node`` where a node has no islands."""

Ints = NDArray[np.int64]


class Tree:
    """What never changes while the inventory stays the same.

    Sites with fewer levels than others get levels of one domain each below ``site``, so that a
    level has one number in the whole grid: 0 is the site, ``node_level`` the node and
    ``unit_level`` the unit.

    Attributes:
        inventory: What this is the tree of.
        sites: Its sites that have nodes.
        nodes: All nodes, by number, in tree order.
        domains: Their names, ``site/node``.
        number: The number of each node, by name.
        node_site: For each node the number of its site.
        site_names: For each node the name of its site.
        node_level: The level of nodes.
        unit_level: The level of units; the last.
        unit_node: For each unit the number of its node.
        unit_first: For each unit the number of its first device in the node.
        unit_devices: For each unit how many devices it has.
        first_unit: For each node its first unit; one more at the end.
        starts: For each level and domain its first child of the next level; one more at the end.
        single: For each level but the last whether each of its domains has exactly one child.
        of_site: For each level and site, its first domain of that level and the first after it.
        island_most: Devices of the largest unit.
        kinds: For each node the number of its kind: nodes of one kind suit the same jobs.
        samples: For each kind, the number of its first node.
        totals: Devices by kind of accelerator.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.sites: tuple[Site, ...] = tuple(site for site in inventory.sites if site.nodes)
        depth = max((len(site.levels) for site in self.sites), default=0)
        self.node_level = depth + 1
        paths, self.nodes, node_site = _in_tree_order(self.sites, depth)
        self.domains = tuple(
            f"{self.sites[site].name}/{node.name}"
            for site, node in zip(node_site, self.nodes, strict=True)
        )
        self.number = {domain: number for number, domain in enumerate(self.domains)}
        self.node_site = np.array(node_site, dtype=np.int64)
        self.site_names = tuple(self.sites[site].name for site in node_site)
        sizes = [_islands(node) for node in self.nodes]
        islands = any(len(of_node) > 1 for of_node in sizes)
        self.unit_level = self.node_level + islands
        self.first_unit = np.cumsum([0, *map(len, sizes)])
        self.unit_node = np.repeat(np.arange(len(sizes)), np.diff(self.first_unit))
        self.unit_devices = np.array([size for of_node in sizes for size in of_node], np.int64)
        self.unit_first = np.array(
            [sum(of_node[:i]) for of_node in sizes for i in range(len(of_node))], np.int64
        )
        self.starts = _starts(paths, self.node_level)
        if islands:
            self.starts.append(self.first_unit)
        self.single = tuple(len(starts) - 1 == starts[-1] for starts in self.starts)
        self.island_most = int(self.unit_devices.max(initial=0))
        self._numbers = np.arange(max(len(self.unit_devices), self.island_most + 1))
        self._numbers.flags.writeable = False
        known: dict[tuple[object, ...], int] = {}
        kinds = [
            known.setdefault(_kind(node, site), len(known))
            for node, site in zip(self.nodes, node_site, strict=True)
        ]
        self.kinds = np.array(kinds, np.int64)
        self.samples = tuple(kinds.index(kind) for kind in range(len(known)))
        self.totals: dict[str, int] = {}
        for node in self.nodes:
            self.totals[node.accelerator] = self.totals.get(node.accelerator, 0) + node.count
        self._spans = _spans(self.starts, len(self.unit_devices))
        self.of_site = tuple(
            tuple(self.within(level, 0, site) for site in range(len(self.sites)))
            for level in range(self.unit_level + 1)
        )

    def level(self, site: int, name: str) -> int | None:
        """Return the number of the level that site number ``site`` calls ``name``, if it does."""
        if name == SITE:
            return 0
        if name == NODE:
            return self.node_level
        if name == ISLAND:
            return self.unit_level
        levels = self.sites[site].levels
        if name not in levels:
            return None
        return self.node_level - len(levels) + levels.index(name)

    def level_name(self, site: int, level: int) -> str:
        """Return what site number ``site`` calls the level; padding is called ``site``."""
        if level >= self.node_level:
            return NODE if level == self.node_level else ISLAND
        levels = self.sites[site].levels
        position = level - (self.node_level - len(levels))
        return levels[position] if position >= 0 else SITE

    def span(self, level: int, domain: int) -> tuple[int, int]:
        """Return the first unit of a domain, and the first one after it."""
        spans = self._spans[level]
        return int(spans[domain]), int(spans[domain + 1])

    def count(self, level: int) -> int:
        """Return how many domains the level has in the whole grid."""
        return len(self._spans[level]) - 1

    def within(self, level: int, outer: int, domain: int) -> tuple[int, int]:
        """Return the first domain of ``level`` in a domain of an outer one, and the first after."""
        first, end = self.span(outer, domain)
        spans = self._spans[level]
        return int(spans.searchsorted(first)), int(spans.searchsorted(end))

    def units_of(self, domain: str) -> range:
        """Return the units of a node, by its name; none if the grid does not have it."""
        number = self.number.get(domain)
        if number is None:
            return range(0)
        return range(int(self.first_unit[number]), int(self.first_unit[number + 1]))

    def above(self, level: int, unit: int) -> int:
        """Return the domain of ``level`` that holds the unit."""
        return int(self._spans[level].searchsorted(unit, side="right")) - 1

    def above_all(self, level: int, units: Ints) -> Ints:
        """Return the domain of ``level`` that holds each of the units."""
        return self._spans[level].searchsorted(units, side="right") - 1

    def one(self, number: int) -> Ints:
        """Return an array, only to be read, of one number: of a unit, or of devices of a unit."""
        return self._numbers[number : number + 1]

    def host(self, name: str) -> Ints:
        """Return, for each node, how much of a host resource it has."""
        return np.array([node.resources.get(name, 0) for node in self.nodes])

    def per_unit(self, per_node: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return what is so of each node for each of its units."""
        return np.asarray(per_node, dtype=np.bool_)[self.unit_node]


def _in_tree_order(
    sites: Sequence[Site], depth: int
) -> tuple[list[tuple[object, ...]], tuple[Node, ...], list[int]]:
    """Return each node's domains, outermost first, the node itself and its site's number.

    Nodes keep the order of their site, but those of a domain come together where its first stands.
    """
    paths: list[tuple[object, ...]] = []
    nodes: list[Node] = []
    node_site: list[int] = []
    for number, site in enumerate(sites):
        seen: dict[tuple[object, ...], tuple[int, ...]] = {}
        keyed = []
        for position, node in enumerate(site.nodes):
            names = (*node.path, *[""] * len(site.levels))[: len(site.levels)]
            path = (*[""] * (depth - len(names)), *names)
            rank = tuple(seen.setdefault(path[: i + 1], (position,))[0] for i in range(depth))
            keyed.append((rank, position, path, node))
        keyed.sort(key=lambda entry: entry[:2])
        for _, _, path, node in keyed:
            paths.append((number, *path))
            nodes.append(node)
            node_site.append(number)
    return paths, tuple(nodes), node_site


def _kind(node: Node, site: int) -> tuple[object, ...]:
    """Return all of a node that decides whether a job may ever use it."""
    return site, node.accelerator, node.memory_bytes, tuple(sorted(node.labels.items()))


def _islands(node: Node) -> list[int]:
    """Return the devices of each island of the node; the last may be smaller."""
    if not 0 < node.island < node.count:
        return [node.count]
    whole, rest = divmod(node.count, node.island)
    return [node.island] * whole + [rest] * (rest > 0)


def _starts(paths: Sequence[tuple[object, ...]], node_level: int) -> list[Ints]:
    """Return, for each level above the nodes, where the children of each domain begin."""
    firsts = []
    for level in range(node_level):
        prefix = [path[: level + 1] for path in paths]
        firsts.append([i for i in range(len(prefix)) if i == 0 or prefix[i] != prefix[i - 1]])
    firsts.append(list(range(len(paths))))
    return [
        np.array([*np.searchsorted(inner, outer), len(inner)], dtype=np.int64)
        for outer, inner in pairwise(firsts)
    ]


def _spans(starts: Sequence[Ints], units: int) -> list[Ints]:
    """Return, for each level, the first unit of each domain; one more at the end."""
    spans = [np.arange(units + 1)]
    for of_level in reversed(starts):
        spans.append(spans[-1][of_level])
    return spans[::-1]
