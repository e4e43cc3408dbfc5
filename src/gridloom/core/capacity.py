"""What is free: devices and host resources of every unit, kept as jobs come and go.

A trial takes and gives back; the one undoes the other exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from gridloom.base.errors import BrokenError
from gridloom.core.topology import Ints, Tree
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.spec import Option


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What one placement holds, by number.

    Attributes:
        units: The units, ascending.
        devices: How many devices of each.
        bits: Which devices of each, as a bit mask.
        nodes: The nodes, ascending.
        ranks: How many ranks are on each.
        resources: What each rank has of its host.
    """

    units: Ints
    devices: Ints
    bits: tuple[int, ...]
    nodes: Ints
    ranks: Ints
    resources: tuple[tuple[str, int], ...]


class Capacity:
    """Free devices by unit and free host resources by node, with those kept for somebody apart.

    Attributes:
        tree: Of the grid.
        free: For each unit its devices that no attempt has.
        available: For each unit what a job may take: free, on a node that is open, and not kept.
        total: Of ``available``, over all units.
        grown: Changes whenever something may have become available.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.free = tree.unit_devices.copy()
        self.available = self.free.copy()
        self.total = int(self.free.sum())
        self.grown = 0
        self._bits = [(1 << int(devices)) - 1 for devices in tree.unit_devices]
        self._open = np.ones(len(self.free), dtype=np.bool_)
        self._kept = np.zeros_like(self.free)
        # the same numbers, which are quicker read and written here where it is one alone
        self._views = self.free.data, self._kept.data, self.available.data
        self._keeps: dict[str, tuple[Ints, Ints]] = {}
        self._host: dict[str, Ints] = {}

    def host(self, name: str) -> Ints:
        """Return, for each node, how much of a host resource is free."""
        if name not in self._host:
            self._host[name] = self.tree.host(name)
        return self._host[name]

    def holding(self, placement: Placement) -> Holding:
        """Return the placement by number; nodes that the grid no longer has are left out."""
        per_rank = placement.option.rank_devices
        units, devices, bits, nodes, ranks = [], [], [], [], []
        placed = [
            (self.tree.number[task.domain], task)
            for task in placement.tasks
            if task.domain in self.tree.number
        ]
        for node, task in sorted(placed, key=lambda pair: pair[0]):
            nodes.append(node)
            ranks.append(len(task.devices) // per_rank)
            first, end = int(self.tree.first_unit[node]), int(self.tree.first_unit[node + 1])
            mask = sum(1 << device for device in task.devices)
            for unit in range(first, end):
                size = int(self.tree.unit_devices[unit])
                own = mask >> int(self.tree.unit_first[unit]) & ((1 << size) - 1)
                if own:
                    units.append(unit)
                    devices.append(own.bit_count())
                    bits.append(own)
        return Holding(
            units=np.array(units, np.int64),
            devices=np.array(devices, np.int64),
            bits=tuple(bits),
            nodes=np.array(nodes, np.int64),
            ranks=np.array(ranks, np.int64),
            resources=placement.option.rank_resources,
        )

    def place(
        self,
        option: Option,
        units: Ints,
        devices: Ints,
        prices: Mapping[str, float],
        reached: tuple[str, float] = ("", 0.0),
    ) -> tuple[Placement, Holding]:
        """Return a placement on ``units`` (ascending): of each so many of its lowest free devices.

        Args:
            option: The shape.
            units: Numbers of the units.
            devices: Of each, how many.
            prices: Of an accelerator-hour at each site.
            reached: The level that the placement reaches, and its step time.
        """
        tree, free = self.tree, self._bits
        numbers = units.tolist()
        counts = devices.tolist()
        bits = tuple([_lowest(free[i], n) for i, n in zip(numbers, counts, strict=True)])
        nodes, node_devices = units, devices
        masks: Sequence[int] = bits
        if tree.unit_level != tree.node_level:
            nodes, node_devices, masks = self._by_node(units, devices, bits)
            numbers = nodes.tolist()
        tasks = []
        price = 0.0
        for number, mask in zip(numbers, masks, strict=True):
            node, site = tree.nodes[number], tree.site_names[number]
            chosen = _numbers(mask)
            tasks.append(
                TaskPlacement(site=site, node=node.name, address=node.address, devices=chosen)
            )
            price += prices[site] * len(chosen)
        level, step_s = reached
        placement = Placement(
            option=option, tasks=tuple(tasks), price_per_hour=price, level=level, step_s=step_s
        )
        held = Holding(
            units=units,
            devices=devices,
            bits=bits,
            nodes=nodes,
            ranks=node_devices // option.rank_devices if option.rank_devices > 1 else node_devices,
            resources=option.rank_resources,
        )
        return placement, held

    def _by_node(
        self, units: Ints, devices: Ints, bits: Sequence[int]
    ) -> tuple[Ints, Ints, Sequence[int]]:
        """Return the nodes of some units, how many devices of each, and which as a bit mask."""
        unit_nodes = self.tree.unit_node[units]
        first = np.flatnonzero(np.diff(unit_nodes, prepend=-1))
        firsts = self.tree.unit_first[units].tolist()
        ends = [*first[1:].tolist(), len(bits)]
        masks = [
            sum(bits[i] << firsts[i] for i in range(start, end))
            for start, end in zip(first.tolist(), ends, strict=True)
        ]
        return unit_nodes[first], np.add.reduceat(devices, first), masks

    def place_kept(
        self, places: Placement, prices: Mapping[str, float]
    ) -> tuple[Placement, Holding] | None:
        """Return a placement on exactly the nodes of ``places``, if all of it is free and open.

        What is kept on these nodes is taken to be kept for whoever asks. Devices may be others.
        """
        numbers = [self.tree.number.get(task.domain, -1) for task in places.tasks]
        if min(numbers) < 0 or not all(self.is_open(number) for number in numbers):
            return None
        wanted = self.holding(places)
        if (self.free[wanted.units] < wanted.devices).any():
            return None
        for name, each in wanted.resources:
            if (self.host(name)[wanted.nodes] < wanted.ranks * each).any():
                return None
        each_rank = places.option.rank_devices
        if each_rank <= self.tree.island_most and (wanted.devices % each_rank).any():
            return None  # a rank that fits on an island would be split over two
        if int(wanted.devices.sum()) < places.option.devices:  # the nodes are other ones by now
            return None
        reached = places.level, places.step_s
        return self.place(places.option, wanted.units, wanted.devices, prices, reached)

    def take(self, held: Holding) -> None:
        """Give the devices to a job; ``give_back`` undoes it exactly.

        Raises:
            BrokenError: Another job has one of them.
        """
        for unit, bits in zip(held.units.tolist(), held.bits, strict=True):
            if self._bits[unit] & bits != bits:
                domain = self.tree.domains[self.tree.unit_node[unit]]
                raise BrokenError(f"a device of {domain} is taken twice")
            self._bits[unit] ^= bits
        self._free_up(held, -1)

    def give_back(self, held: Holding) -> None:
        """Undo ``take``."""
        for unit, bits in zip(held.units.tolist(), held.bits, strict=True):
            self._bits[unit] |= bits
        self._free_up(held, 1)
        self.grown += 1

    def keep(self, job_id: str, units: Ints, devices: Ints) -> None:
        """Keep devices of some units for a job, free already or not; ``release`` undoes it."""
        self.release(job_id)
        self._keeps[job_id] = (units, devices)
        self._kept[units] += devices
        self._refresh(units)

    def release(self, job_id: str) -> None:
        """Keep nothing any more for the job."""
        units, devices = self._keeps.pop(job_id, (None, None))
        if units is not None and devices is not None:
            self._kept[units] -= devices
            self._refresh(units)
            self.grown += 1

    def keepers(self) -> Iterable[str]:
        """Return the jobs for which something is kept, in the order in which that began."""
        return self._keeps.keys()

    def kept(self, job_id: str) -> tuple[Ints, Ints] | None:
        """Return the units that are kept for a job, and how many devices of each."""
        return self._keeps.get(job_id)

    def is_unkept(self, held: Holding, job_id: str) -> bool:
        """Return whether all of it is free, on closed nodes too, and kept for no other job."""
        left = self.free - self._kept
        units, devices = self._keeps.get(job_id, ((), ()))
        left[np.asarray(units, np.int64)] += np.asarray(devices, np.int64)
        return bool((left[held.units] >= held.devices).all())

    def open(self, nodes: Sequence[bool]) -> None:
        """Let only these nodes, told for each, be used by what starts from now on."""
        self._open = self.tree.per_unit(nodes)
        self.available = np.where(self._open, np.maximum(self.free - self._kept, 0), 0)
        self._views = self.free.data, self._kept.data, self.available.data
        self.total = int(self.available.sum())
        self.grown += 1

    def openings(self) -> NDArray[np.bool_]:
        """Return, for each unit, whether it takes new work."""
        return self._open

    def is_open(self, node: int) -> bool:
        """Return whether the node takes new work."""
        return bool(self._open[self.tree.first_unit[node]])

    def owed(self) -> Ints:
        """Return, for each unit, the devices that are kept and still to be freed for that."""
        owed: Ints = np.maximum(self._kept - self.free, 0)
        return owed

    def if_released(self, job_ids: Iterable[str]) -> Ints:
        """Return what would be available if nothing were kept any more for these jobs."""
        kept = self._kept.copy()
        for job_id in job_ids:
            units, devices = self._keeps[job_id]
            kept[units] -= devices
        return np.where(self._open, np.maximum(self.free - kept, 0), 0)

    def available_to(self, job_id: str) -> Ints:
        """Return what the job may take: the available, and what is kept for itself."""
        own = self._keeps.get(job_id)
        if own is None:
            return self.available
        kept = self._kept.copy()
        kept[own[0]] -= own[1]
        return np.where(self._open, np.maximum(self.free - kept, 0), 0)

    def once_freed(self, job_id: str, held: Sequence[Holding]) -> Ints:
        """Return what the job could take if all of ``held`` were given back."""
        if not held:
            return self.available_to(job_id)
        units = np.concatenate([one.units for one in held])
        devices = np.concatenate([one.devices for one in held])
        free = self.free + np.bincount(units, devices, len(self.free)).astype(np.int64)
        free -= self._kept
        own = self._keeps.get(job_id)
        if own is not None:
            free[own[0]] += own[1]
        return np.where(self._open, np.maximum(free, 0), 0)

    def free_devices(self, node: int) -> int:
        """Return how many devices of the node no attempt has."""
        first, end = self.tree.first_unit[node], self.tree.first_unit[node + 1]
        return int(self.free[first:end].sum())

    def _free_up(self, held: Holding, sign: int) -> None:
        """Count what a placement holds as free, or with the sign -1 as taken."""
        if len(held.bits) == 1:
            self._views[0][held.units.item()] += sign * held.devices.item()
        else:
            self.free[held.units] += sign * held.devices
        for name, each in held.resources:
            self.host(name)[held.nodes] += sign * each * held.ranks
        self._refresh(held.units)

    def _refresh(self, units: Ints) -> None:
        if len(units) == 1:  # most jobs are small, and arrays are slow for one number
            unit = units.item()
            free, kept, available = self._views
            left = max(free[unit] - kept[unit], 0) if self._open[unit] else 0
            self.total += left - available[unit]
            available[unit] = left
            return
        left_of_all = np.where(
            self._open[units], np.maximum(self.free[units] - self._kept[units], 0), 0
        )
        self.total += int(left_of_all.sum()) - int(self.available[units].sum())
        self.available[units] = left_of_all


def _lowest(mask: int, count: int) -> int:
    """Return the ``count`` lowest bits of ``mask``."""
    if mask.bit_count() == count:
        return mask
    if not mask & (mask + 1):  # all of the lowest are set
        return (1 << count) - 1
    taken = 0
    for _ in range(count):
        lowest = mask & -mask
        taken |= lowest
        mask ^= lowest
    return taken


@lru_cache(maxsize=1 << 16)
def _numbers(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits that are set, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
