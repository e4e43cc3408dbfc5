"""One cycle: what is reserved starts, then whoever is next and fits; for others room is made."""

from gridloom.core import preempt
from gridloom.core.capacity import Holding
from gridloom.core.gang import Spot, predicted_step_s
from gridloom.core.index import Bucket, Index
from gridloom.core.queueing import Block, Pass, heads
from gridloom.core.turn import Turn
from gridloom.model.action import StartAttempt
from gridloom.model.life import Attempt, Job, JobState, Placement, Task


def run(turn: Turn) -> None:
    """Start every job whose turn it is and that fits; evict for those who may have others evicted.

    Nothing that this reads changes until the next fact, so that a second run would do nothing.
    """
    index = turn.index
    index.dirty = False
    if turn.state.inventory is None:
        return
    _start_reserved(turn)
    ahead = Pass(index, turn.now)
    evicting = preempt.Search(index, turn.now)
    for bucket, job in heads(index):
        decided = ahead.decide(bucket, job)
        if isinstance(decided, Block):
            decided = _make_room(turn, evicting, bucket, job, decided)
            ahead.blocked(bucket, job, decided)
        else:
            ahead.started(job, decided)
            _start(turn, job, decided)
    for promise in ahead.promises:
        turn.state.jobs[promise.job_id].promised_s = promise.start_s
    index.dirty = False


def _start_reserved(turn: Turn) -> None:
    """Start the jobs all of whose reserved places are free now, as they were promised."""
    index = turn.index
    for job_id in list(index.capacity.keepers()):
        job = turn.state.jobs[job_id]
        bucket = index.bucket(job)
        if bucket is None or job.reservation is None:
            continue
        option = job.reservation.option
        if index.ledger.shortage(job.spec.queue, option.accelerator, option.devices):
            continue
        placed = index.capacity.place_kept(job.reservation, index.ranker.prices)
        if placed is not None:
            _begin(turn, job, *placed)


def _make_room(
    turn: Turn, evicting: preempt.Search, bucket: Bucket, job: Job, block: Block
) -> Block:
    """Evict others for a job, if that lets it start, and keep for it what becomes free."""
    found = evicting.victims(bucket, job, block)
    if found is None:
        return block
    preempt.carry_out(turn, job, found)
    return Block(preempt.MAKING_ROOM)


def _start(turn: Turn, job: Job, spot: Spot) -> None:
    index = turn.index
    placement, held = index.capacity.place(
        spot.demand.option, spot.units, spot.ranks, index.ranker.prices
    )
    _begin(turn, job, settled(index, placement, spot), held)


def settled(index: Index, placement: Placement, spot: Spot) -> Placement:
    """Return the placement with the level that it reaches and its predicted step time."""
    return Placement(
        option=placement.option,
        tasks=placement.tasks,
        price_per_hour=placement.price_per_hour,
        level=index.ranker.placement_level(spot.site, spot.gang),
        step_s=predicted_step_s(spot),
    )


def _begin(turn: Turn, job: Job, placement: Placement, held: Holding) -> None:
    state, index = turn.state, turn.index
    state.epoch += 1
    lease_until_s = turn.now + turn.terms.lease_s
    attempt = Attempt(
        number=len(job.attempts) + 1,
        epoch=state.epoch,
        placement=placement,
        tasks={
            task.domain: Task(placement=task, lease_until_s=lease_until_s)
            for task in placement.tasks
        },
        started_s=turn.now,
        resumed=bool(job.attempts),
        kept_s=job.kept_s,
    )
    job.attempts.append(attempt)
    job.reason, job.promised_s = None, 0.0
    index.unreserve(job)
    index.move(job, JobState.STARTING)
    index.occupy(job, held)
    turn.actions.append(
        StartAttempt(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            placement=placement,
            restart_count=attempt.number - 1,
            lease_until_s=lease_until_s,
        )
    )
