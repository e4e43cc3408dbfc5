"""What messages between sites are made of; what is out of bounds is refused when it is read."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Rounds, sites, steps or bytes; what is larger is no such number."""

Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
"""Of a round, from 1."""

Chain = Annotated[str, msgspec.Meta(max_length=64)]
"""Hash of all rounds that led to a state."""

Weight = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
"""How much an offer counts, as a number of tokens."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One message."""
