"""What a codec loses is not lost: it is sent with what comes next."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import (
    Codec,
    NotFiniteError,
    Stateful,
    require_finite,
    take,
    within,
)


class Feedback:
    """A codec whose losses are made good in the next exchange.

    What was to be sent is at any time what was sent and the residual, but for fp32 rounding. One
    for each fragment; ``Joined`` serves a fragment whose stretches have codecs of their own.

    Attributes:
        codec: What is sent with.
        residual: What has been lost so far and not been sent yet, fp32 ``[n]``.
    """

    def __init__(self, codec: Codec, numbers: int, device: torch.device | str = "cpu") -> None:
        self.codec = codec
        self.residual = torch.zeros(numbers, device=device)

    @classmethod
    def of(cls, codec: Codec, residual: Tensor) -> "Feedback":
        """Return one that keeps its losses in a tensor of the caller's."""
        made = cls(codec, 0)
        made.residual = residual
        return made

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload of ``values`` and what was lost before; keep what this loses.

        Raises:
            NotFiniteError: A value is not finite; the residual is as it was.
        """
        require_finite(values)
        self.residual += values
        try:
            return take(self.codec, self.residual)
        except NotFiniteError:  # a sum beyond fp32; codecs look before they change anything
            _clamp(self.residual)
            return take(self.codec, self.residual)

    def take_back(self, payload: Tensor) -> None:
        """Count a payload that never arrived as lost."""
        add_within_range(self.residual, self.codec.decode(payload, len(self.residual)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all that it remembers, its codec's state included."""
        inner = self.codec.state_dict() if isinstance(self.codec, Stateful) else {}
        named = {f"codec.{name}": tensor for name, tensor in inner.items()}
        return {"residual": self.residual.clone(), **named}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self.residual.copy_(state["residual"])
        if isinstance(self.codec, Stateful):
            self.codec.load_state_dict(within(state, "codec."))


class Losses:
    """Feedback for numbers that are encoded in several parts, all by one codec.

    Attributes:
        whole: The residuals of all parts, fp32 ``[n]``.
    """

    def __init__(self, codec: Codec, sizes: Sequence[int]) -> None:
        self._codec = codec
        self.whole = torch.zeros(sum(sizes))
        self._parts = [Feedback.of(codec, part) for part in self.whole.split(list(sizes))]

    def __getitem__(self, part: int) -> Feedback:
        return self._parts[part]

    def state_dict(self) -> dict[str, Tensor]:
        """As ``Feedback``."""
        return Feedback.of(self._codec, self.whole).state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As ``Feedback``."""
        Feedback.of(self._codec, self.whole).load_state_dict(state)


def add_within_range(total: Tensor, values: Tensor) -> None:
    """Add finite values to a finite total; a sum beyond fp32 becomes its largest number."""
    total += values
    if not bool(torch.isfinite(total.sum())):
        _clamp(total)


def _clamp(total: Tensor) -> None:
    most = torch.finfo(total.dtype).max
    total.clamp_(-most, most)
