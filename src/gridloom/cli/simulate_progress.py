"""A bar on standard error while a simulation runs: jobs that are over, and the simulated time."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gridloom.base.system import SystemClock
from gridloom.base.units import format_duration
from gridloom.cli.output import console

WAIT_S = 2.0
"""What is done sooner shows no bar."""

_EVERY_S = 0.1


class Bar:
    """One bar over all runs; only a person's terminal sees it."""

    def __init__(self, total: int) -> None:
        """Begin without showing anything.

        Args:
            total: Jobs of all runs.
        """
        self._out = console(stderr=True)
        self._clock = SystemClock()
        self._next_s = self._clock.monotonic_s() + WAIT_S
        self._shown = False
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} jobs"),
            TextColumn("{task.fields[time]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._out, transient=True)
        self._task = self._bar.add_task("", total=total, time="")
        self._live = self._out.is_terminal

    def tell(self, what: str, done: int, simulated_s: float) -> None:
        """Show how far it is, not more often than a person can read."""
        if not self._live:
            return
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        time = f"{format_duration(simulated_s)} simulated"
        self._bar.update(self._task, description=what, completed=done, time=time)
        if not self._shown:
            self._shown = True
            self._bar.start()

    def close(self) -> None:
        """Give the line back."""
        if self._shown:
            self._bar.stop()


class Stop:
    """Whether a person asked to stop.

    Attributes:
        asked: They did.
    """

    def __init__(self) -> None:
        self.asked = False


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Yield what tells of Ctrl-C; the second one is the usual interrupt."""
    stop = Stop()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
