"""Preemption: the least set of running jobs whose end really lets another start."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gridloom.core import order, progress, reconcile
from gridloom.core.capacity import Holding
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Bucket, Index
from gridloom.core.queueing import Block
from gridloom.core.topology import Ints
from gridloom.core.turn import Turn
from gridloom.model.life import Job, JobState, Placement
from gridloom.model.reason import Reason, Why

_DOMAINS_MAX = 32
"""Domains in which a set of victims is looked for, those with most room first."""

_PRUNED_MAX = 4
"""Sets that are made as small as can be, the cheapest first."""

_SLACK_S = 60.0
"""How long a reservation outlasts the graces of the victims."""


class Victims(msgspec.Struct, frozen=True):
    """Jobs to be evicted, and what that makes room for.

    Attributes:
        jobs: The victims, in the order in which they are told.
        places: Where the other job will start.
        reason: What the victims are told.
    """

    jobs: tuple[Job, ...]
    places: Placement
    reason: Reason


class Search:
    """Looks for victims in one cycle; whoever is told to stop in it is not looked at again."""

    def __init__(self, index: Index, now: float) -> None:
        self.index, self.now = index, now
        self._running: list[Job] | None = None

    def victims(self, bucket: Bucket, job: Job, block: Block) -> Victims | None:
        """Return whom to evict for a job that cannot start; nothing if that would not help."""
        if block.code not in {Why.IN_USE, Why.QUOTA, Why.HELD_FOR_EARLIER_JOB, Why.WOULD_DELAY}:
            return None
        if job.reservation is not None or not self._worth_a_look(bucket, job):
            return None
        for demand in bucket.shape.possible:
            candidates = self._candidates(job, demand)
            if candidates and (found := self._least(job, demand, candidates)):
                self._running = None
                return found
        bucket.helpless = (self.index.moment, job.job_id)
        return None

    def _worth_a_look(self, bucket: Bucket, job: Job) -> bool:
        """Return whether there may be anybody whom the job may have evicted."""
        index, policy = self.index, self.index.policy.preemption
        if bucket.helpless == (index.moment, job.job_id):
            return False
        if policy.order or (
            policy.priority and min(index.running_at, default=0) < job.spec.priority
        ):
            return True
        return (
            policy.reclaim
            and index.reclaims
            and any(
                index.ledger.owed(job.spec.queue, demand.option.accelerator, demand.option.devices)
                == demand.option.devices
                for demand in bucket.shape.possible
            )
        )

    def _candidates(self, job: Job, demand: Demand) -> list[Job]:
        """Return whom the policy lets the job evict, those to go first in front."""
        index = self.index
        if self._running is None:
            self._running = [
                index.state.jobs[job_id]
                for job_id in index.holdings
                if index.state.jobs[job_id].spec.preemptible
            ]
        allowed = [
            other
            for other in self._running
            if other.state in {JobState.STARTING, JobState.RUNNING}
            and not other.wanted
            and self._may_evict(job, demand, other)
            and demand.eligible[index.holdings[other.job_id].units].any()
        ]
        return sorted(allowed, key=lambda other: self._rank(job, other))

    def _may_evict(self, job: Job, demand: Demand, other: Job) -> bool:
        policy, now = self.index.policy.preemption, self.now
        attempt = other.attempts[-1]
        if now - attempt.started_s < policy.min_run_s:
            self.index.again(attempt.started_s + policy.min_run_s)
            return False
        kind = demand.option.accelerator
        ledger, mine, theirs = self.index.ledger, job.spec.queue, other.spec.queue
        lent = mine != theirs and ledger.lends_to(mine, theirs, kind, demand.option.devices)
        if policy.reclaim and lent:
            return True
        if mine != theirs and ledger.limited(theirs) and not lent:
            return False  # what a tenant has within its own nominal is its own
        if policy.priority and job.spec.priority > other.spec.priority:
            return True
        if other.evicted_s and now - other.evicted_s < policy.cooldown_s:
            self.index.again(other.evicted_s + policy.cooldown_s)
            return False
        return (
            policy.order
            and job.spec.priority == other.spec.priority
            and self._comes_before(job, other)
        )

    def _comes_before(self, job: Job, other: Job) -> bool:
        """Return whether the policy's order alone puts a waiting job clearly before a running."""
        policy = self.index.policy
        gain = 1 - policy.preemption.gain_min
        match policy.order:
            case "remaining":
                left_s = progress.remaining_s(other)
                attempt = other.attempts[-1]
                left_s -= progress.done_s(other, attempt, self.now) - attempt.kept_s
                return progress.remaining_s(job) < gain * left_s
            case "attained":
                ran_s = self.now - other.attempts[-1].started_s
                had_s = other.device_s + other.attempts[-1].placement.option.devices * ran_s
                steps = policy.attained_steps_s
                return order.value(job, policy) < sum(had_s >= step_s for step_s in steps)
            case "share":
                return job.spec.queue != other.spec.queue
            case "deadline":
                return order.value(job, policy) < order.value(other, policy)
            case _:
                return False

    def _rank(self, job: Job, other: Job) -> tuple[object, ...]:
        """Return what victims are sorted by: lowest priority, then least work lost per device."""
        lost_s = self._lost_s(other)
        return other.spec.priority, lost_s, -other.attempts[-1].epoch

    def _lost_s(self, other: Job) -> float:
        """Return the seconds that evicting a job costs it: to save, to start anew, or its work."""
        forecast = other.spec.forecast
        if forecast.checkpoint_s <= other.spec.grace_s:
            return forecast.checkpoint_s + forecast.restart_s
        attempt = other.attempts[-1]
        done_s = progress.done_s(other, attempt, self.now)
        return max(done_s - other.kept_s, 0.0) + forecast.restart_s

    def _least(self, job: Job, demand: Demand, candidates: Sequence[Job]) -> Victims | None:
        with _Trial(self, job, demand) as trial:
            for other in candidates:
                trial.release(other)
            if not trial.fits():
                return None
            found: list[tuple[tuple[object, ...], int, list[Job]]] = []
            for domain in self._domains(demand, trial):
                inside = [o for o in candidates if _overlaps(self.index, o, domain)]
                if (chosen := trial.enough(inside)) is not None:
                    cost = self._cost(chosen)
                    found.append((cost, len(found), chosen))
            found.sort(key=lambda entry: entry[:2])
            best: tuple[tuple[object, ...], list[Job]] | None = None
            for _, _, chosen in found[:_PRUNED_MAX]:
                pruned = trial.pruned(chosen)
                if best is None or self._cost(pruned) < best[0]:
                    best = (self._cost(pruned), pruned)
            if best is None:
                return None
            places = trial.places(best[1])
        if places is None:
            return None
        return Victims(tuple(best[1]), places, _told(job))

    def _cost(self, victims: Sequence[Job]) -> tuple[object, ...]:
        """Return what sets of victims are compared by: priorities, then device-seconds lost."""
        lost_s = sum(
            self._lost_s(victim) * victim.attempts[-1].placement.option.devices
            for victim in victims
        )
        highest = max(victim.spec.priority for victim in victims) if victims else 0
        return highest, lost_s, len(victims), tuple(victim.job_id for victim in victims)

    def _domains(self, demand: Demand, trial: "_Trial") -> Iterator[tuple[int, int]]:
        """Yield the runs of units in each of which a gang might go, those with most room first."""
        tree = self.index.tree
        if demand.spec.min_sites <= 1:
            rooms = []
            for site, (must, _) in demand.gang.items():
                for chain in demand.chains[site][-1:]:
                    blocks = trial.finder().blocks(chain)
                    first, end = tree.within(must, 0, site)
                    need = demand.ranks // blocks.sizes[must]
                    counts = blocks.counts[must]
                    rooms += [
                        (-int(counts[at]), at, must)
                        for at in range(first, end)
                        if counts[at] >= need
                    ]
            for _, at, level in sorted(rooms)[:_DOMAINS_MAX]:
                yield tree.span(level, at)
        yield 0, len(tree.unit_devices)


