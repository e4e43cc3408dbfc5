"""One pass over the waiting jobs: who may start where, and what a blocked one keeps from others."""

import heapq
import math
from collections.abc import Sequence
from typing import assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from gridloom.core import backfill, budget, holdback, progress
from gridloom.core.bucket import Bucket
from gridloom.core.claims import Claims
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder, Spot, predicted_step_s
from gridloom.core.index import Index
from gridloom.core.order import Key
from gridloom.core.rank import best_step_s
from gridloom.core.shortage import Shortage
from gridloom.core.spoken import Later, Rest, closed_to
from gridloom.core.topology import Ints
from gridloom.model.booking import Booking
from gridloom.model.life import Job
from gridloom.model.reason import Why

_NO_CLAIM = frozenset(
    {
        Why.QUOTA,
        Why.ACCELERATOR_HOURS,
        Why.BEHIND_STRICT,
        Why.MAKING_ROOM,
        Why.HOLDING_PLACES,
        Why.BOOKED,
    }
)
"""What blocks a job without giving it a claim on devices."""


class Block(msgspec.Struct, frozen=True):
    """Why a job cannot start now.

    Attributes:
        code: The rule that stands in its way.
        by: The job or booking for which it is kept back; empty for none.
        shortage: What its queue lacks, if that is it.
        start_s: When the job in ``by`` was promised to start.
        limit_s: Those of its like that run for no longer than that may still start; 0 for none.
    """

    code: Why
    by: str = ""
    shortage: Shortage | None = None
    start_s: float = 0.0
    limit_s: float = 0.0


