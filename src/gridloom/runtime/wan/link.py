"""The link to one peer: a control connection, bulk streams, and what is kept between them."""

import asyncio
import collections
import dataclasses
import math
import socket
import threading
from collections.abc import Callable, Collection

from gridloom.base.clock import Clock
from gridloom.runtime.busy import Busy
from gridloom.runtime.wan.events import Down, EventQueue, LinkFacts, Received, Up
from gridloom.runtime.wan.frames import (
    FrameError,
    Head,
    Kind,
    Lane,
    decode_acks,
    decode_holds,
    encode,
    encode_acks,
)
from gridloom.runtime.wan.greeting import CONTROL
from gridloom.runtime.wan.inbox import Inbox
from gridloom.runtime.wan.meter import BandwidthMeter, RttMeter
from gridloom.runtime.wan.outbox import Outbox
from gridloom.runtime.wan.pace import Bucket, cap_bytes_per_s
from gridloom.runtime.wan.settings import STREAMS_MAX, Address, TransportSettings
from gridloom.runtime.wan.stream import Buffers, Stream

_ACKS_MAX = 4096  # in one frame
_NS = 1e9


@dataclasses.dataclass(frozen=True)
class Shared:
    """What all links of a transport share.

    Attributes:
        changed: Guards the outboxes, which other threads fill; told when they get emptier.
        busy: Counts the time in which messages are on their way over any link.
    """

    settings: TransportSettings
    clock: Clock
    events: EventQueue
    changed: threading.Condition
    busy: Busy


