"""Which part of the collectives' time is hidden behind the training."""

from collections.abc import Callable
from typing import Any

from tests.fakes.clock import FakeClock

from gridloom.runtime.inside.flights import Flights


class Sum:
    """A collective that ends while it is waited for, some time before that is noticed."""

    def __init__(self, clock: FakeClock, takes_s: float, late_s: float) -> None:
        self._clock, self._takes_s, self._late_s = clock, takes_s, late_s
        self._ended: Callable[[Any], None] = print

    def get_future(self) -> "Sum":
        return self

    def add_done_callback(self, ended: Callable[[Any], None]) -> None:
        self._ended = ended

    def wait(self) -> None:
        self._clock.advance(self._takes_s)
        self._ended(None)
        self._clock.advance(self._late_s)


def test_what_is_hidden_never_falls() -> None:
    clock, found = FakeClock(), [0.0]
    flights = Flights(clock.monotonic_s)
    for behind_s in (0.25, 0.0):
        one: Any = Sum(clock, takes_s=0.5, late_s=0.125)
        flights.left(one)
        clock.advance(behind_s)
        flights.await_(one)
        found.append(flights.hidden_s())
    assert found == [0.0, 0.25, 0.25]
