"""What must hold of a place at the moment of a start: written once more, without the core's parts.

Placing looks at arrays of blocks; this looks at nodes and ranks one by one.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.spec import JobSpec

Grid = Mapping[str, tuple[Site, Node]]
"""Each node with its site, by ``site/node``."""

Unit = tuple[str, int]
"""A node and the number of an island in it."""


def grid_of(inventory: Inventory | None) -> Grid:
    """Return all nodes of the grid, by name."""
    sites = inventory.sites if inventory else ()
    return {f"{site.name}/{node.name}": (site, node) for site in sites for node in site.nodes}


def misplaced(grid: Grid, spec: JobSpec, placement: Placement) -> Iterator[str]:
    """Yield what is wrong with a place that a job is given on the grid as it is."""
    if placement.option not in spec.options:
        yield "is given a shape that it did not ask for"
    absent = [task.domain for task in placement.tasks if task.domain not in grid]
    if absent:
        yield f"is placed on {absent[0]}, which the grid does not have"
        return
    for task in placement.tasks:
        yield from _unfit(*grid[task.domain], spec, placement, task)
    sites = [task.site for task in placement.tasks]
    changes = sum(one != two for one, two in pairwise(sites))
    if changes + 1 != len(set(sites)):
        yield "has nodes of one site that are no neighbours"
    yield from _torn(grid, placement)


def units_of(grid: Grid, placement: Placement) -> dict[Unit, int]:
    """Return how many devices of each unit a placement has; nodes that are gone are left out."""
    units: dict[Unit, int] = {}
    for task in placement.tasks:
        if task.domain in grid:
            node = grid[task.domain][1]
            for device in task.devices:
                if device < node.count:
                    unit = task.domain, _island(node, device)
                    units[unit] = units.get(unit, 0) + 1
    return units


def all_units(grid: Grid, domain: str) -> dict[Unit, int]:
    """Return the devices of each unit of a node; none if the grid does not have it."""
    units: dict[Unit, int] = {}
    if domain in grid:
        node = grid[domain][1]
        for device in range(node.count):
            unit = domain, _island(node, device)
            units[unit] = units.get(unit, 0) + 1
    return units


def _unfit(
    site: Site, node: Node, spec: JobSpec, placement: Placement, task: TaskPlacement
) -> Iterator[str]:
    option = placement.option
    if node.accelerator != option.accelerator:
        yield f"is placed on {task.domain}, which has {node.accelerator}"
    if 0 < node.memory_bytes < option.memory_bytes:
        yield f"is placed on {task.domain}, which has too little memory"
    if any(node.labels.get(name) != value for name, value in spec.labels.items()):
        yield f"is placed on {task.domain}, which is labelled otherwise"
    if spec.nodes and task.domain not in spec.nodes:
        yield f"is placed on {task.domain}, which it did not choose"
    if spec.sites and site.name not in spec.sites:
        yield f"is placed at {site.name}, which it may not use"
    if site.queues and spec.queue not in site.queues:
        yield f"is placed at {site.name}, which is closed to its queue"
    if spec.data_required and site.name not in spec.data_sites:
        yield f"is placed at {site.name}, which does not hold its data"
    ordered = sorted(set(task.devices))
    if list(task.devices) != ordered or not 0 <= ordered[0] <= ordered[-1] < node.count:
        yield f"is given devices {task.devices} of {task.domain}, which has {node.count}"
    if 0 < spec.ranks_per_node_max < len(task.devices) // option.rank_devices:
        yield f"has more ranks on {task.domain} than it wants on one node"


def _torn(grid: Grid, placement: Placement) -> Iterator[str]:
    """Yield groups of consecutive ranks that do not sit together as closely as they must."""
    option, plan = placement.option, placement.option.plan
    needs = [(plan.tensor, "node"), (plan.replica_ranks, "site")]
    needs += [(need.ranks, need.level) for need in option.groups if need.required]
    for ranks, level in needs:
        domains = list(_domains(grid, placement, level))
        for first in range(0, len(domains), ranks):
            together = set[object]().union(*domains[first : first + ranks])
            if len(together) != 1 or None in together:
                last = min(first + ranks, len(domains)) - 1
                yield f"has ranks {first} to {last} in more than one {level}"


def _domains(grid: Grid, placement: Placement, level: str) -> Iterator[set[object]]:
    """Yield, for each rank in order, the domains of a level in which its devices are."""
    size = placement.option.rank_devices
    for task in placement.tasks:
        site, node = grid[task.domain]
        for first in range(0, len(task.devices), size):
            devices = task.devices[first : first + size]
            yield {_domain(site, node, level, device) for device in devices}


def _domain(site: Site, node: Node, level: str, device: int) -> object:
    """Return the domain of a level that holds a device; nothing if the site has no such level."""
    if level == "site":
        return site.name
    if level == "node":
        return site.name, node.name
    if level == "island":
        return site.name, node.name, _island(node, device)
    if level not in site.levels:
        return None
    depth = site.levels.index(level) + 1
    return site.name, tuple([*node.path, *[""] * depth][:depth])


def _island(node: Node, device: int) -> int:
    return device // node.island if 0 < node.island < node.count else 0
