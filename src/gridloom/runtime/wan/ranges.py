"""Sets of bytes of a body, as sorted disjoint ranges: what is held, what is still to send."""

import bisect
from collections.abc import Iterable

Range = tuple[int, int]  # first byte, first byte after


class Ranges:
    """Disjoint ranges in order; neighbours that touch are one."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def items(self) -> list[Range]:
        """Return the ranges in order."""
        return list(zip(self._starts, self._ends, strict=True))

    def total_bytes(self) -> int:
        """Return how many bytes the ranges hold."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add the bytes of ``[start, end)``; those already held change nothing."""
        if start >= end:
            return
        first = bisect.bisect_left(self._ends, start)  # the first range that touches or follows
        last = bisect.bisect_right(self._starts, end)  # one after the last that touches
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def covers(self, start: int, end: int) -> bool:
        """Return whether all bytes of ``[start, end)`` are held."""
        index = bisect.bisect_right(self._starts, start) - 1
        return start >= end or (index >= 0 and self._ends[index] >= end)

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether any byte of ``[start, end)`` is held."""
        index = bisect.bisect_right(self._ends, start)
        return start < end and index < len(self._starts) and self._starts[index] < end

    def take(self, bytes_max: int) -> Range:
        """Remove and return the first range, of at most ``bytes_max`` bytes.

        Raises:
            IndexError: Nothing is held.
        """
        start = self._starts[0]
        end = min(self._ends[0], start + bytes_max)
        if end == self._ends[0]:
            del self._starts[0], self._ends[0]
        else:
            self._starts[0] = end
        return start, end

    def missing(self, total_bytes: int) -> "Ranges":
        """Return the bytes of ``[0, total_bytes)`` that are not held."""
        edges = [0, *(edge for item in self.items() for edge in item), total_bytes]
        return Ranges(zip(edges[::2], edges[1::2], strict=True))
