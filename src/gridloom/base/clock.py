"""The port through which everything that needs the time is handed it."""

from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, and waiting."""

    def now_s(self) -> float:
        """Return seconds since the Unix epoch (UTC)."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Wait for ``duration_s`` seconds."""
        ...
