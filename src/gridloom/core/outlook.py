"""What is foreseen: when who runs will have ended, how long who waits would run, and where."""

from gridloom.core import progress
from gridloom.core.demand import Demand
from gridloom.core.gang import Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.profile import Run
from gridloom.model.life import Job, Placement, TaskPlacement
from gridloom.model.spec import Option

LATE_S = 10.0
"""What has not ended this long after its predicted end outlives its prediction; until then the news
is on its way, and no promise is given up for it."""

_OVERRUN = 0.1
"""A job that outlives its prediction is taken to need a tenth more than it was to run, and again
when that is over: in steps, so that promises do not change with every second that passes."""

_OVERRUN_S_MIN = 2 * LATE_S
"""Such a step at least, so that the next predicted end is ahead when the last is given up."""


def predicted_end_s(job: Job, now: float) -> float:
    """Return when a job that holds devices is taken to end; what is late may be over by now."""
    attempt = job.attempts[-1]
    end_s = progress.end_s(job, attempt)
    begun_s = end_s if attempt.stop_sent else attempt.started_s
    while end_s + LATE_S <= now:
        end_s += max(_OVERRUN * (end_s - begun_s), _OVERRUN_S_MIN)
    return end_s


def run_of(job: Job, option: Option, step_s: float) -> Run:
    """Return how long an attempt of a waiting job would run, with caution."""
    left_s = progress.remaining_s(job) * progress.caution(job)
    restart_s = job.spec.forecast.restart_s if job.attempts else 0.0
    return Run(restart_s, left_s / progress.speed(job, option, step_s))


def places_of(index: Index, spot: Spot) -> Placement:
    """Return a spot as places of the future: how many devices of which unit, the lowest numbers."""
    tree, option = index.tree, spot.demand.option
    devices: dict[int, list[int]] = {}
    for unit, count in zip(spot.units.tolist(), spot.devices.tolist(), strict=True):
        first = int(tree.unit_first[unit])
        own = devices.setdefault(int(tree.unit_node[unit]), [])
        own.extend(range(first, first + count))
    tasks = tuple(
        TaskPlacement(
            site=tree.sites[tree.node_site[node]].name,
            node=tree.nodes[node].name,
            address=tree.nodes[node].address,
            devices=tuple(own),
        )
        for node, own in devices.items()
    )
    level = index.ranker.placement_level(spot.site, spot.gang)
    return Placement(option=option, tasks=tasks, level=level, step_s=predicted_step_s(spot))


def varied(demand: Demand) -> bool:
    """Return whether a run may take longer in one place than in another."""
    option = demand.option
    return len({option.step_s, *(speed.step_s for speed in option.speeds)}) > 1
