"""The agenda of a simulation: a heap of (time, urgency, ticket)."""

import heapq
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from gridloom.base.errors import BrokenError

NEVER_S = 1e15
"""A time that no simulation reaches: 30 million years, where a float still tells a second."""

Entry = list[Any]
"""Time, urgency, ticket, whether the simulation waits for it, what to call (nothing: cancelled),
and with what; a list, so that it can be cancelled where it stands."""

_AT, _WAITED, _CALL, _ARGUMENT = 0, 3, 4, 5
_COMPACT_MIN = 1024


class Urgency(IntEnum):
    """What comes first of the things that happen at one instant."""

    END = 0
    """What frees devices."""
    FAULT = 1
    SIGNAL = 2
    WISH = 3
    """What a test or a story hands in."""
    ARRIVAL = 4
    START = 5
    BEAT = 6


class Agenda:
    """What will happen, in order of time, then of urgency, then of entry.

    Attributes:
        now_s: The time of the last instant that was taken; it never goes back.
        waiting: Entries that are worth waiting for.
    """

    def __init__(self) -> None:
        self.now_s = -float("inf")
        self.waiting = 0
        self._heap: list[Entry] = []
        self._ticket = 0
        self._cancelled = 0

    def put(
        self,
        at_s: float,
        urgency: Urgency,
        call: Callable[[Any], None],
        argument: Any = None,
        *,
        waited: bool = True,
    ) -> Entry:
        """Note that ``call(argument)`` is due at ``at_s``; return the entry, to cancel it.

        Args:
            at_s: When; ``NEVER_S`` or later for never. A time that has passed counts as now.
            urgency: Its rank among what is due at the same instant.
            call: What to call.
            argument: With what.
            waited: Whether a simulation in which nothing else is due goes on for its sake.

        Raises:
            BrokenError: The time is not a number.
        """
        if at_s != at_s:
            raise BrokenError(f"{call} is due at a time that is not a number")
        self._ticket += 1
        due_s = at_s if at_s > self.now_s else self.now_s
        entry: Entry = [due_s, urgency, self._ticket, waited, call, argument]
        if at_s >= NEVER_S:
            entry[_CALL] = None
            return entry
        heapq.heappush(self._heap, entry)
        self.waiting += waited
        return entry

    def cancel(self, entry: Entry) -> None:
        """Let an entry not happen; once more, or after it happened, changes nothing."""
        if entry[_CALL] is None:
            return
        entry[_CALL] = entry[_ARGUMENT] = None
        self.waiting -= entry[_WAITED]
        self._cancelled += 1
        if self._cancelled > max(_COMPACT_MIN, len(self._heap) // 2):
            self._heap[:] = [one for one in self._heap if one[_CALL] is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_s(self) -> float | None:
        """Return when the next entry is due; nothing when there is none."""
        heap = self._heap
        while heap and heap[0][_CALL] is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][_AT] if heap else None

    def run_until(self, now_s: float) -> None:
        """Let all that is due by ``now_s`` happen, also what that adds for the same instant.

        Raises:
            BrokenError: ``now_s`` is before the last instant.
        """
        if now_s < self.now_s:
            raise BrokenError(f"time went back from {self.now_s} to {now_s}")
        self.now_s = now_s
        heap = self._heap
        while heap and heap[0][_AT] <= now_s:
            entry = heapq.heappop(heap)
            call, argument = entry[_CALL], entry[_ARGUMENT]
            if call is None:
                self._cancelled -= 1
                continue
            entry[_CALL] = entry[_ARGUMENT] = None
            self.waiting -= entry[_WAITED]
            call(argument)
