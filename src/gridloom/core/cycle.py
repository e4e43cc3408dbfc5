"""One cycle: what is reserved starts, then whoever is next and fits; for others room is made."""

import math
from collections.abc import Sequence

import numpy as np

from gridloom.core import budget, calendar, order, preempt, progress, rearrange
from gridloom.core.bucket import Bucket
from gridloom.core.capacity import Holding
from gridloom.core.conservative import Schedule
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.queueing import Block, Line, Pass
from gridloom.core.spoken import Ahead
from gridloom.core.turn import Turn
from gridloom.model.action import StartAttempt
from gridloom.model.life import Attempt, Job, JobState, Placement, Task
from gridloom.model.reason import Why


def run(turn: Turn) -> None:
    """Start every job whose turn it is and that fits; evict for those who may have others evicted.

    Nothing that this reads changes until the next fact, so that a second run would do nothing.
    """
    index = turn.index
    index.dirty = False
    if turn.state.inventory is None:
        return
    calendar.turn_pages(turn)
    index.reorder()
    _start_reserved(turn)
    evicting = preempt.Search(index, turn.now)
    if index.policy.blocked == "conservative":
        _as_promised(turn, evicting)
        index.dirty = False
        return
    ahead = Pass(index, turn.now)
    line = Line(index, ahead, evicting)
    while (seen := line.next()) is not None:
        bucket, job = seen.bucket, seen.job
        decided = ahead.decide(bucket, job)
        if isinstance(decided, Block):
            decided = _take_kept(evicting, ahead, bucket, job, decided)
        if isinstance(decided, Block):
            limit_s = decided.limit_s
            room = _make_room(turn, evicting, ahead, bucket, job, decided)
            if room is not None:
                ahead.room_made(job, *room)
                decided = Block(Why.MAKING_ROOM)
            ahead.blocked(bucket, job, decided)
            # room is made for one at a time: the next of its like may have a claim to more
            line.blocked(seen, math.inf if job.reservation is not None else limit_s)
        else:
            ahead.started(job, decided)
            _start(turn, job, decided)
            evicting.started(job)
            line.started(seen)
    rearrange.grow(turn, ahead)
    for promise in ahead.promises:
        turn.state.jobs[promise.job_id].promised_s = promise.start_s
    index.dirty = False


def _as_promised(turn: Turn, evicting: preempt.Search) -> None:
    """Start every job whose promise is due; evict for the first of those that are blocked."""
    index, schedule = turn.index, Schedule(turn.index, turn.now)
    for bucket, job, block in schedule.decisions():
        if block is not None:
            _make_room(turn, evicting, schedule, bucket, job, block)
            continue
        assert job.promised is not None
        placed = index.capacity.place_kept(job.promised, index.ranker.prices)
        assert placed is not None
        _begin(turn, job, *placed)
        evicting.started(job)
    rearrange.grow(turn, schedule)


def _start_reserved(turn: Turn) -> None:
    """Start the jobs all of whose reserved places are free now, as they were promised."""
    index = turn.index
    keepers = [turn.state.jobs[job_id] for job_id in index.capacity.keepers()]
    for job in order.in_order(keepers):
        if index.bucket(job) is None:
            continue
        placed = _on_reserved(index, job) or _on_spares(index, job)
        if placed is None or calendar.runs_into_booking(turn, job, placed[0]):
            continue
        if _suits(index, job, *placed):
            _begin(turn, job, *placed)
        else:
            index.unreserve(job)


def _on_reserved(index: Index, job: Job) -> tuple[Placement, Holding] | None:
    """Return the places that are reserved for a job, if all of them are free."""
    if job.reservation is None:
        return None
    if budget.short(index, job, job.reservation.option, job.reservation.step_s):
        return None
    return index.capacity.place_kept(job.reservation, index.ranker.prices)


def _on_spares(index: Index, job: Job) -> tuple[Placement, Holding] | None:
    """Return where a job fits on what is kept for it alone, its spare nodes among that."""
    kept = index.capacity.kept(job.job_id)
    if not job.spares or job.spec.on_loss == "wait" or kept is None:
        return None
    own = np.zeros_like(index.capacity.available)
    own[kept[0]] = np.minimum(index.capacity.available_to(job.job_id)[kept[0]], kept[1])
    for demand in index.shape(job.spec).possible:
        if index.shortage(job, demand.option.accelerator, demand.devices):
            continue
        spot = Finder(demand, index.capacity, own).best(index.ranker)
        if spot is not None and not budget.overspent(
            index, job, demand.option, predicted_step_s(spot)
        ):
            return index.place(spot)
    return None


def _suits(index: Index, job: Job, placement: Placement, held: Holding) -> bool:
    """Return whether the places are still such as the job needs: the nodes may be others by now."""
    available = np.zeros_like(index.capacity.free)
    available[held.units] = held.devices
    return any(
        Finder(demand, None, available).fits()
        for demand in index.shape(job.spec).possible
        if demand.option == placement.option
    )


