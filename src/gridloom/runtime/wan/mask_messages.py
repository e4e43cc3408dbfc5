"""What the representatives of sites say to each other in rounds whose payloads are masked."""

from typing import Annotated

import msgspec

from gridloom.runtime.wan.message_fields import Chain, Count, Message, Number, Weight

_Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
"""32 bytes."""

_Print = Annotated[str, msgspec.Meta(max_length=64)]
"""Fingerprint of a public key."""


class Key(Message, frozen=True, kw_only=True, tag="key"):
    """Sent straight to every other site when a connection to it comes up.

    Attributes:
        public: The public key of the sender's process.
    """

    public: _Hex


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The sender has a part for a round; it stays where it is until a roster is called.

    Attributes:
        round: The round.
        chain: Of the state that the part belongs to.
        weight: How much the part counts, as a number of tokens.
        keys: Whose keys the sender holds, its own too, and their fingerprints.
        is_open: The seal of the part was given away already: it can be in no other sum.
    """

    round: Number
    chain: Chain
    weight: Weight
    keys: dict[str, _Print]
    is_open: bool = False


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One site of a roster.

    Attributes:
        site: Its name.
        weight: Of its part.
        key: Fingerprint of its key.
    """

    site: str
    weight: Weight
    key: _Print


class Roster(Message, frozen=True, kw_only=True, tag="roster"):
    """The leader names the sites whose parts are to be added up.

    Attributes:
        round: The round.
        chain: Of the state before it.
        number: Of the try; never used before by the sender's process.
        members: The sites.
    """

    round: Number
    chain: Chain
    number: Count
    members: tuple[Member, ...]


class Masked(Message, frozen=True, kw_only=True, tag="masked"):
    """The sender's part, sealed and masked for one roster; it follows.

    Attributes:
        label: Of the roster.
    """

    label: str


class Unseal(Message, frozen=True, kw_only=True, tag="unseal"):
    """The leader has the parts of all members, and asks for the seeds of their seals.

    Attributes:
        label: Of the roster.
    """

    label: str


class Seed(Message, frozen=True, kw_only=True, tag="seed"):
    """The seed of the sender's seal.

    Attributes:
        label: Of the roster.
        seed: The seed.
    """

    label: str
    seed: _Hex


MaskMessage = Key | Ready | Roster | Masked | Unseal | Seed
