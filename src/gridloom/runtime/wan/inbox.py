"""What comes from one peer: bodies put together in place, each lane in order, and acks."""

import collections
import dataclasses
from collections.abc import Iterator

import numpy as np

from gridloom.runtime.wan.frames import WHOLE, FrameError, Head, Holds, Lane, Part
from gridloom.runtime.wan.ranges import Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a chunk go.

    Attributes:
        room: Part of the body, of the chunk's length; ``None`` when its bytes are already here.
        stale: Stream on which the same chunk was still under way: its sender has given it up.
    """

    room: memoryview | None
    stale: int | None = None


@dataclasses.dataclass(slots=True)
class _Incoming:
    number: int
    lane: Lane
    body: memoryview
    header: bytes | None = None
    held: Ranges = dataclasses.field(default_factory=Ranges)
    filling: dict[int, int] = dataclasses.field(default_factory=dict)  # offset to stream

    @property
    def whole(self) -> bool:
        return self.header is not None and self.held.covers(0, len(self.body))


class Inbox:
    """Messages of one process of a peer, until they are handed on, each once.

    Numbers of a lane only rise, so a number up to the last that was opened and that is not among
    the incoming ones is of a message that was handed on, or cancelled.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._opened = dict.fromkeys(Lane, 0)
        self._incoming: dict[int, _Incoming] = {}
        self._order: dict[Lane, collections.deque[int]] = {
            lane: collections.deque() for lane in Lane
        }
        self._acks: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._incoming)

    def open(self, head: Head, payload: memoryview) -> None:
        """Take in a message's header, and its body if that came along.

        Raises:
            FrameError: The lengths do not fit.
        """
        header_bytes, rest_bytes = head.offset, head.length - head.offset
        if header_bytes > head.length or rest_bytes not in (0, head.total):
            raise FrameError("the lengths of a message do not fit each other")
        if head.number <= self._opened[head.lane]:
            return  # sent again over a new link before the sender knew that it is here
        message = self._meet(head)
        self._opened[head.lane] = head.number
        self._order[head.lane].append(head.number)
        message.header = bytes(payload[:header_bytes])
        if rest_bytes:
            message.body[:] = payload[header_bytes:]
            message.held.add(0, head.total)
        self._tell_if_whole(message)

    def place(self, head: Head, stream: int) -> Place:
        """Return where the bytes of a chunk go that begins to arrive on ``stream``.

        Raises:
            FrameError: It lies outside its message, or runs into other chunks.
        """
        end = head.offset + head.length
        if end > head.total or not head.length:
            raise FrameError("a chunk lies outside its message")
        if head.number not in self._incoming and head.number <= self._opened[head.lane]:
            return Place(None)
        message = self._meet(head)
        if message.held.covers(head.offset, end):
            return Place(None)
        if message.held.overlaps(head.offset, end):
            raise FrameError("a chunk runs into others of its message")
        before = message.filling.get(head.offset)
        message.filling[head.offset] = stream
        room = message.body[head.offset : end]
        return Place(room, before if before != stream else None)

    def filled(self, head: Head) -> None:
        """Note that a chunk is here, sound, in its place or not needed."""
        self._acks.append((head.number, head.offset))
        message = self._incoming.get(head.number)
        if message is not None and not message.held.covers(head.offset, head.offset + head.length):
            message.filling.pop(head.offset, None)
            message.held.add(head.offset, head.offset + head.length)
            self._tell_if_whole(message)

    def cancel(self, number: int, lane: Lane) -> None:
        """Forget a message that its sender has discarded, unless it is here whole."""
        message = self._incoming.get(number)
        if message is not None and not message.whole:
            del self._incoming[number]
            if number in self._order[lane]:
                self._order[lane].remove(number)

    def lost(self, stream: int) -> None:
        """Forget the chunks that were under way on a stream that broke."""
        for message in self._incoming.values():
            message.filling = {at: on for at, on in message.filling.items() if on != stream}

    def arrivals(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield header and body of each message whose turn has come, and let go of it."""
        for order in self._order.values():
            while order and self._incoming[order[0]].whole:
                message = self._incoming.pop(order.popleft())
                yield message.header or b"", message.body

    def take_acks(self, count_max: int) -> list[tuple[int, int]]:
        """Return what is to be acknowledged, oldest first, and forget it."""
        taken = self._acks[:count_max]
        del self._acks[:count_max]
        return taken

    def holds(self) -> Holds:
        """Return what is here, for a sender that resumes; acks not sent yet are part of it."""
        self._acks.clear()
        for message in self._incoming.values():
            message.filling.clear()
        parts = [
            Part(message.number, message.lane, message.held.items())
            for message in sorted(self._incoming.values(), key=lambda message: message.number)
            if not message.whole
        ]
        return Holds(list(self._opened.values()), parts)

    def _meet(self, head: Head) -> _Incoming:
        """Return the message that a frame belongs to; its body is allocated at the first."""
        message = self._incoming.get(head.number)
        if message is None:
            if head.total > self._body_bytes_max:
                raise FrameError(f"a body of {head.total} bytes is larger than the settings allow")
            body = np.empty(head.total, dtype=np.uint8).data
            message = self._incoming[head.number] = _Incoming(head.number, head.lane, body)
        elif message.lane != head.lane or len(message.body) != head.total:
            raise FrameError("a frame contradicts others of its message")
        return message

    def _tell_if_whole(self, message: _Incoming) -> None:
        if message.whole:
            self._acks.append((message.number, WHOLE))
