"""The parameters of a model, seen as a few fragments of equal size that travel one at a time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

CHUNK = 2**18
"""Numbers that are worked on at once: a MiB, so that what lies between stays in the cache and calls
are few."""


class Fragments:
    """A list of tensors, laid end to end and cut into fragments; reads and writes one at a time."""

    def __init__(self, tensors: Sequence[Tensor], count: int) -> None:
        """Cut ``tensors`` (any shapes, devices and floating-point types) into ``count`` parts.

        Some are empty, if there are fewer numbers than that.
        """
        self._flat = [tensor.detach().view(-1) for tensor in tensors]
        total = sum(len(flat) for flat in self._flat)
        edges = [total * i // count for i in range(count + 1)]
        self.windows = [Window(_pieces(self._flat, *ends)) for ends in pairwise(edges)]

    def __len__(self) -> int:
        return len(self.windows)

    def numbers(self, fragment: int) -> int:
        """Return how many numbers a fragment has."""
        return self.windows[fragment].numbers

    def read(self, fragment: int) -> Tensor:
        """Return a copy of a fragment, fp32 ``[n]`` on the CPU."""
        return self.windows[fragment].read()

    def write(self, fragment: int, values: Tensor) -> None:
        """Overwrite a fragment with fp32 ``[n]``."""
        self.windows[fragment].write(values)


class Window:
    """The numbers of one fragment, where they lie.

    Attributes:
        numbers: How many.
    """

    def __init__(self, pieces: Sequence[Tensor]) -> None:
        """Take flat views, end to end."""
        self.numbers = sum(map(len, pieces))
        self._chunks = [_pieces(pieces, chunk.start, chunk.stop) for chunk in chunks(self.numbers)]

    def read(self) -> Tensor:
        """Return a copy, fp32 ``[n]`` on the CPU."""
        whole = torch.empty(self.numbers)
        for number, chunk in enumerate(chunks(self.numbers)):
            whole[chunk] = self.read_chunk(number)
        return whole

    def write(self, values: Tensor) -> None:
        """Overwrite all with fp32 ``[n]``."""
        for number, chunk in enumerate(chunks(self.numbers)):
            self.write_chunk(number, values[chunk])

    def read_chunk(self, number: int) -> Tensor:
        """Return a copy of one chunk, counted from 0: fp32 on the CPU."""
        pieces = [piece.to("cpu", torch.float32) for piece in self._chunks[number]]
        return torch.cat(pieces)  # copies, of one piece too

    def write_chunk(self, number: int, values: Tensor) -> None:
        """Overwrite one chunk with fp32 ``values``."""
        start = 0
        for piece in self._chunks[number]:
            piece.copy_(values[start : start + piece.numel()])
            start += piece.numel()

    def move_chunk(self, number: int, back: Tensor, there: Tensor) -> None:
        """Add fp32 ``back`` to one chunk, subtract fp32 ``there``, and round once."""
        start = 0
        for piece in self._chunks[number]:
            part = slice(start, start + piece.numel())
            local = piece.to("cpu", torch.float32)  # itself, if that is what it is
            local = local.add_(back[part]).sub_(there[part])
            if local.data_ptr() != piece.data_ptr():
                piece.copy_(local)
            start += piece.numel()


def chunks(numbers: int) -> Iterator[slice]:
    """Yield the chunks of so many numbers."""
    for start in range(0, numbers, CHUNK):
        yield slice(start, min(numbers, start + CHUNK))


def _pieces(flat: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Return the views of the numbers from ``start`` to ``stop`` of tensors laid end to end."""
    pieces, offset = [], 0
    for tensor in flat:
        first, last = max(start - offset, 0), min(stop - offset, len(tensor))
        if first < last:
            pieces.append(tensor[first:last])
        offset += len(tensor)
    return pieces
