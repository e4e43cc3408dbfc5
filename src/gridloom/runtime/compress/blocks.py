"""Every number in 8 or 4 bits, as a level of a grid that its block's step stretches.

The work is done two spans at a time, so that what lies between stays in the processor's cache.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import BYTE, require_finite, require_length, viewed

BLOCK = 64
"""Numbers that share a step: one byte a block costs 1/8 bit a number.

Relative error at 4 bits of numbers spread normally: 9.5 % with 32, 10.4 % with 64, 11.3 % with 128;
as Student's t with 3 degrees of freedom: 13.9 %, 17.3 % and 21.3 %.
"""

SPAN_BLOCKS = 1024
"""Blocks whose steps are told relative to one base: 64 Ki numbers, which fit a core's cache."""

_PIECE_SPANS = 2
"""Spans that a CPU works on at once: fewer cost more calls, more leave the cache."""

_SHIFT = 19
"""Bits cut from the end of an fp32 step: 8 bits of exponent and 4 of mantissa stay."""

_LOWEST = 31
"""The smallest base: a step of almost 2^-125, whose inverse is finite."""


_MOST = {8: 127, 4: 7}
"""The largest level, by bits."""

_MAGIC = 1.5 * 2.0**23
"""An fp32 number added to this is rounded to the nearest whole one, which the low bits hold."""


