"""What crosses a slow link, made small: fewer bits a number, or only the largest numbers.

A codec turns ``n`` numbers into a number of bytes that depends on ``n`` alone, so that ranks can
exchange payloads without telling each other their sizes. What a codec loses in one exchange
``Feedback`` adds to the next, so that nothing is lost for good (Seide et al., 2014; Karimireddy et
al., 2019: with it, biased compression converges as none does).
"""

import math
from typing import Protocol

import torch
from torch import Tensor

INT8_BLOCK = 256
"""Numbers that share a scale at 8 bits: 4 bytes a block cost 1.6 %."""

INT4_BLOCK = 64
"""The same at 4 bits, where a large neighbour costs more: 12.5 %."""

_BYTE = torch.uint8


class Codec(Protocol):
    """Turns fp32 numbers into bytes and back."""

    def size_bytes(self, numbers: int) -> int:
        """Return the length of the payload of so many numbers."""
        ...

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload, uint8 ``[size_bytes(n)]``, of fp32 ``values`` ``[n]``."""
        ...

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """Return fp32 ``[numbers]``, near to what was encoded."""
        ...


class Cast:
    """Every number in another floating-point format."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``."""
        return numbers * self._dtype.itemsize

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``; what is too large for the format becomes the largest that is not."""
        most = torch.finfo(self._dtype).max
        return values.clamp(-most, most).to(self._dtype).view(_BYTE)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        return payload.view(self._dtype)[:numbers].to(torch.float32)


class Blocks:
    """Every number as a multiple of its block's scale, in 8 or 4 bits.

    The scale of a block, fp32, is its largest magnitude over the largest multiple (127 or 7), so
    that nothing is clipped. Rounding is to the nearest multiple, or by chance in such a way that
    the expected value is exact (``generator``).
    """

    def __init__(
        self, bits: int, block: int | None = None, generator: torch.Generator | None = None
    ) -> None:
        """Set the format.

        Args:
            bits: Of a number: 8 or 4.
            block: Numbers that share a scale; even. 256 at 8 bits and 64 at 4 by default.
            generator: Round by this chance; nothing: to the nearest.

        Raises:
            ValueError: Another number of bits, or an odd block.
        """
        if bits not in (4, 8):
            raise ValueError(f"{bits} bits a number; there are 4 and 8")
        self._bits = bits
        self._block = block or (INT8_BLOCK if bits == 8 else INT4_BLOCK)
        if self._block % 2:
            raise ValueError(f"a block of {self._block} numbers; an even number is needed")
        self._most = 2 ** (bits - 1) - 1
        self._generator = generator

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``: a scale a block, then whole blocks."""
        blocks = math.ceil(numbers / self._block)
        return blocks * (4 + self._block * self._bits // 8)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``."""
        blocks = self._blocks(values)
        scales = blocks.abs().amax(dim=1, keepdim=True) / self._most
        multiples = torch.where(scales > 0, blocks / scales, 0.0)
        if self._generator is None:
            multiples = multiples.round()
        else:
            chance = torch.rand(multiples.shape, generator=self._generator, device=multiples.device)
            multiples = (multiples + chance).floor()
        # a scale that is too small to divide by gives multiples beyond the last
        whole = multiples.clamp(-self._most, self._most).to(torch.int8).flatten()
        if self._bits == 4:
            nibbles = (whole & 0xF).view(_BYTE)
            whole = (nibbles[0::2] | (nibbles[1::2] << 4)).view(torch.int8)
        return torch.cat([scales.flatten().view(_BYTE), whole.view(_BYTE)])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        count = math.ceil(numbers / self._block)
        scales = payload[: 4 * count].clone().view(torch.float32)
        packed = payload[4 * count :]
        if self._bits == 8:
            whole = packed.view(torch.int8)
        else:
            low, high = packed & 0xF, packed >> 4
            nibbles = torch.stack([low, high], dim=1).flatten().view(torch.int8)
            whole = nibbles - 16 * (nibbles > self._most).to(torch.int8)
        values = whole.to(torch.float32).view(count, self._block) * scales.unsqueeze(1)
        return values.flatten()[:numbers]

    def _blocks(self, values: Tensor) -> Tensor:
        short = -len(values) % self._block
        padded = torch.nn.functional.pad(values, (0, short)) if short else values
        return padded.view(-1, self._block)


class TopK:
    """Only the numbers of largest magnitude, each with its place; the others count as 0."""

    def __init__(self, share: float) -> None:
        """Set how many.

        Args:
            share: Of the numbers, above 0 and up to 1; at least one number is sent.

        Raises:
            ValueError: Another share.
        """
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share:g} of the numbers; it lies above 0 and up to 1")
        self._share = share

    def count(self, numbers: int) -> int:
        """Return how many of so many numbers are sent."""
        return min(numbers, max(1, round(numbers * self._share)))

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``: a place (int32) and a value (fp32) each."""
        return 8 * self.count(numbers)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``; at most 2^31 numbers."""
        places = values.abs().topk(self.count(len(values)), sorted=False).indices
        chosen = values[places]
        return torch.cat([places.to(torch.int32).view(_BYTE), chosen.view(_BYTE)])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        half = len(payload) // 2
        places = payload[:half].clone().view(torch.int32).to(torch.int64)
        values = torch.zeros(numbers, device=payload.device)
        values[places] = payload[half:].clone().view(torch.float32)
        return values


class Feedback:
    """A codec whose losses are made good in the next exchange.

    Attributes:
        codec: What is sent with.
        residual: What has been lost so far and not been sent yet, fp32 ``[n]``.
    """

    def __init__(self, codec: Codec, numbers: int, device: torch.device | str = "cpu") -> None:
        self.codec = codec
        self.residual = torch.zeros(numbers, device=device)

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload of ``values`` and what was lost before; keep what this loses."""
        wanted = values + self.residual
        payload = self.codec.encode(wanted)
        torch.sub(wanted, self.codec.decode(payload, len(wanted)), out=self.residual)
        return payload

    def take_back(self, payload: Tensor) -> None:
        """Count a payload that never arrived as lost."""
        self.residual += self.codec.decode(payload, len(self.residual))
