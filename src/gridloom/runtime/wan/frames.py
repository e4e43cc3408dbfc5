"""The frames on the wire between two sites: a head of 40 bytes, then a payload.

All numbers are big-endian. The head carries check sums of itself and of the payload (CRC-32 as in
zlib), so that a damaged length never takes memory, and a damaged payload is never used.

| kind   | connection | number            | offset          | total         | payload              |
|--------|------------|-------------------|-----------------|---------------|----------------------|
| open   | control    | message           | length, header  | length, body  | header, short body   |
| chunk  | bulk       | message           | where it goes   | length, body  | bytes of the body    |
| ack    | control    | bulk bytes so far | receiver's time | -             | pairs message, offset|
| holds  | control    | -                 | -               | -             | `Holds`              |
| cancel | control    | message           | -               | -             | -                    |
| ping   | all        | sender's time     | -               | -             | -                    |
| pong   | control    | time of the ping  | -               | -             | -                    |
| bye    | control    | -                 | -               | -             | -                    |
"""

import dataclasses
import enum
import struct
import zlib
from collections.abc import Iterable

import msgspec

HEADER_BYTES_MAX = 64 * 1024  # of a message's header
INLINE_BYTES_MAX = 64 * 1024  # header and body together: such a message is one frame
CHUNK_BYTES_MAX = 16 * 1024**2
WHOLE = 2**64 - 1  # as the offset in an ack: the message is here to the last byte

_FIELDS = struct.Struct(">BBxxIQQQI")
_CHECK = struct.Struct(">I")
_PAIR = struct.Struct(">QQ")
HEAD_BYTES = _FIELDS.size + _CHECK.size


class FrameError(Exception):
    """Bytes that no peer sends; the connection that brought them is broken."""


class Kind(enum.IntEnum):
    """What a frame is."""

    OPEN = 1
    CHUNK = 2
    ACK = 3
    HOLDS = 4
    CANCEL = 5
    PING = 6
    PONG = 7
    BYE = 8


class Lane(enum.IntEnum):
    """Classes of messages, most urgent first; messages of one lane arrive in order."""

    URGENT = 0
    SMALL = 1
    BULK = 2


_LENGTH_MAX = {
    Kind.OPEN: HEADER_BYTES_MAX + INLINE_BYTES_MAX,
    Kind.CHUNK: CHUNK_BYTES_MAX,
    Kind.ACK: 2**20,
    Kind.HOLDS: CHUNK_BYTES_MAX,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """The head of one frame; the table of the module says what its numbers are."""

    kind: Kind
    lane: Lane = Lane.URGENT
    number: int = 0
    offset: int = 0
    total: int = 0
    length: int = 0
    checksum: int = 0


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A message of which the receiver holds a part: the ranges of its body that are here."""

    number: int
    lane: int
    ranges: list[tuple[int, int]]


class Holds(msgspec.Struct, frozen=True, array_like=True):
    """What a receiver knows when a link comes up again.

    Attributes:
        opened: For each lane, the last message whose header is here. Such a message that is not in
            `parts` is here whole.
        parts: Messages that are not whole, in order of their numbers.
    """

    opened: list[int]
    parts: list[Part]

    def encoded(self) -> bytes:
        """Return the payload of a frame `Kind.HOLDS`."""
        return msgspec.msgpack.encode(self)


def encode(head: Head, *payload: bytes | memoryview) -> list[bytes | memoryview]:
    """Return the buffers of a frame in order; length and check sums of ``head`` are filled in."""
    checksum = length = 0
    for piece in payload:
        checksum = zlib.crc32(piece, checksum)
        length += len(piece)
    fields = _FIELDS.pack(
        head.kind, head.lane, length, head.number, head.offset, head.total, checksum
    )
    return [fields + _CHECK.pack(zlib.crc32(fields)), *(piece for piece in payload if len(piece))]


def decode_head(data: bytes | bytearray | memoryview) -> Head:
    """Return the head in ``data``, of exactly `HEAD_BYTES`.

    Raises:
        FrameError: It is damaged, of a kind that is not known, or its payload is too long.
    """
    fields = data[: _FIELDS.size]
    if zlib.crc32(fields) != _CHECK.unpack_from(data, _FIELDS.size)[0]:
        raise FrameError("the head of a frame is damaged")
    kind, lane, length, number, offset, total, checksum = _FIELDS.unpack(fields)
    try:
        head = Head(Kind(kind), Lane(lane), number, offset, total, length, checksum)
    except ValueError as error:
        raise FrameError(f"a frame that is not known: {error}") from None
    if length > _LENGTH_MAX.get(head.kind, 0):
        raise FrameError(f"a frame {head.kind.name} of {length} bytes is too long")
    return head


def check(head: Head, payload: bytes | bytearray | memoryview) -> None:
    """Compare a payload with its check sum.

    Raises:
        FrameError: It is damaged.
    """
    if zlib.crc32(payload) != head.checksum:
        raise FrameError(f"the payload of a frame {head.kind.name} is damaged")


def encode_acks(acks: Iterable[tuple[int, int]]) -> bytes:
    """Return the payload of an ack: pairs of a message's number and an offset, or `WHOLE`."""
    return b"".join(_PAIR.pack(number, offset) for number, offset in acks)


def decode_acks(payload: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
    """Return the pairs of an ack.

    Raises:
        FrameError: The payload does not end with a pair.
    """
    if len(payload) % _PAIR.size:
        raise FrameError("an ack ends in the middle of a pair")
    return [(number, offset) for number, offset in _PAIR.iter_unpack(payload)]


def decode_holds(payload: bytes | bytearray | memoryview) -> Holds:
    """Return what the receiver holds.

    Raises:
        FrameError: It is not in the shape of `Holds`.
    """
    try:
        holds = msgspec.msgpack.decode(payload, type=Holds)
    except msgspec.MsgspecError as error:
        raise FrameError(f"what the peer holds cannot be read: {error}") from None
    if len(holds.opened) != len(Lane):
        raise FrameError(f"the peer has {len(holds.opened)} lanes, not {len(Lane)}")
    return holds