class Blocks:
    """Every number as a level of a grid, in 8 or 4 bits, scaled by its block's step.

    Levels are even: closer ones near 0 would lose a tenth less, and take three times as long.

    The step follows the block's largest magnitude, so that nothing is clipped. It takes one byte:
    16 steps an octave, rounded up, over 16 octaves below the largest step of the span (a scale of
    scales, as in Dettmers et al., 2023). 4 bits a number come to 4.13, 8 to 8.13. Rounding is to
    the nearest level, or by chance in such a way that the expected value is exact.

    Payload: a base a span (int32), a step a block (1 byte), the levels. At 4 bits the first half
    of a span lies in the low halves of its bytes, the second half in the high ones.
    """

    def __init__(
        self, bits: int, block: int = BLOCK, generator: torch.Generator | None = None
    ) -> None:
        """Set the format.

        Args:
            bits: Of a number: 8 or 4.
            block: Numbers that share a step; even.
            generator: Round by this chance (see ``seeded``); nothing: to the nearest.

        Raises:
            ValueError: Another number of bits, or an odd block.
        """
        if bits not in _MOST:
            raise ValueError(f"{bits} bits a number; there are 4 and 8")
        if block < 2 or block % 2:
            raise ValueError(f"a block of {block} numbers; an even number is needed")
        self._bits, self._block, self._most = bits, block, _MOST[bits]
        self._span = block * SPAN_BLOCKS
        self._generator = generator

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``: a base a span, a step a block, then whole blocks."""
        blocks = math.ceil(numbers / self._block)
        spans = math.ceil(blocks / SPAN_BLOCKS)
        return 4 * spans + blocks * (1 + self._block * self._bits // 8)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``."""
        return self._encode(values, subtract=False)

    def take(self, values: Tensor) -> Tensor:
        """As ``Taking``."""
        return self._encode(values, subtract=True)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        bases, codes, packed = self._parts(payload, numbers)
        steps = self._steps(viewed(bases, torch.int32), codes)
        values = torch.empty(numbers, device=payload.device)
        for span in self._pieces(numbers, payload.device):
            part = values[span]
            levels = self._unpacked(packed[self._bytes(span)])
            whole = part if part.numel() == levels.numel() else part.new_empty(levels.numel())
            self._stretched(levels, steps[self._blocks(span)], whole)
            if whole is not part:
                part.copy_(whole[: part.numel()])
        return values

    def state_dict(self) -> dict[str, Tensor]:
        """As ``Stateful``: where the chance stands."""
        return {"generator": self._generator.get_state()} if self._generator else {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As ``Stateful``."""
        if self._generator:
            self._generator.set_state(state["generator"])

    def _encode(self, values: Tensor, *, subtract: bool) -> Tensor:
        require_finite(values)
        numbers = values.numel()
        payload = torch.empty(self.size_bytes(numbers), dtype=BYTE, device=values.device)
        bases, codes, packed = self._parts(payload, numbers)
        scratch = _Scratch()
        peaks = torch.empty(codes.numel(), device=values.device)
        for span in self._pieces(numbers, values.device):
            magnitudes = torch.abs(whole := self._whole(values[span]), out=scratch.like(whole))
            torch.amax(magnitudes.view(-1, self._block), dim=1, out=peaks[self._blocks(span)])
        steps = self._choose(peaks, bases.view(torch.int32), codes)
        inverse = steps.reciprocal()
        for span in self._pieces(numbers, values.device):
            part, blocks = values[span], self._blocks(span)
            whole = self._whole(part)
            room = scratch.like(whole)
            by_block = room.view(-1, self._block)
            torch.mul(whole.view_as(by_block), inverse[blocks].unsqueeze(1), out=by_block)
            levels = self._levels(room, scratch)
            self._pack(levels, packed[self._bytes(span)])
            if subtract:
                self._stretched(levels, steps[blocks], room)
                part -= room[: part.numel()]
        return payload

    def _choose(self, peaks: Tensor, bases: Tensor, codes: Tensor) -> Tensor:
        """Write the base of each span and the code of each block; return the blocks' steps."""
        # what is nearest to the last level, or not beyond it, but for the rounding of the inverse
        reach = self._most * (1 - 1e-6) if self._generator else self._most + 0.49
        short = bases.numel() * SPAN_BLOCKS - peaks.numel()
        bits = torch.nn.functional.pad(peaks / reach, (0, short)).view(torch.int32)
        wanted = bits.add_((1 << _SHIFT) - 1).bitwise_right_shift_(_SHIFT).view(-1, SPAN_BLOCKS)
        if bases.numel():
            torch.clamp(wanted.amax(dim=1) - 255, min=_LOWEST, out=bases)
        told = wanted.sub_(bases.unsqueeze(1)).clamp_(0, 255)
        codes.copy_(told.view(-1)[: peaks.numel()])
        return self._steps(bases, codes)

    def _steps(self, bases: Tensor, codes: Tensor) -> Tensor:
        """Return the step of each block, fp32 like ``codes``."""
        base = bases.repeat_interleave(SPAN_BLOCKS)[: codes.numel()]
        bits = base.add_(codes).bitwise_left_shift_(_SHIFT)
        most = torch.finfo(torch.float32).max / self._most * (1 - 1e-6)  # no level is infinite
        return bits.view(torch.float32).clamp_(max=most)

    def _levels(self, steps: Tensor, scratch: "_Scratch") -> Tensor:
        """Return the level, int8, of each number given in steps; uses these up."""
        if self._generator:  # of the two levels beside a number, the nearer one is the likelier
            steps.add_(_uniform(steps, self._generator).sub_(0.5))
        whole = steps.add_(_MAGIC).view(torch.int32)
        return scratch.like(steps, torch.int8).copy_(whole)

    def _pack(self, levels: Tensor, packed: Tensor) -> None:
        if self._bits == 8:
            packed.copy_(levels.view(BYTE))
            return
        low, high = self._halves(levels)
        target = packed.view(torch.int8).view(low.shape)
        torch.mul(high, 16, out=target)
        target += low  # may borrow 1 from the high half, which unpacking gives back

    def _unpacked(self, packed: Tensor) -> Tensor:
        levels = packed.view(torch.int8)
        if self._bits == 8:
            return levels
        whole = torch.empty(2 * levels.numel(), dtype=torch.int8, device=levels.device)
        low, high = self._halves(whole)
        both = levels.view(low.shape)
        torch.bitwise_left_shift(both, 4, out=low)
        low.bitwise_right_shift_(4)
        torch.sub(both, low, out=high)
        high.bitwise_right_shift_(4)
        return whole

    def _halves(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the second half of each span of a piece."""
        rows = levels.view(-1, min(levels.numel(), self._span))
        low, high = rows.chunk(2, dim=1)
        return low, high

    def _stretched(self, levels: Tensor, steps: Tensor, out: Tensor) -> None:
        """Write what the levels stand for to ``out``, fp32 ``[n]`` like them."""
        out.copy_(levels)
        out.view(-1, self._block).mul_(steps.unsqueeze(1))

    def _whole(self, part: Tensor) -> Tensor:
        """Return numbers with zeros behind them to the end of their last block."""
        short = -part.numel() % self._block
        return torch.nn.functional.pad(part, (0, short)) if short else part

    def _pieces(self, numbers: int, device: torch.device) -> Iterator[slice]:
        """Yield which numbers are worked on at once: two spans on a CPU, elsewhere all whole ones.

        There each operation costs a launch.
        """
        full = numbers // self._span * self._span
        at_once = _PIECE_SPANS * self._span if device.type == "cpu" else max(1, full)
        for first in range(0, full, at_once):
            yield slice(first, min(full, first + at_once))
        if full < numbers:
            yield slice(full, numbers)

    def _blocks(self, span: slice) -> slice:
        return slice(span.start // self._block, math.ceil(span.stop / self._block))

    def _bytes(self, span: slice) -> slice:
        blocks, each = self._blocks(span), self._block * self._bits // 8
        return slice(blocks.start * each, blocks.stop * each)

    def _parts(self, payload: Tensor, numbers: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the bytes of bases, codes and levels."""
        blocks = math.ceil(numbers / self._block)
        head = 4 * math.ceil(blocks / SPAN_BLOCKS)
        return payload[:head], payload[head : head + blocks], payload[head + blocks :]


class _Scratch:
    """Room of each type that is used again for each span."""

    def __init__(self) -> None:
        self._rooms: dict[torch.dtype, Tensor] = {}

    def like(self, numbers: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor as long as ``numbers``; its content is left over."""
        room = self._rooms.get(dtype)
        if room is None or room.numel() < numbers.numel():
            room = self._rooms[dtype] = torch.empty_like(numbers, dtype=dtype)
        return room[: numbers.numel()]


def _uniform(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Return as many from 0 to 1, fp32, in the middles of 2^16 equal parts.

    Four of them from one draw of 64 bits: a third of the time of ``torch.rand``.
    """
    draws = torch.empty(math.ceil(numbers.numel() / 4), dtype=torch.int64, device=numbers.device)
    draws.random_(-(2**63), None, generator=generator)
    chance = draws.view(torch.int16)[: numbers.numel()].to(torch.float32)
    return chance.add_(32768.5).mul_(2.0**-16)
