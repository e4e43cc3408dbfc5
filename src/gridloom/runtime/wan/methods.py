"""What a method of keeping sites one model sends with, and whether it can be at all."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import (
    CODEC_BITS,
    WHOLE_GRADIENT_CODECS,
    SitePrivacy,
    SiteSync,
)
from gridloom.runtime.compress import Blocks, Cast, Codec, Feedback, LowRank, Signs, TopK
from gridloom.runtime.wan.averaged import Encoder
from gridloom.runtime.wan.deep_encoder import DeepEncoder, policy
from gridloom.runtime.wan.masks import FixedPoint

_BITS_OF_CAST = 16
"""From so many on it is a floating-point number."""

_LEFT = 0.01
"""Of the energy of what sites had not shared at the end of a training, may be dropped."""

_PASSES_MAX = 50
"""More last rounds than these are not worth what they bring."""

_LIMIT = 8.0
"""Of a number of an update that is not clipped; weights are well below 1, and their changes too."""


def codec(how: SiteSync, shapes: Sequence[Sequence[int]] = ()) -> Codec:
    """Return what payloads are made with.

    Args:
        how: The method.
        shapes: Of the parameters, in order, where numbers are whole parameters.
    """
    if how.privacy.masked:
        return FixedPoint(_limit(how))
    match how.codec:
        case "plain" | "blocks":
            return _numbers(how.bits)
        case "top_k" | "deep":
            return TopK(how.share, _numbers(how.bits))
        case "low_rank":
            return LowRank(shapes, how.rank)


def _numbers(bits: int) -> Codec:
    """Return what makes every number so small."""
    if bits < _BITS_OF_CAST:
        return Signs() if bits == 1 else Blocks(bits)
    return Cast(torch.float32 if bits == 32 else torch.bfloat16)


def last_passes(how: SiteSync) -> int:
    """Return the rounds of each fragment after the last training step of ``outer``.

    One for what was trained, the others for what the codec lost of it: as many as would leave a
    hundredth of its energy if what each leaves were spread normally; it is a few hundredths.
    """
    left = 0.01  # of 4 bits a number, and less of more
    if how.codec in ("top_k", "deep"):
        normal = NormalDist()
        least = normal.inv_cdf(1 - how.share / 2)
        left = 1 - (how.share + 2 * least * normal.pdf(least))
    elif how.bits == 1:
        left = 1 - 2 / math.pi
    passes = math.log(_LEFT) / math.log(left) if left > _LEFT else 1
    return 1 + min(_PASSES_MAX, math.ceil(passes))


def encoder(how: SiteSync, numbers: int, shapes: Sequence[Sequence[int]]) -> Encoder:
    """Return what turns one gradient after the other into payloads."""
    if how.codec == "deep":
        return DeepEncoder(numbers, policy(how))
    made = codec(how, shapes)
    if how.codec == "plain" and how.bits == 32:
        return _Exact(made)
    return _WithFeedback(made, numbers)


def check(how: SiteSync) -> None:
    """Raise ``InputError`` naming every field of a method that cannot be."""
    least = {"every": int(how.kind != "outer"), "fragments": 1, "rank": 1, "warm_up": 0}
    problems = [
        Problem(f"is {value}, must be at least {right}", field=f"sync.{name}")
        for name, right in least.items()
        if (value := getattr(how, name)) < right
    ]
    bits = CODEC_BITS[how.codec]
    if how.bits not in bits:
        text = f"is {how.bits}; the codec {how.codec} has {', '.join(map(str, bits))}"
        problems.append(Problem(text, field="sync.bits"))
    if how.codec in WHOLE_GRADIENT_CODECS and how.kind == "outer":
        text = f"{how.codec} works on whole gradients, not on fragments of the parameters"
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
    if not 0 <= how.momentum < 1:
        text = f"is {how.momentum:g}, must be 0 to below 1"
        problems.append(Problem(text, field="sync.momentum"))
    problems += _privacy_problems(how)
    if problems:
        raise InputError(problems)


def _limit(how: SiteSync) -> float:
    """Return the largest magnitude that a number of an update can have under masks.

    What is clipped is no larger than the norm, and noise is above 8 deviations once in 10^15.
    """
    if not how.privacy.clip_norm:
        return _LIMIT
    return how.privacy.clip_norm * (1 + 8 * how.privacy.noise_multiplier)


def _privacy_problems(how: SiteSync) -> Iterator[Problem]:
    """Yield what cannot be of what the other sites may see."""
    policy = how.privacy
    if policy == SitePrivacy():
        return
    if how.kind != "outer":
        text = f"is for outer; {how.kind} shows every gradient as it is"
        yield Problem(text, remedy="take kind outer", field="sync.privacy")
    if policy.masked and (how.codec, how.bits) != ("plain", 32):
        text = "sums under masks are of whole numbers of 32 bits"
        yield Problem(text, remedy="take codec plain with 32 bits", field="sync.codec")
    for name in ("clip_norm", "noise_multiplier"):
        if not 0 <= (value := getattr(policy, name)) < math.inf:
            text = f"is {value:g}, must be 0 or more"
            yield Problem(text, field=f"sync.privacy.{name}")
    if policy.noise_multiplier > 0 and not policy.clip_norm > 0:
        text = "is 0; noise hides only what has a largest norm"
        yield Problem(text, remedy="give a norm to clip to", field="sync.privacy.clip_norm")
    if not 0 < policy.delta < 1:
        text = f"is {policy.delta:g}, must be between 0 and 1"
        yield Problem(text, field="sync.privacy.delta")


class _Exact:
    """A codec whose losses are not worth remembering, as an encoder."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, values: Tensor) -> Tensor:
        return self._codec.encode(values)

    def take_back(self, payload: Tensor) -> None:
        pass

    def withdraw(self, payload: Tensor, values: Tensor) -> None:
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

    def withdraw(self, payload: Tensor, values: Tensor) -> None:
        self.take_back(payload)
        self.residual -= values

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        return self.codec.decode(payload, numbers)
