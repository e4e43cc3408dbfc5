"""A whole simulation: arrivals, the scheduler's own door, a world, and a record."""

import random
from collections.abc import Callable, Iterable, Sequence

from gridloom.base.errors import BrokenError, InputError, Problem
from gridloom.core.machine import RULES, Machine
from gridloom.model.event import (
    AnyEvent,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    ResumeRequested,
    SignalChanged,
)
from gridloom.model.inventory import Inventory
from gridloom.ports.journal import Record
from gridloom.sim.engine import NEVER_S, Agenda, Urgency
from gridloom.sim.faults import Fault
from gridloom.sim.floor import Floor
from gridloom.sim.record import SimRecord
from gridloom.sim.signals import Change, Series, changes
from gridloom.sim.strikes import Strikes
from gridloom.sim.terms import Forecasts, SimTerms
from gridloom.sim.workload_nouns import Arrival
from gridloom.sim.world import World

_TERMS = SimTerms()
_SHOWN_LENGTH = 200


class Simulation:
    """The scheduler in a world of simulated time.

    All that happens at one instant reaches the scheduler in one step: what ends first, then faults
    and signals, then what a story hands in, then arrivals, then what starts. What its intentions
    bring about at once reaches it in another step of the same instant.

    The same arguments give the same record and the same journal in every process.

    Attributes:
        machine: The scheduler.
        record: What is left behind; rows of jobs that are not over are those of the last return
            of ``run``.
        now_s: The instant that was reached.
    """

    def __init__(  # noqa: PLR0913 # house: 10 arguments because a run depends on all of them, by name
        self,
        inventory: Inventory,
        arrivals: Iterable[Arrival],
        *,
        seed: int,
        faults: Sequence[Fault] = (),
        terms: SimTerms = _TERMS,
        signals: Sequence[Series | Change] = (),
        forecasts: Forecasts | None = None,
        watch: "Callable[[Simulation], None] | None" = None,
        journal: Callable[[Record], None] | None = None,
        gauge: Callable[[], float] | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Set the stage.

        Args:
            inventory: The grid.
            arrivals: Jobs, in order of submission; may be endless, or made as they are asked for.
            seed: Of the world's chance and the scheduler's.
            faults: What goes wrong.
            terms: By which rules the world runs.
            signals: Prices and carbon over time.
            forecasts: Predicts how long jobs run; nothing: their specs say.
            watch: Called after each step, as for checking laws.
            journal: Given the record of each step, in the form of production.
            gauge: Read for the curve of fragmentation.
            machine: The scheduler, when it is not to be a new one.
        """
        self.machine = machine or Machine(terms=terms.lease_terms())
        self.record = SimRecord(spans=terms.spans, curve_points_max=terms.curve_points_max)
        self.now_s = 0.0
        self._terms, self._seed = terms, seed
        self._rng = _Chance()
        self._watch, self._journal, self._gauge = watch, journal, gauge
        self._arrivals = iter(arrivals)
        self._faults = faults
        self._changes = changes(signals)
        self._agenda = Agenda()
        self._floor = Floor(inventory, self.record, link_share=terms.link_share)
        self._world = World(
            self._agenda, self._floor, self.record, terms=terms, seed=seed, forecasts=forecasts
        )
        self._facts = self._world.attempts.facts
        self._strikes = Strikes(self._world.attempts)
        self._inventory: Inventory | None = inventory
        self._wishes: list[tuple[float, AnyEvent]] = []
        self._wishes_left = self._seq = self._steps_here = 0
        self._submitted_s = -NEVER_S
        self._more_arrive = True
        self._sampled = True

    def inject(self, event: AnyEvent, at_s: float) -> None:
        """Hand in a fact at a time, as a user, an operator or a story would.

        Raises:
            InputError: The time has passed, or the fact is a job, which needs to be an arrival.
        """
        if isinstance(event, JobSubmitted):
            message = f"job {event.job_id} is handed in as a fact, but the world must know its work"
            raise InputError([Problem(message, "give it to the simulation as an arrival")])
        if self._inventory is None and at_s < self.now_s:
            message = f"a fact is handed in for {at_s:g} s, which has passed"
            raise InputError([Problem(message, f"hand it in for {self.now_s:g} s or later")])
        self._wishes_left += 1
        if self._inventory is None:
            self._agenda.put(at_s, Urgency.WISH, self._wish, event)
        else:
            self._wishes.append((at_s, event))

    def run(self, until_s: float | None = None) -> None:
        """Let time pass, up to and with ``until_s``, or until nothing is left to do.

        That is when all jobs that ever come are over, or when those that are not wait for what no
        event and no timer will bring.

        Raises:
            InputError: The arrivals are not in order, or two have one id.
            BrokenError: The scheduler is stuck at one instant, or broke the rules of its door.
        """
        self._begin()
        while (at_s := self._next_s()) is not None and (until_s is None or at_s <= until_s):
            self._instant(at_s)
        self._sample()
        if until_s is not None and self._world.open:
            self.now_s = max(self.now_s, until_s)
        self._world.note(self.now_s)

    def _begin(self) -> None:
        """Find the first instant; signals and faults that began before it are in force then."""
        if self._inventory is None:
            return
        inventory, self._inventory = self._inventory, None
        first = next(self._arrivals, None)
        times_s = [at_s for at_s, _ in self._wishes]
        times_s += [first.submit_s] if first else []
        times_s = times_s or [fault.at_s for fault in self._faults]
        self.now_s = min(times_s, default=0.0)
        self._floor.open(self.now_s)
        self._facts.append(InventoryChanged(inventory=inventory))
        self._strikes.plan(self._faults, self.now_s)
        for at_s, event in self._wishes:
            self._agenda.put(at_s, Urgency.WISH, self._wish, event)
        self._await(first)
        self._await_change()
        self._agenda.put(self.now_s, Urgency.END, _nothing)

    def _next_s(self) -> float | None:
        """Return the next instant; nothing when none can bring anything."""
        if self._facts:
            return self.now_s
        if not (self._world.open or self._more_arrive or self._wishes_left):
            return None
        at_s = self._agenda.next_s()
        if at_s is not None and at_s <= self.now_s:
            return at_s
        waited = self._agenda.waiting > 0
        timer_s = self._timer_s(at_s if waited and at_s is not None else NEVER_S)
        if timer_s is None:
            return at_s if waited else None
        return timer_s if at_s is None or timer_s < at_s else at_s

    def _instant(self, at_s: float) -> None:
        """Let all happen that is due, and take one step for it, if it is news to the scheduler."""
        if at_s > self.now_s:
            self._sample()
            self._steps_here = 0
            self.now_s = at_s
        self._sampled = False
        self._agenda.run_until(self.now_s)
        # without facts: what was taken for dead without a word holds nothing any more
        if self._facts or self._timer_s(self.now_s) is not None:
            self._step()

    def _timer_s(self, until_s: float) -> float | None:
        """Return when the scheduler must be called even without facts, if that is by then."""
        timer_s = self.machine.next_timer_s(until_s)
        return timer_s if timer_s is not None and timer_s <= until_s and timer_s < NEVER_S else None

    def _sample(self) -> None:
        """Note how the grid was used once all of an instant had happened."""
        if not self._sampled:
            self._sampled = True
            self.record.sample(self._world.point(), self._gauge)

    def _step(self) -> None:
        facts = self._facts.copy()
        self._facts.clear()
        self._seq += 1
        seed = self._seed + self._seq
        self._rng.begin(seed)
        actions = self.machine.step(facts, self.now_s, self._rng)
        self.record.steps = self._seq
        if self._journal is not None:
            self._journal(
                Record(
                    seq=self._seq,
                    now_s=self.now_s,
                    seed=seed,
                    events=tuple(facts),
                    actions=tuple(actions),
                    rules=RULES,
                )
            )
        self._steps_here += 1
        if self._steps_here > self._terms.steps_max:
            raise self._stuck(facts)
        self._world.act(actions)
        if self._watch is not None:
            self._sample()
            self._watch(self)

    def _stuck(self, facts: Sequence[AnyEvent]) -> BrokenError:
        """Return what to say when steps at one instant do not come to an end."""
        shown = repr(facts[0])[:_SHOWN_LENGTH] if facts else f"the timer for {self.now_s} s"
        return BrokenError(
            f"{self._steps_here} steps at {self.now_s} s have not come to an end;"
            f" the last one was for {shown}"
        )

    # what is handed in

    def _await(self, arrival: Arrival | None) -> None:
        self._more_arrive = arrival is not None
        if arrival is None:
            return
        if arrival.submit_s < self._submitted_s:
            message = f"{arrival.job_id} is submitted before the job in front of it"
            raise InputError([Problem(message, "put the jobs in order of submission")])
        self._submitted_s = arrival.submit_s
        self._agenda.put(arrival.submit_s, Urgency.ARRIVAL, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        self._world.submit(arrival)
        self._await(next(self._arrivals, None))

    def _await_change(self) -> None:
        if (change := next(self._changes, None)) is not None:
            at_s = change.at_s
            self._agenda.put(at_s, Urgency.SIGNAL, self._change, change, waited=False)

    def _change(self, change: Change) -> None:
        self._signal(change.event)
        self._await_change()

    def _signal(self, event: SignalChanged) -> None:
        price, carbon = event.price_per_accelerator_hour, event.carbon_g_per_kwh
        self._floor.signal(event.site, price, carbon, self.now_s)
        self._facts.append(event)

    def _wish(self, event: AnyEvent) -> None:
        self._wishes_left -= 1
        match event:
            case NodeMarked():
                self._strikes.by_hand(event)
                return
            case SignalChanged():
                self._signal(event)
                return
            case InventoryChanged():
                self._floor.take(event.inventory, self.now_s)
            case ResumeRequested():
                self._world.reopen(event.job_id)
            case _:
                pass
        self._facts.append(event)


class _Chance(random.Random):
    """``Random`` that is seeded when it is first asked: most steps ask for no chance at all."""

    _due: int | None = None

    def begin(self, seed: int) -> None:
        """Be as ``Random(seed)`` from now on."""
        self._due, self.gauss_next = seed, None

    def random(self) -> float:
        """Return the next number."""
        if self._due is not None:
            self._start(self._due)
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """Return the next bits."""
        if self._due is not None:
            self._start(self._due)
        return super().getrandbits(k)

    def _start(self, seed: int) -> None:
        self._due = None
        self.seed(seed)


def _nothing(_: None) -> None:
    """Let the first instant be one even if nothing else is due then."""
