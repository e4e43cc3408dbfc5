"""The control loop: collect facts, step the core, commit, dispatch; one process at a time."""

import random
from collections.abc import Sequence

from gridloom.base.clock import Clock
from gridloom.base.codec import encode
from gridloom.control.dispatch import Dispatch
from gridloom.control.intake import Intake
from gridloom.control.restore import restore, snapshot_of
from gridloom.control.timeline import Timeline
from gridloom.core.machine import RULES
from gridloom.core.state import State
from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent
from gridloom.model.life import HOLDING, OVER
from gridloom.ports.journal import Journal, Letter, Record

_SNAPSHOT_EVERY = 64
_LEAP_SHARE = 0.35
"""Share of the kill margin by which the clock may leap; the rest is what a dying holder needs."""


class ControlLoop:
    """Owns the machine for as long as this process is the one writer."""

    def __init__(self, journal: Journal, intake: Intake, dispatch: Dispatch, clock: Clock) -> None:
        """Take over where the journal ends, and carry out what was left undone."""
        self._journal = journal
        self._intake = intake
        self._dispatch = dispatch
        self._machine, self._seq = restore(journal)
        taken = journal.snapshot()
        if taken is not None and taken.seq == self._seq and taken.rules != RULES:
            journal.leave(snapshot_of(self._machine, self._seq))  # from here on, our rules decide
        state, terms = self._machine.state, self._machine.terms
        # All leases lapsed while nobody led, or while the machine slept: holders may still be dying
        gap = clock.now_s() - state.now_s >= terms.lease_s
        self._timeline = Timeline(
            clock,
            state.now_s,
            leap_s=terms.kill_margin_s * _LEAP_SHARE,
            settle_s=terms.kill_margin_s,
            settled=not (gap and any(job.state in HOLDING for job in state.jobs.values())),
        )
        dispatch.run(self._machine.state)

    @property
    def state(self) -> State:
        """What the scheduler knows; read only."""
        return self._machine.state

    def told(self) -> State:
        """Return what the scheduler knows, with the reason why each job waits; read only."""
        return self._machine.told()

    @property
    def troubles(self) -> Sequence[str]:
        """What could not be carried out at the last try, a sentence each."""
        return self._dispatch.troubles

    def idle(self) -> bool:
        """Return whether no job is under way or to be closed, and nobody has handed anything in."""
        jobs = self._machine.state.jobs.values()
        over = all(job.state in OVER for job in jobs)
        return over and not self._dispatch.left and not self._intake.letters()

    def beat(self) -> bool:
        """Take one turn; return whether anything happened.

        Raises:
            StaleWriterError: Another control plane has taken over.
            SiteError: The journal, or a site, cannot be written.
        """
        now_s = self._timeline.now_s()
        if now_s is None:
            return False
        letters = self._intake.letters()
        seen = self._intake.sift(self.state, self._dispatch.observe(self.state))
        events = [*seen, *(letter.event for letter in letters)]
        timer_s = self._machine.next_timer_s()
        due = bool(events) or (timer_s is not None and timer_s <= now_s)
        actions = self._step(events, letters, now_s) if due else ()
        if actions or self._dispatch.left:
            self._dispatch.run(self.state)
            return True
        return due

    def leave(self) -> None:
        """Leave a snapshot of where this process stopped, so that nobody need replay its records.

        A version of gridloom that decides by other rules cannot; from a snapshot it goes on.

        Raises:
            StaleWriterError: Another control plane has taken over.
            SiteError: The journal cannot be written.
        """
        taken = self._journal.snapshot()
        if self._seq and (taken is None or taken.seq != self._seq):
            self._journal.leave(snapshot_of(self._machine, self._seq))

    def _step(
        self, events: Sequence[AnyEvent], letters: Sequence[Letter], now_s: float
    ) -> Sequence[AnyAction]:
        seed = self._seq + 1  # any seed will do as long as the record tells it
        actions = self._machine.step(events, now_s, random.Random(seed))
        record = Record(
            seq=self._seq + 1,
            now_s=now_s,
            seed=seed,
            events=tuple(events),
            actions=tuple(actions),
            rules=RULES,
        )
        due = record.seq % _SNAPSHOT_EVERY == 0
        self._journal.append(record, letters, encode(self.state) if due else None)
        self._seq = record.seq
        return actions