class Link:
    """Everything between this site and one peer.

    The link is up while its control connection is open. Bulk streams may come and go meanwhile:
    what was under way on one that broke is sent over others. When the control connection breaks,
    all is closed, and each side tells the other on the next one what it holds.

    Methods that say so may be called from any thread, all others in the transport's own.
    """

    def __init__(self, peer: str, shared: Shared) -> None:
        self.peer = peer
        self.address: Address | None = None
        self.session = ""
        self.number = 0
        self.trouble = ""
        self.dials = False
        self._attempts = 0
        self._shared = shared
        self._settings, self._clock = shared.settings, shared.clock
        self._control: Stream | None = None
        self._bulk: dict[int, Stream] = {}
        self._outbox = Outbox(shared.settings.chunk_bytes)
        self._inbox = Inbox(shared.settings.body_bytes_max)
        self._control_out: collections.deque[Buffers] = collections.deque()
        self._pings_due: set[int] = set()
        self._is_busy = False
        self._told = False  # whether the peer has told what it holds: nothing is sent before
        self._usual_cap = shared.settings.caps.get(peer, shared.settings.cap_bytes_per_s)
        self._bucket = Bucket(self._cap(), self._clock.monotonic_s())
        self._timer: asyncio.TimerHandle | None = None
        self._rtt, self._bandwidth = RttMeter(), BandwidthMeter()
        self._past = [0, 0, 0]  # sent, received, received over bulk, by streams that are closed
        self._news = asyncio.Event()
        self._on_frame: dict[Kind, Callable[[Head, memoryview], None]] = {
            Kind.OPEN: self._on_open,
            Kind.ACK: self._on_ack,
            Kind.HOLDS: self._on_holds,
            Kind.CANCEL: lambda head, _: self._inbox.cancel(head.number, head.lane),
            Kind.PING: lambda head, _: self._say(Kind.PONG, head.number),
            Kind.PONG: self._on_pong,
            Kind.BYE: lambda _, __: self.take_down("closed"),
        }

    # From any thread.

    def send(self, header: bytes, body: memoryview, *, urgent: bool) -> int:
        """Queue a message and return its number. From any thread; `pump` must follow."""
        with self._shared.changed:
            number = self._outbox.add(header, body, urgent=urgent)
            self._note_traffic()
            return number

    def outstanding(self) -> tuple[int, ...]:
        """Return the messages that the peer does not hold whole yet. From any thread."""
        with self._shared.changed:
            return self._outbox.numbers()

    def discard(self, keep: Collection[int]) -> None:
        """Forget messages, here and at the peer. From any thread; `pump` must follow."""
        with self._shared.changed:
            for number, lane in self._outbox.discard(keep):
                if self.up:
                    self._say(Kind.CANCEL, number, lane)
            self._note_traffic()
            self._shared.changed.notify_all()

    def facts(self) -> LinkFacts:
        """Return what is known of the link. From any thread."""
        with self._shared.changed:
            control = self._control
            streams = self._streams()
            heard_s = max((stream.heard_s for stream in streams), default=0.0)
            return LinkFacts(
                up=control is not None,
                session=self.session,
                streams=len(self._bulk),
                rtt_s=self._rtt.smoothed_s,
                rtt_s_min=self._rtt.least_s,
                bandwidth_bytes_per_s=self._bandwidth.bytes_per_s,
                sent_bytes=self._past[0] + sum(stream.sent_bytes for stream in streams),
                received_bytes=self._past[1] + sum(stream.received_bytes for stream in streams),
                queued_bytes=self._outbox.queued_bytes,
                silent_s=max(0.0, self._clock.monotonic_s() - heard_s) if control else None,
                trouble=self.trouble,
            )

    @property
    def queued(self) -> int:
        """How many messages the peer does not hold whole yet; under the lock."""
        return len(self._outbox)

    # Coming up and going down.

    @property
    def up(self) -> bool:
        """Whether the peer can be spoken to."""
        return self._control is not None

    async def until_wanted(self, stream: int) -> None:
        """Return once a connection of this number is missing."""
        while not self.dials or self.up == (stream == CONTROL) or stream in self._bulk:
            await self._news.wait()

    def number_for(self, stream: int) -> int:
        """Return the number of the link that a connection to be dialled belongs to."""
        if stream != CONTROL:
            return self.number
        self._attempts += 1  # also of calls that fail: the other side may have seen them succeed
        return self._attempts

    def meet(self, address: Address | None, *, dials: bool) -> None:
        """Set where the peer is, and whether this side dials."""
        self.address, self.dials = address, dials
        self._tell_news()

    def adopt(self, sock: socket.socket, session: str, number: int, stream: int) -> bool:
        """Take over a connection that was greeted; return ``False`` if it comes too late.

        Args:
            sock: The connection.
            session: Process of the peer.
            number: Count of the link that the connection belongs to.
            stream: `CONTROL`, or the number of a bulk stream.
        """
        if stream != CONTROL:
            return self._adopt_bulk(sock, session, number, stream)
        if session == self.session and number <= self.number:
            return False
        self.take_down("replaced")
        resumed = session == self.session
        with self._shared.changed:
            if not resumed:
                if self.session:
                    self._outbox.discard()
                    self._shared.changed.notify_all()
                self._inbox = Inbox(self._settings.body_bytes_max)
            self.session, self.number, self.trouble = session, number, ""
            self._past[2] = 0
            self._control_out.clear()
            self._control = Stream(sock, CONTROL, self, self._clock.monotonic_s)
            self._note_traffic()
        self._control_out.append(encode(Head(Kind.HOLDS), self._inbox.holds().encoded()))
        self._pings_due.add(CONTROL)
        self._shared.events.put(Up(self.peer, session, resumed))
        self._control.start()
        self._tell_news()
        return True

    def take_down(self, why: str) -> None:
        """Close all connections; messages are kept."""
        if self._control is None:
            return
        for stream in self._streams():
            self._drop(stream)
        self._note_traffic()
        self._told = False
        self._bandwidth.idle()
        self._shared.events.put(Down(self.peer, why))
        self._tell_news()

    def say_bye(self) -> None:
        """Tell the peer that this process goes."""
        if self.up:
            self._say(Kind.BYE)
            self.pump()

    # Driven by the transport's loop.

    def pump(self) -> None:
        """Send whatever may be sent."""
        for stream in self._streams():
            stream.wake()

    def tick(self) -> None:
        """Do what is due every heartbeat: signs of life, silence, the cap of the time of day."""
        now_s = self._clock.monotonic_s()
        self._bucket.set_rate(self._cap(), now_s)
        for stream in self._streams():
            stream.poll()
            if stream.reading and now_s - stream.heard_s > self._settings.silence_s:
                self.broke(stream, "silent")
        self._pings_due = {stream.number for stream in self._streams()}
        self.pump()
        self.resume_reading()

    def resume_reading(self) -> None:
        """Read bulk again if the caller has taken enough of what was received."""
        if self._shared.events.unread_bytes <= self._settings.unread_bytes_max:
            for stream in self._streams():
                stream.resume()

    # What streams ask; see `stream.Handler`.

    def room(self, stream: Stream, head: Head) -> memoryview:
        """Return where the payload of a frame goes: a chunk's straight to its place."""
        if (head.kind is Kind.CHUNK) == (stream.number == CONTROL):
            raise FrameError(f"a frame {head.kind.name} came over connection {stream.number}")
        if head.kind is Kind.CHUNK:
            place = self._inbox.place(head, stream.number)
            if place.stale is not None and place.stale in self._bulk:
                self.broke(self._bulk[place.stale], "given up by the peer")
            self._note_traffic()
            if place.room is not None:
                return place.room
        return memoryview(bytearray(head.length))

    def arrived(self, stream: Stream, head: Head, payload: memoryview) -> None:
        """Take a sound frame."""
        if stream.number == CONTROL:
            if head.kind not in self._on_frame:
                raise FrameError(f"a frame {head.kind.name} without payload")
            self._on_frame[head.kind](head, payload)
        elif head.kind is Kind.CHUNK:
            self._inbox.filled(head)
        elif head.kind is not Kind.PING:
            raise FrameError(f"a frame {head.kind.name} came over connection {stream.number}")

    def turned(self, stream: Stream) -> None:
        """Hand on the messages whose turn has come, and acknowledge."""
        for header, body in self._inbox.arrivals():
            self._shared.events.put(Received(self.peer, header, body))
        self._note_traffic()
        unread_bytes = self._shared.events.unread_bytes
        if stream.number != CONTROL and unread_bytes > self._settings.unread_bytes_max:
            stream.pause()
        if self._control is not None:
            self._control.wake()

    def next_frame(self, stream: Stream) -> Buffers:
        """Return what a stream is to send next."""
        if stream.number == CONTROL and self._control_out:
            return self._control_out.popleft()
        if stream.number in self._pings_due:
            self._pings_due.discard(stream.number)
            return encode(Head(Kind.PING, number=self._now_ns()))
        if stream.number != CONTROL:
            return self._next_chunk(stream)
        if acks := self._inbox.take_acks(_ACKS_MAX):
            got_bytes = self._past[2] + sum(each.received_bytes for each in self._bulk.values())
            head = Head(Kind.ACK, number=got_bytes, offset=self._now_ns())
            return encode(head, encode_acks(acks))
        return self._next_opening()

    def broke(self, stream: Stream, why: str) -> None:
        """Note that a connection is gone."""
        if stream.number == CONTROL:
            self.trouble = "" if why == "silent" else why
            self.take_down("silent" if why == "silent" else "lost")
        else:
            self._drop(stream)
            with self._shared.changed:
                self._outbox.lost(stream.number)
            self._inbox.lost(stream.number)
            self._tell_news()
            self.pump()

    # Frames.

    def _on_open(self, head: Head, payload: memoryview) -> None:
        self._inbox.open(head, payload)

    def _on_ack(self, head: Head, payload: memoryview) -> None:
        acks = decode_acks(payload)
        with self._shared.changed:
            self._outbox.acked(acks)
            self._bandwidth.acked(head.number, head.offset / _NS)
            if not self._outbox.flying_bytes:
                self._bandwidth.idle()
            self._note_traffic()
            self._shared.changed.notify_all()

    def _on_holds(self, _: Head, payload: memoryview) -> None:
        holds = decode_holds(payload)
        with self._shared.changed:
            unwanted = self._outbox.resume(holds)
            self._note_traffic()
            self._shared.changed.notify_all()
        for number, lane in unwanted:
            self._say(Kind.CANCEL, number, lane)
        self._told = True
        self.pump()

    def _on_pong(self, head: Head, _: memoryview) -> None:
        now_s = self._clock.monotonic_s()
        self._rtt.answered(max(0.0, now_s - head.number / _NS), now_s)

    def _say(self, kind: Kind, number: int = 0, lane: Lane = Lane.URGENT) -> None:
        self._control_out.append(encode(Head(kind, lane, number)))

    def _next_opening(self) -> Buffers:
        if not self._told:
            return []
        only_urgent = not self._may_send()
        with self._shared.changed:
            opening = self._outbox.next_opening(only_urgent=only_urgent)
        if opening is None:
            return []
        if len(opening.inline) < opening.body_bytes:
            asyncio.get_running_loop().call_soon(self.pump)  # its body may leave now
        head = Head(
            Kind.OPEN, opening.lane, opening.number, len(opening.header), opening.body_bytes
        )
        return self._spent(encode(head, opening.header, opening.inline))

    def _next_chunk(self, stream: Stream) -> Buffers:
        if not self._told:
            return []
        only_urgent = not self._may_send()
        with self._shared.changed:
            chunk = self._outbox.next_chunk(stream.number, only_urgent=only_urgent)
        if chunk is None:
            return []
        head = Head(Kind.CHUNK, chunk.lane, chunk.number, chunk.offset, chunk.body_bytes)
        return self._spent(encode(head, chunk.data))

    def _spent(self, buffers: Buffers) -> Buffers:
        size_bytes = sum(len(buffer) for buffer in buffers)
        self._bucket.spend(size_bytes, self._clock.monotonic_s())
        return buffers

    def _may_send(self) -> bool:
        """Return whether the cap lets more than what is urgent out; if not, look again in time."""
        wait_s = self._bucket.wait_s(self._clock.monotonic_s())
        if wait_s and self._timer is None and math.isfinite(wait_s):
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look_again)
        return not wait_s

    def _look_again(self) -> None:
        self._timer = None
        self.pump()

    # Small helpers.

    def _note_traffic(self) -> None:
        """Note whether messages are on their way; wherever that may have changed."""
        with self._shared.changed:
            is_busy = self.up and bool(self._outbox or self._inbox)
            if is_busy != self._is_busy:
                self._is_busy = is_busy
                self._shared.busy.begin() if is_busy else self._shared.busy.end()

    def _adopt_bulk(self, sock: socket.socket, session: str, number: int, stream: int) -> bool:
        if not self.up or (session, number) != (self.session, self.number):
            return False
        if stream not in range(1, STREAMS_MAX + 1):
            return False
        if stream in self._bulk:
            self.broke(self._bulk[stream], "the peer opened it again")
        bulk = Stream(sock, stream, self, self._clock.monotonic_s)
        with self._shared.changed:
            self._bulk[stream] = bulk
        bulk.start()
        self._tell_news()
        return True

    def _drop(self, stream: Stream) -> None:
        """Close a connection and keep its counts."""
        stream.close()
        with self._shared.changed:
            if stream is self._control:
                self._control = None
            elif self._bulk.get(stream.number) is stream:
                del self._bulk[stream.number]
                self._past[2] += stream.received_bytes
            else:
                return
            self._past[0] += stream.sent_bytes
            self._past[1] += stream.received_bytes

    def _streams(self) -> list[Stream]:
        control = [self._control] if self._control is not None else []
        return [*control, *self._bulk.values()]

    def _cap(self) -> float | None:
        return cap_bytes_per_s(self._settings.windows, self._usual_cap, self._clock.now_s())

    def _now_ns(self) -> int:
        return int(self._clock.monotonic_s() * _NS)

    def _tell_news(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
