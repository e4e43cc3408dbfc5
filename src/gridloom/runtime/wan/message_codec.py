"""Messages between the representatives of sites, as bytes."""

import msgspec

from gridloom.base.codec import encode
from gridloom.runtime.wan.mask_messages import MaskMessage
from gridloom.runtime.wan.messages import (
    Ahead,
    Done,
    Hello,
    Leave,
    MessageError,
    Offer,
    Open,
    Result,
    State,
    Wanted,
)

AnyMessage = Hello | Open | Offer | Ahead | Result | Wanted | State | Done | Leave | MaskMessage

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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MessageError(f"a message from another site cannot be read: {error}") from error
