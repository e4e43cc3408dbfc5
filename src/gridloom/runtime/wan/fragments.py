"""The parameters of a model, seen as a few fragments of equal size that travel one at a time."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


class Fragments:
    """A list of tensors, laid end to end and cut into fragments; reads and writes one at a time."""

    def __init__(self, tensors: Sequence[Tensor], count: int) -> None:
        """Cut ``tensors`` (any shapes, devices and floating-point types) into ``count`` parts.

        Some are empty, if there are fewer numbers than that.
        """
        self._flat = [tensor.detach().view(-1) for tensor in tensors]
        total = sum(len(flat) for flat in self._flat)
        edges = [total * i // count for i in range(count + 1)]
        self._pieces = [_pieces(self._flat, *ends) for ends in pairwise(edges)]

    def __len__(self) -> int:
        return len(self._pieces)

    def numbers(self, fragment: int) -> int:
        """Return how many numbers a fragment has."""
        return sum(len(piece) for piece in self._pieces[fragment])

    def read(self, fragment: int) -> Tensor:
        """Return a copy of a fragment, fp32 ``[n]`` on the CPU."""
        pieces = [piece.to("cpu", torch.float32) for piece in self._pieces[fragment]]
        return torch.cat(pieces) if pieces else torch.zeros(0)

    def write(self, fragment: int, values: Tensor) -> None:
        """Overwrite a fragment with fp32 ``[n]``."""
        start = 0
        for piece in self._pieces[fragment]:
            piece.copy_(values[start : start + len(piece)])
            start += len(piece)


def _pieces(flat: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Return the views of the numbers from ``start`` to ``stop`` of tensors laid end to end."""
    pieces, offset = [], 0
    for tensor in flat:
        first, last = max(start - offset, 0), min(stop - offset, len(tensor))
        if first < last:
            pieces.append(tensor[first:last])
        offset += len(tensor)
    return pieces
