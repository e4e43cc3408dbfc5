"""Copies of the model on several pools: each trains a share of the batch that suits its speed.

Every pool cuts its copies in its own way. A training step ends when the slowest pool has done its
share and the gradients are averaged, so the batch is shared out to make the slowest pool as fast
as can be: exactly, over all ways of sharing out equal pieces of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
from msgspec import structs

from gridloom.model.parallel import SiteSync
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.pools import (
    Pool,
    PoolLink,
    PoolPart,
    PoolPlan,
    PoolSpace,
    Way,
    priced,
    ring_s,
    space_of,
)
from gridloom.planner.search import Goal, RankedPlan, search
from gridloom.planner.search_space import SearchSpace, divisors
from gridloom.planner.site_sync import choose
from gridloom.planner.sync_forecast import SyncForecast
from gridloom.planner.sync_pools import pools_situation

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShareTable:
    """The fastest plans of some devices of one pool, by their share of the batch.

    Attributes:
        pool: The pool.
        devices: How many of its devices are used.
        plans: By pieces of the batch: entry ``s`` trains ``s`` pieces; nothing for none, and where
            no plan fits.
    """

    pool: Pool
    devices: int
    plans: tuple[RankedPlan | None, ...]

    @property
    def step_s(self) -> Numbers:
        """Seconds of a training step by pieces; infinite where there is no plan."""
        times = [plan.step_s if plan else float("inf") for plan in self.plans]
        return np.array(times)


def pieces_of(global_batch: int, most: int) -> int:
    """Return into how many equal pieces a batch is cut: its largest divisor up to ``most``."""
    return max(count for count in divisors(global_batch) if count <= most)


def share_tables(asked: PoolSpace) -> Iterator[ShareTable]:
    """Yield a table for each pool and each number of its devices that may be used."""
    space, whole = asked.space, asked.space.global_batch
    pieces = pieces_of(whole, asked.pieces)
    goal = Goal(objective="time", memory_share=asked.goal.memory_share, top=1)
    for pool in asked.pools:
        for devices in pool.choices:
            plans: list[RankedPlan | None] = [None]
            for share in range(1, pieces + 1):
                batch = share * whole // pieces
                narrowed = replace(space_of(space, pool, devices), global_batch=batch)
                plans += search(narrowed, asked.costs, goal).plans or [None]
            yield ShareTable(pool, devices, tuple(plans))


def shared_out(times: Sequence[Numbers]) -> tuple[float, tuple[int, ...]]:
    """Return the least possible time of the slowest of several pools, and each one's pieces.

    Args:
        times: For each pool, seconds by pieces from 0 to all; entry 0 is not used, since every
            pool takes a piece.

    Returns:
        The time, infinite when the pieces cannot be shared out; of equal ways the one with fewer
        pieces for the later pools.
    """
    size = len(times[0])
    total, taken = np.arange(size)[:, None], np.arange(size)[None, :]
    best = np.where(np.arange(size) > 0, times[0], np.inf)
    choices: list[npt.NDArray[np.intp]] = []
    for one in times[1:]:
        before = np.where(taken < total, best[np.maximum(total - taken, 0)], np.inf)
        slower = np.maximum(before, np.where(taken > 0, one[None, :], np.inf))
        choice = np.argmin(slower, axis=1)
        choices.append(choice)
        best = slower[np.arange(size), choice]
    if not np.isfinite(best[-1]):
        return float("inf"), ()
    left, pieces = size - 1, []
    for choice in reversed(choices):
        pieces.append(int(choice[left]))
        left -= pieces[-1]
    return float(best[-1]), (left, *reversed(pieces))


def replica_plans(asked: PoolSpace, tables: Sequence[ShareTable]) -> Iterator[PoolPlan]:
    """Yield the fastest plan of every choice of pools and numbers of their devices.

    For given devices the fastest plan is also the cheapest and the thriftiest.

    Args:
        asked: What to go through.
        tables: One for each pool and number of its devices.
    """
    space, by_pool = asked.space, dict[str, list[ShareTable | None]]()
    for table in tables:
        by_pool.setdefault(table.pool.name, [None]).append(table)
    payload = _payload_bytes(space)
    waits: dict[tuple[str, ...], float] = {}
    for choice in product(*by_pool.values()):
        used = [table for table in choice if table is not None]
        if not used:
            continue
        how = space.base.site_sync
        between_s = _between_s(used, asked.links, payload, waits) / max(1, how.every)
        slowest_s, pieces = shared_out([table.step_s for table in used])
        if pieces and np.isfinite(between_s):
            more_tokens = 1.0
            if asked.sync == "auto" and len({table.pool.site for table in used}) > 1:
                found = _chosen(asked, used, slowest_s)
                how, between_s = found.how, _inside_all_s(used, payload)
                more_tokens = found.loss.more_tokens
                between_s += slowest_s * (1 / found.tokens_ratio - 1)
            parts = tuple(_part(space, *pair, how) for pair in zip(used, pieces, strict=True))
            way: Way = "replicas" if len(used) > 1 else "one_pool"
            pools = [table.pool for table in used]
            plan = priced(way, parts, pools, slowest_s + between_s, between_s, asked.steps)
            yield replace(plan, more_tokens=more_tokens)


def _chosen(asked: PoolSpace, used: Sequence[ShareTable], slowest_s: float) -> SyncForecast:
    """Return what is best for the links between pools at several sites."""
    devices: dict[str, int] = {}
    for table in used:
        devices[table.pool.site] = devices.get(table.pool.site, 0) + table.devices
    space, tokens = asked.space, asked.goal.tokens
    return choose(pools_situation(space, asked.links, devices, slowest_s, tokens)).best


def _payload_bytes(space: SearchSpace) -> float:
    """Return the bytes of a whole gradient as it crosses between pools."""
    return float(count_parameters(space.model).total) * space.base.site_sync.bits / 8


def _between_s(
    used: Sequence[ShareTable],
    links: Sequence[PoolLink],
    payload: float,
    waits: dict[tuple[str, ...], float],
) -> float:
    """Return the seconds of averaging between pools: inside sites, then around a ring of sites."""
    names = tuple(sorted({table.pool.site for table in used}))
    if names not in waits:
        waits[names] = ring_s(names, links, payload)
    return waits[names] + _inside_all_s(used, payload)


def _inside_all_s(used: Sequence[ShareTable], payload: float) -> float:
    """Return the seconds of averaging inside the slowest site."""
    sites: dict[str, list[ShareTable]] = {}
    for table in used:
        sites.setdefault(table.pool.site, []).append(table)
    return max(_inside_s(tables, payload) for tables in sites.values())


def _inside_s(tables: Sequence[ShareTable], payload: float) -> float:
    """Return the seconds of averaging among pools of one site, over all their devices' network."""
    count = len(tables)
    if count < 2:
        return 0.0
    rate = min(table.pool.network_bytes_per_s(table.devices) for table in tables)
    return 2 * (count - 1) / count * payload / rate


def _part(space: SearchSpace, table: ShareTable, share: int, how: SiteSync) -> PoolPart:
    ranked = table.plans[share]
    assert ranked is not None
    return PoolPart(
        pool=table.pool.name,
        site=table.pool.site,
        devices=table.devices,
        sequences=ranked.global_batch,
        layers=space.model.layers,
        plan=structs.replace(ranked.plan, site_sync=how),
        step_s=ranked.step_s,
        memory_bytes=ranked.memory_bytes,
    )
