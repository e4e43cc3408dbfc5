"""Bodies of which the beginning is sent before the rest, and before the message, is there.

A message that is large and takes long to make, as a training step's gradients, need not wait until
it is whole: what is ready of its body goes *ahead*. When the message itself is sent, only the rest
goes with it; who has got nothing ahead, or something else than what the body turned out to be, is
sent the whole. Nobody above this notices any of it: a message is there, or it is not.
"""

from dataclasses import dataclass, field

import msgspec

from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.message_codec import AnyMessage
from gridloom.runtime.wan.messages import Ahead, MessageError, Offer, Result

_SERIES_MAX = 2
"""Bodies that a site may have begun: one that is late, and the next."""


class Outgoing:
    """What this site has sent ahead of a message that is still to come."""

    def __init__(self) -> None:
        self._series = 0
        self._parts: list[Buffer] = []
        self._sent_bytes: dict[str, int] = {}
        self._whole: Buffer | None = None

    def begin(self) -> None:
        """Begin another body; what was sent ahead of the one before is of no use any more."""
        self._series += 1
        self._parts.clear()
        self._sent_bytes.clear()
        self._whole = None

    def add(self, peer: str, part: Buffer) -> Ahead | None:
        """Note the next part of the body; return the message for a site that has all before it."""
        start = sum(map(len, self._parts))
        self._parts.append(part)
        if not peer or self._sent_bytes.get(peer, 0) != start:
            return None
        self._sent_bytes[peer] = start + len(part)
        return Ahead(series=self._series, start=start)

    def complete(self, whole: Buffer) -> None:
        """Say what the body is; if it does not begin as was sent, that was in vain."""
        view, start = memoryview(whole), 0
        for part in self._parts:
            if view[start : start + len(part)] != memoryview(part):
                self.begin()
                break
            start += len(part)
        self._whole = whole

    def forget(self, peer: str) -> None:
        """A site has nothing of what it was sent."""
        self._sent_bytes[peer] = -1

    def shortened(
        self, peer: str, message: AnyMessage, body: tuple[Buffer, ...]
    ) -> tuple[AnyMessage, tuple[Buffer, ...]]:
        """Return a message as it is to be sent: without what the site was sent ahead."""
        if not isinstance(message, Offer | Result) or len(body) != 1 or body[0] is not self._whole:
            return message, body
        ahead_bytes = self._sent_bytes.pop(peer, 0)
        self._sent_bytes[peer] = -1  # once: it may have been lost with the round it was for
        if ahead_bytes <= 0:
            return message, body
        told = msgspec.structs.replace(message, series=self._series, ahead_bytes=ahead_bytes)
        return told, (memoryview(body[0])[ahead_bytes:],)


@dataclass
class _Begun:
    """A body that is on its way, and the message that it belongs to once that is there."""

    parts: dict[int, Buffer] = field(default_factory=dict)
    message: tuple[Offer | Result, Buffer] | None = None

    def size_bytes(self) -> int:
        return sum(map(len, self.parts.values()))

    def whole(self) -> tuple[Offer | Result, Buffer] | None:
        """Return the message with its whole body, once all of it is there."""
        if self.message is None or self.size_bytes() < self.message[0].ahead_bytes:
            return None
        message, rest = self.message
        parts = [part for _, part in sorted(self.parts.items())]
        return message, bytearray().join([*parts, rest])  # may be written to, as what came whole


class Incoming:
    """What one other site has sent ahead."""

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}

    def take(
        self, message: AnyMessage, body: Buffer, most_bytes: int
    ) -> tuple[AnyMessage, Buffer] | None:
        """Return the message that is whole now; ``None`` if there is none yet.

        Args:
            message: What has come.
            body: What came with it.
            most_bytes: How large a body may be of which parts come ahead.

        Raises:
            MessageError: More has come ahead than that.
        """
        if isinstance(message, Ahead):
            begun = self._of(message.series)
            begun.parts[message.start] = body
            if begun.size_bytes() > most_bytes:
                raise MessageError(f"more than {most_bytes} bytes ahead of a message")
        elif isinstance(message, Offer | Result) and message.ahead_bytes:
            begun = self._of(message.series)
            begun.message = message, body
        else:
            return message, body
        found = begun.whole()
        if found is not None:
            for old in [series for series in self._begun if series <= message.series]:
                del self._begun[old]
        return found

    def _of(self, series: int) -> _Begun:
        begun = self._begun.setdefault(series, _Begun())
        for old in sorted(self._begun)[:-_SERIES_MAX]:
            del self._begun[old]
        return begun
