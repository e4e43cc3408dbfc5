"""Running jobs that change their shape or their place at a checkpoint: to grow, or to make room.

A job that may take several shapes grows into what is idle, and shrinks before anybody is evicted
for good; where the policy defragments, jobs move when that lets a blocked one start. Whoever
changes keeps running: its new places are reserved for it before it is told to save its state.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from gridloom.core import order, progress, reconcile
from gridloom.core.capacity import Holding
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Bucket, Index
from gridloom.core.queueing import Block
from gridloom.core.turn import Turn
from gridloom.model.life import Job, JobState, Placement
from gridloom.model.reason import Reason, Why

_MOVERS_MAX = 16
"""Jobs that change for one other, at most."""

_DOMAINS_MAX = 16
"""Domains that are looked at for one job, those with most room first."""

_GAIN_MIN = 2.0
"""What a change must bring against what it costs, in device-seconds."""

_SLACK_S = 60.0
"""How long a reservation outlasts the grace of whoever is told to change."""


class Change(msgspec.Struct, frozen=True):
    """A running job and the places to which it goes over."""

    job: Job
    places: Placement


class Plan(msgspec.Struct, frozen=True):
    """What lets a blocked job start.

    Attributes:
        places: Where it will start.
        changes: Who goes where for it.
    """

    places: Placement
    changes: tuple[Change, ...]


def make_room(turn: Turn, bucket: Bucket, job: Job, block: Block, start_s: float) -> bool:
    """Let running jobs shrink or move for a blocked one, if that lets it start and pays.

    Args:
        turn: Of this step.
        bucket: Where the job waits.
        job: The job.
        block: Why it cannot start.
        start_s: When it would start otherwise; infinity when nobody knows.
    """
    index = turn.index
    if block.code is not Why.IN_USE or job.reservation is not None:
        return False
    if not (index.policy.elastic or index.policy.defragment):
        return False
    if bucket.helpless == (index.moment, job.job_id):
        return False
    movers = _movers(turn, bucket, job)
    for demand in bucket.shape.possible:
        plan = _plan(turn, job, demand, movers)
        if plan is not None and _pays(turn, demand, plan, start_s):
            _carry_out(turn, job, plan)
            return True
    return False


def grow(turn: Turn) -> None:
    """Let jobs take what is idle while nobody waits for it, first those that come first."""
    index = turn.index
    if not index.policy.elastic or any(len(bucket) for bucket in index.buckets.values()):
        return
    jobs = [turn.state.jobs[job_id] for job_id in index.holdings]
    for job in order.in_order(job for job in jobs if job.spec.elastic):
        if not _may_change(turn, job):
            continue
        change = _larger(turn, job)
        if change is not None:
            _tell(turn, change)


def _larger(turn: Turn, job: Job) -> Change | None:
    """Return the fastest shape that the job could go over to, if the change pays."""
    index = turn.index
    present = job.attempts[-1].placement
    now_fast = progress.speed(job, present.option, present.step_s)
    left_s = _left_s(turn, job)
    cost_s = job.spec.forecast.checkpoint_s + job.spec.forecast.restart_s
    with _Trial(index) as trial:
        trial.release(job)
        for demand in index.shape(job.spec).possible:
            option = demand.option
            more = option.devices - present.option.devices
            if more <= 0 or index.ledger.shortage(job.spec.queue, option.accelerator, more):
                continue
            spot = trial.find(job, demand)
            if spot is None:
                continue
            fast = progress.speed(job, option, predicted_step_s(spot))
            saved_s = left_s if left_s == math.inf else left_s / now_fast - left_s / fast
            if fast > now_fast and saved_s > _GAIN_MIN * cost_s:
                return Change(job, trial.place(spot))
    return None


def _movers(turn: Turn, bucket: Bucket, job: Job) -> list[Job]:
    """Return who might change for the job, those with most to give first."""
    index = turn.index
    movers = []
    for job_id in index.holdings:
        other = turn.state.jobs[job_id]
        held = index.holdings[job_id]
        if (
            other.spec.priority <= job.spec.priority
            and other.spec.preemptible
            and bucket.shape.eligible[held.units].any()
            and _may_change(turn, other)
            and (index.policy.defragment or _smaller(index, other))
        ):
            movers.append(other)
    movers.sort(
        key=lambda other: (
            other.spec.priority,
            -_surplus(index, other),
            other.attempts[-1].placement.option.devices,
            other.job_id,
        )
    )
    return movers[:_MOVERS_MAX]


def _may_change(turn: Turn, job: Job) -> bool:
    """Return whether a running job can save its state in time, and has run for long enough."""
    attempt = job.attempts[-1]
    at_s = attempt.started_s + turn.index.policy.resize_s_min
    if job.state is not JobState.RUNNING or job.wanted:
        return False
    if job.spec.forecast.checkpoint_s > job.spec.grace_s:
        return False
    if turn.now < at_s:
        turn.index.again(at_s)
        return False
    return True


def _smaller(index: Index, job: Job) -> list[Demand]:
    """Return the shapes with fewer devices than the present, the largest first."""
    if not (job.spec.elastic and index.policy.elastic):
        return []
    present = job.attempts[-1].placement.option.devices
    smaller = [d for d in index.shape(job.spec).possible if d.option.devices < present]
    return sorted(smaller, key=lambda demand: -demand.option.devices)


def _surplus(index: Index, job: Job) -> int:
    """Return how many devices the job could give up."""
    smaller = _smaller(index, job)
    if not smaller:
        return 0
    return job.attempts[-1].placement.option.devices - smaller[-1].option.devices


def _plan(turn: Turn, job: Job, demand: Demand, movers: Sequence[Job]) -> Plan | None:
    """Return the cheapest of the plans that clear one domain for the job; nothing if none does."""
    index, option = turn.index, demand.option
    if index.ledger.shortage(job.spec.queue, option.accelerator, option.devices):
        return None
    plans: list[tuple[float, int, Plan]] = []
    for units in _domains(index, demand, movers):
        plan = _cleared(index, job, demand, movers, units)
        if plan is not None:
            plans.append((_cost(plan), len(plans), plan))
    return min(plans)[2] if plans else None


def _domains(index: Index, demand: Demand, movers: Sequence[Job]) -> list[tuple[int, int]]:
    """Return the runs of units of which one must hold the job, those with most room first."""
    tree = index.tree
    with _Trial(index) as trial:
        for mover in movers:
            trial.release(mover)
        finder = Finder(demand, index.capacity, index.capacity.available)
        rooms = []
        for site, (must, _) in demand.gang.items():
            blocks = finder.blocks(demand.chains[site][-1])
            first, end = tree.of_site[must][site]
            counts = blocks.counts[must][first:end]
            need = -(-demand.devices // blocks.sizes[must])
            rooms += [
                (-int(counts[at]), must, first + at)
                for at in np.flatnonzero(counts >= need).tolist()
            ]
    return [tree.span(level, domain) for _, level, domain in sorted(rooms)[:_DOMAINS_MAX]]


def _cleared(
    index: Index, job: Job, demand: Demand, movers: Sequence[Job], units: tuple[int, int]
) -> Plan | None:
    """Return what clears one domain for a job: the fewest of the movers, in their order."""
    inside = [
        mover
        for mover in movers
        if ((held := index.holdings[mover.job_id].units) >= units[0]).any()
        and (held < units[1]).any()
    ]
    found: tuple[Sequence[Job], Plan] | None = None
    with _Trial(index) as trial:
        for count in range(1, len(inside) + 1):
            trial.release(inside[count - 1])
            spot = trial.find_within(job, demand, units)
            if spot is None:
                continue
            with _Trial(index) as later:
                places = later.occupy(spot)
                changes = _placed_anew(index, inside[:count])
            if changes:
                found = inside[:count], Plan(places, changes)
                break
    return _pruned(index, job, demand, units, found) if found is not None else None


def _pruned(
    index: Index,
    job: Job,
    demand: Demand,
    units: tuple[int, int],
    found: tuple[Sequence[Job], Plan],
) -> Plan:
    """Return the plan without those movers whose places nobody needs: they stay."""
    movers, plan = found
    for mover in movers[:-1]:  # without the last there was no place
        fewer = [other for other in movers if other is not mover]
        with _Trial(index) as trial:
            for other in fewer:
                trial.release(other)
            spot = trial.find_within(job, demand, units)
            if spot is None:
                continue
            places = trial.occupy(spot)
            if changes := _placed_anew(index, fewer):
                movers, plan = fewer, Plan(places, changes)
    return plan


def _placed_anew(index: Index, movers: Sequence[Job]) -> tuple[Change, ...] | None:
    """Return where each of the movers goes; nothing if one of them has nowhere to go.

    As few of them shrink as can be, the first ones.
    """
    for shrinking in range(len(movers) + 1):
        changes = []
        with _Trial(index) as part:
            for position, mover in enumerate(movers):
                change = _anew(index, part, mover, smaller=position < shrinking)
                if change is None:
                    break
                changes.append(change)
        if len(changes) == len(movers):
            return tuple(change for change in changes if not _stays(change))
    return None


def _anew(index: Index, trial: "_Trial", mover: Job, *, smaller: bool) -> Change | None:
    """Return where a mover goes, in its present shape unless it has to shrink."""
    present = mover.attempts[-1].placement.option
    shapes = [d for d in index.shape(mover.spec).possible if d.option == present and not smaller]
    for demand in [*shapes, *_smaller(index, mover)]:
        if (spot := trial.find(mover, demand)) is not None:
            return Change(mover, trial.occupy(spot))
    return None


def _stays(change: Change) -> bool:
    """Return whether the job would go over to what it has."""
    present = change.job.attempts[-1].placement
    return present.option == change.places.option and present.tasks == change.places.tasks


def _pays(turn: Turn, demand: Demand, plan: Plan, start_s: float) -> bool:
    """Return whether the earlier start is worth the time that the changes cost, in devices."""
    waits_s = turn.index.policy.resize_s_min if start_s == math.inf else start_s - turn.now
    return demand.option.devices * waits_s > _GAIN_MIN * _cost(plan)


def _cost(plan: Plan) -> float:
    """Return the device-seconds that the changes cost."""
    cost = 0.0
    for change in plan.changes:
        forecast = change.job.spec.forecast
        devices = change.job.attempts[-1].placement.option.devices
        cost += devices * (forecast.checkpoint_s + forecast.restart_s)
    return cost


def _left_s(turn: Turn, job: Job) -> float:
    """Return the seconds of training that are left, at the forecast's speed."""
    attempt = job.attempts[-1]
    done_s = progress.done_s(job, attempt, turn.now) - attempt.kept_s
    return progress.remaining_s_at_start(job, attempt) - done_s


