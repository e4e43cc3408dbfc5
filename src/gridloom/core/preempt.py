"""Preemption: the least set of running jobs whose end really lets another start."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gridloom.core import budget, reconcile
from gridloom.core.bucket import Bucket
from gridloom.core.capacity import Holding
from gridloom.core.claims import Claims
from gridloom.core.demand import Demand
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.queueing import Block
from gridloom.core.rank import best_step_s
from gridloom.core.spoken import Ahead, Rest, rest_for
from gridloom.core.topology import Ints
from gridloom.core.turn import Turn
from gridloom.model.life import Job, Placement
from gridloom.model.reason import Reason, Why

_DOMAINS_MAX = 32
"""Domains in which a set of victims is looked for, those with most room first."""

_HELPED = frozenset({Why.IN_USE, Why.QUOTA, Why.HELD_FOR_EARLIER_JOB, Why.WOULD_DELAY})
"""What stands in the way of a job and may be cleared by evicting others."""

_PRUNED_MAX = 4
"""Sets that are made as small as can be, the cheapest first."""


class Victims(msgspec.Struct, frozen=True):
    """Jobs to be evicted, and what that makes room for.

    Attributes:
        jobs: The victims, in the order in which they are told.
        places: Where the other job will start.
        reason: What the victims are told.
        grace_s: After which all are gone, and those who were told before.
    """

    jobs: tuple[Job, ...]
    places: Placement
    reason: Reason
    grace_s: float


class Search(Claims):
    """Looks for victims in one cycle; whoever is told to stop in it is not looked at again."""

    def __init__(self, index: Index, now: float) -> None:
        super().__init__(index, now)
        self._grace_at, self._grace_s = -1, 0.0

    def victims(self, bucket: Bucket, job: Job, block: Block, ahead: Ahead) -> Victims | None:
        """Return whom to evict for a job that cannot start; nothing if that would not help.

        Args:
            bucket: Where the job waits.
            job: The job.
            block: Why it cannot start.
            ahead: What those who come before it are to have.
        """
        if block.code not in _HELPED:
            return None
        key = self.index.moment, job.job_id
        if job.reservation is not None or bucket.helpless == key:
            return None
        if not self.are_possible(bucket, job):
            return None
        open_to_all = True
        for number, demand in enumerate(bucket.shape.possible):
            if not self.may_help(job, demand) or self._is_overspent(job, demand):
                continue
            rest = self._rest(job, demand, ahead)
            seen = *key, rest.key
            free = rest.is_all
            if not free and bucket.barred.get(number) == seen:
                open_to_all = False
                continue
            candidates = self.candidates(job, demand)
            if candidates and (found := self._least(job, demand, candidates, rest)):
                self.look_again()
                return found
            if candidates and not free:
                open_to_all = False
                bucket.barred[number] = seen
        if open_to_all:
            bucket.helpless = key
        return None

    def _is_overspent(self, job: Job, demand: Demand) -> bool:
        """Return whether the job's queue has too few accelerator-hours left for a shape."""
        option = demand.option
        return budget.overspent(self.index, job, option, best_step_s(option)) is not None

    def _rest(self, job: Job, demand: Demand, ahead: Ahead) -> Rest:
        """Return what others leave to the job, if it starts after the longest grace there is."""
        index = self.index
        if self._grace_at != index.changes:
            self._grace_at = index.changes
            jobs = map(index.state.jobs.__getitem__, index.holdings)
            self._grace_s = max((other.spec.grace_s for other in jobs), default=0.0)
        return rest_for(index, ahead, job, demand, start_s=self.now + self._grace_s)

    def _least(
        self, job: Job, demand: Demand, candidates: Sequence[Job], rest: Rest
    ) -> Victims | None:
        with _Trial(self, job, demand, rest) as trial:
            found: list[tuple[tuple[object, ...], int, list[Job]]] = []
            if not trial.may_fit(candidates):
                return None
            orders = self._orders(candidates)
            if not any(trial.all_of(order) for order in orders):
                return None
            for domain in self._domains(demand, trial):
                for order in orders:
                    inside = (
                        [o for o in order if _overlaps(self.index, o, domain)] if domain else order
                    )
                    if (chosen := trial.enough(inside)) is not None:
                        found.append((self._cost(chosen), len(found), chosen))
            found.sort(key=lambda entry: entry[:2])
            best: tuple[tuple[object, ...], list[Job]] | None = None
            for _, _, chosen in found[:_PRUNED_MAX]:
                pruned = trial.pruned(chosen)
                if best is None or self._cost(pruned) < best[0]:
                    best = (self._cost(pruned), pruned)
            assert best is not None  # all of one order, everywhere, is such a set
            places = trial.places(best[1])
        if budget.overspent(self.index, job, places.option, places.step_s):
            return None
        gone = *best[1], *self.leaving()
        grace_s = max((other.spec.grace_s for other in gone), default=0.0)
        return Victims(tuple(best[1]), places, _told(job), grace_s)

    def _orders(self, candidates: Sequence[Job]) -> list[list[Job]]:
        """Return in which orders victims are tried: the cheapest first, and the largest first."""
        cheap, large = {}, {}
        for other in candidates:
            attempt, priority = other.attempts[-1], other.spec.priority
            devices = attempt.placement.option.devices
            key = priority, self.lost_s(other) * devices, devices, -attempt.epoch
            cheap[other.job_id] = key
            large[other.job_id] = priority, -devices, *key
        orders = [
            sorted(candidates, key=lambda other: cheap[other.job_id]),
            sorted(candidates, key=lambda other: large[other.job_id]),
        ]
        return orders[:1] if orders[0] == orders[1] else orders

    def _cost(self, victims: Sequence[Job]) -> tuple[object, ...]:
        """Return what sets of victims are compared by: priorities, then device-seconds lost."""
        devices = [victim.attempts[-1].placement.option.devices for victim in victims]
        lost_s = sum(
            self.lost_s(victim) * count for victim, count in zip(victims, devices, strict=True)
        )
        highest = max((victim.spec.priority for victim in victims), default=0)
        names = tuple(victim.job_id for victim in victims)
        return highest, lost_s, sum(devices), len(victims), names

    def _domains(self, demand: Demand, trial: "_Trial") -> Iterator[tuple[int, int] | None]:
        """Yield the runs of units in each of which a gang might go, those with most room first.

        In the end nothing: everywhere, with those who hold quota alone, their nodes being gone.
        """
        tree = self.index.tree
        if demand.spec.min_sites <= 1:
            rooms = []
            for site, (must, _) in demand.gang.items():
                for chain in demand.chains[site][-1:]:
                    blocks = trial.emptied.blocks(chain)
                    first, end = tree.within(must, 0, site)
                    need = demand.devices // blocks.sizes[must]
                    counts = blocks.counts[must]
                    rooms += [
                        (-int(counts[at]), at, must)
                        for at in range(first, end)
                        if counts[at] >= need
                    ]
            for _, at, level in sorted(rooms)[:_DOMAINS_MAX]:
                yield tree.span(level, at)
        yield None


