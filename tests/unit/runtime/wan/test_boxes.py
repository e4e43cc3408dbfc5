"""Outbox and inbox over a wire of queues: any order, any break, each message exactly once."""

import collections
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.wan.frames import (
    INLINE_BYTES_MAX,
    WHOLE,
    FrameError,
    Head,
    Kind,
    Lane,
)
from gridloom.runtime.wan.inbox import Inbox
from gridloom.runtime.wan.outbox import Chunk, Opening, Outbox

CHUNK_BYTES = 50_000
STREAMS = (1, 2, 3)


@dataclasses.dataclass
class Wire:
    """Carries what the boxes give it; each stream is a queue of its own, each can break."""

    outbox: Outbox = dataclasses.field(default_factory=lambda: Outbox(CHUNK_BYTES))
    inbox: Inbox = dataclasses.field(default_factory=lambda: Inbox(10**9))
    control: collections.deque[Opening | tuple[int, Lane]] = dataclasses.field(
        default_factory=collections.deque
    )
    streams: dict[int, collections.deque[Chunk]] = dataclasses.field(
        default_factory=lambda: {stream: collections.deque() for stream in STREAMS}
    )
    got: list[tuple[bytes, bytes]] = dataclasses.field(default_factory=list)
    carried_bytes: int = 0

    def pull(self, stream: int) -> bool:
        """Let a stream, or the control connection, take what is next."""
        if stream == 0:
            opening = self.outbox.next_opening(only_urgent=False)
            if opening:
                self.control.append(opening)
            return opening is not None
        chunk = self.outbox.next_chunk(stream, only_urgent=False)
        if chunk:
            self.streams[stream].append(chunk)
        return chunk is not None

    def deliver(self, stream: int) -> bool:
        """Let what is first in a queue arrive."""
        if stream:
            if not self.streams[stream]:
                return False
            self.arrive(self.streams[stream].popleft(), stream)
        else:
            if not self.control:
                return False
            first = self.control.popleft()
            if isinstance(first, Opening):
                head, payload = opening_frame(first)
                self.inbox.open(head, memoryview(payload))
            else:
                self.inbox.cancel(*first)
        self.got += [(header, bytes(body)) for header, body in self.inbox.arrivals()]
        return True

    def arrive(self, chunk: Chunk, stream: int) -> None:
        head = chunk_head(chunk)
        place = self.inbox.place(head, stream)
        if place.stale is not None:
            self.break_stream(place.stale)
        if place.room is not None:
            place.room[:] = chunk.data
        self.carried_bytes += len(chunk.data)
        self.inbox.filled(head)

    def ack(self) -> None:
        self.outbox.acked(self.inbox.take_acks(5))

    def break_stream(self, stream: int, *, receiver_sees: bool = True) -> None:
        if receiver_sees:
            self.inbox.lost(stream)
        self.streams[stream].clear()
        self.outbox.lost(stream)

    def break_link(self) -> None:
        for stream in STREAMS:
            self.streams[stream].clear()
            self.inbox.lost(stream)
        self.control.clear()
        self.control += self.outbox.resume(self.inbox.holds())

    def drain(self) -> None:
        busy = True
        while busy:
            busy = sum(self.pull(stream) for stream in (0, *STREAMS)) > 0
            busy |= sum(self.deliver(stream) for stream in (0, *STREAMS)) > 0
            self.ack()
        while acks := self.inbox.take_acks(100):
            self.outbox.acked(acks)


def opening_frame(opening: Opening) -> tuple[Head, bytes]:
    payload = opening.header + bytes(opening.inline)
    head = Head(
        Kind.OPEN,
        opening.lane,
        opening.number,
        len(opening.header),
        opening.body_bytes,
        len(payload),
    )
    return head, payload


def chunk_head(chunk: Chunk) -> Head:
    return Head(
        Kind.CHUNK, chunk.lane, chunk.number, chunk.offset, chunk.body_bytes, len(chunk.data)
    )


