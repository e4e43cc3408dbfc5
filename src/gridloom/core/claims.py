"""Whom a waiting job may have evicted, and on what ground: priority, quota or the order."""

import math
from collections.abc import Sequence
from enum import Enum

from gridloom.core import order, progress
from gridloom.core.bucket import Bucket
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.topology import Ints
from gridloom.model.life import Job, JobState


class Ground(Enum):
    """Why one job may have another evicted."""

    PRIORITY = "its priority is higher"
    LENT = "its queue takes back what it lent"
    ORDER = "it comes first in the policy's order"


class Claims:
    """What the jobs of one cycle may have of each other's devices."""

    def __init__(self, index: Index, now: float) -> None:
        self.index, self.now = index, now
        self._running: dict[str, list[Job]] | None = None
        self._rooms: dict[tuple[str, int, tuple[str, ...]], tuple[Ints, int]] = {}
        self._too_many: dict[tuple[str, int, str], int] = {}
        self._rooms_at = -1
        self._leaving: list[Job] | None = None
        self._grounds: dict[str, Ground] = {}
        self._lent: dict[tuple[str, str, str], int] = {}
        self._lent_at = -1

    def candidates(self, job: Job, demand: Demand) -> list[Job]:
        """Return whom the policy lets the job evict; on what ground stands in ``_grounds``."""
        index = self.index
        anywhere = bool(demand.eligible.all())
        found = [
            (other, ground)
            for other in self._suspects(job, demand)
            if not other.wanted
            and (anywhere or demand.eligible[index.holdings[other.job_id].units].any())
            and (ground := self._ground(job, demand, other)) is not None
        ]
        self._grounds = {other.job_id: ground for other, ground in found}
        return [other for other, _ in found]

    def _suspects(self, job: Job, demand: Demand) -> list[Job]:
        """Return the running jobs among which candidates may be."""
        all_of = self._by_queue()
        if self.index.policy.preemption.min_run_s:  # when each is old enough is to be noted
            return [other for jobs in all_of.values() for other in jobs]
        return [
            other
            for queue, jobs in all_of.items()
            if self._is_near(job, queue) or self._is_lent(job, demand, queue)
            for other in jobs
        ]

    def _by_queue(self) -> dict[str, list[Job]]:
        """Return the jobs that run, may be evicted and were not told to go, by their queues."""
        if self._running is None:
            self._running = {}
            for job_id in self.index.holdings:
                job = self.index.state.jobs[job_id]
                runs = job.state is JobState.RUNNING or job.state is JobState.STARTING
                if runs and job.spec.preemptible and not job.wanted:
                    self._running.setdefault(job.spec.queue, []).append(job)
        return self._running

    def leaving(self) -> list[Job]:
        """Return the jobs that were told to go for somebody: they are as good as gone."""
        if self._leaving is None:
            jobs = map(self.index.state.jobs.__getitem__, self.index.holdings)
            self._leaving = [other for other in jobs if other.wanted == "evict"]
        return self._leaving

    def started(self, job: Job) -> None:
        """Take in that a job has started: it may be evicted like those that ran before."""
        if self._running is not None and job.spec.preemptible:
            self._running.setdefault(job.spec.queue, []).append(job)

    def look_again(self) -> None:
        """Take in that somebody was told to go."""
        self._running = self._leaving = None
        self._rooms.clear()
        self._too_many.clear()

    def _is_near(self, job: Job, queue: str) -> bool:
        """Return whether it is not quota that keeps a job from those of a queue."""
        return queue == job.spec.queue or not self.index.ledger.limited(queue)

    def _is_lent(self, job: Job, demand: Demand, queue: str) -> bool:
        """Return whether a queue has what that of the job may take back for it."""
        if self._lent_at != self.index.charges:
            self._lent_at = self.index.charges
            self._lent.clear()
        key = job.spec.queue, queue, demand.option.accelerator
        lent = self._lent.get(key)
        if lent is None:
            lent = self._lent[key] = self.index.ledger.lent(*key)
        return lent >= demand.devices

    def may_help(self, job: Job, demand: Demand) -> bool:
        """Return whether the job would fit, quotas aside, if all were gone who may be asked to."""
        index, capacity = self.index, self.index.capacity
        if index.policy.preemption.min_run_s or capacity.kept(job.job_id) is not None:
            return True
        if self._rooms_at != index.charges:
            self._rooms_at = index.charges
            self._rooms.clear()
            self._too_many.clear()
        who = job.spec.queue, job.spec.priority, demand.option.accelerator
        if demand.devices >= self._too_many.get(who, math.inf):
            return False  # those who want more have a claim to no more
        lent = tuple(
            queue
            for queue in self._by_queue()
            if not self._is_near(job, queue) and self._is_lent(job, demand, queue)
        )
        key = job.spec.queue, job.spec.priority, lent
        if key not in self._rooms:
            room = self._room_without(job, lent)
            self._rooms[key] = room, int(room.sum())
        room, total = self._rooms[key]
        if total < demand.devices:
            self._too_many[who] = demand.devices
            return False
        return demand.bounded or Finder(demand, capacity, room).fits()

    def are_possible(self, bucket: Bucket, job: Job) -> bool:
        """Return whether there may be anybody whom the job may have evicted."""
        index, policy = self.index, self.index.policy.preemption
        if policy.order or (
            policy.priority and min(index.running_at, default=0) < job.spec.priority
        ):
            return True
        return policy.reclaim and index.reclaims and index.owes(bucket)

    def are_in_vain(self, job: Job, needs: Sequence[tuple[str, int]]) -> bool:
        """Return whether it is known of all that a job could take that its claims do not reach."""
        if self._rooms_at != self.index.charges:
            return False
        queue, priority = job.spec.queue, job.spec.priority
        return all(
            devices >= self._too_many.get((queue, priority, kind), math.inf)
            for kind, devices in needs
        )

    def _room_without(self, job: Job, lent: Sequence[str]) -> Ints:
        """Return what is free for a job once nobody is left of those it may have a claim on."""
        gone = self.leaving().copy()
        policy = self.index.policy
        for queue, jobs in self._by_queue().items():
            if queue in lent:
                gone += jobs
            elif self._is_near(job, queue):
                own = policy.order == "share" and queue == job.spec.queue  # its share is one
                equal = policy.preemption.order and not own
                highest = job.spec.priority - (not equal)
                gone += [other for other in jobs if other.spec.priority <= highest]
        holdings = self.index.holdings
        held = {other.job_id: holdings[other.job_id] for other in gone}
        return self.index.capacity.once_freed(job.job_id, list(held.values()))

    def _ground(self, job: Job, demand: Demand, other: Job) -> Ground | None:
        """Return on what ground the job may have another evicted; nothing if on none."""
        policy, now = self.index.policy.preemption, self.now
        attempt = other.attempts[-1]
        if now - attempt.started_s < policy.min_run_s:
            self.index.again(attempt.started_s + policy.min_run_s)
            return None
        ledger, mine, theirs = self.index.ledger, job.spec.queue, other.spec.queue
        if mine != theirs and ledger.limited(theirs):
            # what a tenant has within its own nominal is its own, whatever the priorities
            above = policy.priority and self.outranks(job, other)
            lent = self._is_lent(job, demand, theirs)
            return Ground.LENT if lent and (policy.reclaim or above) else None
        if policy.priority and self.outranks(job, other):
            return Ground.PRIORITY
        if not policy.order:
            return None
        if other.evicted_s and now - other.evicted_s < policy.cooldown_s:
            self.index.again(other.evicted_s + policy.cooldown_s)
            return None
        if job.spec.priority != other.spec.priority or self._is_older(other, job):
            return None
        return Ground.ORDER if self._comes_before(job, other) else None

    def outranks(self, job: Job, other: Job) -> bool:
        """Return whether a job is of higher priority, and still so with the ages told in.

        Where age makes up for the priority exactly, neither has a claim: the order goes on to what
        else it knows, and may put the other before.
        """
        return job.spec.priority > other.spec.priority and self._is_older(job, other)

    def _is_older(self, one: Job, other: Job) -> bool:
        """Return whether one job comes before another by priority and age, whatever the order."""
        policy = self.index.policy
        if not policy.ageing_per_hour:
            return one.spec.priority > other.spec.priority
        return order.key(one, policy, self.now)[0] < order.key(other, policy, self.now)[0]

    def may_go(self, job: Job, demand: Demand, other: Job) -> bool:
        """Return whether, in the state of a trial, another may be evicted besides those released.

        Of a borrower only so many that it stays at its own; of a queue with a larger share only so
        many that its share does not fall below that of the job's queue. Larger it must have been:
        where the dominant kind is another, neither share changes, and of two equal ones each could
        have the other's job evicted for ever.
        """
        ledger, option = self.index.ledger, demand.option
        mine, theirs = job.spec.queue, other.spec.queue
        match self._grounds[other.job_id]:
            case Ground.LENT:
                return ledger.lends_to(mine, theirs, option.accelerator, option.devices)
            case Ground.ORDER if self.index.policy.order == "share":
                gone = other.attempts[-1].placement.option
                extra = {option.accelerator: option.devices}
                less = {gone.accelerator: -gone.devices}
                share, rival = ledger.rival_shares(mine, theirs, extra=extra, other_extra=less)
                return share <= rival and share < ledger.rival_shares(mine, theirs, extra=extra)[1]
            case _:
                return True

    def all_may_go(self) -> bool:
        """Return whether ``may_go`` says so of all candidates, whatever is released."""
        by_share = self.index.policy.order == "share"
        return not any(
            ground is Ground.LENT or (ground is Ground.ORDER and by_share)
            for ground in self._grounds.values()
        )

    def _comes_before(self, job: Job, other: Job) -> bool:
        """Return whether the policy's order alone puts a waiting job clearly before a running."""
        policy = self.index.policy
        gain = 1 - policy.preemption.gain_min
        match policy.order:
            case "remaining":
                return progress.remaining_s(job) < gain * progress.left_s(other, self.now)
            case "attained":
                return self._has_had_less(job, other)
            case "share":
                return job.spec.queue != other.spec.queue
            case "deadline":
                return order.value(job, policy, self.now) < order.value(other, policy, self.now)
            case _:
                return False

    def _has_had_less(self, job: Job, other: Job) -> bool:
        """Return whether a running job is in a class behind the waiting one's by now."""
        policy, attempt = self.index.policy, other.attempts[-1]
        devices = attempt.placement.option.devices
        had_s = other.device_s + devices * attempt.held_s(self.now)
        mine = round(order.value(job, policy, self.now))
        if mine >= len(policy.attained_steps_s):
            return False
        left_s = policy.attained_steps_s[mine] - had_s  # until it leaves the waiting one's class
        if left_s > 0:
            self.index.again(self.now + left_s / devices)
        return left_s <= 0

    def lost_s(self, other: Job) -> float:
        """Return the seconds that evicting a job costs it: to save, to start anew, or its work."""
        forecast = other.spec.forecast
        if forecast.checkpoint_s <= other.spec.grace_s:
            return forecast.checkpoint_s + forecast.restart_s
        attempt = other.attempts[-1]
        done_s = progress.done_s(other, attempt, self.now)
        return max(done_s - other.kept_s, 0.0) + forecast.restart_s
