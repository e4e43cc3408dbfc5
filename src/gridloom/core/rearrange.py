"""Running jobs that change their shape or their place at a checkpoint: to grow, or to make room.

A job that may take several shapes grows into what is idle, and shrinks before anybody is evicted
for good; where the policy defragments, jobs move when that lets a blocked one start. Whoever
changes keeps running: its new places are reserved for it before it is told to save its state.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from gridloom.core import budget, order, progress, reconcile
from gridloom.core.bucket import Bucket
from gridloom.core.capacity import Holding
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.queueing import Block
from gridloom.core.rank import best_step_s
from gridloom.core.spoken import Ahead, Rest, rest_for
from gridloom.core.topology import Ints
from gridloom.core.turn import Turn
from gridloom.model.life import Job, JobState, Placement
from gridloom.model.reason import Reason, Why

_MOVERS_MAX = 16
"""Jobs that change for one other, at most."""

_DOMAINS_MAX = 16
"""Domains that are looked at for one job, those with most room first."""

_GAIN_MIN = 2.0
"""What a change must bring against what it costs, in device-seconds."""


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


def make_room(turn: Turn, bucket: Bucket, job: Job, block: Block, ahead: Ahead) -> bool:
    """Let running jobs shrink or move for a blocked one, if that lets it start and pays.

    Args:
        turn: Of this step.
        bucket: Where the job waits.
        job: The job.
        block: Why it cannot start.
        ahead: What those who come before it are to have.
    """
    index = turn.index
    if block.code is not Why.IN_USE or job.reservation is not None:
        return False
    if not (index.policy.elastic or index.policy.defragment):
        return False
    movers = _movers(turn, bucket, job)
    if not movers:
        return False
    scene = _Scene(turn, ahead, movers)
    for demand in bucket.shape.possible:
        plan = _plan(scene, job, demand, movers)
        if plan is not None and _pays(turn, demand, plan, job.promised_s or math.inf):
            _carry_out(turn, job, plan)
            return True
    return False


def grow(turn: Turn, ahead: Ahead) -> None:
    """Let jobs take what is idle while nobody waits for it, first those that come first.

    Args:
        turn: Of this step.
        ahead: What is booked.
    """
    index = turn.index
    if not index.policy.elastic or any(len(bucket) for bucket in index.buckets.values()):
        return
    jobs = [turn.state.jobs[job_id] for job_id in index.holdings]
    for job in order.in_order(job for job in jobs if job.spec.elastic):
        if not _may_change(turn, job):
            continue
        change = _larger(_Scene(turn, ahead, [job]), job)
        if change is not None:
            _tell(turn, change)


class _Scene:
    """Where jobs are to change: the grid without what is spoken for.

    Attributes:
        index: The grid.
        now: The present.
        freed: What jobs have given back in trials, by job.
        taken: What jobs have taken in trials.
    """

    def __init__(self, turn: Turn, ahead: Ahead, movers: Sequence[Job]) -> None:
        self.index, self.now = turn.index, turn.now
        self.freed: dict[str, Holding] = {}
        self.taken: list[Holding] = []
        self._ahead = ahead
        self._start_s = turn.now + max((mover.spec.grace_s for mover in movers), default=0.0)
        self._rests: dict[tuple[str, int], Rest] = {}

    def rest(self, job: Job, demand: Demand) -> Rest:
        """Return what others leave to a job that starts once all who change have saved."""
        key = job.job_id, id(demand)
        if key not in self._rests:
            self._rests[key] = rest_for(self.index, self._ahead, job, demand, start_s=self._start_s)
        return self._rests[key]


def _larger(scene: _Scene, job: Job) -> Change | None:
    """Return the fastest shape that the job could go over to, if the change pays."""
    index = scene.index
    present = job.attempts[-1].placement
    now_fast = progress.speed(job, present.option, present.step_s)
    left_s = progress.left_s(job, scene.now)
    cost_s = job.spec.forecast.checkpoint_s + job.spec.forecast.restart_s
    with _Trial(scene) as trial:
        trial.release(job)
        for demand in index.shape(job.spec).possible:
            option = demand.option
            more = option.devices - present.option.devices
            if more <= 0 or index.ledger.shortage(job.spec.queue, option.accelerator, more):
                continue
            spot = trial.find(job, demand)
            if spot is None or budget.overspent(index, job, option, predicted_step_s(spot)):
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


def _plan(scene: _Scene, job: Job, demand: Demand, movers: Sequence[Job]) -> Plan | None:
    """Return the cheapest of the plans that clear one domain for the job; nothing if none does."""
    index, option = scene.index, demand.option
    if index.ledger.shortage(job.spec.queue, option.accelerator, option.devices):
        return None
    if budget.overspent(index, job, option, best_step_s(option)):
        return None
    with _Trial(scene) as trial:
        if trial.find(job, demand) is not None:  # it waits, but not for devices
            return None
    plans: list[tuple[float, int, Plan]] = []
    for units in _domains(scene, job, demand, movers):
        plan = _cleared(scene, job, demand, movers, units)
        if plan and not budget.overspent(index, job, option, plan.places.step_s):
            plans.append((_cost(plan), len(plans), plan))
    return min(plans)[2] if plans else None


def _domains(
    scene: _Scene, job: Job, demand: Demand, movers: Sequence[Job]
) -> list[tuple[int, int]]:
    """Return the runs of units of which one must hold the job, those with most room first."""
    tree, capacity = scene.index.tree, scene.index.capacity
    with _Trial(scene) as trial:
        for mover in movers:
            trial.release(mover)
        finder = Finder(demand, capacity, trial.available(job, demand))
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
    scene: _Scene, job: Job, demand: Demand, movers: Sequence[Job], units: tuple[int, int]
) -> Plan | None:
    """Return what clears one domain for a job: the fewest of the movers, in their order."""
    inside = [
        mover
        for mover in movers
        if ((held := scene.index.holdings[mover.job_id].units) >= units[0]).any()
        and (held < units[1]).any()
    ]
    found: tuple[Sequence[Job], Plan] | None = None
    with _Trial(scene) as trial:
        for count in range(1, len(inside) + 1):
            trial.release(inside[count - 1])
            spot = trial.find_within(job, demand, units)
            if spot is None:
                continue
            with _Trial(scene) as later:
                places = later.occupy(spot)
                changes = _placed_anew(scene, inside[:count])
            if changes:
                found = inside[:count], Plan(places, changes)
                break
    return _pruned(scene, job, demand, units, found) if found is not None else None


def _pruned(
    scene: _Scene,
    job: Job,
    demand: Demand,
    units: tuple[int, int],
    found: tuple[Sequence[Job], Plan],
) -> Plan:
    """Return the plan without those movers whose places nobody needs: they stay."""
    movers, plan = found
    for mover in movers[:-1]:  # without the last there was no place
        fewer = [other for other in movers if other is not mover]
        with _Trial(scene) as trial:
            for other in fewer:
                trial.release(other)
            spot = trial.find_within(job, demand, units)
            if spot is None:
                continue
            places = trial.occupy(spot)
            if changes := _placed_anew(scene, fewer):
                movers, plan = fewer, Plan(places, changes)
    return plan


def _placed_anew(scene: _Scene, movers: Sequence[Job]) -> tuple[Change, ...] | None:
    """Return where each of the movers goes; nothing if one of them has nowhere to go.

    As few of them shrink as can be, the first ones.
    """
    for shrinking in range(len(movers) + 1):
        changes = []
        with _Trial(scene) as part:
            for position, mover in enumerate(movers):
                change = _anew(scene.index, part, mover, smaller=position < shrinking)
                if change is None:
                    break
                changes.append(change)
        if len(changes) == len(movers):
            return tuple(change for change in changes if not _stays(scene.index, change))
    return None


def _anew(index: Index, trial: "_Trial", mover: Job, *, smaller: bool) -> Change | None:
    """Return where a mover goes, in its present shape unless it has to shrink."""
    present = mover.attempts[-1].placement.option
    shapes = [d for d in index.shape(mover.spec).possible if d.option == present and not smaller]
    for demand in [*shapes, *_smaller(index, mover)]:
        if (spot := trial.find(mover, demand)) is not None:
            return Change(mover, trial.occupy(spot))
    return None


def _stays(index: Index, change: Change) -> bool:
    """Return whether the job would go over to what it has, or to devices just like it."""
    present = change.job.attempts[-1].placement
    held, places = index.holdings[change.job.job_id], index.capacity.holding(change.places)
    return (
        present.option == change.places.option
        and np.array_equal(held.units, places.units)
        and np.array_equal(held.devices, places.devices)
    )


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


def _carry_out(turn: Turn, job: Job, plan: Plan) -> None:
    grace_s = max(change.job.spec.grace_s for change in plan.changes)
    for change in plan.changes:
        _tell(turn, change, for_job=job.job_id)
    reconcile.reserve(turn, job, plan.places, grace_s)


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
    reconcile.reserve(turn, job, change.places, job.spec.grace_s)


class _Trial:
    """Devices released and taken one after the other, and all of it undone in the end."""

    def __init__(self, scene: _Scene) -> None:
        self._scene, self._index = scene, scene.index
        self._undo: list[tuple[str, Holding]] = []
        self._grown = self._index.capacity.grown

    def __enter__(self) -> "_Trial":
        return self

    def __exit__(self, *_: object) -> None:
        capacity = self._index.capacity
        for job_id, held in reversed(self._undo):
            if job_id:
                capacity.take(held)
                del self._scene.freed[job_id]
            else:
                capacity.give_back(held)
                self._scene.taken.pop()
        capacity.grown = self._grown  # all is as it was

    def release(self, job: Job) -> None:
        """Let a job's devices be free."""
        held = self._index.holdings[job.job_id]
        self._index.capacity.give_back(held)
        self._scene.freed[job.job_id] = held
        self._undo.append((job.job_id, held))

    def find(self, job: Job, demand: Demand) -> Spot | None:
        """Return the best place for a job now."""
        available = self.available(job, demand)
        return Finder(demand, self._index.capacity, available).best(self._index.ranker)

    def find_within(self, job: Job, demand: Demand, units: tuple[int, int]) -> Spot | None:
        """Return the best place for a job now in a run of units."""
        capacity = self._index.capacity
        available = np.zeros_like(capacity.available)
        first, end = units
        available[first:end] = self.available(job, demand)[first:end]
        return Finder(demand, capacity, available).best(self._index.ranker)

    def available(self, job: Job, demand: Demand) -> Ints:
        """Return what others leave to a job of what is free now."""
        available = self._index.capacity.available_to(job.job_id)
        return self._scene.rest(job, demand).of(available, self._scene.freed, self._scene.taken)

    def occupy(self, spot: Spot) -> Placement:
        """Let a place be taken, and return it."""
        placement, held = self._index.place(spot)
        self._index.capacity.take(held)
        self._scene.taken.append(held)
        self._undo.append(("", held))
        return placement

    def place(self, spot: Spot) -> Placement:
        """Return a place without taking it."""
        return self._index.place(spot)[0]
