"""One TCP connection that carries frames, plain or TLS, without copies of what it carries."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from gridloom.runtime.wan.frames import HEAD_BYTES, FrameError, Head, check, decode_head
from gridloom.runtime.wan.greeting import CONTROL

Buffers = list[bytes | memoryview]

_TURN_BYTES = 1024**2  # read or written in one turn of the loop, so that no stream holds up others
# Of a long frame, the kernel is asked to wake us for this much at a time: on slow links a wake-up
# would bring a packet or two each. A young stream is read sooner, or its window would grow slowly.
_WAKE_BYTES = 128 * 1024
_WAKE_SHARE = 64  # of what a stream has received so far
# What the kernel may hold unsent. On the control connection, what is urgent waits behind it. On a
# bulk stream it bridges the milliseconds that our thread may wait for its turn beside training;
# more would only be lost when the link is cut, or stand before what is sent instead of it.
_CONTROL_UNSENT_BYTES = 128 * 1024
_BULK_UNSENT_BYTES = 512 * 1024


class Handler(Protocol):
    """What a stream asks of the link that it belongs to."""

    def room(self, stream: "Stream", head: Head) -> memoryview:
        """Return where the payload goes, of its length; may raise `FrameError`."""
        ...

    def arrived(self, stream: "Stream", head: Head, payload: memoryview) -> None:
        """Take a sound frame; may raise `FrameError`."""
        ...

    def next_frame(self, stream: "Stream") -> Buffers:
        """Return the buffers to send next; none when there is nothing now."""
        ...

    def turned(self, stream: "Stream") -> None:
        """A turn of reading is over: what was read together can be dealt with together."""
        ...

    def broke(self, stream: "Stream", why: str) -> None:
        """Note that the connection is closed, not by `close`."""
        ...


class Stream:
    """Frames over one socket.

    The socket is read and written without asyncio's transports: those of Python 3.11 copy what the
    kernel does not take at once, and cannot read into the place where a body is put together.

    Attributes:
        number: 0 for the control connection; bulk streams count from 1.
        heard_s: When the last bytes came, on the clock given.
        sent_bytes: Given to the kernel, framing included.
        received_bytes: Taken from the kernel, framing included.
    """

    def __init__(
        self, sock: socket.socket, number: int, handler: Handler, clock_s: Callable[[], float]
    ) -> None:
        self.number = number
        self.sent_bytes = self.received_bytes = 0
        self.heard_s = clock_s()
        self.reading = False
        self._sock = sock
        self._handler = handler
        self._clock_s = clock_s
        self._loop = asyncio.get_running_loop()
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._open = True
        self._writing = False
        self._out: Buffers = []
        self._head: Head | None = None
        self._head_room = memoryview(bytearray(HEAD_BYTES))
        self._room = self._head_room
        self._filled = 0
        self._low_water_bytes = 1
        _tune(sock, number)

    def start(self) -> None:
        """Begin to read and to write."""
        self.resume()
        self.wake()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._open and self.reading:
            self.reading = False
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        """Read, also what TLS has read ahead."""
        if self._open and not self.reading:
            self.reading = True
            self._loop.add_reader(self._sock.fileno(), self._readable)
            self._loop.call_soon(self._readable)

    def poll(self) -> None:
        """Read what is there, though it may be less than the kernel was asked to wait for."""
        self._readable()

    def wake(self) -> None:
        """Send if there is something to send, unless the kernel has no room just now."""
        if self._open and not self._writing:
            self._writable()

    def close(self) -> None:
        """Close without telling the handler; may be called twice."""
        if self._open:
            self.pause()
            if self._writing:
                self._loop.remove_writer(self._sock.fileno())
            self._open = False
            self._out.clear()
            self._sock.close()

    def _readable(self) -> None:
        if not (self._open and self.reading):
            return
        try:
            more = self._read_turn()
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
            more = False
        except (OSError, FrameError) as error:
            self._break(str(error))
            return
        self._handler.turned(self)
        if not self._tls:
            self._wait_for(len(self._room) - self._filled)
        elif more:
            self._loop.call_soon(self._readable)  # TLS may hold bytes that no selector sees

    def _read_turn(self) -> bool:
        """Read until nothing is there, or for long enough; return whether more may be there."""
        until_bytes = self.received_bytes + _TURN_BYTES
        while self._open and self.reading and self.received_bytes < until_bytes:
            wanted = self._room[self._filled :]
            count = self._sock.recv_into(wanted)
            if not count:
                raise OSError("closed by the other side")
            self.heard_s = self._clock_s()
            self.received_bytes += count
            self._filled += count
            while self._filled == len(self._room):
                if not self._take():
                    return False
            if count < len(wanted) and not self._tls:
                return False  # TLS hands out one record at a time, plain sockets what they have
        return True

    def _wait_for(self, missing_bytes: int) -> None:
        """Ask the kernel to wake us for many bytes at a time, or for the rest of the frame."""
        low_water_bytes = min(missing_bytes, _WAKE_BYTES, 1 + self.received_bytes // _WAKE_SHARE)
        if self._open and low_water_bytes != self._low_water_bytes:
            self._low_water_bytes = low_water_bytes
            with contextlib.suppress(OSError):  # then we are woken more often
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water_bytes)

    def _take(self) -> bool:
        """Deal with the head or the payload that is here whole; return whether to go on."""
        if self._head is None:
            self._head = decode_head(self._head_room)
            self._room = memoryview(b"")
            if self._head.length:
                self._room = self._handler.room(self, self._head)
            self._filled = 0
            return self._open
        head, payload = self._head, self._room
        check(head, payload)
        self._head, self._room, self._filled = None, self._head_room, 0
        self._handler.arrived(self, head, payload)
        return self._open

    def _writable(self) -> None:
        try:
            blocked = self._write_turn()
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
            blocked = True
        except OSError as error:
            self._break(str(error))
            return
        if self._open and blocked != self._writing:
            self._writing = blocked
            if blocked:
                self._loop.add_writer(self._sock.fileno(), self._writable)
            else:
                self._loop.remove_writer(self._sock.fileno())

    def _write_turn(self) -> bool:
        """Write until there is nothing more; return whether there is, after a turn's worth."""
        until_bytes = self.sent_bytes + _TURN_BYTES
        while self.sent_bytes < until_bytes:
            if not self._out:
                self._out = self._handler.next_frame(self)
                if not self._out:
                    return False
            self._send()
        return True

    def _send(self) -> None:
        """Send once, all buffers together where the socket can."""
        count = self._sock.send(self._out[0]) if self._tls else self._sock.sendmsg(self._out)
        self.sent_bytes += count
        while self._out and count >= len(self._out[0]):
            count -= len(self._out.pop(0))
        if count:
            self._out[0] = memoryview(self._out[0])[count:]

    def _break(self, why: str) -> None:
        self.close()
        self._handler.broke(self, why)


def _tune(sock: socket.socket, number: int) -> None:
    """Set what a socket of ours needs.

    Sizes of buffers are left to the kernel, which lets them grow with what a long fat pipe holds; a
    size of ours would be cut to ``net.core.rmem_max``, on most machines a twentieth of that.
    """
    unsent_bytes = _CONTROL_UNSENT_BYTES if number == CONTROL else _BULK_UNSENT_BYTES
    with contextlib.suppress(OSError):  # no wish of ours is worth a connection
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)
