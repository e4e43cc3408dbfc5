"""Increasing numbers, such as places in a tensor, in few bits of a fixed total.

Elias-Fano coding (Elias, 1974; Fano, 1971): of each place the low bits are stored as they are; the
high parts, which grow slowly, as a row of bits in which the ``i``-th place sets bit ``high + i``.
This takes 2 to 3 bits a place beyond ``log2(numbers / count)``, where any code needs 1.44; int32
takes 32.
"""

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import BYTE

_GATHER = 0x0102040810204080
"""Times eight bytes of 0 or 1 this leaves their bits, in order, in the highest byte."""


def places_bytes(count: int, numbers: int) -> int:
    """Return how many bytes ``count`` places among so many numbers take."""
    if count == 0:
        return 0
    low = _low_bits(count, numbers)
    return _bytes(_high_length(count, numbers)) + _bytes(count * low)


def encode_places(places: Tensor, numbers: int) -> Tensor:
    """Return strictly increasing int64 ``places`` below ``numbers`` as uint8 ``[places_bytes]``."""
    count = len(places)
    if count == 0:
        return torch.zeros(0, dtype=BYTE, device=places.device)
    low = _low_bits(count, numbers)
    order = torch.arange(count, device=places.device)
    high = torch.zeros(_high_length(count, numbers), dtype=BYTE, device=places.device)
    high[(places >> low) + order] = 1
    small = places.to(torch.int32)
    planes = [((small >> bit) & 1).to(BYTE) for bit in range(low)]
    return torch.cat([_packed(high), *([_packed(torch.cat(planes))] if planes else [])])


def decode_places(payload: Tensor, count: int, numbers: int) -> Tensor:
    """Return the places, int64 ``[count]``.

    Raises:
        ValueError: The bytes do not hold so many places below ``numbers``.
    """
    if count == 0:
        return torch.zeros(0, dtype=torch.int64, device=payload.device)
    low = _low_bits(count, numbers)
    split = _bytes(_high_length(count, numbers))
    found = _unpacked(payload[:split], _high_length(count, numbers)).nonzero().squeeze(1)
    if len(found) != count:
        raise ValueError(f"a payload of {len(found)} places; {count} were announced: it is damaged")
    places = (found - torch.arange(count, device=payload.device)) << low
    if low:
        planes = _unpacked(payload[split:], count * low).view(low, count)
        for bit in range(low):
            places += planes[bit].to(torch.int64) << bit
    if int(places[-1]) >= numbers:
        raise ValueError(f"a payload with place {int(places[-1])} of {numbers}: it is damaged")
    return places


def _low_bits(count: int, numbers: int) -> int:
    return (numbers // count).bit_length() - 1


def _high_length(count: int, numbers: int) -> int:
    return count + ((numbers - 1) >> _low_bits(count, numbers))


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def _packed(bits: Tensor) -> Tensor:
    """Return bits, uint8 of 0 or 1, eight to a byte, the first one lowest."""
    padded = torch.nn.functional.pad(bits, (0, -len(bits) % 8))
    return ((padded.view(torch.int64) * _GATHER) >> 56).to(BYTE)


def _unpacked(packed: Tensor, count: int) -> Tensor:
    """Return ``count`` bits, uint8 of 0 or 1."""
    shifts = torch.arange(8, dtype=BYTE, device=packed.device)
    return ((packed.unsqueeze(1) >> shifts) & 1).flatten()[:count]
