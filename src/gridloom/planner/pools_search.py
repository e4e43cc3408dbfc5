"""The best plans over pools at several sites: which pools, what each holds, and how it is cut."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np

from gridloom.planner.pareto import rounded
from gridloom.planner.pools import PoolPlan, PoolSpace, Way, accepted, objective
from gridloom.planner.pools_replicas import ShareTable, replica_plans, share_tables
from gridloom.planner.pools_stages import stage_plans

Devices: TypeAlias = tuple[tuple[str, int], ...]
"""Pools and how many of the devices of each, sorted."""


@dataclass(frozen=True)
class PoolFound:
    """The answer of a search over pools.

    Attributes:
        plans: The best ones, best first.
        front: Those that no other one beats in time and price, fastest first.
        compared: How many choices of pools, each with its best plans, were compared.
        by_devices: The best plan of each way on the same devices of the same pools, whatever the
            limits of the goal.
    """

    plans: tuple[PoolPlan, ...]
    front: tuple[PoolPlan, ...]
    compared: int
    by_devices: Mapping[Devices, Mapping[Way, PoolPlan]]


def devices_of(plan: PoolPlan) -> Devices:
    """Return which devices a plan uses."""
    return tuple(sorted((part.pool, part.devices) for part in plan.parts))


def search_pools(asked: PoolSpace, progress: Callable[[int, int], None] | None = None) -> PoolFound:
    """Return the best plans over some of the pools.

    What a plan costs in loss is counted as more tokens. Equals (to about eleven digits of the
    objective) are ordered by fewer devices, then less memory, then the names of the pools and the
    plans of their parts.

    Args:
        asked: What to go through.
        progress: Called with tables done and tables in all, one for each pool and number of its
            devices; what follows takes less.
    """
    if any(pool.price_per_device_hour for pool in asked.pools):
        return _searched(asked, progress)
    # Without any price, device-hours stand in for it.
    pools = tuple(replace(pool, price_per_device_hour=1.0) for pool in asked.pools)
    found = _searched(
        replace(asked, pools=pools, goal=replace(asked.goal, price_max=0.0)), progress
    )
    return replace(
        found,
        plans=tuple(replace(plan, price=0.0) for plan in found.plans),
        front=tuple(replace(plan, price=0.0) for plan in found.front),
    )


def _searched(asked: PoolSpace, progress: Callable[[int, int], None] | None) -> PoolFound:
    tables: list[ShareTable] = []
    total = sum(len(pool.choices) for pool in asked.pools)
    if "replicas" in asked.ways or "one_pool" in asked.ways:
        for table in share_tables(asked):
            tables.append(table)
            if progress:
                progress(len(tables), total)
    staged = stage_plans(asked) if "stages" in asked.ways else iter(())
    plans = [
        plan
        for plan in chain(replica_plans(asked, tables), staged)
        if plan.way == "one_pool" or plan.way in asked.ways
    ]
    ranked = sorted(plans, key=lambda plan: _order(objective(plan, asked.goal), plan))
    within = [plan for plan in ranked if accepted(plan, asked.goal)]
    by_devices: dict[Devices, dict[Way, PoolPlan]] = {}
    for plan in ranked:
        by_devices.setdefault(devices_of(plan), {}).setdefault(plan.way, plan)
    return PoolFound(tuple(within[: asked.goal.top]), _front(within), len(plans), by_devices)


def _order(value: float, plan: PoolPlan) -> tuple[float, int, float, str]:
    last = ";".join(
        f"{part.pool} {part.devices} {part.sequences} {part.plan}" for part in plan.parts
    )
    return (_rounded(value), plan.devices, plan.memory_bytes, last)


def _rounded(value: float) -> float:
    return float(rounded(np.array(value)))


def _front(plans: list[PoolPlan]) -> tuple[PoolPlan, ...]:
    """Return the plans that no other one beats in time and price, fastest first."""
    front: list[PoolPlan] = []
    for plan in sorted(plans, key=lambda p: (_rounded(p.time_s), _order(p.price, p))):
        if not front or _rounded(plan.price) < _rounded(front[-1].price):
            front.append(plan)
    return tuple(front)
