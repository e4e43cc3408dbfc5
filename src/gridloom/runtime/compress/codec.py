"""The shape of a codec, what all codecs need, and the two simplest of them."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from gridloom.runtime.failure import RuntimeFailureError

BYTE = torch.uint8


class Codec(Protocol):
    """Turns fp32 numbers into bytes and back."""

    def size_bytes(self, numbers: int) -> int:
        """Return the length of the payload of so many numbers."""
        ...

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload, uint8 ``[size_bytes(n)]``, of fp32 ``values`` ``[n]``.

        Raises:
            NotFiniteError: A number is infinite or none; nothing has changed.
        """
        ...

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """Return fp32 ``[numbers]``, near to what was encoded.

        Raises:
            ValueError: The payload is not one of so many numbers.
        """
        ...


@runtime_checkable
class Taking(Protocol):
    """A codec that leaves behind what it loses, sooner than by decoding."""

    def take(self, values: Tensor) -> Tensor:
        """Return the payload of ``values`` and subtract from them what it decodes to."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """What goes on from its last call, and belongs into a checkpoint."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all that it remembers."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        ...


class NotFiniteError(RuntimeFailureError):
    """Numbers that were to be sent are not finite; nothing was sent and nothing has changed."""


class Cast:
    """Every number in another floating-point format."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``."""
        return numbers * self._dtype.itemsize

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``; what is too large for the format becomes the largest that is not."""
        require_finite(values)
        if self._dtype == torch.float32:
            return values.clone().view(BYTE)
        most = torch.finfo(self._dtype).max
        return values.clamp(-most, most).to(self._dtype).view(BYTE)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        return viewed(payload, self._dtype).to(torch.float32)


class Joined:
    """Codecs side by side, each for the next stretch of the numbers.

    So weights of different kinds of one fragment can be sent in different ways.
    """

    def __init__(self, parts: Sequence[tuple[Codec, int]]) -> None:
        """Set the stretches: a codec and for how many numbers, in their order."""
        self._codecs = [codec for codec, _ in parts]
        self._numbers = [numbers for _, numbers in parts]

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``.

        Raises:
            ValueError: Not as many numbers as all stretches have.
        """
        if numbers != sum(self._numbers):
            raise ValueError(f"{numbers} numbers; the codecs are for {sum(self._numbers)}")
        return sum(self._sizes())

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``."""
        parts = self._split(values)
        return _cat([codec.encode(part) for codec, part in parts], values)

    def take(self, values: Tensor) -> Tensor:
        """As ``Taking``."""
        parts = self._split(values)
        return _cat([take(codec, part) for codec, part in parts], values)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        parts = zip(self._codecs, payload.split(self._sizes()), self._numbers, strict=True)
        decoded = [codec.decode(part, count) for codec, part, count in parts]
        return torch.cat(decoded) if decoded else torch.zeros(0, device=payload.device)

    def state_dict(self) -> dict[str, Tensor]:
        """As ``Stateful``."""
        return {
            f"{place}.{name}": tensor
            for place, codec in enumerate(self._codecs)
            if isinstance(codec, Stateful)
            for name, tensor in codec.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As ``Stateful``."""
        for place, codec in enumerate(self._codecs):
            if isinstance(codec, Stateful):
                codec.load_state_dict(within(state, f"{place}."))

    def _split(self, values: Tensor) -> list[tuple[Codec, Tensor]]:
        """Return what each codec is to send; refuse all of it before any codec changes."""
        self.size_bytes(len(values))
        require_finite(values)
        return list(zip(self._codecs, values.split(self._numbers), strict=True))

    def _sizes(self) -> list[int]:
        return [c.size_bytes(n) for c, n in zip(self._codecs, self._numbers, strict=True)]


def seeded(
    seed: int, site: int | str, slot: int | str, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return the chance of one site's one codec: the same in every run, and like no other's.

    Args:
        seed: Of the run.
        site: Which site, by name or number.
        slot: Which of its codecs: a fragment, for one.
        device: Where the numbers lie that it is to round.
    """
    digest = hashlib.sha256(repr((seed, site, slot)).encode()).digest()
    number = int.from_bytes(digest[:8], "little", signed=True)
    return torch.Generator(device).manual_seed(number)


def take(codec: Codec, values: Tensor) -> Tensor:
    """Return the payload of ``values`` and subtract from them, in place, what it decodes to."""
    if isinstance(codec, Taking):
        return codec.take(values)
    payload = codec.encode(values)
    values -= codec.decode(payload, len(values))
    return payload


def require_finite(values: Tensor) -> None:
    """Raise ``NotFiniteError`` unless all numbers are finite.

    One pass in most cases: a sum of finite numbers is finite unless they are near the end of fp32.
    """
    if bool(torch.isfinite(values.sum())):
        return
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise NotFiniteError(
            f"{bad} of {len(values)} numbers to be sent to other sites are not finite",
            "leave this round out, and look for the loss or the learning rate that caused it",
        )


def require_length(payload: Tensor, size_bytes: int, numbers: int) -> None:
    """Raise ``ValueError`` unless the payload of so many numbers has its size."""
    if payload.shape != (size_bytes,):
        raise ValueError(
            f"a payload of {payload.numel()} bytes; {numbers} numbers take {size_bytes}"
        )


def viewed(payload: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of some bytes of a payload as numbers; they may begin at any byte."""
    return payload.clone().view(dtype)


def within(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return what stands under a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


def _cat(payloads: Sequence[Tensor], values: Tensor) -> Tensor:
    return torch.cat(list(payloads)) if payloads else torch.zeros(0, dtype=BYTE).to(values.device)
