"""Dialling other sites and answering them: sockets, TLS, greetings, trying again."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping

from gridloom.runtime.wan.greeting import (
    GreetingError,
    Hello,
    Identity,
    Wire,
    greet_as_dialled,
    greet_as_dialler,
)
from gridloom.runtime.wan.link import Link
from gridloom.runtime.wan.secure import Contexts
from gridloom.runtime.wan.settings import Address, TransportSettings

_BACKOFF_S_MIN = 0.05
_STRANGERS_MAX = 64  # connections in greeting at one time


class Calls:
    """Connections of one process from the first packet until a link has taken them over."""

    def __init__(
        self,
        identity: Identity,
        settings: TransportSettings,
        where: Callable[[str], Address | None],
    ) -> None:
        self._where = where
        self.strangers = 0
        self.contexts: Contexts | None = None
        self._identity = identity
        self._settings = settings

    async def keep(self, link: Link, stream: int) -> None:
        """Dial one connection of a link whenever it is missing, for ever."""
        backoff_s = _BACKOFF_S_MIN
        while True:
            await link.until_wanted(stream)
            try:
                adopted = await self._dial(link, stream)
            except (OSError, GreetingError, TimeoutError) as error:
                link.trouble = str(error) or "no answer"
                adopted = False
                address = self._where(link.peer)
                if address is not None and address != link.address:  # it is elsewhere by now
                    link.meet(address, dials=link.dials)
            if adopted:
                backoff_s = _BACKOFF_S_MIN
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, self._settings.backoff_s_max)

    async def answer(self, listening: socket.socket, links: Mapping[str, Link]) -> None:
        """Greet whoever dials, for ever, and hand known sites to their links."""
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(_STRANGERS_MAX)
        greetings: dict[asyncio.Task[None], socket.socket] = {}

        def over(greeting: asyncio.Task[None]) -> None:
            free.release()
            sock = greetings.pop(greeting)
            if greeting.cancelled():  # perhaps before it began, and so before it could see to it
                sock.close()

        try:
            while True:
                await free.acquire()
                await _readable(listening)
                try:
                    sock, _ = listening.accept()
                except OSError:  # the caller is gone again, or no descriptor is free
                    free.release()
                    await asyncio.sleep(_BACKOFF_S_MIN)
                    continue
                sock.settimeout(0)  # as asyncio wants it: it never waits
                greeting = loop.create_task(self._receive(sock, links))
                greetings[greeting] = sock
                greeting.add_done_callback(over)
        finally:
            for greeting in list(greetings):
                greeting.cancel()

    async def _dial(self, link: Link, stream: int) -> bool:
        address = link.address
        if address is None:
            return False
        number = link.number_for(stream)
        with contextlib.ExitStack() as stack:
            async with asyncio.timeout(self._settings.connect_s):
                sock = await _connect(address)
            stack.callback(lambda: sock.close())
            if self.contexts is not None:
                sock = self.contexts.client.wrap_socket(sock, do_handshake_on_connect=False)
            async with asyncio.timeout(self._settings.silence_s):
                wire = Wire(sock)
                await wire.handshake()
                mine = self._identity.hello(link.peer, number, stream)
                theirs = await greet_as_dialler(wire, self._identity, mine)
            if not link.adopt(sock, theirs.session, number, stream):
                return False
            stack.pop_all()
        return True

    async def _receive(self, sock: socket.socket, links: Mapping[str, Link]) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: sock.close())
            try:
                async with asyncio.timeout(self._settings.silence_s):
                    if self.contexts is not None:
                        sock = self.contexts.server.wrap_socket(
                            sock, server_side=True, do_handshake_on_connect=False
                        )
                    wire = Wire(sock)
                    await wire.handshake()
                    theirs = await greet_as_dialled(wire, self._identity)
            except (OSError, GreetingError, TimeoutError):
                self.strangers += 1
                return
            if _welcomed(links.get(theirs.site), sock, theirs):
                stack.pop_all()


async def _readable(sock: socket.socket) -> None:
    """Wait for a caller.

    If this is given up nobody is lost, as one may be whom ``loop.sock_accept`` has just accepted.
    """
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(sock)


def _welcomed(link: Link | None, sock: socket.socket, hello: Hello) -> bool:
    return link is not None and link.adopt(sock, hello.session, hello.link, hello.stream)


async def _connect(address: Address) -> socket.socket:
    """Return a non-blocking connection to the first address of a name that answers."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    trouble: OSError | None = None
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(0)  # as asyncio wants it: it never waits
        try:
            await loop.sock_connect(sock, place)
        except OSError as error:
            sock.close()
            trouble = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise trouble or OSError(f"{address[0]} has no address")
