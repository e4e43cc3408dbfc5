"""Messages between the representatives of sites: many TCP streams, resumed, paced and measured."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, Problem
from gridloom.base.ids import IdSource
from gridloom.runtime.busy import Busy
from gridloom.runtime.wan.calls import Calls
from gridloom.runtime.wan.events import Event, EventQueue, LinkFacts
from gridloom.runtime.wan.frames import HEADER_BYTES_MAX
from gridloom.runtime.wan.greeting import CONTROL, Identity
from gridloom.runtime.wan.link import Link, Shared
from gridloom.runtime.wan.secure import contexts
from gridloom.runtime.wan.settings import (
    Address,
    Endpoint,
    TransportSettings,
    check_address,
)

_BACKLOG = 128
_BYE_S = 0.2  # for a goodbye to leave; a peer that misses it sees the connection close


class Transport:
    """Messages to and from other sites; one thread of its own does the work.

    Of two sites the one with the lower name dials, unless one of them cannot be reached (it
    listens nowhere): then that one dials. A message is kept until the peer holds all of it, and is
    handed on exactly once to a process of the peer that lives on, however often connections break.

    A message is *urgent* if it is called so, *small* if header and body are at most 64 KiB, or
    else *bulk*. Those of one class arrive in the order in which they were sent; urgent ones
    overtake small ones, and both overtake bulk.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        me: Endpoint,
        peers: Mapping[str, Address | None],
        *,
        settings: TransportSettings,
        clock: Clock,
        ids: IdSource,
        where: Callable[[str], Address | None] = lambda _: None,
    ) -> None:
        """Make a transport that does nothing before `start`.

        Args:
            me: This site.
            peers: Where the other sites are, by name; ``None`` for one that dials by itself.
            settings: How to speak.
            clock: Time.
            ids: Names for this process, and for the nonces of greetings.
            where: Says where a peer is that cannot be reached; ``None`` if it knows nothing new.

        Raises:
            InputError: A peer has the name of this site, or an address cannot be one.
        """
        self._me = me
        self._settings = settings
        self._identity = Identity(me.name, ids.new_id("process"), me.token, ids)
        self._events = EventQueue()
        self._changed = threading.Condition()
        self._busy = Busy(clock.monotonic_s)
        self._shared = Shared(settings, clock, self._events, self._changed, self._busy)
        self._links: dict[str, Link] = {}
        self._listening: socket.socket | None = None
        self._address: Address | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls = Calls(self._identity, settings, where)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        for peer in sorted(peers):
            self._new_link(peer, peers[peer])

    @property
    def session(self) -> str:
        """Name of this process, as peers learn it."""
        return self._identity.session

    @property
    def address(self) -> Address | None:
        """Where this process listens since `start`; ``None`` if nowhere."""
        return self._address

    @property
    def strangers(self) -> int:
        """Connections that were hung up on: another token, another language, no certificate."""
        return self._calls.strangers

    def start(self) -> None:
        """Listen and dial; may be called once.

        Raises:
            InputError: The address cannot be listened on, or TLS files are missing or do not fit.
        """
        self._calls.contexts = contexts(self._settings)
        self._listening = _listen(self._me.listen)
        if self._listening is not None:
            host, port = self._listening.getsockname()[:2]
            self._address = host, port
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(ready)), name="gridloom-wan", daemon=True
        )
        self._thread.start()
        ready.wait()

    def meet(self, peer: str, address: Address | None) -> None:
        """Add a peer, or say where one is now.

        Raises:
            InputError: The peer has the name of this site, or the address cannot be one.
        """
        if peer in self._links:
            check_address(address, f"peers.{peer}")
            self._in_loop(lambda: self._place(self._links[peer], address))
        else:
            link = self._new_link(peer, address)
            self._in_loop(lambda: self._serve(link))

    def send(
        self,
        peer: str,
        header: bytes,
        body: bytes | bytearray | memoryview = b"",
        *,
        urgent: bool = False,
    ) -> int:
        """Queue a message and return its number, which rises with each message to that peer.

        Args:
            peer: The site to send to, whether or not it is up.
            header: At most 64 KiB.
            body: Contiguous. It is not copied: leave it alone until its number is no longer
                `outstanding`. Of a tensor: ``memoryview(tensor.numpy())``.
            urgent: Let it overtake what is not, and let it out whatever the cap.

        Raises:
            InputError: Nobody of that name is known, or the message is too large.
        """
        link, data = self._link(peer), memoryview(body)
        if data.ndim != 1 or data.format != "B":
            data = data.cast("B")
        problems = []
        if len(header) > HEADER_BYTES_MAX:
            message = f"{len(header)} bytes are more than the {HEADER_BYTES_MAX} of a header"
            problems.append(Problem(message, "send them in the body", field="header"))
        if len(data) > self._settings.body_bytes_max:
            message = f"{len(data)} bytes are more than body_bytes_max"
            problems.append(Problem(message, "send it in parts", field="body"))
        if problems:
            raise InputError(problems)
        number = link.send(header, data, urgent=urgent)
        self._in_loop(link.pump)
        return number

    def outstanding(self, peer: str) -> tuple[int, ...]:
        """Return the numbers of messages that the peer does not hold whole yet, in order."""
        return self._link(peer).outstanding()

    def discard(self, peer: str, keep: Collection[int] = ()) -> None:
        """Forget what is outstanding, but for the numbers to keep.

        A part that the peer already holds is forgotten there too; a message that it already holds
        whole is handed on all the same. A piece may still be read from a body for a moment.
        """
        link = self._link(peer)
        link.discard(frozenset(keep))
        self._in_loop(link.pump)

    def events(self, timeout_s: float) -> list[Event]:
        """Return what happened since the last call, in order; wait ``timeout_s`` for the first.

        Raises:
            BrokenError: The transport's thread met a fault of its own.
        """
        full = self._events.unread_bytes > self._settings.unread_bytes_max
        taken = self._events.take(timeout_s)
        if full:
            for link in list(self._links.values()):
                self._in_loop(link.resume_reading)
        return taken

    def flush(self, timeout_s: float) -> bool:
        """Wait until all peers hold all messages; return whether they do."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not any(link.queued for link in list(self._links.values())), timeout_s
            )

    def links(self) -> dict[str, LinkFacts]:
        """Return what is known of each peer, in order of names."""
        return {peer: self._links[peer].facts() for peer in sorted(self._links)}

    def busy_s(self) -> float:
        """Return the seconds so far in which a message was on its way to or from any peer.

        It is on its way from when it is queued, or its first bytes come, until its receiver has
        acknowledged all of it, or hands it on; while the peer is down it is not.
        """
        return self._busy.total_s()

    def close(self, timeout_s: float = 0.0) -> None:
        """Send what is queued for at most ``timeout_s``, say goodbye, and stop; once is enough."""
        if self._thread is None:
            return
        if timeout_s > 0:
            self.flush(timeout_s)
        self._in_loop(self._stop.set)
        self._thread.join()
        self._thread = None

    def _link(self, peer: str) -> Link:
        if peer not in self._links:
            known = ", ".join(sorted(self._links)) or "nobody"
            raise InputError([Problem(f"no peer is called {peer!r}", f"known: {known}")])
        return self._links[peer]

    def _new_link(self, peer: str, address: Address | None) -> Link:
        if peer == self._me.name:
            remedy = "give each site a name of its own, and name only the others"
            raise InputError([Problem(f"{peer!r} is this site itself", remedy, field="peers")])
        link = Link(peer, self._shared)
        self._place(link, address)
        self._links[peer] = link
        return link

    def _place(self, link: Link, address: Address | None) -> None:
        check_address(address, f"peers.{link.peer}")
        lower = self._me.name < link.peer or self._me.listen is None
        link.meet(address, dials=lower and address is not None)

    def _in_loop(self, callback: Callable[[], object]) -> None:
        """Run in the transport's thread, if that runs."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(callback)

    # In the transport's thread.

    async def _main(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._fault)
        for link in list(self._links.values()):
            self._serve(link)
        if self._listening is not None:
            self._task(self._calls.answer(self._listening, self._links))
        self._task(self._beat())
        ready.set()
        await self._stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        for link in self._links.values():
            link.say_bye()
        if any(link.up for link in self._links.values()):
            await asyncio.sleep(_BYE_S)
        for link in self._links.values():
            link.take_down("closed")
        self._loop = None

    def _serve(self, link: Link) -> None:
        for stream in range(CONTROL, self._settings.streams + 1):
            self._task(self._calls.keep(link, stream))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            for link in list(self._links.values()):
                link.tick()

    def _task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._events.fail(fault)

    def _fault(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._events.fail(context.get("exception") or RuntimeError(context["message"]))


def _listen(address: Address | None) -> socket.socket | None:
    if address is None:
        return None
    try:
        listening = socket.create_server(address, family=_family(address), backlog=_BACKLOG)
    except OSError as error:
        message = f"{address[0]} port {address[1]} cannot be listened on: {error.strerror}"
        remedy = "an address of this machine, and a port that is free"
        raise InputError([Problem(message, remedy, field="listen")]) from None
    listening.settimeout(0)  # as asyncio wants it: it never waits
    return listening


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET
