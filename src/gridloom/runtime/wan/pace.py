"""Bandwidth caps: a token bucket, and the cap that holds at a time of day."""

import math
import time
from collections.abc import Sequence

from gridloom.runtime.wan.settings import CapWindow

_BURST_S = 0.1  # what an idle bucket may save up: enough for timers that come late
_DAY_MIN = 24 * 60


class Bucket:
    """A token bucket that may be overdrawn by the last piece taken from it.

    In any time t, at most ``rate * (t + 0.1 s)`` bytes and one piece are let out. Pieces are not
    cut, so that a cap smaller than a piece a second still lets pieces pass, with long pauses.
    """

    def __init__(self, rate_bytes_per_s: float | None, now_s: float) -> None:
        self._rate_bytes_per_s = rate_bytes_per_s
        self._level_bytes = (rate_bytes_per_s or 0.0) * _BURST_S
        self._at_s = now_s

    def set_rate(self, rate_bytes_per_s: float | None, now_s: float) -> None:
        """Change the cap; debts stay. ``None`` for no cap."""
        self._fill(now_s)
        self._rate_bytes_per_s = rate_bytes_per_s
        self._level_bytes = min(self._level_bytes, (rate_bytes_per_s or 0.0) * _BURST_S)

    def ready(self, now_s: float) -> bool:
        """Return whether a piece may leave now."""
        self._fill(now_s)
        return self._rate_bytes_per_s is None or self._level_bytes > 0

    def spend(self, count_bytes: int, now_s: float) -> None:
        """Note that so many bytes left, whether or not the bucket was ready."""
        self._fill(now_s)
        if self._rate_bytes_per_s is not None:
            self._level_bytes -= count_bytes

    def wait_s(self, now_s: float) -> float:
        """Return seconds until a piece may leave; 0 when it may now, infinity when the cap is 0."""
        if self.ready(now_s):
            return 0.0
        if not self._rate_bytes_per_s:
            return math.inf
        least_s = 1e-3  # a level of exactly zero is not ready yet
        return max(-self._level_bytes / self._rate_bytes_per_s, least_s)

    def _fill(self, now_s: float) -> None:
        rate = self._rate_bytes_per_s or 0.0
        gained = max(0.0, now_s - self._at_s) * rate
        self._level_bytes = min(self._level_bytes + gained, rate * _BURST_S)
        self._at_s = max(self._at_s, now_s)


def cap_bytes_per_s(
    windows: Sequence[CapWindow], usual_bytes_per_s: float | None, now_s: float
) -> float | None:
    """Return the cap at a moment: that of the first window that fits, or else the usual one.

    Args:
        windows: Caps by local time of day.
        usual_bytes_per_s: The cap outside all windows; ``None`` for none.
        now_s: Seconds since the Unix epoch.
    """
    local = time.localtime(now_s)
    minute = local.tm_hour * 60 + local.tm_min
    for window in windows:
        start, end = _minute(window.from_time), _minute(window.to_time)
        inside = start <= minute < end if start < end else minute >= start or minute < end
        if inside:
            return window.cap_bytes_per_s
    return usual_bytes_per_s


def _minute(text: str) -> int:
    hours, minutes = text.split(":")
    return min(int(hours) * 60 + int(minutes), _DAY_MIN)
