"""What must hold of each step, at the cost of what it changed: starts, evictions, leases, promises.

``laws.check`` and ``laws_index.check_index`` look at everything; this follows the intentions.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from gridloom.base.errors import BrokenError
from gridloom.core import laws, progress
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.laws_book import Book
from gridloom.core.laws_evict import FOR_OTHERS, Evictions, beneficiary, deals_of, grown
from gridloom.core.laws_index import check_index
from gridloom.core.laws_place import Unit, all_units, misplaced, units_of
from gridloom.core.laws_promise import Promises
from gridloom.core.machine import Machine
from gridloom.core.state import State, live_tasks
from gridloom.model.action import AnyAction, RenewLease, RestartSite, StartAttempt, StopTask
from gridloom.model.event import AnyEvent, EvictRequested, InventoryChanged, NodeMarked
from gridloom.model.life import HOLDING, Job, JobState, Placement
from gridloom.model.reason import EVICTED, Why

Mode = Literal["full", "incremental", "off"]
"""How much is checked after each step: everything, what the step changed, nothing."""

_REASON_EVERY = 1024
"""Of so many steps one is followed by the question why somebody waits: the answer costs a cycle."""

_HOUR_S = 3600.0
_ROUNDING_S = 1e-2

_LEAVES = EVICTED | {Why.BOOKED}


class StepLaws:
    """Follows a machine from step to step."""

    def __init__(self, machine: Machine, *, reason_every: int = _REASON_EVERY) -> None:
        """Begin with what is there.

        Args:
            machine: The scheduler.
            reason_every: One of so many steps asks why somebody waits.
        """
        self.book = Book()
        self._reason_every, self._steps = reason_every, 0
        self._evictions, self._promises = Evictions(), Promises()
        self._known: dict[str, tuple[float, int]] = {}
        self._leases: list[tuple[float, str, int]] = []
        self._lapsing: list[str] = []
        self._kept_for: frozenset[str] = frozenset()
        self._reserved: dict[str, Placement] = {}
        state = machine.state
        self._epoch = state.epoch
        self.book.regrid(state.inventory)
        for job in state.jobs.values():
            self._known[job.job_id] = job.submitted_s, job.restarts
            if job.state in HOLDING:
                _refuse("no device is held twice", self.book.take(job))
                self._watch(machine, job)
        self._remember(machine)

    def observe(
        self,
        machine: Machine,
        events: Sequence[AnyEvent],
        actions: Sequence[AnyAction],
        now: float,
    ) -> None:
        """Check what a step did.

        Args:
            machine: After the step.
            events: What it was given.
            actions: What it wants done.
            now: When.

        Raises:
            BrokenError: A law is broken; the message names the law and the culprit.
        """
        state = machine.state
        if any(isinstance(event, InventoryChanged) for event in events):
            self.book.regrid(state.inventory)
        touched = self._touched(machine, events, actions)
        jobs = {name: state.jobs[name] for name in touched if name in state.jobs}
        laws.check(
            State(jobs=jobs, epoch=state.epoch, now_s=state.now_s, inventory=state.inventory)
        )
        for name in touched:
            self._settle(name, state.jobs.get(name))
        for law, broken in (
            ("a right to run ends after now", _short_leases(actions, now)),
            ("whoever is silent for too long is given up", self._silent(machine)),
            ("a start is lawful", self._starts(machine, actions)),
            ("a site starts again where it was", self._restarts(state, actions)),
            ("nobody is told to leave for nothing", self._leaves(machine, events, actions)),
            ("no more is reserved than there is", self._overbooked(machine)),
            ("promised starts do not get later", self._promises.observe(machine, events, actions)),
            ("whoever waits has a reason", self._unreasoned(machine, jobs)),
        ):
            _refuse(law, broken)
        self._remember(machine)

    def holds_as(self, state: State) -> None:
        """Return if exactly those hold devices who should by all intentions so far.

        Raises:
            BrokenError: Somebody else does.
        """
        held = {name: held.epoch for name, held in self.book.held.items()}
        wanted = {
            job.job_id: job.attempts[-1].epoch
            for job in state.jobs.values()
            if job.state in HOLDING
        }
        if held != wanted:
            _refuse("who holds devices was told so", iter([f"{held}, and not {wanted}"]))

    # --- who is looked at

    def _touched(
        self, machine: Machine, events: Sequence[AnyEvent], actions: Sequence[AnyAction]
    ) -> dict[str, None]:
        touched: dict[str, None] = {}
        for one in (*events, *actions):
            if isinstance(one, NodeMarked):
                touched |= dict.fromkeys(self.book.on(one.domain))
            elif job_id := getattr(one, "job_id", ""):
                touched[job_id] = None
        self._lapsing = []
        while self._leases and self._leases[0][0] <= machine.state.now_s:
            _, job_id, epoch = heapq.heappop(self._leases)
            held = self.book.held.get(job_id)
            if held is not None and held.epoch == epoch:
                self._lapsing.append(job_id)
        return touched | dict.fromkeys(self._lapsing)

    def _settle(self, job_id: str, job: Job | None) -> None:
        """Take in what became of a job before the cycle, and check what never changes."""
        held = self.book.held.get(job_id)
        ended = held is not None and (
            job is None or job.state not in HOLDING or job.attempts[-1].epoch != held.epoch
        )
        if job is None:
            self._known.pop(job_id, None)
            self._evictions.forget(job_id)
        else:
            submitted_s, restarts = self._known.get(job_id, (job.submitted_s, 0))
            if job.submitted_s != submitted_s:
                culprit = f"{job_id}, submitted at {submitted_s:g}"
                _refuse("a job keeps its place in the queue", iter([culprit]))
            if held is not None and held.told and ended and job.restarts > restarts:
                _refuse("an eviction does not count as a restart", iter([job_id]))
            self._known[job_id] = job.submitted_s, job.restarts
        if ended:
            self.book.give_back(job_id)

    def _watch(self, machine: Machine, job: Job) -> None:
        """Look at a job again when its first lease lapses."""
        until_s = min(
            (task.lease_until_s for task in live_tasks(job.attempts[-1])), default=math.inf
        )
        at_s = until_s + machine.terms.kill_margin_s
        heapq.heappush(self._leases, (at_s, job.job_id, job.attempts[-1].epoch))

    def _silent(self, machine: Machine) -> Iterator[str]:
        state, margin_s = machine.state, machine.terms.kill_margin_s
        for job_id in self._lapsing:
            if job_id not in self.book.held:
                continue
            job = state.jobs[job_id]
            for task in live_tasks(job.attempts[-1]):
                if task.lease_until_s + margin_s <= state.now_s:
                    yield f"{job_id} on {task.placement.domain}"
            self._watch(machine, job)

    def _remember(self, machine: Machine) -> None:
        jobs = machine.state.jobs
        self._kept_for = frozenset(machine.index.capacity.keepers())
        self._reserved = {
            name: reserved
            for name in machine.index.capacity.keepers()
            if (reserved := jobs[name].reservation) is not None
        }

    def _overbooked(self, machine: Machine) -> Iterator[str]:
        """Yield units of which more is reserved than there is, where somebody was added."""
        reserved = {
            name: places
            for name in machine.index.capacity.keepers()
            if (places := machine.state.jobs[name].reservation) is not None
        }
        added = [
            places for name, places in reserved.items() if places is not self._reserved.get(name)
        ]
        kept: Counter[Unit] = Counter()
        for places in reserved.values() if added else ():
            kept.update(units_of(self.book.grid, places))
        for places in added:
            for unit in units_of(self.book.grid, places):
                if kept[unit] > all_units(self.book.grid, unit[0])[unit]:
                    yield f"{kept[unit]} of {unit[0]}"

    # --- starts

    def _starts(self, machine: Machine, actions: Sequence[AnyAction]) -> Iterator[str]:
        for action in actions:
            if not isinstance(action, StartAttempt):
                continue
            job = machine.state.jobs.get(action.job_id)
            if job is None or job.attempts[-1].epoch != action.epoch:
                yield f"{action.job_id} does not start"
                continue
            name = f"attempt {action.attempt} of {job.job_id}"
            if action.epoch <= self._epoch:
                yield f"{name} has epoch {action.epoch} after {self._epoch}"
            self._epoch = action.epoch
            yield from (f"{name} {why}" for why in self._start(machine, job, action))
            if self._overspends(machine.state, job):
                yield f"{name} is more than queue `{job.spec.queue}` has accelerator-hours for"
            self._watch(machine, job)

    def _restarts(self, state: State, actions: Sequence[AnyAction]) -> Iterator[str]:
        for action in actions:
            if not isinstance(action, RestartSite):
                continue
            name, job = f"site {action.site} of {action.job_id}", state.jobs[action.job_id]
            attempt, held = job.attempts[-1], self.book.held.get(action.job_id)
            known = (attempt.number, attempt.epoch, attempt.placement)
            if held is None or known != (action.attempt, action.epoch, action.placement):
                yield f"{name} starts in an attempt that is over"
            tasks = [task for task in live_tasks(attempt) if task.placement.site == action.site]
            if not tasks or any(task.life != action.life for task in tasks):
                yield f"{name} has no life {action.life}"
            if attempt.stop_sent:
                yield f"{name} starts and is to stop"
            for domain in (action.site, *(task.placement.domain for task in tasks)):
                mark = state.marks.get(domain)
                if mark is not None and not mark.by_site:  # such a site may take other nodes
                    yield f"{name} starts, and {domain} is marked"

    def _start(self, machine: Machine, job: Job, action: StartAttempt) -> Iterator[str]:
        state, placement = machine.state, action.placement
        attempt = job.attempts[-1]
        known = (attempt.number, attempt.epoch, attempt.placement)
        if known != (action.attempt, action.epoch, placement):
            yield "is not the one that is known"
        yield from misplaced(self.book.grid, job.spec, placement)
        for task in placement.tasks:
            for domain in (task.domain, task.site):
                if domain in state.marks:
                    yield f"starts on {task.domain}, and {domain} is marked"
        if job.not_before_s > state.now_s or unmet_dependencies(state, job):
            yield "starts before it may"
        yield from self._booked(state, job, placement)
        yield from self._kept_for_others(state, job, placement)
        option = placement.option
        if self.book.ledger.shortage(job.spec.queue, option.accelerator, option.devices):
            yield f"is more than queue `{job.spec.queue}` may have"
        yield from self.book.take(job)
        for resource, _ in option.rank_resources:
            for task in placement.tasks:
                if self.book.host(task.domain, resource) < 0:
                    yield f"has more {resource} than {task.domain} has"

    def _overspends(self, state: State, job: Job) -> bool:
        """Return whether what ran and what starts uses more of its period than its queue has."""
        queue = next((q for q in self.book.inventory.queues if q.name == job.spec.queue), None)
        if queue is None or not queue.accelerator_hours:
            return False
        claimed_s, _ = state.allowance.claimed_s(queue, state.now_s)
        return claimed_s > queue.accelerator_hours * _HOUR_S + _ROUNDING_S

    def _booked(self, state: State, job: Job, placement: Placement) -> Iterator[str]:
        end_s = progress.end_s(job, job.attempts[-1])
        for name, booking in sorted(state.bookings.items()):
            if job.spec.queue in booking.queues or booking.start_s >= end_s:
                continue
            for task in placement.tasks:
                if task.domain in booking.nodes or task.site in booking.nodes:
                    yield f"runs into booking {name} on {task.domain}"

    def _kept_for_others(self, state: State, job: Job, placement: Placement) -> Iterator[str]:
        """Yield what was reserved for others all through the step, and is taken from them."""
        own = self._reserved.get(job.job_id)
        if own is not None and {t.domain for t in own.tasks} == {t.domain for t in placement.tasks}:
            return  # of those for whom places are kept whoever comes first may be served first
        kept: dict[tuple[str, int], int] = {}
        for name, places in self._reserved.items():
            other = state.jobs.get(name)
            if other is not None and other is not job and other.reservation is places:
                for unit, devices in units_of(self.book.grid, places).items():
                    kept[unit] = kept.get(unit, 0) + devices
        for unit, devices in units_of(self.book.grid, placement).items() if kept else ():
            if devices > max(self.book.free(unit) - kept.get(unit, 0), 0):
                yield f"takes what is kept for others on {unit[0]}"

    # --- evictions

    def _leaves(
        self, machine: Machine, events: Sequence[AnyEvent], actions: Sequence[AnyAction]
    ) -> Iterator[str]:
        state = machine.state
        stops = [one for one in actions if isinstance(one, StopTask) and one.reason.code in _LEAVES]
        if not stops:
            return
        started = {one.epoch for one in actions if isinstance(one, StartAttempt)}
        for stop in stops:
            if stop.epoch in started and self._stays(machine, state.jobs[stop.job_id]):
                yield f"{stop.job_id} starts and leaves"
        wished = frozenset(one.job_id for one in events if isinstance(one, EvictRequested))
        deals, wrong = deals_of(self.book, stops, wished)
        yield from wrong
        yield from self._evictions.observe(
            state,
            self.book,
            deals,
            keepers=tuple(machine.index.capacity.keepers()),
            before=self._reserved,
        )
        for stop in {stop.job_id: stop for stop in stops}.values():
            held = self.book.held.get(stop.job_id)
            if held is None or held.epoch != stop.epoch:
                continue
            reason = stop.reason
            own = reason.code in FOR_OTHERS - {Why.PREEMPTED} and not beneficiary(reason)
            if own:
                yield from grown(state, self.book, stop)
            held.told = True
            self._evictions.told(state.jobs[stop.job_id])

    def _stays(self, machine: Machine, job: Job) -> bool:
        """Return whether a job that starts comes in its turn, so that nobody is before it.

        What is kept for a job, reserved or spare, maybe since its last attempt ended in this step,
        is its own before anybody is asked in order, and whoever comes before it in the order may
        have it evicted there at once; a share changes
        with each start; what is lent is taken back by whoever comes later; and a promise that is
        due is kept although somebody who comes before may then take the place by right of priority.
        """
        if machine.index.policy.blocked == "conservative":
            return False
        lent = self.book.ledger.limited(job.spec.queue)
        by_share = machine.index.policy.order == "share"
        just_ended = any(one.ended_s == machine.state.now_s for one in job.attempts[-2:-1])
        return not (lent or by_share or just_ended or job.job_id in self._kept_for)

    # --- who waits

    def _unreasoned(self, machine: Machine, jobs: dict[str, Job]) -> Iterator[str]:
        self._steps += 1
        waiting = [job for job in jobs.values() if job.state is JobState.QUEUED]
        if not waiting or self._steps % self._reason_every:
            return
        job_id = waiting[0].job_id
        reason = machine.reason(job_id)
        if reason is None or not reason.sentence:
            yield job_id


class Laws:
    """The laws as asked for, after each step."""

    def __init__(self, mode: Mode, machine: Machine) -> None:
        """Begin with what is there.

        Args:
            mode: How much is checked.
            machine: The scheduler.
        """
        self._mode, self._machine = mode, machine
        self._steps = None if mode == "off" else StepLaws(machine)

    def observe(self, events: Sequence[AnyEvent], actions: Sequence[AnyAction], now: float) -> None:
        """Check the laws after a step.

        Raises:
            BrokenError: One is broken; the message names the law and the culprit.
        """
        if self._steps is None:
            return
        self._steps.observe(self._machine, events, actions, now)
        if self._mode == "full":
            laws.check(self._machine.state)
            check_index(self._machine.index)
            self._steps.holds_as(self._machine.state)


def _short_leases(actions: Sequence[AnyAction], now: float) -> Iterator[str]:
    for action in actions:
        rights = StartAttempt | RestartSite | RenewLease
        if isinstance(action, rights) and action.lease_until_s <= now:
            yield f"of attempt {action.attempt} of {action.job_id}"


def _refuse(law: str, broken: Iterator[str]) -> None:
    for culprit in broken:
        raise BrokenError(f"law broken: {law}: {culprit}")
