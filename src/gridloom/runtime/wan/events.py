"""What a transport tells its caller, and the queue through which it does."""

import collections
import dataclasses
import threading

from gridloom.base.errors import BrokenError


@dataclasses.dataclass(frozen=True)
class Up:
    """A peer can be spoken to.

    Attributes:
        peer: Its site.
        session: Its process.
        resumed: Both processes are those of the last time: nothing was lost, nothing comes twice.
            Otherwise the peer is met for the first time, or anew: what was queued or under way for
            its last process is gone.
    """

    peer: str
    session: str
    resumed: bool


@dataclasses.dataclass(frozen=True)
class Down:
    """A peer cannot be spoken to for now; messages to it are kept.

    Attributes:
        peer: Its site.
        why: ``silent``, ``lost`` (the connection broke), ``closed`` (the peer said goodbye) or
            ``replaced`` (the peer has opened a new connection).
    """

    peer: str
    why: str


@dataclasses.dataclass(frozen=True)
class Received:
    """A message is here whole.

    Attributes:
        peer: The site that sent it.
        header: As it was sent.
        body: As it was sent, in a buffer of its own that may be written to.
    """

    peer: str
    header: bytes
    body: memoryview


@dataclasses.dataclass(frozen=True)
class LinkFacts:
    """What is known of the link to a peer.

    Attributes:
        up: Whether the peer can be spoken to.
        session: The process last met; empty before the first meeting.
        streams: TCP connections open for bulk.
        rtt_s: Round trip of heartbeats, smoothed; ``None`` before the first answer.
        rtt_s_min: The least of the last minute of heartbeats: the path without queues.
        bandwidth_bytes_per_s: At which bulk arrived at the peer while it was sent, by the last ten
            busy seconds or so; ``None`` until enough was sent. A cap shows as bandwidth.
        sent_bytes: Given to the kernel to send, framing and what is sent again included, TCP's own
            not.
        received_bytes: Taken from the kernel, likewise.
        queued_bytes: Headers and bodies that the peer does not hold whole yet.
        silent_s: Seconds since the peer was last heard; ``None`` while it is down.
        trouble: Why the last call failed; empty once a call succeeded.
    """

    up: bool
    session: str
    streams: int
    rtt_s: float | None
    rtt_s_min: float | None
    bandwidth_bytes_per_s: float | None
    sent_bytes: int
    received_bytes: int
    queued_bytes: int
    silent_s: float | None
    trouble: str


Event = Up | Down | Received


class EventQueue:
    """Events in order, from the transport's thread to whichever thread asks."""

    def __init__(self) -> None:
        self._events: collections.deque[Event] = collections.deque()
        self._changed = threading.Condition()
        self._fault: BaseException | None = None
        self._unread_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """Bytes of bodies that were received and not asked for yet."""
        return self._unread_bytes

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)
            if isinstance(event, Received):
                self._unread_bytes += len(event.body)
            self._changed.notify_all()

    def fail(self, fault: BaseException) -> None:
        """Let all who ask from now on know of a fault of ours; the first one counts."""
        with self._changed:
            self._fault = self._fault or fault
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[Event]:
        """Return all events, waiting for the first; none after ``timeout_s``.

        Raises:
            BrokenError: The transport's thread met a fault of its own.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._fault, timeout_s)
            if self._fault is not None:
                raise BrokenError("the transport between sites failed") from self._fault
            taken = list(self._events)
            self._events.clear()
            self._unread_bytes = 0
            return taken
