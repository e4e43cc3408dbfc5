"""Where the time of a training step goes, told by what ends when."""

from collections import deque
from collections.abc import Callable, Mapping

from gridloom.runtime.accelerator import Lap


class Phases:
    """Adds up the seconds of each phase; one look at the clock, or one event, a phase.

    On a device that works behind the host's back a phase is the time that the device took for it,
    waiting for the host included. It counts once the device has come to its end: nobody waits.
    """

    def __init__(self, lap: Callable[[], Lap]) -> None:
        """Begin now, by laps as of ``accelerator.laps``."""
        self._lap = lap
        self._open: deque[tuple[str, Lap]] = deque()
        self._seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Count what has passed since the last end of a phase as this one."""
        self._open.append((phase, self._lap()))
        self._settle()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase, as far as the device has come."""
        self._settle()
        return dict(self._seconds)

    def _settle(self) -> None:
        while self._open:
            phase, lap = self._open[0]
            seconds = lap()
            if seconds is None:
                return
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
            self._open.popleft()


def spent(now: Mapping[str, float], before: Mapping[str, float], *phases: str) -> float:
    """Return the seconds of phases together, between two answers of ``Phases.seconds``."""
    return sum(now.get(phase, 0.0) - before.get(phase, 0.0) for phase in phases)
