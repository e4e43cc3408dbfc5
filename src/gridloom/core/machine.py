"""The one door through which the scheduler's state changes."""

import math
import random
from collections.abc import Sequence

from msgspec.structs import replace

from gridloom.core import cycle, explain, facts, reconcile
from gridloom.core.index import Index
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms, Turn
from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent
from gridloom.model.life import JobState
from gridloom.model.reason import Reason

RULES: int = 4
"""Generation of the rules by which is decided. It is raised whenever the same facts may lead to
other intentions than before: what was decided by other rules cannot be replayed."""


class Machine:
    """Facts in, intentions out: in production, in the simulator and in tests.

    The same state, facts, times and seed give the same intentions in every process.

    Attributes:
        state: What is known; change it only through ``step``.
        index: What follows from it.
        terms: How long rights to run last.
    """

    def __init__(self, state: State | None = None, terms: LeaseTerms | None = None) -> None:
        self.state = state or State()
        self.terms = terms or LeaseTerms()
        self.index = Index(self.state)

    def step(self, events: Sequence[AnyEvent], now: float, rng: random.Random) -> list[AnyAction]:
        """Take in what happened, do what is due at ``now``, place what fits.

        Args:
            events: Facts, in the order in which they were taken in; late and repeated ones are
                allowed and change nothing.
            now: Seconds since the epoch; a time before one already seen counts as that one.
            rng: Where chance comes from.

        Returns:
            What is to be done, in order.
        """
        state = self.state
        state.now_s = max(now, state.now_s)
        turn = Turn(state, self.index, self.terms, state.now_s, rng)
        for event in events:
            facts.apply(turn, event)
        reconcile.fire_timers(turn)
        if not state.settled:
            cycle.run(turn)
        return turn.actions

    def next_timer_s(self, until_s: float = math.inf) -> float | None:
        """Return when ``step`` must be called even without facts; nothing when it need not be.

        Args:
            until_s: What comes later is of no interest: for that, nothing may be returned.
        """
        return reconcile.next_timer_s(self.index, self.terms, until_s)

    def told(self) -> State:
        """Return the state as a person should see it: with the reason why each job waits."""
        reasons = explain.reasons(self.index)
        jobs = {
            job_id: replace(job, reason=reasons[job_id]) if job_id in reasons else job
            for job_id, job in self.state.jobs.items()
        }
        return replace(self.state, jobs=jobs)

    def reason(self, job_id: str) -> Reason | None:
        """Return why a job waits, or why it ended; nothing while it runs.

        Raises:
            KeyError: There is no such job.
        """
        job = self.state.jobs[job_id]
        return explain.reason(self.index, job) if job.state is JobState.QUEUED else job.reason