class Pass:
    """What has been decided so far in one cycle, and what may still be given away."""

    def __init__(self, index: Index, now: float) -> None:
        self.index, self.now = index, now
        self.promises: list[backfill.Promise] = []
        self.stopped_by = ""
        self._strict: dict[str, str] = {}
        self._held: NDArray[np.bool_] | None = None
        self._held_for: list[tuple[NDArray[np.bool_], str]] = []
        self._guarded: NDArray[np.bool_] | None = None
        self._guards_all = False
        self._bookings = [
            (booking, booked(index, booking))
            for _, booking in sorted(index.state.bookings.items())
            if booking.end_s > now
        ]
        self._releases: backfill.Releases | None = None

    def decide(self, bucket: Bucket, job: Job) -> Spot | Block:
        """Return the best place for the first job of a bucket, or what stands in its way."""
        if by := self._strict.get(bucket.queue, self.stopped_by):
            return Block(Why.BEHIND_STRICT, by)
        if job.reservation is not None and job.spec.on_loss == "wait":
            return Block(Why.HOLDING_PLACES, limit_s=math.inf)
        return self._try(bucket, job)

    def _try(self, bucket: Bucket, job: Job) -> Spot | Block:
        grown = self.index.capacity.grown
        known = bucket.failed == grown and job.reservation is None
        short: Shortage | None = None
        best: Spot | None = None
        block: Block | None = None
        for demand in bucket.shape.possible:
            if short_of := self.short(job, demand):
                short = short or short_of
                continue
            found = self._place(job, demand, known=known)
            if isinstance(found, Spot) and (late := self._overspent(job, found)):
                short = short or late  # it would take longer there than its queue has hours for
            elif isinstance(found, Block):
                block = block if block and block.code is not Why.IN_USE else found
            elif best is None or found.cost < best.cost:
                best = found
                if not comparable(bucket):
                    break
        if best is not None:
            return best
        if block is None:
            return Block(short.code if short else Why.QUOTA, shortage=short)
        if block.code is Why.IN_USE and short is None and job.reservation is None:
            bucket.failed = grown
        return block

    @property
    def full_may_pass(self) -> bool:
        """Whether one more job that finds no place changes nothing for the others."""
        policy = self.index.policy
        if policy.elastic or policy.defragment:
            return False
        return policy.blocked == "skip" or (policy.blocked == "easy" and self._guards_all)

    def blocked(self, bucket: Bucket, job: Job, block: Block) -> None:
        """Take in that a job cannot start: others may have to leave it what it could use."""
        if bucket.queue in self.index.strict:
            self._strict.setdefault(bucket.queue, job.job_id)
        if block.code in _NO_CLAIM:
            return
        policy = self.index.policy
        match policy.blocked:
            case "skip" | "conservative":
                pass  # of those with promises ``conservative`` takes care
            case "stop":
                self.stopped_by = self.stopped_by or job.job_id
            case "hold":
                self._hold(bucket, job)
            case "easy":
                self._guard(bucket, job)
            case _:
                assert_never(policy.blocked)

    def unheld(self, job: Job) -> Ints:
        """Return what the job could have of the nodes that are not kept for earlier jobs."""
        available = self.index.capacity.available_to(job.job_id)
        return available if self._held is None else np.where(self._held, 0, available)

    def held_nodes(self) -> dict[int, str]:
        """Return the nodes that are kept for earlier jobs, by number, and for whom."""
        held: dict[int, str] = {}
        for units, job_id in self._held_for:
            for node in np.unique(self.index.tree.unit_node[units]).tolist():
                held.setdefault(node, job_id)
        return held

    def started(self, job: Job, spot: Spot) -> None:
        """Take in that a job starts: what it runs into a promise with is not there any more."""
        run_s = progress.run_s(job, spot.demand.option, predicted_step_s(spot))
        for promise in self.promises:
            if self.now + run_s > promise.start_s:
                promise.slack[spot.units] -= spot.devices
            else:
                promise.released |= {job.job_id}

    def room_made(self, job: Job, gone: Sequence[Job], start_s: float) -> None:
        """Take in that places are kept for a job, which starts once others have left them.

        Args:
            job: The job.
            gone: Those who were told to go.
            start_s: When they have left at the latest.
        """
        assert job.reservation is not None
        index, option = self.index, job.reservation.option
        held = index.capacity.holding(job.reservation)
        end_s = start_s + progress.run_s(job, option, job.reservation.step_s)
        for promise in self.promises:
            for other in gone:
                if other.job_id not in promise.released:
                    theirs = index.holdings[other.job_id]
                    promise.slack[theirs.units] += theirs.devices
                    promise.released |= {other.job_id}
            if end_s > promise.start_s:
                promise.slack[held.units] -= held.devices

    def short(self, job: Job, demand: Demand) -> Shortage | None:
        """Return what the job's queue lacks for a shape; nothing if it lacks nothing."""
        return budget.short(self.index, job, demand.option, best_step_s(demand.option))

    def _overspent(self, job: Job, spot: Spot) -> Shortage | None:
        step_s = predicted_step_s(spot)
        return budget.overspent(self.index, job, spot.demand.option, step_s)

    def rest(self, job: Job, end_s: float) -> Rest:
        """Return what bookings and those who come before leave to a job until ``end_s``."""
        held = () if self._held is None else (self._held,)
        later = tuple(
            Later(promise.slack, promise.released)
            for promise in self.promises
            if promise.start_s < end_s
        )
        return Rest(closed_to(self.index, job, end_s, self._bookings, held), later)

    def _place(self, job: Job, demand: Demand, *, known: bool) -> Spot | Block:
        """Return the best place for one shape; that there is none may be known already."""
        capacity = self.index.capacity
        dear = budget.too_dear(job, demand, self.index.ranker.prices)
        if known or (demand.devices > capacity.total and job.job_id not in capacity.keepers()):
            return Block(Why.OVER_BUDGET, limit_s=math.inf) if dear else Block(Why.IN_USE)
        available = capacity.available_to(job.job_id)
        if dear:
            available = np.where(budget.units_at(demand.tree, dear), 0, available)
        plain = self._unsuspected(demand, available)
        if plain is None:
            return Block(Why.OVER_BUDGET, limit_s=math.inf) if dear else Block(Why.IN_USE)
        if not (self.promises or self._bookings or self._held is not None):
            return plain
        spot, run_s = plain, -1.0
        while (longer_s := progress.run_s(job, demand.option, predicted_step_s(spot))) > run_s:
            run_s = longer_s  # where it runs longer, it may run into what begins later
            left, block = self._left(job, available, self.now + run_s)
            if left is None or (left[spot.units] >= spot.devices).all():
                break
            if (other := self._unsuspected(demand, left)) is None:
                return block
            spot = other
        return spot

    def _unsuspected(self, demand: Demand, available: Ints) -> Spot | None:
        """Return the best place, on nodes that failed the last job only if there is no other."""
        index = self.index
        spot = Finder(demand, index.capacity, available).best(index.ranker)
        if spot is None or not index.any_suspects or not index.suspects[spot.units].any():
            return spot
        others = np.where(index.suspects, 0, available)
        return Finder(demand, index.capacity, others).best(index.ranker) or spot

    def _left(self, job: Job, available: Ints, end_s: float) -> tuple[Ints | None, Block]:
        """Return what of the available the job may have until ``end_s``; nothing for all of it."""
        left: Ints | None = None
        limit_s = 0.0
        block = Block(Why.IN_USE)
        for booking, units in self._bookings:
            if booking.start_s < end_s and job.spec.queue not in booking.queues:
                left = np.where(units, 0, available if left is None else left)
                limit_s = max(limit_s, booking.start_s - self.now)
                block = Block(Why.BOOKED, booking.name, start_s=booking.start_s, limit_s=limit_s)
        for promise in self.promises:
            if end_s > promise.start_s:
                left = np.minimum(available if left is None else left, promise.slack)
                limit_s = max(limit_s, promise.start_s - self.now)
                block = Block(
                    Why.WOULD_DELAY, promise.job_id, start_s=promise.start_s, limit_s=limit_s
                )
        if self._held is not None:
            left = np.where(self._held, 0, available if left is None else left)
            block = Block(Why.HELD_FOR_EARLIER_JOB, self._held_for[0][1], limit_s=limit_s)
        return left, block

    def _hold(self, bucket: Bucket, job: Job) -> None:
        """Keep for a job nodes in which it would fit."""
        if 0 < self.index.policy.patience_s > self.now - job.submitted_s:
            return
        demands, available = bucket.shape.possible, self.index.capacity.available_to(job.job_id)
        kept = np.zeros(len(available), np.bool_) if self._held is None else self._held
        for demand in demands:
            kept = kept | budget.dear_units(self.index, job, demand)
        units = holdback.to_keep(self.index, demands, available, kept)
        if units is not None:
            self._held_for.append((units, job.job_id))
            self._held = units if self._held is None else self._held | units

    def _guard(self, bucket: Bucket, job: Job) -> None:
        """Promise a start to a job, if nobody before it competes for the same devices."""
        eligible = bucket.shape.eligible
        if self._guards_all and bucket.shape.possible:
            return
        if job.reservation is not None:  # it has places of its own
            return
        if self._guarded is not None and (eligible & self._guarded).any():
            return
        self._guarded = eligible if self._guarded is None else self._guarded | eligible
        self._guards_all = bool(self._guarded.all())
        if self._releases is None or self._releases.at != (self.index.changes, self.index.charges):
            self._releases = backfill.Releases(self.index, self.now)
        promised = backfill.promise(
            self.index,
            job,
            bucket.shape.possible,
            self.index.capacity.available_to(job.job_id),
            self._releases,
        )
        if promised is None:
            self._hold(bucket, job)
        else:
            self.promises.append(promised)


