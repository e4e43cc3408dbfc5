"""How long things were under way that overlap each other."""

import threading
from collections.abc import Callable


class Busy:
    """Counts the seconds in which at least one thing was under way; from any thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Begin with nothing under way, by a clock that never runs backwards."""
        self._now_s, self._lock = now_s, threading.Lock()
        self._count, self._since_s, self._past_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """Note that one more is under way."""
        with self._lock:
            if not self._count:
                self._since_s = self._now_s()
            self._count += 1

    def end(self) -> None:
        """Note that one of them is over."""
        with self._lock:
            self._count -= 1
            if not self._count:
                self._past_s += self._now_s() - self._since_s

    def total_s(self) -> float:
        """Return the seconds so far."""
        with self._lock:
            return self._past_s + (self._now_s() - self._since_s if self._count else 0.0)
