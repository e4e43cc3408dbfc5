"""Transports in this process, and a proxy between them that cuts, stalls and damages."""

import contextlib
import dataclasses
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gridloom.base.system import SystemClock, SystemIds
from gridloom.runtime.wan.events import Event, Received
from gridloom.runtime.wan.settings import Address, Endpoint, TransportSettings
from gridloom.runtime.wan.transport import Transport

HOST = "127.0.0.1"
WAIT_S = 20.0
QUICK = TransportSettings(heartbeat_s=0.05, silence_s=4.0, backoff_s_max=0.1)
IMPATIENT = dataclasses.replace(QUICK, silence_s=0.4)


@dataclasses.dataclass
class Site:
    """A transport, and all that it has told so far."""

    transport: Transport
    seen: list[Event] = dataclasses.field(default_factory=list)

    def until(self, kind: type[Event], count: int = 1) -> list[Event]:
        """Return the first ``count`` events of a kind that were not returned before."""
        found: list[Event] = []
        while len(found) < count:
            for event in self.seen:
                if isinstance(event, kind) and len(found) < count:
                    found.append(event)
            self.seen = [event for event in self.seen if not any(event is one for one in found)]
            if len(found) < count:
                news = self.transport.events(WAIT_S)
                assert news, f"no {kind.__name__} came"
                self.seen += news
        return found

    def received(self, count: int = 1) -> list[tuple[bytes, bytes]]:
        events = self.until(Received, count)
        return [(one.header, bytes(one.body)) for one in events if isinstance(one, Received)]


Open = Callable[..., Site]


@pytest.fixture
def site() -> Iterator[Open]:
    """Make and start transports; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(
            name: str,
            peers: dict[str, Address | None],
            settings: TransportSettings = QUICK,
            *,
            token: str = "token",
            port: int | None = 0,
        ) -> Site:
            listen = None if port is None else (HOST, port)
            transport = Transport(
                Endpoint(name, listen, token),
                peers,
                settings=settings,
                clock=SystemClock(),
                ids=SystemIds(),
            )
            transport.start()
            stack.callback(transport.close)
            return Site(transport)

        yield start


class Proxy:
    """Stands between two sites: connections to it go on to ``target``.

    Attributes:
        target: Where to; may be changed.
        carried_bytes: From those that dial to the target.
        limit_bytes: When so much was carried, `at_limit` is called, once.
        stalled: Whether bytes are swallowed, in both directions, and calls stay unanswered.
    """

    def __init__(self, target: Address) -> None:
        self.target = target
        self.carried_bytes = 0
        self.limit_bytes: int | None = None
        self.at_limit: Callable[[], None] = self.cut
        self.stalled = False
        self.damage = False
        self.refuse = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._dialled: set[socket.socket] = set()
        self._deaf: set[socket.socket] = set()
        self._listening = socket.create_server((HOST, 0))
        self.address: Address = self._listening.getsockname()[:2]
        self._stop = threading.Event()
        self._cut = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close all connections soon."""
        self._cut.set()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._cut_all()
        self._listening.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.stalled:
                self._deaf.clear()
            awake = [sock for sock in self._pairs if sock not in self._deaf]
            ready, _, _ = select.select([self._listening, *awake], [], [], 0.01)
            for sock in ready:
                if sock is self._listening:
                    self._accept()
                elif sock in self._pairs:
                    self._carry(sock)
            if self._cut.is_set():
                self._cut.clear()
                self._cut_all()

    def _accept(self) -> None:
        near, _ = self._listening.accept()
        try:
            if self.stalled or self.refuse:
                raise ConnectionRefusedError
            far = socket.create_connection(self.target)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}
        self._dialled.add(near)

    def _carry(self, sock: socket.socket) -> None:
        other = self._pairs[sock]
        try:
            data = sock.recv(65536)
            if self.stalled:  # nobody hears that anybody has hung up, either
                if not data:
                    self._deaf.add(sock)
                return
            if not data:
                raise ConnectionResetError
            if sock in self._dialled:
                self.carried_bytes += len(data)
                if self.limit_bytes is not None and self.carried_bytes > self.limit_bytes:
                    self.limit_bytes = None
                    self.at_limit()
                if self.damage and len(data) > 1000:
                    self.damage = False
                    data = data[:500] + bytes([data[500] ^ 1]) + data[501:]
            other.sendall(data)
        except OSError:
            if self.stalled:
                self._deaf.add(sock)
            else:
                self._end(sock, other)

    def _end(self, *pair: socket.socket) -> None:
        for sock in pair:
            self._pairs.pop(sock, None)
            self._dialled.discard(sock)
            sock.close()

    def _cut_all(self) -> None:
        for sock in list(self._pairs):
            sock.close()
        self._pairs.clear()
        self._dialled.clear()


@pytest.fixture
def proxy() -> Iterator[Callable[[Address], Proxy]]:
    """Make proxies; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(target: Address) -> Proxy:
            made = Proxy(target)
            stack.callback(made.close)
            return made

        yield make
