"""What a device could do at its limit: the other side of MFU."""

import math

import torch

from gridloom.base.clock import Clock
from gridloom.planner.catalogue import find_accelerator
from gridloom.runtime.accelerator import device_name, laps, synchronize

_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_SIDE = {"cpu": 384}
_SIDE_USUAL = 4096
"""Rows of the square matrices: large enough for a device's best rate, small enough to be quick."""

_PRODUCTS, _GROUPS = 2, 5
"""Products that are timed together, and how often; the best time counts, for it is a peak."""

_LONG_S = 0.05
"""After so much time it is enough."""


def peak_flops(
    device: torch.device, precision: str, clock: Clock, told: float | None = None
) -> float:
    """Return the peak flop/s of matrix products; NaN where it is not wanted.

    It is what was told; else the data sheet's, where the planner's catalogue has the device (with
    fp32 that of TF32, as there); else what a few products reach here and now.

    Args:
        device: Whose.
        precision: Of the products: ``fp32``, ``bf16`` or ``fp16``.
        clock: The time.
        told: By the user; 0 for no figure.
    """
    if told is not None:
        return told or math.nan
    known = sheet_flops(device_name(device), precision)
    return measured_flops(device, precision, clock) if known is None else known


def sheet_flops(name: str, precision: str) -> float | None:
    """Return the peak flop/s in a device's data sheet, by the maker's name; ``None`` without."""
    known = find_accelerator(name)
    if known is None:
        return None
    return known.flops_32 if precision == "fp32" else known.flops_16


def measured_flops(device: torch.device, precision: str, clock: Clock) -> float:
    """Return the flop/s that a few products of square matrices reach on a device."""
    side = _SIDE.get(device.type, _SIDE_USUAL)
    draw = torch.Generator().manual_seed(0)  # zeros would draw less power, and be faster
    one, two = (
        torch.randn(side, side, generator=draw).to(device, _FORMATS[precision]) for _ in range(2)
    )
    found = one @ two  # the first one sets things up
    synchronize(device)
    lap, seconds = laps(device, clock), [math.inf]
    spent_s = 0.0
    while len(seconds) <= _GROUPS and spent_s < _LONG_S:
        lap()
        for _ in range(_PRODUCTS):
            torch.mm(one, two, out=found)
        over = lap()
        synchronize(device)
        seconds.append(over() or math.inf)
        spent_s += seconds[-1]
    return _PRODUCTS * 2.0 * side**3 / min(seconds)
