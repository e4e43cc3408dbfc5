"""Every number as its sign, in 1 bit, and the mean magnitude of its block."""

import math

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import BYTE, require_finite, require_length, viewed

BLOCK = 256
"""Numbers that share a magnitude, of two bytes: 1/16 bit a number."""

_PACK = sum(1 << (56 - 7 * place) for place in range(8))
"""Times this, eight bytes that are 0 or 1 have in the highest byte one bit each."""


class Signs:
    """Every number as its sign and its block's mean magnitude.

    Of the energy of numbers spread normally this leaves 1 - 2 / pi, 36 %, to be sent later: a lot
    is sent for the bit. Only where losses are made good is that of use (``Feedback``, outer steps):
    signSGD with a scale and error feedback (Karimireddy et al., 2019). 1 bit comes to 1.06.

    Payload: the magnitudes of all blocks (bf16, cut off), the signs of whole blocks, eight a byte.
    """

    def size_bytes(self, numbers: int) -> int:
        """As ``Codec``."""
        return math.ceil(numbers / BLOCK) * (2 + BLOCK // 8)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Codec``."""
        require_finite(values)
        short = -len(values) % BLOCK
        whole = torch.nn.functional.pad(values, (0, short)) if short else values
        blocks = whole.view(-1, BLOCK)
        means = blocks.abs().mul_(1 / BLOCK).sum(dim=1)  # a sum of large ones would be infinite
        if short:
            means[-1] *= BLOCK / (BLOCK - short)
        # cut off, and not rounded, so that a magnitude is never above the mean: no loss grows
        magnitudes = means.view(torch.int32).bitwise_and_(-(2**16)).view(torch.float32)
        flags = (whole < 0).view(torch.int64)
        signs = flags.mul_(_PACK).bitwise_right_shift_(56).to(BYTE)
        return torch.cat([magnitudes.to(torch.bfloat16).view(BYTE), signs])

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Codec``."""
        require_length(payload, self.size_bytes(numbers), numbers)
        blocks = math.ceil(numbers / BLOCK)
        magnitudes = viewed(payload[: 2 * blocks], torch.bfloat16).to(torch.float32)
        values = _patterns(payload.device).index_select(0, payload[2 * blocks :].to(torch.int32))
        values.view(-1, BLOCK).mul_(magnitudes.unsqueeze(1))
        return values.view(-1)[:numbers]


def _patterns(device: torch.device) -> Tensor:
    """Return the signs, -1 and 1, that each of the 256 bytes stands for, fp32 ``[256, 8]``."""
    places = torch.arange(8, device=device)
    return 1.0 - 2.0 * (torch.arange(256, device=device).unsqueeze(1) >> places & 1)
