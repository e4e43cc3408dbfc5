"""What neighbouring stages of a pipeline say to each other; tensors follow ``Values``.

Most messages carry a *stamp*: a number, from 1, of what is to be agreed on, which is a training
step, a half of one or an evaluation, and how often it was begun again. That is what "step" means in
what follows.
"""

from typing import Literal

import msgspec

from gridloom.runtime.wan.message_fields import Count, Message
from gridloom.runtime.wan.messages import MessageError

Dtype = Literal["float32", "bfloat16", "float16"]
"""Number formats, by torch's names, of what passes from one stage to the next."""

Stamp = tuple[int, int]
"""A step, from 1, and how often it was begun again."""


class Hello(Message, frozen=True, kw_only=True, tag="stage"):
    """The first word to a process not met before.

    Attributes:
        done: Steps that the sender has behind it.
        again: How often it has begun the next one again.
        trained: Training steps among them.
        settings: What all stages must agree on, as a digest.
        ranks: Where the ranks of the sender's site listen, if it is the first of several.
    """

    done: Count
    again: Count
    trained: Count
    settings: str
    ranks: tuple[tuple[str, int], ...] = ()


class Values(Message, frozen=True, kw_only=True, tag="values"):
    """Activations on their way to the last stage, or gradients of them on their way back.

    Attributes:
        step: The step.
        again: How often it was begun again.
        micro_batch: Which, from 0.
        is_gradient: Which way.
        trains: A gradient is to come back.
        shape: Of the tensor; its payload follows.
        dtype: Of the tensor, whatever it is sent in.
        batch: Checksum of the whole batch as the sender has read it.
    """

    step: Count
    again: Count
    micro_batch: Count
    is_gradient: bool
    trains: bool
    shape: tuple[Count, ...]
    dtype: Dtype
    batch: Count

    @property
    def stamp(self) -> Stamp:
        """Of the step."""
        return self.step, self.again


class Again(Message, frozen=True, kw_only=True, tag="again"):
    """The sender has given the step up, and begins it again.

    Attributes:
        step: The step.
        again: How often it has now been begun again.
    """

    step: Count
    again: Count


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The sender and all stages after it have their gradients; from a stage to the one before.

    Attributes:
        step: The step.
        again: How often it was begun again.
        loss: Mean over the batch.
        squares: Sum of the squares of these stages' gradients.
        stop: One of them was asked to stop.
        delay_s: Round trips and transfers of a micro-batch on the links between them.
        period_s: From one micro-batch to the next, on the slowest of them and of these links.
    """

    step: Count
    again: Count
    loss: float
    squares: float
    stop: bool
    delay_s: float
    period_s: float


class Agreed(Message, frozen=True, kw_only=True, tag="agreed"):
    """All stages have their gradients, so that weights may move; from a stage to the next one.

    Attributes:
        step: The step.
        again: How often it was begun again.
        loss: Mean over the batch.
        norm: Of the gradients of all stages.
        stop: Some stage was asked to stop.
    """

    step: Count
    again: Count
    loss: float
    norm: float
    stop: bool


class Fault(Message, frozen=True, kw_only=True, tag="fault"):
    """The sender gives the training up.

    Attributes:
        why: A sentence.
        is_poisoned: Something was not a finite number.
    """

    why: str
    is_poisoned: bool


AnyMessage = Hello | Values | Again | Ready | Agreed | Fault

_ENCODER = msgspec.msgpack.Encoder()  # JSON has no numbers that are not finite
_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: AnyMessage) -> bytes:
    """Return a message as the header of what is sent."""
    return _ENCODER.encode(message)


def decode_message(header: bytes) -> AnyMessage:
    """Return the message in a header.

    Raises:
        MessageError: No stage of this version has sent it.
    """
    try:
        return _DECODER.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MessageError(f"a message from another stage cannot be read: {error}") from error
