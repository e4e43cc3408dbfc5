"""What the representatives of sites say to each other about rounds; a payload may follow each."""

import msgspec

from gridloom.base.codec import encode
from gridloom.base.errors import WorkFailedError


class MessageError(WorkFailedError):
    """A message that no version of this program sends."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One message."""


class Hello(_Message, frozen=True, kw_only=True, tag="hello"):
    """Sent whenever a connection comes up, and when the sender has caught up.

    Attributes:
        version: Rounds whose results the sender has.
        chain: Names everything that led to its state: equal chains, equal states.
        settings: What all sites must agree on, as a digest.
    """

    version: int
    chain: str
    settings: str


class Open(_Message, frozen=True, kw_only=True, tag="open"):
    """The sender knows that a round has begun: the others are to follow.

    Attributes:
        round: The round.
        chain: Of the sender's state before it.
    """

    round: int
    chain: str


class Offer(_Message, frozen=True, kw_only=True, tag="offer"):
    """The sender's part of a round; its payload follows.

    Attributes:
        round: The round.
        chain: Of the state that the part belongs to.
        weight: How much the part counts, as a number of tokens.
    """

    round: int
    chain: str
    weight: float


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one payload of a result is.

    Attributes:
        sites: Whose offers it holds.
        weight: How much it counts beside the other parts.
        size_bytes: Of the payload that follows; 0 where the receiver has it: it is its own.
    """

    sites: tuple[str, ...]
    weight: float
    size_bytes: int


class Result(_Message, frozen=True, kw_only=True, tag="result"):
    """How a round ended; the payloads of its parts follow, one behind the other.

    Attributes:
        round: The round.
        before: The chain before it.
        chain: The chain with it.
        parts: What was averaged.
    """

    round: int
    before: str
    chain: str
    parts: tuple[Part, ...]


class Wanted(_Message, frozen=True, kw_only=True, tag="wanted"):
    """The sender is behind and asks for what it lacks.

    Attributes:
        version: Rounds that it has.
        chain: Of its state.
    """

    version: int
    chain: str


class State(_Message, frozen=True, kw_only=True, tag="state"):
    """A whole state follows, for one who cannot be helped by results.

    Attributes:
        version: Rounds in it.
        chain: Its chain.
    """

    version: int
    chain: str


class Done(_Message, frozen=True, kw_only=True, tag="done"):
    """The sender has trained all that it was to, and waits for the others.

    Attributes:
        version: Rounds that it had the result of when it was done.
    """

    version: int


class Leave(_Message, frozen=True, kw_only=True, tag="leave"):
    """The sender has ended and does not come back."""


AnyMessage = Hello | Open | Offer | Result | Wanted | State | Done | Leave

_DECODER: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)


def encode_message(message: AnyMessage) -> bytes:
    """Return the bytes of a message."""
    return encode(message)


def decode_message(data: bytes) -> AnyMessage:
    """Return the message that the bytes hold.

    Raises:
        MessageError: They hold none.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise MessageError(f"a message from another site cannot be read: {error}") from error
