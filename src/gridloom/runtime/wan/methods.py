"""What a method of keeping sites one model sends with, and whether it can be at all."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import SiteSync
from gridloom.runtime.compress import Blocks, Cast, Codec, Feedback, LowRank, TopK
from gridloom.runtime.wan.gradient_sync import Encoder


def codec(how: SiteSync, shapes: Sequence[Sequence[int]] = ()) -> Codec:
    """Return what payloads are made with.

    Args:
        how: The method.
        shapes: Of the parameters, in order, where numbers are whole parameters.
    """
    match how.codec:
        case "plain":
            return Cast(torch.float32 if how.bits == 32 else torch.bfloat16)
        case "blocks":
            return Blocks(how.bits)
        case "top_k":
            return TopK(how.share)
        case "low_rank":
            return LowRank(shapes, how.rank)


def encoder(how: SiteSync, numbers: int, shapes: Sequence[Sequence[int]]) -> Encoder:
    """Return what turns one gradient after the other into payloads."""
    made = codec(how, shapes)
    if how.codec == "plain" and how.bits == 32:
        return _Exact(made)
    return _WithFeedback(made, numbers)


def check(how: SiteSync) -> None:
    """Raise ``InputError`` naming every field of a method that cannot be."""
    problems = [
        Problem(f"is {value}, must be at least 1", field=f"sync.{name}")
        for name in ("every", "fragments", "rank")
        if (value := getattr(how, name)) < 1
    ]
    bits = {"plain": (16, 32), "blocks": (4, 8)}.get(how.codec)
    if bits is not None and how.bits not in bits:
        text = f"is {how.bits}; the codec {how.codec} has {bits[0]} and {bits[1]}"
        problems.append(Problem(text, field="sync.bits"))
    if how.codec == "low_rank" and how.kind == "outer":
        text = "low_rank works on whole gradients, not on fragments of the parameters"
        problems.append(Problem(text, remedy="take blocks of 4 bits", field="sync.codec"))
    if not 0 < how.share <= 1:
        problems.append(
            Problem(f"is {how.share:g}, must be above 0 and up to 1", field="sync.share")
        )
    if not how.outer_learning_rate > 0:
        text = f"is {how.outer_learning_rate:g}, must be above 0"
        problems.append(Problem(text, field="sync.outer_learning_rate"))
    if not 0 <= how.outer_momentum < 1:
        text = f"is {how.outer_momentum:g}, must be 0 to below 1"
        problems.append(Problem(text, field="sync.outer_momentum"))
    if problems:
        raise InputError(problems)


class _Exact:
    """A codec whose losses are not worth remembering, as an encoder."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, values: Tensor) -> Tensor:
        return self._codec.encode(values)

    def take_back(self, payload: Tensor) -> None:
        pass

    def size_bytes(self, numbers: int) -> int:
        return self._codec.size_bytes(numbers)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        return self._codec.decode(payload, numbers)

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        pass


class _WithFeedback(Feedback):
    """Feedback that also decodes, as an encoder."""

    def size_bytes(self, numbers: int) -> int:
        return self.codec.size_bytes(numbers)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        return self.codec.decode(payload, numbers)
