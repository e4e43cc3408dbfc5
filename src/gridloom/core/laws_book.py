"""Who holds what, kept from intentions alone: what the laws of a step compare the core with."""

from collections.abc import Iterable, Iterator

import msgspec

from gridloom.core.laws_place import Grid, Unit, grid_of, units_of
from gridloom.core.ledger import Ledger
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job, Placement

Use = tuple[tuple[tuple[str, str], int], ...]
"""Devices in use, by queue and kind."""


class Held(msgspec.Struct):
    """What one attempt has.

    Attributes:
        job_id: Whose it is.
        queue: What is charged.
        epoch: Of the attempt.
        placement: Where it is.
        units: Devices of each unit, on the grid as it is.
        told: It was told to leave by the core.
    """

    job_id: str
    queue: str
    epoch: int
    placement: Placement
    units: dict[Unit, int]
    told: bool = False


class Book:
    """Who holds what.

    Attributes:
        inventory: The grid.
        grid: Its nodes by name.
        held: By job.
        ledger: What queues use.
    """

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._owner: dict[tuple[str, int], str] = {}
        self._on: dict[str, dict[str, None]] = {}
        self._use: dict[tuple[str, str], int] = {}
        self.regrid(None)

    def regrid(self, inventory: Inventory | None) -> None:
        """Take in another grid."""
        self.inventory = inventory or Inventory(sites=())
        self.grid: Grid = grid_of(inventory)
        totals: dict[str, int] = {}
        for _, node in self.grid.values():
            totals[node.accelerator] = totals.get(node.accelerator, 0) + node.count
        self.ledger = Ledger(self.inventory.queues, self.inventory.cohorts, totals)
        for held in self.held.values():
            held.units = units_of(self.grid, held.placement)
            option = held.placement.option
            self.ledger.take(held.queue, option.accelerator, option.devices)

    def take(self, job: Job) -> Iterator[str]:
        """Count what the job's attempt has; yield what somebody else has of it."""
        attempt = job.attempts[-1]
        placement, option = attempt.placement, attempt.placement.option
        queue, kind = job.spec.queue, option.accelerator
        self.held[job.job_id] = Held(
            job.job_id, queue, attempt.epoch, placement, units_of(self.grid, placement)
        )
        for task in placement.tasks:
            self._on.setdefault(task.domain, {})[job.job_id] = None
            for device in task.devices:
                other = self._owner.setdefault((task.domain, device), job.job_id)
                if other != job.job_id:
                    yield f"device {device} of {task.domain}, by {other} and {job.job_id}"
        self.ledger.take(queue, kind, option.devices)
        self._use[queue, kind] = self._use.get((queue, kind), 0) + option.devices

    def give_back(self, job_id: str) -> None:
        """Count that no more."""
        held = self.held.pop(job_id)
        option = held.placement.option
        for task in held.placement.tasks:
            del self._on[task.domain][job_id]
            for device in task.devices:
                del self._owner[task.domain, device]
        self.ledger.give_back(held.queue, option.accelerator, option.devices)
        self._use[held.queue, option.accelerator] -= option.devices

    def on(self, domain: str) -> list[str]:
        """Return who is on a node or, by its name, at a site."""
        if "/" in domain:
            return list(self._on.get(domain, ()))
        here = [node for node in self._on if node.startswith(f"{domain}/")]
        return [job_id for node in here for job_id in self._on[node]]

    def free(self, unit: Unit, gone: frozenset[str] = frozenset()) -> int:
        """Return how many devices of a unit of the grid nobody has once ``gone`` have left."""
        domain, island = unit
        node = self.grid[domain][1]
        count = node.count
        if 0 < node.island < node.count:
            count = min(node.island, node.count - island * node.island)
        holders = (self.held[job_id] for job_id in self._on.get(domain, ()) if job_id not in gone)
        return count - sum(held.units.get(unit, 0) for held in holders)

    def host(self, domain: str, name: str, gone: frozenset[str] = frozenset()) -> int:
        """Return how much of a node's host resource nobody has once ``gone`` have left."""
        if domain not in self.grid:
            return 0
        holders = (self.held[job_id] for job_id in self._on.get(domain, ()) if job_id not in gone)
        used = sum(hosted(held.placement, domain, name) for held in holders)
        return self.grid[domain][1].resources.get(name, 0) - used

    def use(self, without: Iterable[Held]) -> Use:
        """Return what all queues use but for some jobs."""
        use = dict(self._use)
        for held in without:
            option = held.placement.option
            use[held.queue, option.accelerator] -= option.devices
        return tuple(sorted((key, devices) for key, devices in use.items() if devices))


def hosted(placement: Placement, domain: str, name: str) -> int:
    """Return how much of a node's host resource a placement has."""
    option = placement.option
    each = dict(option.rank_resources).get(name, 0)
    devices = sum(len(task.devices) for task in placement.tasks if task.domain == domain)
    return devices // option.rank_devices * each