class _Trial:
    """Victims given back one by one, and all of it undone in the end."""

    def __init__(self, search: Search, job: Job, demand: Demand) -> None:
        self._search, self._job, self._demand = search, job, demand
        self._released: dict[str, Job] = {}
        self._grown = search.index.capacity.grown

    def __enter__(self) -> "_Trial":
        return self

    def __exit__(self, *_: object) -> None:
        for other in list(self._released.values()):
            self.take_back(other)
        self._search.index.capacity.grown = self._grown  # all is as it was

    def release(self, other: Job) -> None:
        """Let a job's devices be free."""
        index = self._search.index
        self._released[other.job_id] = other
        index.capacity.give_back(self._held(other))
        option = other.attempts[-1].placement.option
        index.ledger.give_back(other.spec.queue, option.accelerator, option.devices)

    def take_back(self, other: Job) -> None:
        """Undo that."""
        index = self._search.index
        del self._released[other.job_id]
        index.capacity.take(self._held(other))
        option = other.attempts[-1].placement.option
        index.ledger.take(other.spec.queue, option.accelerator, option.devices)

    def finder(self) -> Finder:
        """Return a finder in the state of the trial."""
        capacity = self._search.index.capacity
        return Finder(self._demand, capacity, capacity.available_to(self._job.job_id))

    def fits(self) -> bool:
        """Return whether the job could start now, its queue's quota and share allowing."""
        index, option = self._search.index, self._demand.option
        queue = self._job.spec.queue
        if index.ledger.shortage(queue, option.accelerator, option.devices):
            return False
        return self._fair() and self.finder().fits()

    def enough(self, inside: Sequence[Job]) -> list[Job] | None:
        """Return as many of ``inside``, from the front, as let the job fit; nothing if all do not.

        More of them never hurt, but for shares, which the last check is for.
        """
        self._only(inside)
        if not self.fits():
            return None
        low, high = 0, len(inside)
        while low < high:
            middle = (low + high) // 2
            self._only(inside[:middle])
            if self.fits():
                high = middle
            else:
                low = middle + 1
        return list(inside[:low])

    def pruned(self, chosen: Sequence[Job]) -> list[Job]:
        """Return those of ``chosen`` without whom the job would not fit."""
        self._only(chosen)
        kept = []
        for other in reversed(chosen):
            self.take_back(other)
            if not self.fits():
                self.release(other)
                kept.append(other)
        return kept[::-1]

    def places(self, victims: Sequence[Job]) -> Placement | None:
        """Return where the job will start once the victims are gone."""
        self._only(victims)
        index = self._search.index
        spot = self.finder().best(index.ranker) if self.fits() else None
        if spot is None:
            return None
        return index.place(spot)[0]

    def _only(self, wanted: Sequence[Job]) -> None:
        names = {other.job_id for other in wanted}
        for other in [o for o in self._released.values() if o.job_id not in names]:
            self.take_back(other)
        for other in wanted:
            if other.job_id not in self._released:
                self.release(other)

    def _held(self, other: Job) -> Holding:
        return self._search.index.holdings[other.job_id]

    def _fair(self) -> bool:
        """Return whether shares allow it, where shares are what lets the job evict.

        The job's queue, with its devices, must not be above the queue of a victim without its own.
        """
        index = self._search.index
        if index.policy.order != "share" or not self._released:
            return True
        option = self._demand.option
        extra = {option.accelerator: option.devices}
        for other in self._released.values():
            if other.spec.priority < self._job.spec.priority:
                continue
            mine, theirs = index.ledger.rival_shares(
                self._job.spec.queue, other.spec.queue, extra=extra
            )
            if mine > theirs:
                return False
        return True


def carry_out(turn: Turn, job: Job, found: Victims) -> None:
    """Tell the victims to go, and keep what they leave for the job."""
    grace_s = max((victim.spec.grace_s for victim in found.jobs), default=0.0)
    until_s = turn.now + grace_s + turn.terms.kill_margin_s + _SLACK_S
    for victim in found.jobs:
        reconcile.evict(turn, victim, found.reason)
    turn.index.reserve(job, found.places, until_s)


def _told(job: Job) -> Reason:
    queue = f" of queue {job.spec.queue}" if job.spec.queue else ""
    return Reason(
        code=Why.PREEMPTED,
        sentence=f"makes room for {job.job_id}{queue} (priority {job.spec.priority})",
        remedy="it goes on from its checkpoint when its turn comes again",
    )


def _overlaps(index: Index, other: Job, units: tuple[int, int]) -> bool:
    held: Ints = index.holdings[other.job_id].units
    return bool(np.any((held >= units[0]) & (held < units[1])))
