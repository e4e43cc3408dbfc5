"""A rank's gradients in buckets, in the order in which a backward pass completes them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.state import local

_NUMBER_BYTES = 4
"""Of a gradient on its way to a codec."""


class Buckets:
    """What this rank owns of the parameters that the sites keep equal.

    Attributes:
        parameters: Of each bucket, those of other owners too.
        weights: What this rank owns of each bucket, in one fragment.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], owned: Sequence[bool], most_bytes: int
    ) -> None:
        """Cut parameters into buckets, the last ones first.

        The cut depends on whole parameters alone, so that ranks and sites with parts of the same
        parameters cut alike.

        Args:
            parameters: In the order of the forward pass.
            owned: Whether this rank owns its part of each.
            most_bytes: Size of a bucket's gradients; one that is larger by itself is a bucket, and
                with 0 there is one bucket.
        """
        self.parameters: list[list[nn.Parameter]] = [[]]
        self._owned: list[list[nn.Parameter]] = [[]]
        size_bytes = 0
        for parameter, is_owned in reversed(list(zip(parameters, owned, strict=True))):
            own_bytes = parameter.numel() * _NUMBER_BYTES
            if most_bytes and self.parameters[-1] and size_bytes + own_bytes > most_bytes:
                self._add()
                size_bytes = 0
            size_bytes += own_bytes
            self.parameters[-1].append(parameter)
            if is_owned:
                self._owned[-1].append(parameter)

    @property
    def weights(self) -> list[Fragments]:
        """The weights that this rank owns, a bucket each."""
        return [Fragments([local(p.detach()) for p in parameters], 1) for parameters in self._owned]

    def __len__(self) -> int:
        return len(self.parameters)

    def fill_up(self, count: int) -> None:
        """Add empty buckets up to a number, which other ranks have."""
        while len(self.parameters) < count:
            self._add()

    def gradients(self, bucket: int) -> Fragments:
        """Return where the gradients that this rank owns are now; zeros if there were none."""
        return Fragments([local(gradient_of(p)) for p in self._owned[bucket]], 1)

    def are_cut(self) -> bool:
        """Return whether this rank owns a part of some parameter, and not all of it."""
        owned = [parameter for bucket in self._owned for parameter in bucket]
        return any(0 < local(p.detach()).numel() < p.numel() for p in owned)

    def shapes(self, bucket: int) -> list[torch.Size]:
        """Return the shapes of the whole parameters of which this rank owns parts."""
        return [parameter.shape for parameter in self._owned[bucket]]

    def _add(self) -> None:
        self.parameters.append([])
        self._owned.append([])


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """Return a parameter's gradient, zeros if it has none yet."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
