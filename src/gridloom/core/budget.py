"""What a job may still use, when that is spent, and the sentence that says so."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from gridloom.base.units import format_duration
from gridloom.core import progress
from gridloom.core.allowance import next_period_s
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.profile import Bools
from gridloom.core.rank import best_step_s
from gridloom.core.shortage import Shortage
from gridloom.core.topology import Tree
from gridloom.model.life import Job
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Option

_HOUR_S = 3600.0


def due_s(job: Job) -> float:
    """Return when the budget of a job that holds devices is spent; infinity for never."""
    attempt = job.attempts[-1]
    if not progress.is_limited(job) or attempt.is_queued:
        return math.inf
    return attempt.begun_s + _left_s(job, attempt.placement.price_per_hour)


def is_spent(job: Job, now: float) -> bool:
    """Return whether the budget is spent; true at ``due_s`` exactly, so that a timer never idles.

    A queued job may have spent it too: by then its attempt had ended for another cause.
    """
    return _left_s(job, 0.0) <= 0 if job.attempt is None else due_s(job) <= now


def used(job: Job, now: float) -> tuple[float, float]:
    """Return the seconds that the job ran and what they cost, the present attempt included."""
    if (attempt := job.attempt) is None:
        return job.run_s, job.cost
    run_s = attempt.held_s(now)
    return job.run_s + run_s, job.cost + run_s * attempt.placement.price_per_hour / _HOUR_S


def too_dear(job: Job, demand: Demand, prices: Mapping[str, float]) -> list[int]:
    """Return the sites at which a job could not be done within its budget, though at others it can.

    Where it can nowhere, or nobody knows how long it runs, none: it runs until the budget is spent.
    """
    cost_max = job.spec.budget.cost_max
    if not cost_max:
        return []
    hours = progress.run_s(job, demand.option, best_step_s(demand.option)) / _HOUR_S
    if hours == math.inf:
        return []
    left = cost_max - job.cost
    dear = [
        site
        for site in demand.chains
        if prices[demand.tree.sites[site].name] * demand.option.devices * hours > left
    ]
    return dear if dear and _fits_beside(demand, tuple(dear)) else []


@lru_cache(maxsize=1024)
def _fits_beside(demand: Demand, dear: tuple[int, ...]) -> bool:
    """Return whether a shape would fit on an empty grid without some sites."""
    tree = demand.tree
    room = np.where(units_at(tree, dear), 0, tree.unit_devices)
    return Finder(demand, None, room).fits()


def units_at(tree: Tree, sites: Iterable[int]) -> Bools:
    """Return, for each unit, whether it is at one of the sites, which are told by number."""
    units = np.zeros(len(tree.unit_devices), np.bool_)
    for site in sites:
        first, end = tree.span(0, site)
        units[first:end] = True
    return units


def dear_units(index: Index, job: Job, demand: Demand) -> Bools:
    """Return, for each unit, whether its site is too dear for a job of that shape."""
    return units_at(index.tree, too_dear(job, demand, index.ranker.prices))


def short(index: Index, job: Job, option: Option, step_s: float) -> Shortage | None:
    """Return what the job's queue lacks for a shape: devices now or, as ``overspent``, hours."""
    lacks = index.shortage(job, option.accelerator, option.devices)
    return lacks or overspent(index, job, option, step_s)


def overspent(index: Index, job: Job, option: Option, step_s: float) -> Shortage | None:
    """Return what the job's queue lacks of its accelerator-hours for a shape, if it lacks any.

    Args:
        index: The grid and what was used.
        job: The job.
        option: The shape.
        step_s: A step in the place that it would have; 0 when unknown.
    """
    queue, now = index.queues.get(job.spec.queue), index.state.now_s
    if queue is None or not queue.accelerator_hours:
        return None
    run_s = progress.run_s(job, option, step_s)
    short = index.state.allowance.shortage(
        queue,
        devices=option.devices,
        predicted_s=run_s if run_s < math.inf else 0.0,
        now=now,
    )
    if short is not None:
        index.again(next_period_s(queue, now))
    return short


def reason(job: Job, now: float, currency: str) -> Reason:
    """Return why the job is stopped, with the arithmetic."""
    budget = job.spec.budget
    run_s, cost = used(job, now)
    parts = []
    if budget.run_s_max:
        parts.append(
            f"{format_duration(run_s)} of {format_duration(budget.run_s_max)} of running time"
        )
    if budget.cost_max:
        parts.append(f"{cost:.2f} of {budget.cost_max:.2f} {currency}")
    return Reason(
        code=Why.BUDGET_SPENT,
        sentence=f"has used {' and '.join(parts)}, and so spent its budget",
        remedy="submit it again with a larger budget; its newest checkpoint is kept",
    )


def _left_s(job: Job, price_per_hour: float) -> float:
    """Return how many seconds the job can go on at that price; infinity without a limit."""
    budget = job.spec.budget
    run_left_s = budget.run_s_max - job.run_s if budget.run_s_max else math.inf
    if not budget.cost_max:
        return run_left_s
    cost_left = budget.cost_max - job.cost
    if cost_left <= 0:
        return min(run_left_s, 0.0)
    if not price_per_hour:
        return run_left_s
    return min(run_left_s, cost_left / price_per_hour * _HOUR_S)
