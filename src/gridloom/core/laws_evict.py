"""Nobody is told to leave for nothing: for each eviction there is one who needs those places."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from gridloom.core import order, progress
from gridloom.core.laws_book import Book, Held, Use, hosted
from gridloom.core.laws_place import Unit, all_units, units_of
from gridloom.core.state import State
from gridloom.model.action import StopTask
from gridloom.model.life import Job, JobState, Placement
from gridloom.model.policy import Policy
from gridloom.model.reason import Reason, Why

FOR_OTHERS = frozenset({Why.PREEMPTED, Why.RESIZED, Why.MOVED})
"""Causes for which there must be one who needs the places."""

_FOR = "room for "


class Deal(msgspec.Struct):
    """Who leaves for one job in one step.

    Attributes:
        by: The job.
        victims: Who leaves for it, and what each was told.
    """

    by: str
    victims: list[tuple[Held, Reason]]


class Evictions:
    """Watches who is told to leave for whom."""

    def __init__(self) -> None:
        self._fates: dict[str, dict[str, tuple[Use, object, float]]] = {}
        self._evicted_s: dict[str, float] = {}

    def observe(
        self,
        state: State,
        book: Book,
        deals: Sequence[Deal],
        *,
        keepers: Collection[str],
        before: Mapping[str, Placement],
    ) -> Iterator[str]:
        """Yield what is wrong with the evictions of one step.

        Args:
            state: After the step.
            book: Who holds what then.
            deals: Who was told to leave.
            keepers: Jobs for which something is kept.
            before: Reservations before the step, by job.
        """
        kept = _given_up(book, before)
        kept |= {name: _kept(book, state.jobs[name]) for name in keepers}
        leaving = [name for name in book.held if state.jobs[name].wanted == "evict"]
        later = {held.job_id for deal in deals for held, _ in deal.victims}
        for deal in deals:
            later -= {held.job_id for held, _ in deal.victims}
            gone = frozenset(name for name in leaving if name not in later)
            names = [held.job_id for held, _ in deal.victims]
            job = state.jobs.get(deal.by)
            if job is not None and job.reservation is None and _by_share(book):
                continue  # who comes later by share, but is of higher priority, may undo it at once
            if job is None or job.state is not JobState.QUEUED or job.reservation is None:
                yield f"{', '.join(names)} leave for {deal.by}, for which nothing is kept"
                continue
            if job.reservation is before.get(deal.by):
                yield f"{', '.join(names)} leave for {deal.by}, for which the same was kept before"
            if not _runs_into_promise(state, job):
                yield from self._needless(state, book, deal, kept, gone)
            yield from barred(state, job)
            for held, reason in deal.victims:
                victim = state.jobs[held.job_id]
                yield from self._unlawful(state, job, victim, reason)
                if reason.code is not Why.PREEMPTED:
                    yield from barred(state, victim)
            yield from self._turned(state, book, deal)

    def _unlawful(self, state: State, job: Job, victim: Job, reason: Reason) -> Iterator[str]:
        """Yield why the policy does not let one job have another evicted."""
        policy = state.inventory.policy if state.inventory else Policy()
        queues = {queue.name: queue for queue in state.inventory.queues} if state.inventory else {}
        theirs = queues.get(victim.spec.queue)
        lent = (
            victim.spec.queue != job.spec.queue
            and theirs is not None
            and theirs.nominal is not None
        )
        if not victim.spec.preemptible:
            yield f"{victim.job_id} must not be evicted"
        yield from _too_soon(policy, state, victim, reason)
        if lent and reason.code is Why.PREEMPTED:
            return
        if victim.spec.priority > job.spec.priority:
            yield f"{victim.job_id} leaves for {job.job_id}, which is of lower priority"
        if reason.code is not Why.PREEMPTED or victim.spec.priority < job.spec.priority:
            return
        if not policy.preemption.order:
            yield f"{victim.job_id} leaves for {job.job_id}, which is of the same priority"
        gone_s = state.now_s - self._evicted_s.get(victim.job_id, -math.inf)
        if gone_s < policy.preemption.cooldown_s:
            yield f"{victim.job_id} leaves again after {gone_s:g} s"

    def told(self, job: Job) -> None:
        """Take in that a job was told to leave, for whomever."""
        self._evicted_s[job.job_id] = job.evicted_s

    def forget(self, job_id: str) -> None:
        """Forget what came of a job that is gone."""
        self._fates.pop(job_id, None)
        self._evicted_s.pop(job_id, None)

    def _needless(
        self,
        state: State,
        book: Book,
        deal: Deal,
        kept: Mapping[str, Mapping[Unit, int]],
        leaving: frozenset[str],
    ) -> Iterator[str]:
        """Yield victims without whom the places would be free just as well."""
        names = frozenset(held.job_id for held, _ in deal.victims)
        if all(reason.code is Why.PREEMPTED for _, reason in deal.victims):
            names |= leaving  # who was told to go for somebody else is as good as gone
        going = [state.jobs[deal.by]]
        going += [state.jobs[h.job_id] for h, why in deal.victims if why.code is not Why.PREEMPTED]
        for held, _ in deal.victims:
            gone = names - {held.job_id}
            others = [
                job for job in going if job.job_id != held.job_id and job.reservation is not None
            ]
            if not any(_lacks(state, book, job, held, gone, kept) for job in others):
                yield f"{held.job_id} leaves for {deal.by}, which does not need its places"

    def _turned(self, state: State, book: Book, deal: Deal) -> Iterator[str]:
        """Yield pairs of which each leaves for the other although nothing else has changed.

        Who was evicted and comes back by moving the other, which goes on elsewhere, undoes nothing:
        in the end both run. So only like is compared with like: evictions, moves, changes of shape.
        """
        policy, now = book.inventory.policy, state.now_s
        job, involved = state.jobs[deal.by], [held for held, _ in deal.victims]
        use = book.use(involved)
        for held, reason in deal.victims:
            victim = state.jobs[held.job_id]
            if victim.spec.priority != job.spec.priority:
                continue
            pair = sorted((victim, job), key=lambda one: one.job_id)
            values = reason.code, *(_value(one, policy, now) for one in pair)
            known = self._fates.get(deal.by, {}).get(held.job_id)
            if known is not None and known[:2] == (use, values):
                yield f"{held.job_id} leaves for {deal.by}, which left for it at {known[2]:g}"
            self._fates.setdefault(held.job_id, {})[deal.by] = use, values, now


def deals_of(
    book: Book, actions: Sequence[object], wished: frozenset[str]
) -> tuple[list[Deal], list[str]]:
    """Return who was told to leave for whom, and what is wrong with that already.

    Args:
        book: Who holds what.
        actions: Of one step.
        wished: Jobs that an operator wants to leave.
    """
    deals: dict[str, Deal] = {}
    wrong: list[str] = []
    seen: set[str] = set()
    for action in actions:
        if not isinstance(action, StopTask) or action.reason.code not in FOR_OTHERS:
            continue
        held = book.held.get(action.job_id)
        if action.job_id in seen or held is None or held.epoch != action.epoch:
            continue
        seen.add(action.job_id)
        by = beneficiary(action.reason)
        if by:
            deal = deals.setdefault(by, Deal(by, []))
            deal.victims.append((held, action.reason))
        elif action.reason.code is Why.PREEMPTED and action.job_id not in wished:
            wrong.append(f"{action.job_id} leaves for nobody")
    return list(deals.values()), wrong


def beneficiary(reason: Reason) -> str:
    """Return for whom somebody leaves, as the one who leaves is told; empty for nobody."""
    _, found, rest = reason.sentence.rpartition(_FOR)
    return rest.split()[0] if found else ""


def barred(state: State, job: Job) -> Iterator[str]:
    """Yield what keeps a job from starting, as it is foreseen, on what was just reserved for it."""
    places = job.reservation
    if places is None:
        return
    end_s = state.now_s + progress.run_s(job, places.option, places.step_s)
    for name, booking in sorted(state.bookings.items()):
        if job.spec.queue not in booking.queues and booking.start_s < end_s:
            for task in places.tasks:
                if task.domain in booking.nodes or task.site in booking.nodes:
                    yield f"{job.job_id} would run into booking {name} on {task.domain}"


def grown(state: State, book: Book, action: StopTask) -> Iterator[str]:
    """Yield what is wrong with a job that leaves for places of its own."""
    job, held = state.jobs[action.job_id], book.held[action.job_id]
    if job.reservation is None:
        yield f"{job.job_id} goes over to nothing"
    elif job.reservation.option.devices <= held.placement.option.devices:
        yield f"{job.job_id} is to grow, and does not"
    yield from barred(state, job)
    yield from _too_soon(book.inventory.policy, state, job, action.reason)


def _too_soon(policy: Policy, state: State, victim: Job, reason: Reason) -> Iterator[str]:
    ran_s = state.now_s - victim.attempts[-1].started_s
    preempted = reason.code is Why.PREEMPTED
    least_s = policy.preemption.min_run_s if preempted else policy.resize_s_min
    if ran_s < least_s:
        yield f"{victim.job_id} leaves after {ran_s:g} s, and may stay for {least_s:g} s"


def _runs_into_promise(state: State, job: Job) -> bool:
    """Return whether a job will run on when another has been promised a start.

    Then more may have to leave than would make room for it now: it is not told here how much of
    that the other needs.
    """
    if state.inventory is None or state.inventory.policy.blocked not in {"easy", "conservative"}:
        return False
    assert job.reservation is not None
    end_s = job.reserved_until_s + progress.run_s(job, job.reservation.option, 0.0)
    return any(
        0 < other.promised_s < end_s
        for other in state.jobs.values()
        if other is not job and other.state is JobState.QUEUED
    )


def _by_share(book: Book) -> bool:
    return book.inventory.policy.order == "share"


def _value(job: Job, policy: Policy, now: float) -> float:
    """Return by what a job is ordered, with what it has had by now."""
    if policy.order != "attained":
        return order.value(job, policy, now)
    attempt = job.attempt
    devices = attempt.placement.option.devices if attempt else 0
    return job.device_s + devices * (attempt.held_s(now) if attempt else 0.0)


def _lacks(  # one more argument than is usual: all of it is the scene
    state: State,
    book: Book,
    job: Job,
    held: Held,
    gone: frozenset[str],
    kept: Mapping[str, Mapping[Unit, int]],
) -> bool:
    """Return whether what is reserved for a job would not be had if one of the victims stayed."""
    places = job.reservation
    assert places is not None
    option = places.option
    for unit, wanted in units_of(book.grid, places).items():
        if unit in held.units:
            others = sum(units.get(unit, 0) for name, units in kept.items() if name != job.job_id)
            if max(book.free(unit, gone) - others, 0) < wanted:
                return True
    for name, _ in option.rank_resources:
        for task in held.placement.tasks:
            wanted = hosted(places, task.domain, name)
            if wanted and book.host(task.domain, name, gone) < wanted:
                return True
    return _lacks_quota(book, job, gone, [state.jobs[name] for name in kept])


def _lacks_quota(book: Book, job: Job, gone: frozenset[str], keepers: Sequence[Job]) -> bool:
    """Return whether the job's queue could not have the job once all of ``gone`` have left."""
    assert job.reservation is not None
    option, ledger = job.reservation.option, book.ledger
    left = [book.held[name] for name in sorted(gone)]
    charged = [other for other in keepers if other is not job and other.reservation is not None]
    for other in charged:
        ledger.take(other.spec.queue, *_asked(other.reservation))
    for one in left:
        ledger.give_back(one.queue, *_asked(one.placement))
    short = ledger.shortage(job.spec.queue, option.accelerator, option.devices)
    for one in reversed(left):
        ledger.take(one.queue, *_asked(one.placement))
    for other in reversed(charged):
        ledger.give_back(other.spec.queue, *_asked(other.reservation))
    return short is not None


def _asked(places: Placement | None) -> tuple[str, int]:
    """Return the kind and the number of devices of some places."""
    assert places is not None
    return places.option.accelerator, places.option.devices


def _given_up(book: Book, before: Mapping[str, Placement]) -> dict[str, dict[Unit, int]]:
    """Return what was kept for jobs that have started elsewhere in this step.

    Who was decided on before them could not know that they would leave it to others.
    """
    return {
        name: units_of(book.grid, places)
        for name, places in before.items()
        if name in book.held
        and {task.domain for task in places.tasks}
        != {task.domain for task in book.held[name].placement.tasks}
    }


def _kept(book: Book, job: Job) -> dict[Unit, int]:
    kept = units_of(book.grid, job.reservation) if job.reservation is not None else {}
    for domain in job.spares:
        kept |= all_units(book.grid, domain)
    return kept
