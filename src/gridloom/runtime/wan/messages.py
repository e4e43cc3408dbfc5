"""What the representatives of sites say to each other about rounds; a payload may follow each."""

from typing import Annotated

import msgspec

from gridloom.base.errors import WorkFailedError
from gridloom.runtime.wan.message_fields import Chain, Count, Message, Number, Weight


class MessageError(WorkFailedError):
    """A message that no version of this program sends."""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """Sent when a connection comes up, the sender has caught up, or sees more sites or fewer.

    Attributes:
        version: Rounds whose results the sender has.
        chain: Names everything that led to its state: equal chains, equal states.
        settings: What all sites must agree on, as a digest.
        sees: How many sites the sender is in contact with, itself too.
        can_lead: These are enough for a round.
        dropped: It had no use for what it was sent: nothing more is on its way to it.
    """

    version: Count
    chain: Chain
    settings: str
    sees: Count
    can_lead: bool
    dropped: bool = False


class Open(Message, frozen=True, kw_only=True, tag="open"):
    """The sender knows that a round has begun: the others are to follow.

    Attributes:
        round: The round.
        chain: Of the sender's state before it.
    """

    round: Number
    chain: Chain


class Offer(Message, frozen=True, kw_only=True, tag="offer"):
    """The sender's part of a round; its payload follows.

    Attributes:
        round: The round.
        chain: Of the state that the part belongs to.
        weight: How much the part counts, as a number of tokens.
        series: In which messages its beginning went ahead.
        ahead_bytes: Of the payload that did; the rest follows.
    """

    round: Number
    chain: Chain
    weight: Weight
    series: Count = 0
    ahead_bytes: Count = 0


class Ahead(Message, frozen=True, kw_only=True, tag="ahead"):
    """A part of the payload of a message that is still being made; it follows.

    Attributes:
        series: What the parts of one payload have in common.
        start: Bytes of the payload before it.
    """

    series: Count
    start: Count


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one payload of a result is.

    Attributes:
        sites: Whose offers it holds.
        weight: How much it counts beside the other parts.
        size_bytes: Of the payload that follows; 0 where the receiver has it: it is its own.
    """

    sites: tuple[str, ...]
    weight: Weight
    size_bytes: Count


class Result(Message, frozen=True, kw_only=True, tag="result"):
    """How a round ended; the payloads of its parts follow, one behind the other.

    Attributes:
        round: The round.
        before: The chain before it.
        chain: The chain with it.
        parts: What was averaged.
        series: In which messages the beginning of the payloads went ahead.
        ahead_bytes: Of the payloads that did; the rest follows.
    """

    round: Number
    before: Chain
    chain: Chain
    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]
    series: Count = 0
    ahead_bytes: Count = 0


class Wanted(Message, frozen=True, kw_only=True, tag="wanted"):
    """The sender is behind and asks for what it lacks.

    Attributes:
        version: Rounds that it has.
        chain: Of its state.
    """

    version: Count
    chain: Chain


class State(Message, frozen=True, kw_only=True, tag="state"):
    """A whole state follows, for one who cannot be helped by results.

    Attributes:
        version: Rounds in it.
        chain: Its chain.
    """

    version: Count
    chain: Chain


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """The sender has trained all that it was to, and waits for the others.

    Attributes:
        version: Rounds that it had the result of, or had offered its part for, when it was done:
            what it offers for later ones is all that it has trained.
    """

    version: Count


class Leave(Message, frozen=True, kw_only=True, tag="leave"):
    """The sender has ended and does not come back.

    Attributes:
        version: Rounds that it had the result of; those results may come after this.
    """

    version: Count
