"""What is to be sent to one peer: lanes, cutting into chunks, acks, and what to send again."""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator

from gridloom.runtime.wan.frames import INLINE_BYTES_MAX, WHOLE, Holds, Lane
from gridloom.runtime.wan.ranges import Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """The header of a message, with its body if that is short."""

    number: int
    lane: Lane
    header: bytes
    inline: memoryview
    body_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a message's body."""

    number: int
    lane: Lane
    offset: int
    body_bytes: int
    data: memoryview


@dataclasses.dataclass(slots=True)
class _Message:
    number: int
    lane: Lane
    header: bytes
    body: memoryview
    inline: bool
    opened: bool = False
    unsent: Ranges = dataclasses.field(default_factory=Ranges)
    flying: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.body)


class Outbox:
    """Messages to one peer, each kept until the peer holds all of it.

    A message of one frame leaves by the control connection. Of a longer one, the header leaves by
    the control connection and then, in pieces of ``chunk_bytes``, its body by any bulk stream. A
    stream is named by a number. ``flying`` maps the offset of a chunk to its end and its stream.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._last_number = 0
        self._messages: dict[int, _Message] = {}  # in order of number
        self._to_open = _queues()
        self._to_send = _queues()
        self.queued_bytes = 0
        self.flying_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def numbers(self) -> tuple[int, ...]:
        """Return the messages that the peer does not hold whole yet, in order."""
        return tuple(self._messages)

    def add(self, header: bytes, body: memoryview, *, urgent: bool) -> int:
        """Queue a message and return its number; ``body`` is of bytes, one-dimensional."""
        self._last_number += 1
        inline = len(header) + len(body) <= INLINE_BYTES_MAX or not len(body)
        lane = Lane.URGENT if urgent else Lane.SMALL if inline else Lane.BULK
        message = _Message(self._last_number, lane, header, body, inline)
        self._messages[message.number] = message
        self.queued_bytes += message.size_bytes
        self._queue(message, Ranges())
        return message.number

    def next_opening(self, *, only_urgent: bool) -> Opening | None:
        """Return what the control connection is to send next, if anything."""
        for lane in _lanes(only_urgent=only_urgent):
            while self._to_open[lane]:
                message = self._messages.get(self._to_open[lane].popleft())
                if message is not None:
                    message.opened = True
                    inline = message.body if message.inline else memoryview(b"")
                    return Opening(message.number, lane, message.header, inline, len(message.body))
        return None

    def next_chunk(self, stream: int, *, only_urgent: bool) -> Chunk | None:
        """Return what ``stream`` is to send next, if anything."""
        for lane in _lanes(only_urgent=only_urgent):
            queue = self._to_send[lane]
            while queue:
                message = self._messages.get(queue[0])
                if message is None or not message.unsent:
                    queue.popleft()
                elif message.opened:
                    start, end = message.unsent.take(self._chunk_bytes)
                    message.flying[start] = end, stream
                    self.flying_bytes += end - start
                    data = message.body[start:end]
                    return Chunk(message.number, lane, start, len(message.body), data)
                else:
                    break
        return None

    def acked(self, acks: Iterable[tuple[int, int]]) -> None:
        """Note what the peer holds; what is not known, or not any more, changes nothing."""
        for number, offset in acks:
            message = self._messages.get(number)
            if message is None:
                continue
            if offset == WHOLE:
                self._forget(message)
            elif offset in message.flying:
                self._land(message, offset)

    def lost(self, stream: int) -> None:
        """Queue again what was under way on a stream that broke."""
        for message in self._messages.values():
            offsets = [at for at, (_, on) in message.flying.items() if on == stream]
            for offset in offsets:
                end = self._land(message, offset)
                message.unsent.add(offset, end)
            if offsets and message.number not in self._to_send[message.lane]:
                self._requeue(message)

    def resume(self, holds: Holds) -> list[tuple[int, Lane]]:
        """Start again on a new link to the same peer, from what it holds.

        Returns:
            Messages of which the peer holds a part, but which were discarded here.
        """
        parts = {part.number: part for part in holds.parts}
        self._to_open, self._to_send, self.flying_bytes = _queues(), _queues(), 0
        for message in list(self._messages.values()):
            opened = message.number <= holds.opened[message.lane]
            if opened and message.number not in parts:
                self._forget(message)
                continue
            message.flying.clear()
            message.opened = opened
            part = parts.pop(message.number, None)
            self._queue(message, Ranges(part.ranges) if part else Ranges())
        return [(part.number, Lane(part.lane)) for part in parts.values()]

    def discard(self, keep: Collection[int] = ()) -> list[tuple[int, Lane]]:
        """Forget all messages but those to ``keep``; return those that the peer must forget too."""
        gone = [message for message in self._messages.values() if message.number not in keep]
        for message in gone:
            self._forget(message)
        return [(message.number, message.lane) for message in gone if message.opened]

    def _queue(self, message: _Message, held: Ranges) -> None:
        if not message.opened:
            self._to_open[message.lane].append(message.number)
        if not message.inline:
            message.unsent = held.missing(len(message.body))
            self._to_send[message.lane].append(message.number)

    def _requeue(self, message: _Message) -> None:
        """Put a message back among those to send, by its number."""
        numbers = sorted([*self._to_send[message.lane], message.number])
        self._to_send[message.lane] = collections.deque(numbers)

    def _land(self, message: _Message, offset: int) -> int:
        end, _ = message.flying.pop(offset)
        self.flying_bytes -= end - offset
        return end

    def _forget(self, message: _Message) -> None:
        for offset in list(message.flying):
            self._land(message, offset)
        del self._messages[message.number]
        self.queued_bytes -= message.size_bytes


def _queues() -> dict[Lane, collections.deque[int]]:
    return {lane: collections.deque() for lane in Lane}


def _lanes(*, only_urgent: bool) -> Iterator[Lane]:
    yield from (Lane.URGENT,) if only_urgent else Lane
