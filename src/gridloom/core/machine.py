"""The one door through which the scheduler's state changes."""

import random
from collections.abc import Sequence

from gridloom.core import cycle, facts, reconcile
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms, Turn
from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent


class Machine:
    """Facts in, intentions out: in production, in the simulator and in tests.

    The same state, facts, times and seed give the same intentions in every process.

    Attributes:
        state: What is known; change it only through ``step``.
        terms: How long rights to run last.
    """

    def __init__(self, state: State | None = None, terms: LeaseTerms | None = None) -> None:
        self.state = state or State()
        self.terms = terms or LeaseTerms()
        self._settled: cycle.View | None = None

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
        self.state.now_s = max(now, self.state.now_s)
        turn = Turn(self.state, self.terms, self.state.now_s, rng)
        for event in events:
            facts.apply(turn, event)
        reconcile.fire_timers(turn)
        if cycle.view(self.state) != self._settled:
            cycle.run(turn)
            self._settled = cycle.view(self.state)
        return turn.actions

    def next_timer_s(self) -> float | None:
        """Return when ``step`` must be called even without facts; nothing when it need not be."""
        return reconcile.next_timer_s(self.state, self.terms)
