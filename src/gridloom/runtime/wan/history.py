"""Rounds that are over, kept for a while for sites that missed them."""

import hashlib
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gridloom.runtime.wan.messages import Part, Result

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Given:
    """One payload that a round averaged.

    Attributes:
        sites: Whose offers it holds.
        weight: How much it counts beside the other payloads.
        payload: The payload.
    """

    sites: tuple[str, ...]
    weight: float
    payload: Buffer


@dataclass(frozen=True)
class Past:
    """A round that is over.

    Attributes:
        result: How it is told, with the size of every payload.
        parts: Its payloads.
    """

    result: Result
    parts: tuple[Given, ...]

    @classmethod
    def of(cls, number: int, before: str, parts: tuple[Given, ...]) -> "Past":
        """Return round ``number`` after the state ``before``, as these parts ended it."""
        told = tuple(
            Part(sites=part.sites, weight=part.weight, size_bytes=len(part.payload))
            for part in parts
        )
        chain = next_chain(before, number, parts)
        return cls(Result(round=number, before=before, chain=chain, parts=told), parts)

    @property
    def size_bytes(self) -> int:
        """Of all payloads."""
        return sum(len(part.payload) for part in self.parts)

    def told(self, peer: str) -> tuple[Result, tuple[Buffer, ...]]:
        """Return the message and payloads for ``peer``, without those that are its own."""
        own = (peer,)
        parts = tuple(
            msgspec.structs.replace(part, size_bytes=0) if part.sites == own else part
            for part in self.result.parts
        )
        payloads = tuple(part.payload for part in self.parts if part.sites != own)
        return msgspec.structs.replace(self.result, parts=parts), payloads

    def whole(self) -> tuple[Result, tuple[Buffer, ...]]:
        """Return the message and all payloads, for a site that may not have its own any more."""
        return self.result, tuple(part.payload for part in self.parts)


class History:
    """The newest rounds, as many as fit."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._rounds: deque[Past] = deque()

    def add(self, past: Past) -> None:
        """Keep a round, and let go of the oldest ones for it."""
        self._rounds.append(past)
        self._bytes += past.size_bytes
        while self._rounds and self._bytes > self._most_bytes:
            self._bytes -= self._rounds.popleft().size_bytes

    def since(self, version: int, chain: str) -> list[Past]:
        """Return all rounds after a state; none if some are gone, or it leads to another."""
        missed = [past for past in self._rounds if past.result.round > version]
        if not missed or (missed[0].result.round, missed[0].result.before) != (version + 1, chain):
            return []
        return missed

    def clear(self) -> None:
        """Forget everything."""
        self._rounds.clear()
        self._bytes = 0


def parts_of(result: Result, body: Buffer, own: Given | None) -> tuple[Given, ...]:
    """Cut the payloads behind a result apart, and fill in the receiver's own."""
    rest = memoryview(body)
    parts = []
    for part in result.parts:
        if own is not None and not part.size_bytes and part.sites == own.sites:
            parts.append(own)
        else:
            parts.append(Given(part.sites, part.weight, rest[: part.size_bytes]))
        rest = rest[part.size_bytes :]
    return tuple(parts)


def next_chain(before: str, number: int, parts: Sequence[Given]) -> str:
    """Return the chain that a round leads to: a hash of the chain before and of its payloads.

    Payloads count by their checksum: a quarter of the time, against chance alone.
    """
    digest = hashlib.blake2b(f"{before}/{number}".encode(), digest_size=8)
    for part in parts:
        told = (part.sites, part.weight, len(part.payload), zlib.crc32(part.payload))
        digest.update(repr(told).encode())
    return digest.hexdigest()