def _take_kept(
    evicting: preempt.Search, ahead: Pass, bucket: Bucket, job: Job, block: Block
) -> Spot | Block:
    """Give up what is kept for jobs of lower priority, if that lets a job start; say where."""
    index = ahead.index
    if block.code is not Why.IN_USE or not index.policy.preemption.priority:
        return block
    keepers = [index.state.jobs[job_id] for job_id in index.capacity.keepers()]
    lower = [
        other
        for other in reversed(order.in_order(keepers))
        if other.reservation is not None
        and other.state is JobState.QUEUED
        and evicting.outranks(job, other)
    ]
    names = [other.job_id for other in lower]
    enough = next((n for n in range(1, len(names) + 1) if _fits(index, bucket, names[:n])), 0)
    given = [(other, other.reservation, other.reserved_until_s) for other in lower[:enough]]
    for other, _, _ in given:
        index.unreserve(other)
    decided = ahead.decide(bucket, job) if given else block
    if isinstance(decided, Block):  # what is booked, promised or short stands in its way as well
        for other, places, until_s in given:
            assert places is not None
            index.reserve(other, places, until_s)
        return block
    return decided


def _fits(index: Index, bucket: Bucket, released: Sequence[str]) -> bool:
    """Return whether a shape of a bucket has a place, nothing being kept for some jobs."""
    room = index.capacity.if_released(released)
    return any(Finder(demand, index.capacity, room).fits() for demand in bucket.shape.possible)


def _make_room(
    turn: Turn, evicting: preempt.Search, ahead: Ahead, bucket: Bucket, job: Job, block: Block
) -> tuple[Sequence[Job], float] | None:
    """Let others shrink, move or go if that lets a job start, and keep for it what they leave.

    Returns:
        Who has to go, and when all have left; nothing if no room could be made.
    """
    if rearrange.make_room(turn, bucket, job, block, ahead):
        evicting.look_again()
        return (), job.reserved_until_s
    found = evicting.victims(bucket, job, block, ahead)
    if found is None:
        return None
    preempt.carry_out(turn, job, found)
    return found.jobs, turn.now + found.grace_s


def _start(turn: Turn, job: Job, spot: Spot) -> None:
    index = turn.index
    _begin(turn, job, *index.place(spot))


def _begin(turn: Turn, job: Job, placement: Placement, held: Holding) -> None:
    state, index = turn.state, turn.index
    state.epoch += 1
    run_s = progress.run_s(job, placement.option, placement.step_s)
    attempt = Attempt(
        number=len(job.attempts) + 1,
        epoch=state.epoch,
        placement=placement,
        tasks={
            task.domain: Task(placement=task, lease_until_s=turn.lease_until_s(task.site))
            for task in placement.tasks
        },
        started_s=turn.now,
        resumed=bool(job.attempts),
        kept_s=job.kept_s,
    )
    job.attempts.append(attempt)
    job.reason, job.promised_s = None, 0.0
    index.unreserve(job)
    queue = index.queues.get(job.spec.queue)
    if queue is not None and queue.accelerator_hours:
        state.allowance.hold(
            queue,
            f"{job.job_id}/{attempt.number}",
            devices=placement.option.devices,
            predicted_s=run_s if run_s < math.inf else 0.0,
            now=turn.now,
        )
    index.move(job, JobState.STARTING)
    index.occupy(job, held)
    if job.spec.spares or job.spares:
        index.spare(job, _spares(turn, job, placement))
    turn.actions.append(
        StartAttempt(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            placement=placement,
            restart_count=attempt.number - 1,
            lease_until_s=turn.now + turn.terms.lease_s,
        )
    )


def _spares(turn: Turn, job: Job, placement: Placement) -> tuple[str, ...]:
    """Return idle nodes for a loss: such as the job may use, those nearest to it first."""
    index = turn.index
    tree, wanted = index.tree, job.spec.spares
    demand = next(d for d in index.shape(job.spec).demands if d.option == placement.option)
    available = index.capacity.available_to(job.job_id)
    first = tree.number[placement.tasks[0].domain]
    idle = [
        number
        for number in range(len(tree.nodes))
        if all(
            demand.eligible[unit] and available[unit] == tree.unit_devices[unit] > 0
            for unit in tree.units_of(tree.domains[number])
        )
    ]
    idle.sort(key=lambda number: (-_shared_levels(index, first, number), number))
    return tuple(tree.domains[number] for number in idle[:wanted])


def _shared_levels(index: Index, node: int, other: int) -> int:
    """Return how many levels, from the site on, hold both nodes; -1 if their sites differ."""
    tree = index.tree
    if tree.node_site[node] != tree.node_site[other]:
        return -1
    one, two = int(tree.first_unit[node]), int(tree.first_unit[other])
    return sum(tree.above(level, one) == tree.above(level, two) for level in range(tree.node_level))