class Line:
    """The waiting jobs of all buckets in one order, as far as they can still start in a cycle.

    Of a bucket only the first is in it; a blocked one takes its bucket out of it, unless those
    that run for less may pass. Where shares decide, each queue has a lane of its own, and only
    the fronts of the lanes are compared whenever a share has changed.
    """

    def __init__(
        self, index: Index, ahead: Pass | None = None, claims: Claims | None = None
    ) -> None:
        """Line up.

        Args:
            index: The grid and who waits.
            ahead: The pass in which jobs are blocked: buckets are left out that would be, and of
                which nothing else would come. Without it all are in the line.
            claims: What the jobs may have of each other's devices.
        """
        self._index = index
        self._ahead, self._claims = ahead, claims
        self._by_share = index.policy.order == "share"
        self._lanes: dict[str, list[tuple[Key, int, Bucket, Job]]] = {}
        # what is kept for somebody may be given up in this cycle: then others may hope again
        for_good = not index.capacity.keepers()
        for number, bucket in enumerate(index.buckets.values()):
            head = bucket.head()
            if head is not None and not (for_good and self._is_hopeless_for_good(bucket, head[1])):
                lane = self._lanes.setdefault(self._lane(bucket), [])
                lane.append((head[0], number, bucket, head[1]))
        for lane in self._lanes.values():
            heapq.heapify(lane)
        self._fronts = [self._front(name, lane) for name, lane in self._lanes.items()]
        heapq.heapify(self._fronts)

    def next(self) -> "Turnstile | None":
        """Return whose turn it is."""
        while self._fronts:
            name = self._fronts[0][2]
            lane = self._lanes[name]
            if not lane:
                heapq.heappop(self._fronts)
                continue
            front = self._front(name, lane)
            if front != self._fronts[0]:  # its queue has more by now, or its first is gone
                heapq.heapreplace(self._fronts, front)
                continue
            key, number, bucket, job = heapq.heappop(lane)
            if not self._is_hopeless(bucket, job):
                return Turnstile(number, bucket, key, job)
        return None

    def started(self, seen: "Turnstile") -> None:
        """Let the next job of a bucket come after one that has started."""
        self._push(seen, seen.bucket.head())

    def blocked(self, seen: "Turnstile", limit_s: float) -> None:
        """Let the next job of a bucket come that may run for no longer than that, if any."""
        if limit_s > 0:
            self._push(seen, seen.bucket.shorter(seen.key, limit_s))

    def _is_hopeless(self, bucket: Bucket, job: Job) -> bool:
        """Return whether the first of a bucket has no place and nobody whom it may have evicted."""
        if not self._is_blocked(bucket, job):
            return False
        if bucket.helpless == (self._index.moment, job.job_id):
            return True
        claims = self._claims
        return claims is None or not (
            claims.are_possible(bucket, job) and not claims.are_in_vain(job, bucket.shape.needs)
        )

    def _is_hopeless_for_good(self, bucket: Bucket, job: Job) -> bool:
        """Return the same, whoever starts in this cycle before it is the job's turn."""
        policy = self._index.policy
        if policy.preemption.priority and (policy.ageing_per_hour or self._by_share):
            return False  # one of lower priority may start before it
        possible = self._claims is not None and self._claims.are_possible(bucket, job)
        return self._is_blocked(bucket, job) and not possible

    def _is_blocked(self, bucket: Bucket, job: Job) -> bool:
        """Return whether a job cannot start, which is nothing to any other."""
        index, ahead = self._index, self._ahead
        if ahead is None or job.reservation is not None or job.spares:
            return False
        if not index.is_short(bucket) and not (_is_full(index, bucket) and ahead.full_may_pass):
            return False
        queue = index.queues.get(bucket.queue)
        # else it may have to be looked at again, or others have to wait for it
        return queue is None or not (queue.accelerator_hours or queue.order == "strict")

    def _push(self, seen: "Turnstile", found: tuple[Key, Job] | None) -> None:
        if found is not None:
            key, job = found
            name = self._lane(seen.bucket)
            lane = self._lanes[name]
            heapq.heappush(lane, (key, seen.number, seen.bucket, job))
            if lane[0][0] == key:
                heapq.heappush(self._fronts, self._front(name, lane))

    def _lane(self, bucket: Bucket) -> str:
        """Return what is compared before the keys: the queue, or nothing."""
        return bucket.queue if self._by_share else ""

    def _front(
        self, name: str, lane: Sequence[tuple[Key, int, Bucket, Job]]
    ) -> tuple[tuple[float, ...], Key, str]:
        """Return by what lanes are compared."""
        share = self._index.path_share(name) if self._by_share else ()
        return share, lane[0][0], name


class Turnstile(msgspec.Struct, frozen=True):
    """Whose turn it is: a job and its bucket, by number and key."""

    number: int
    bucket: Bucket
    key: Key
    job: Job


def _is_full(index: Index, bucket: Bucket) -> bool:
    """Return whether it is known that a bucket's jobs find no place."""
    return bucket.failed == index.capacity.grown or bucket.shape.least > index.capacity.total


def comparable(bucket: Bucket) -> bool:
    """Return whether the step times of all options are known, so that places can be compared."""
    return all(option.step_s or option.speeds for option in bucket.shape.spec.options)


def booked(index: Index, booking: Booking) -> NDArray[np.bool_]:
    """Return, for each unit, whether a booking is of it."""
    tree = index.tree
    return tree.per_unit(
        [
            domain in booking.nodes or tree.sites[site].name in booking.nodes
            for domain, site in zip(tree.domains, tree.node_site.tolist(), strict=True)
        ]
    )