def _carry_out(turn: Turn, job: Job, plan: Plan) -> None:
    grace_s = max(change.job.spec.grace_s for change in plan.changes)
    for change in plan.changes:
        _tell(turn, change, for_job=job.job_id)
    turn.index.reserve(job, plan.places, turn.now + grace_s + _SLACK_S)


def _tell(turn: Turn, change: Change, for_job: str = "") -> None:
    """Tell a job to save its state and go on elsewhere, and keep that place for it."""
    job, option = change.job, change.places.option
    present = job.attempts[-1].placement.option
    resized = option != present
    does = (
        f"goes on with {option.devices} {option.accelerator} instead of {present.devices}"
        if resized
        else "moves to other nodes"
    )
    why = f", to make room for {for_job}" if for_job else ", as nobody waits for what is idle"
    reconcile.evict(
        turn, job, Reason(code=Why.RESIZED if resized else Why.MOVED, sentence=does + why)
    )
    turn.index.reserve(job, change.places, turn.now + job.spec.grace_s + _SLACK_S)


class _Trial:
    """Devices released and taken one after the other, and all of it undone in the end."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._undo: list[tuple[bool, Holding]] = []
        self._grown = index.capacity.grown

    def __enter__(self) -> "_Trial":
        return self

    def __exit__(self, *_: object) -> None:
        capacity = self._index.capacity
        for taken, held in reversed(self._undo):
            if taken:
                capacity.give_back(held)
            else:
                capacity.take(held)
        capacity.grown = self._grown  # all is as it was

    def release(self, job: Job) -> None:
        """Let a job's devices be free."""
        held = self._index.holdings[job.job_id]
        self._index.capacity.give_back(held)
        self._undo.append((False, held))

    def find(self, job: Job, demand: Demand) -> Spot | None:
        """Return the best place for a job now."""
        capacity = self._index.capacity
        available = capacity.available_to(job.job_id)
        return Finder(demand, capacity, available).best(self._index.ranker)

    def find_within(self, job: Job, demand: Demand, units: tuple[int, int]) -> Spot | None:
        """Return the best place for a job now in a run of units."""
        capacity = self._index.capacity
        available = np.zeros_like(capacity.available)
        first, end = units
        available[first:end] = capacity.available_to(job.job_id)[first:end]
        return Finder(demand, capacity, available).best(self._index.ranker)

    def occupy(self, spot: Spot) -> Placement:
        """Let a place be taken, and return it."""
        placement, held = self._index.place(spot)
        self._index.capacity.take(held)
        self._undo.append((True, held))
        return placement

    def place(self, spot: Spot) -> Placement:
        """Return a place without taking it."""
        return self._index.place(spot)[0]