class _Trial:
    """Victims given back one by one, and all of it undone in the end.

    Attributes:
        emptied: A finder in the state in which all who may go are gone, after ``all_of``.
    """

    def __init__(self, search: Search, job: Job, demand: Demand, rest: Rest) -> None:
        self._search, self._job, self._demand, self._rest = search, job, demand, rest
        self._is_open = rest.is_all
        self._released: dict[str, Job] = {}
        self._grown = search.index.capacity.grown
        self._leaving = search.leaving()
        for other in self._leaving:  # who was told to go for somebody is as good as gone
            self._give_back(other)
        self.emptied = self.finder()

    def __enter__(self) -> "_Trial":
        return self

    def __exit__(self, *_: object) -> None:
        for other in list(self._released.values()):
            self.take_back(other)
        for other in self._leaving:
            self._take(other)
        self._search.index.capacity.grown = self._grown  # all is as it was

    def release(self, other: Job) -> bool:
        """Let a job's devices be free, if it may go besides those that are released already."""
        if not self._search.may_go(self._job, self._demand, other):
            return False
        self._released[other.job_id] = other
        self._give_back(other)
        return True

    def may_fit(self, candidates: Sequence[Job]) -> bool:
        """Return whether the job would fit, quotas aside, if all of them could go."""
        return self._demand.bounded or self._finder_without(candidates).fits()

    def all_of(self, order: Sequence[Job]) -> bool:
        """Return whether the job fits once all who may go are gone."""
        if self._demand.bounded:
            self._only(order)
            self.emptied = self.finder()
            return self.fits()
        gone, allowed = self._gone(order)
        self.emptied = self._finder_without(gone)
        return allowed is not None and self.emptied.fits()

    def take_back(self, other: Job) -> None:
        """Undo that."""
        del self._released[other.job_id]
        self._take(other)

    def finder(self) -> Finder:
        """Return a finder in the state of the trial."""
        capacity = self._search.index.capacity
        available = capacity.available_to(self._job.job_id)
        return Finder(self._demand, capacity, self._left(available, self._released.values()))

    def fits(self) -> bool:
        """Return whether the job could start now, its queue's quota and share allowing."""
        index, option = self._search.index, self._demand.option
        queue = self._job.spec.queue
        capacity = index.capacity
        if capacity.total < self._demand.devices and capacity.kept(self._job.job_id) is None:
            return False
        if index.ledger.shortage(queue, option.accelerator, option.devices):
            return False
        return self.finder().fits()

    def enough(self, inside: Sequence[Job]) -> list[Job] | None:
        """Return as many of ``inside``, from the front, as let the job fit; nothing if none do."""
        if not self._demand.bounded:
            return self._enough_of_devices(inside)
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
        self._only(inside[:low])
        return list(self._released.values())

    def _enough_of_devices(self, inside: Sequence[Job]) -> list[Job] | None:
        """Do as ``enough`` where only devices count: without giving back one by one."""
        gone, low = self._gone(inside)
        if low is None:
            return None
        capacity = self._search.index.capacity
        missing = self._demand.devices - capacity.total
        for count, other in enumerate(gone):  # fewer devices than it needs are never enough
            if missing <= 0 or capacity.kept(self._job.job_id) is not None:
                break
            missing -= other.attempts[-1].placement.option.devices
            low = max(low, count + 1)
        high, stride = low, 1
        while not self._finder_without(gone[:high]).fits():
            if high == len(gone):
                return None
            low, high, stride = high + 1, min(high + stride, len(gone)), 2 * stride
        while low < high:
            middle = (low + high) // 2
            if self._finder_without(gone[:middle]).fits():
                high = middle
            else:
                low = middle + 1
        return gone[:high]

    def _gone(self, order: Sequence[Job]) -> tuple[list[Job], int | None]:
        """Return who of ``order`` may go, one after another, and after how many quota allows it.

        Nothing for the latter if it never does. Nobody is given back in the end.
        """
        self._only(())
        search, ledger, option = self._search, self._search.index.ledger, self._demand.option
        queue, kind, gone = self._job.spec.queue, option.accelerator, list[Job]()
        allowed = 0 if ledger.room(queue, kind) >= option.devices else None
        if allowed is not None and search.all_may_go():
            return list(order), allowed
        try:
            for other in order:
                if not search.may_go(self._job, self._demand, other):
                    continue
                gone.append(other)
                theirs = other.attempts[-1].placement.option
                ledger.give_back(other.spec.queue, theirs.accelerator, theirs.devices)
                if allowed is None and ledger.room(queue, kind) >= option.devices:
                    allowed = len(gone)
        finally:
            for other in reversed(gone):
                theirs = other.attempts[-1].placement.option
                ledger.take(other.spec.queue, theirs.accelerator, theirs.devices)
        return gone, allowed

    def _finder_without(self, gone: Sequence[Job]) -> Finder:
        """Return a finder in the state in which these have given back their devices."""
        capacity = self._search.index.capacity
        available = capacity.once_freed(self._job.job_id, [self._held(other) for other in gone])
        return Finder(self._demand, capacity, self._left(available, gone))

    def _left(self, available: Ints, gone: Iterable[Job]) -> Ints:
        """Return what others leave of the available once these are gone besides who is leaving."""
        if self._is_open:
            return available
        freed = {other.job_id: self._held(other) for other in (*self._leaving, *gone)}
        return self._rest.of(available, freed)

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

    def places(self, victims: Sequence[Job]) -> Placement:
        """Return where the job will start once the victims are gone."""
        self._only(victims)
        index = self._search.index
        spot = self.finder().best(index.ranker)
        assert spot is not None  # it was seen to fit without them
        return index.place(spot)[0]

    def _only(self, wanted: Sequence[Job]) -> None:
        """Release exactly those of ``wanted``, in their order, who may go."""
        kept = 0
        released = list(self._released.values())
        while kept < min(len(released), len(wanted)) and released[kept] is wanted[kept]:
            kept += 1
        for other in reversed(released[kept:]):
            self.take_back(other)
        for other in wanted[kept:]:
            self.release(other)

    def _give_back(self, other: Job) -> None:
        index, option = self._search.index, other.attempts[-1].placement.option
        index.capacity.give_back(self._held(other))
        index.ledger.give_back(other.spec.queue, option.accelerator, option.devices)

    def _take(self, other: Job) -> None:
        index, option = self._search.index, other.attempts[-1].placement.option
        index.capacity.take(self._held(other))
        index.ledger.take(other.spec.queue, option.accelerator, option.devices)

    def _held(self, other: Job) -> Holding:
        return self._search.index.holdings[other.job_id]


def carry_out(turn: Turn, job: Job, found: Victims) -> None:
    """Tell the victims to go, and keep what they leave for the job."""
    for victim in found.jobs:
        reconcile.evict(turn, victim, found.reason)
    reconcile.reserve(turn, job, found.places, found.grace_s)


def _told(job: Job) -> Reason:
    queue = f" of queue {job.spec.queue}" if job.spec.queue else ""
    return Reason(
        code=Why.PREEMPTED,
        sentence=f"makes room for {job.job_id}{queue} (priority {job.spec.priority})",
        remedy="it goes on from its checkpoint when its turn comes again",
    )


def _overlaps(index: Index, other: Job, units: tuple[int, int]) -> bool:
    held: Ints = index.holdings[other.job_id].units  # ascending
    first, end = units
    if not len(held):
        return False
    lowest, highest = held[0], held[-1]
    if lowest >= end or highest < first:
        return False
    return bool(lowest >= first or highest < end or held[held.searchsorted(first)] < end)
