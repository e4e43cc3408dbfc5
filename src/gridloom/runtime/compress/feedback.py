"""What a codec loses is not lost: it is sent with what comes next."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import Codec, Stateful, require_finite, take, within


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

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload of ``values`` and what was lost before; keep what this loses.

        Raises:
            NotFiniteError: A value is not finite; the residual is as it was.
        """
        require_finite(values)
        add_within_range(self.residual, values)
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


def add_within_range(total: Tensor, values: Tensor) -> None:
    """Add finite values to a finite total; a sum beyond fp32 becomes its largest number."""
    total += values
    if not bool(torch.isfinite(total.sum())):
        most = torch.finfo(total.dtype).max
        total.clamp_(-most, most)
