"""How two processes meet on a new connection: who they are, and a proof that they know the token.

The dialler sends a hello and gets one; it proves that it knows the token by a keyed hash over both
hellos, which carry fresh nonces, and gets the other side's proof. Whoever cannot prove it learns
nothing that hashes the token, and is hung up on. Without TLS this keeps strangers out, but not
somebody who can change packets on their way.
"""

import asyncio
import dataclasses
import functools
import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gridloom.base.ids import IdSource

T = TypeVar("T")

CONTROL = 0  # the number of the control connection; bulk streams count from 1

_MAGIC = b"gridloom-wan"
_VERSION = 1
_PREFIX = struct.Struct(f">{len(_MAGIC)}sHH")
_HELLO_BYTES_MAX = 1024
_PROOF_BYTES = hashlib.sha256().digest_size
_NONCE_WORDS = 6  # of about 30 bits each


class GreetingError(Exception):
    """The other side is not one of ours, or hung up."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What one side says first.

    Attributes:
        site: Who speaks.
        to: Whom it wants to speak to.
        session: Its process.
        nonce: Never said before.
        link: The dialler's count of links to this peer; in the answer, the same number.
        stream: `CONTROL`, or the number of a bulk stream of that link.
    """

    site: str
    to: str
    session: str
    nonce: str
    link: int
    stream: int


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a process needs to greet."""

    site: str
    session: str
    token: str = dataclasses.field(repr=False)
    ids: IdSource

    def hello(self, to: str, link: int, stream: int) -> Hello:
        """Return a hello with a fresh nonce."""
        nonce = "".join(self.ids.new_id("n") for _ in range(_NONCE_WORDS))
        return Hello(
            site=self.site, to=to, session=self.session, nonce=nonce, link=link, stream=stream
        )


class Wire:
    """A few reads and writes on a non-blocking socket, plain or TLS, before frames flow."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def handshake(self) -> None:
        """Shake hands if the socket is TLS.

        Raises:
            OSError: It failed, as `ssl.SSLError`.
        """
        if isinstance(self._sock, ssl.SSLSocket):
            await self._retried(self._sock.do_handshake)

    async def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes.

        Raises:
            GreetingError: The other side hung up.
            OSError: The connection broke.
        """
        data = b""
        while len(data) < count:
            piece = await self._retried(functools.partial(self._sock.recv, count - len(data)))
            if not piece:
                raise GreetingError("it hung up in the greeting: is its token the same?")
            data += piece
        return data

    async def write(self, data: bytes) -> None:
        """Write ``data``, which fits into the buffer of a new connection.

        Raises:
            OSError: The connection broke, or the data did not fit.
        """
        if await self._retried(lambda: self._sock.send(data)) != len(data):
            raise OSError("a new connection takes no bytes")

    async def _retried(self, operation: Callable[[], T]) -> T:
        while True:
            try:
                return operation()
            except (BlockingIOError, ssl.SSLWantReadError):
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except ssl.SSLWantWriteError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready, descriptor = asyncio.Event(), self._sock.fileno()
        add(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            remove(descriptor)


async def greet_as_dialler(wire: Wire, identity: Identity, mine: Hello) -> Hello:
    """Greet the side that was dialled, and return its hello.

    Raises:
        GreetingError: It is not who was to be met, or does not know the token.
        OSError: The connection broke.
    """
    said = _encode(mine)
    await wire.write(said)
    heard, theirs = await _read_hello(wire)
    if (theirs.site, theirs.to) != (mine.to, mine.site):
        raise GreetingError(f"{theirs.site!r} answered instead of {mine.to!r}")
    await wire.write(_proof(identity, b"dialler", said + heard))
    proof = await wire.read(_PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(identity, b"dialled", said + heard)):
        raise GreetingError("its token is another")
    return theirs


async def greet_as_dialled(wire: Wire, identity: Identity) -> Hello:
    """Greet a side that has dialled, and return its hello; whether it is awaited is not judged.

    Raises:
        GreetingError: It does not speak our language, or does not know the token.
        OSError: The connection broke.
    """
    heard, theirs = await _read_hello(wire)
    if theirs.to != identity.site:
        raise GreetingError(f"it wants to speak to {theirs.to!r}")
    said = _encode(identity.hello(theirs.site, theirs.link, theirs.stream))
    await wire.write(said)
    proof = await wire.read(_PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(identity, b"dialler", heard + said)):
        raise GreetingError("its token is another")
    await wire.write(_proof(identity, b"dialled", heard + said))
    return theirs


def _encode(hello: Hello) -> bytes:
    data = msgspec.msgpack.encode(hello)
    return _PREFIX.pack(_MAGIC, _VERSION, len(data)) + data


async def _read_hello(wire: Wire) -> tuple[bytes, Hello]:
    """Return a hello, as bytes and as what they say."""
    prefix = await wire.read(_PREFIX.size)
    magic, version, length = _PREFIX.unpack(prefix)
    if magic != _MAGIC or length > _HELLO_BYTES_MAX:
        raise GreetingError("it does not speak our language")
    if version != _VERSION:
        raise GreetingError(f"it speaks version {version} of our language, not {_VERSION}")
    data = await wire.read(length)
    try:
        return prefix + data, msgspec.msgpack.decode(data, type=Hello)
    except msgspec.MsgspecError:
        raise GreetingError("it does not speak our language") from None


def _proof(identity: Identity, role: bytes, hellos: bytes) -> bytes:
    return hmac.digest(identity.token.encode(), role + b"\0" + hellos, "sha256")