def body(seed: int, size: int) -> bytes:
    return bytes((seed * 7 + index * 13) % 251 for index in range(97)) * (size // 97 + 1)


SIZES = st.sampled_from([0, 1, 1000, INLINE_BYTES_MAX, 120_000, 3 * CHUNK_BYTES, 260_001])
STREAM = st.sampled_from((0, *STREAMS))
ACTS = st.one_of(
    st.tuples(st.just("send"), SIZES, st.booleans()),
    st.tuples(st.sampled_from(["pull", "deliver"]), STREAM, st.none()),
    st.tuples(st.sampled_from(["pull", "deliver"]), STREAM, st.none()),
    st.tuples(st.just("break"), STREAM, st.none()),
    st.tuples(st.just("ack"), st.none(), st.none()),
    st.tuples(st.just("discard"), st.integers(0, 3), st.none()),
)


@given(acts=st.lists(ACTS, max_size=60))
def test_whatever_breaks_each_message_arrives_once_and_each_lane_in_order(
    acts: list[tuple[str, int, bool]],
) -> None:
    wire = Wire()
    sent: dict[bytes, tuple[bytes, Lane]] = {}
    dropped: set[bytes] = set()
    for act, what, urgent in acts:
        match act:
            case "send":
                header, data = b"%d" % (len(sent) + 1), body(len(sent), what)[:what]
                number = wire.outbox.add(header, memoryview(data), urgent=urgent)
                assert number == len(sent) + 1
                inline = len(header) + what <= INLINE_BYTES_MAX
                lane = Lane.URGENT if urgent else Lane.SMALL if inline else Lane.BULK
                sent[header] = data, lane
            case "pull":
                wire.pull(what)
            case "deliver":
                wire.deliver(what)
            case "break" if what:
                wire.break_stream(what)
            case "break":
                wire.break_link()
            case "ack":
                wire.ack()
            case _:
                keep = {number for number in wire.outbox.numbers() if number % 4 == what}
                dropped |= {b"%d" % number for number in wire.outbox.numbers()} - {
                    b"%d" % number for number in keep
                }
                wire.control += wire.outbox.discard(keep)
                assert wire.outbox.numbers() == tuple(sorted(keep))
    wire.drain()
    headers = [header for header, _ in wire.got]
    assert len(headers) == len(set(headers))
    assert set(sent) - dropped <= set(headers)
    assert all(sent[header][0] == data for header, data in wire.got)
    for lane in Lane:
        numbers = [int(header) for header in headers if sent[header][1] is lane]
        assert numbers == sorted(numbers)
    assert len(wire.outbox) == wire.outbox.queued_bytes == wire.outbox.flying_bytes == 0
    assert not wire.inbox.holds().parts


def test_only_what_is_missing_is_sent_again() -> None:
    wire = Wire()
    data = body(1, 10 * CHUNK_BYTES)[: 10 * CHUNK_BYTES]
    wire.outbox.add(b"h", memoryview(data), urgent=False)
    wire.pull(0)
    wire.deliver(0)
    for stream in (1, 2, 3, 1, 2, 3):
        assert wire.pull(stream)
    for stream in (3, 1, 2, 1):
        wire.deliver(stream)
    wire.break_link()
    assert wire.carried_bytes == 4 * CHUNK_BYTES
    wire.drain()
    assert wire.got == [(b"h", data)]
    assert wire.carried_bytes == len(data)


def test_a_chunk_that_comes_anew_ends_the_stream_that_was_bringing_it() -> None:
    wire = Wire()
    wire.outbox.add(b"h", memoryview(body(1, 3 * CHUNK_BYTES)), urgent=False)
    wire.pull(0)
    wire.deliver(0)
    wire.pull(1)
    first = wire.streams[1][0]
    assert wire.inbox.place(chunk_head(first), 1).stale is None  # its bytes begin to arrive
    wire.break_stream(1, receiver_sees=False)
    wire.pull(2)
    assert wire.inbox.place(chunk_head(wire.streams[2][0]), 2).stale == 1


def test_urgent_and_small_messages_overtake_bulk() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add(b"bulk", memoryview(bytes(200_000)), urgent=False)
    outbox.add(b"small", memoryview(b"x"), urgent=False)
    outbox.add(b"large and urgent", memoryview(bytes(200_000)), urgent=True)
    openings = [outbox.next_opening(only_urgent=False) for _ in range(3)]
    assert [opening and opening.header for opening in openings] == [
        b"large and urgent",
        b"small",
        b"bulk",
    ]
    chunks = [outbox.next_chunk(1, only_urgent=False) for _ in range(5)]
    assert [chunk and chunk.number for chunk in chunks] == [3, 3, 3, 3, 1]


def test_a_closed_cap_lets_only_urgent_ones_out() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add(b"bulk", memoryview(bytes(200_000)), urgent=False)
    outbox.add(b"small", memoryview(b"x"), urgent=False)
    assert outbox.next_opening(only_urgent=True) is None
    assert outbox.next_chunk(1, only_urgent=True) is None
    outbox.add(b"urgent", memoryview(b"x"), urgent=True)
    opening = outbox.next_opening(only_urgent=True)
    assert opening
    assert opening.header == b"urgent"


def test_acks_of_what_is_not_known_change_nothing() -> None:
    outbox = Outbox(CHUNK_BYTES)
    outbox.add(b"h", memoryview(bytes(200_000)), urgent=False)
    outbox.acked([(1, 0), (7, 0), (7, WHOLE)])
    assert outbox.numbers() == (1,)


OPEN = Head(Kind.OPEN, Lane.BULK, 1, offset=2, total=100, length=2)
CHUNK = Head(Kind.CHUNK, Lane.BULK, 1, offset=10, total=100, length=20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 90}, "outside its message"),
        ({"length": 0}, "outside its message"),
        ({"total": 99}, "contradicts"),
        ({"lane": Lane.URGENT}, "contradicts"),
        ({"offset": 20}, "runs into others"),
        ({"number": 2, "total": 10**9}, "larger than the settings allow"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    inbox = Inbox(1000)
    inbox.open(OPEN, memoryview(b"hh"))
    inbox.place(CHUNK, 1)
    inbox.filled(CHUNK)
    with pytest.raises(FrameError, match=message):
        inbox.place(dataclasses.replace(CHUNK, **change), 1)


@pytest.mark.parametrize("change", [{"offset": 3}, {"length": 5}, {"total": 5000}])
def test_an_opening_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        Inbox(1000).open(dataclasses.replace(OPEN, **change), memoryview(b"hhxxx"))


def test_chunks_of_a_message_that_was_handed_on_or_cancelled_go_nowhere() -> None:
    inbox = Inbox(1000)
    inbox.open(OPEN, memoryview(b"hh"))
    inbox.cancel(1, Lane.BULK)
    assert inbox.place(CHUNK, 1).room is None
    inbox.filled(CHUNK)
    assert inbox.take_acks(9) == [(1, 10)]
    assert inbox.holds().opened == [0, 0, 1]
