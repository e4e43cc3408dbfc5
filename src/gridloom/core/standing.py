"""Who waits in which order where promises are kept, what may be had, and what stands in the way."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from gridloom.core.bucket import Bucket
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.order import Key
from gridloom.core.outlook import run_of
from gridloom.core.queueing import Block, Pass, booked
from gridloom.model.life import Job
from gridloom.model.reason import Why


class Seat(msgspec.Struct):
    """A waiting job in one cycle.

    Attributes:
        number: Its place in the order.
        bucket: Where it waits.
        job: The job.
        demands: What it could take, as far as its queue may have that now and it is among the
            first, to whom promises are given.
        why: What stands in its way.
        varied: Whether it may run longer in one place than in another.
        starts: Whether it starts now.
    """

    number: int
    bucket: Bucket
    job: Job
    demands: tuple[Demand, ...]
    why: Block
    varied: bool
    starts: bool = False


def told(index: Index, asked: Mapping[str, Job]) -> Iterator[tuple[Job, Block]]:
    """Yield what stands in the way of jobs for which promises are kept."""
    now = index.state.now_s
    limits = Pass(index, now)
    fronts: dict[str, str] = {}
    for bucket, job in in_order(index):
        front = fronts.setdefault(bucket.queue, job.job_id)
        if job.job_id not in asked:
            continue
        demands, block = allowed_of(limits, bucket, job)
        if front != job.job_id and bucket.queue in index.strict:
            block = Block(Why.BEHIND_STRICT, front)
        elif demands:
            block = _in_the_way(index, job, demands)
        yield job, block


def in_order(index: Index) -> Iterator[tuple[Bucket, Job]]:
    """Yield all who wait for devices in the policy's order."""
    by_share = index.policy.order == "share"
    waiting: list[tuple[tuple[tuple[float, ...], Key], Bucket, Job]] = []
    for bucket in index.buckets.values():
        share = tuple(index.ledger.path_share(bucket.queue)) if by_share else ()
        waiting += [((share, key), bucket, job) for key, job in bucket.jobs()]
    waiting.sort(key=lambda entry: entry[0])
    for _, bucket, job in waiting:
        yield bucket, job


def due_s_of(index: Index, seats: Sequence[Seat], due_s: float) -> float:
    """Return when something is due although nothing happens.

    That is when a promise begins or, if it could not be kept, ends, and when the patience of a job
    is over that has none.

    Args:
        index: The grid and what was promised.
        seats: Who waits.
        due_s: When something is due anyway: who runs outlives its prediction.
    """
    now = index.state.now_s
    for seat in seats:
        job = seat.job
        if job.promised is None:
            at_s = job.submitted_s + index.policy.patience_s
        elif job.promised_s > now:
            at_s = job.promised_s
        else:
            at_s = index.promises.promised[job.job_id].run.end_s(job.promised_s)
        if now < at_s < due_s:
            due_s = at_s
    return due_s


def allowed_of(limits: Pass, bucket: Bucket, job: Job) -> tuple[tuple[Demand, ...], Block]:
    """Return what a job's queue lets it have now, and what else stands in its way."""
    demands = []
    why = Block(Why.IN_USE)
    for demand in bucket.shape.possible:
        short = limits.short(job, demand)
        if short is None:
            demands.append(demand)
        elif why.shortage is None:
            why = Block(short.code, shortage=short)
    return tuple(demands), Block(Why.IN_USE) if demands else why


def _in_the_way(index: Index, job: Job, demands: Sequence[Demand]) -> Block:
    """Return the first promise or booking into which a job would run that fits now."""
    for demand in demands:
        available = index.capacity.available_to(job.job_id)
        spot = Finder(demand, index.capacity, available).best(index.ranker)
        if spot is None:
            continue
        run = run_of(job, demand.option, predicted_step_s(spot))
        found = list(_spoken_for(index, job, spot, run.end_s(index.state.now_s)))
        if found:
            start_s, code, by = min(found)
            return Block(code, by, start_s=start_s)
    return Block(Why.IN_USE)


def _spoken_for(
    index: Index, job: Job, spot: Spot, end_s: float
) -> Iterator[tuple[float, Why, str]]:
    """Yield what of a spot belongs to others before a time: from when on, as what and whose."""
    for name, booking in sorted(index.state.bookings.items()):
        if booking.start_s >= end_s or job.spec.queue in booking.queues:
            continue
        if booked(index, booking)[spot.units].any():
            yield booking.start_s, Why.BOOKED, name
    for _, other in in_order(index):
        if other is job or other.promised is None or other.promised_s >= end_s:
            continue
        if np.isin(index.capacity.holding(other.promised).units, spot.units).any():
            yield other.promised_s, Why.WOULD_DELAY, other.job_id
