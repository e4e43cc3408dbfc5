"""What rounds hand to their caller: messages to be sent, and what has come of rounds."""

from dataclasses import dataclass

from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.message_codec import AnyMessage


@dataclass(frozen=True)
class Send:
    """A message to be sent.

    Attributes:
        peer: To which site.
        message: The message.
        body: Its payloads, one behind the other.
    """

    peer: str
    message: AnyMessage
    body: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Offered:
    """An offer, and the state that it belongs to: perhaps one that this site has not got yet.

    Attributes:
        round: The round that it is for.
        chain: Of that state.
        given: The offer.
    """

    round: int
    chain: str
    given: Given


@dataclass(frozen=True)
class Outcome:
    """How a round ended.

    Attributes:
        round: The round.
        parts: What is to be averaged, by weight.
        included: This site's own offer is in it.
    """

    round: int
    parts: tuple[Given, ...]
    included: bool


@dataclass(frozen=True)
class Adopted:
    """A whole state that another site sent.

    Attributes:
        version: Rounds in it.
        body: The state.
    """

    version: int
    body: Buffer
