"""Encoding of records: JSON by msgspec, strict on the way in, in a fixed order on the way out."""

import hashlib
from typing import TypeVar

import msgspec

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="deterministic")


def encode(value: object) -> bytes:
    """Return ``value`` as JSON on one line; equal values give equal bytes in every process."""
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """Return 16 hex digits that tell ``value`` from others, the same in every process."""
    return hashlib.blake2b(encode(value), digest_size=8).hexdigest()


def decode(data: bytes | str, type_: type[T]) -> T:
    """Return the value of ``type_`` that ``data`` encodes.

    Raises:
        msgspec.DecodeError: Not JSON.
        msgspec.ValidationError: JSON, but not a ``type_``.
    """
    return msgspec.json.decode(data, type=type_)


def pretty(value: object) -> str:
    """Return ``value`` as indented JSON for a file that people read."""
    return msgspec.json.format(encode(value), indent=2).decode() + "\n"
