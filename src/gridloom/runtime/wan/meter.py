"""What a link can do, measured in use: round trip from heartbeats, bandwidth from acks."""

import collections
import math

_RTT_WINDOW_S = 60.0
_RTT_WEIGHT = 1 / 8  # of the newest sample in the smoothed round trip, as RFC 6298, section 2
_BANDWIDTH_MEMORY_S = 10.0  # busy seconds after which a sample weighs 1/e


class RttMeter:
    """Round trips of heartbeats: smoothed, and the least of the last minute."""

    def __init__(self) -> None:
        self._smoothed_s: float | None = None
        self._falling: collections.deque[tuple[float, float]] = collections.deque()

    @property
    def smoothed_s(self) -> float | None:
        """Smoothed round trip, seconds; ``None`` before the first answer."""
        return self._smoothed_s

    @property
    def least_s(self) -> float | None:
        """Least round trip of the last minute of heartbeats, seconds: the path without queues."""
        return self._falling[0][1] if self._falling else None

    def answered(self, rtt_s: float, now_s: float) -> None:
        """Note the answer to a heartbeat."""
        if self._smoothed_s is None:
            self._smoothed_s = rtt_s
        self._smoothed_s += _RTT_WEIGHT * (rtt_s - self._smoothed_s)
        while self._falling and self._falling[-1][1] >= rtt_s:
            self._falling.pop()  # can never be the least again
        self._falling.append((now_s, rtt_s))
        while self._falling[0][0] < now_s - _RTT_WINDOW_S:
            self._falling.popleft()


class BandwidthMeter:
    """Bytes of bulk a second, over the time in which bulk was under way.

    The receiver sends its count of bytes and its own clock with each ack, so that delays of the
    acks do not count. Only what arrives between two acks of one busy time counts: the first round
    trip of a busy time, in which nothing can have arrived yet, does not.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._busy_s = 0.0
        self._last: tuple[int, float] | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth of the last ten busy seconds or so; ``None`` before two acks in one."""
        return self._bytes / self._busy_s if self._busy_s > 0 else None

    def acked(self, received_bytes: int, receiver_s: float) -> None:
        """Note an ack: the receiver's count of bulk bytes since the link came up, and its clock."""
        if self._last is not None:
            got_bytes, took_s = received_bytes - self._last[0], receiver_s - self._last[1]
            if got_bytes >= 0 and took_s > 0:
                kept = math.exp(-took_s / _BANDWIDTH_MEMORY_S)
                self._bytes = self._bytes * kept + got_bytes
                self._busy_s = self._busy_s * kept + took_s
        self._last = received_bytes, receiver_s

    def idle(self) -> None:
        """Note that no bulk is under way any more: a busy time ends."""
        self._last = None
