"""Seconds of matrix products: roofline, tiles over multiprocessors, and alignment of dimensions."""

from dataclasses import dataclass

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants

TILES = ((128.0, 256.0), (128.0, 128.0), (64.0, 128.0))
"""Rows and columns of the output tiles that a library chooses from."""


@dataclass(frozen=True)
class Rates:
    """What a device reaches at best, in flop/s and bytes/s, and the sizes of numbers in bytes."""

    products: Column
    attention: Column
    memory: Column
    units: Column
    weight_bytes: Column
    operand_bytes: Column


def rates(cases: Cases, constants: Constants) -> Rates:
    """Return the rates of each case."""
    plan, machine = cases.plan, cases.machine
    bits = plan.matrix_bits
    wide = np.where(bits == 16, machine.flops_16, machine.flops_32) * constants.matrix_share
    narrow = machine.flops_8 * constants.matrix_share_8
    narrow = np.where(plan.row_scales == 1, narrow * constants.row_scale_share, narrow)
    return Rates(
        products=np.where(bits == 8, narrow, wide),
        attention=machine.flops_16 * constants.attention_share,
        memory=machine.hbm_bytes_per_s * constants.hbm_share,
        units=machine.units,
        weight_bytes=np.where(plan.weight_bits == 32, 4.0, 2.0),
        operand_bytes=bits / 8,
    )


def product_s(
    rate: Rates,
    constants: Constants,
    size: tuple[Column, Column, Column],
    count: Column = 1.0,
) -> Column:
    """Return the seconds of ``count`` products of ``m x k`` by ``k x n``; ``size``: ``(m, n, k)``.

    Flops at the reached rate, divided by the share of it that tiles and alignment leave, and beside
    them the traffic of the operands: the two overlap, so that the longer one counts (roofline), in
    a smooth maximum.
    """
    m, n, k = size
    flops = 2.0 * m * n * k
    filled = tile_share(rate, constants, m, n, count) * aligned_share(constants, n, k)
    deep = k / (k + constants.depth_half)
    busy = flops / (rate.products * filled * deep)
    moved = (rate.operand_bytes * (m * k + k * n) + 2.0 * m * n) / rate.memory
    return count * ((busy**2 + moved**2) ** 0.5) + constants.kernel_s


def tile_share(
    rate: Rates, constants: Constants, m: Column, n: Column, count: Column = 1.0
) -> Column:
    """Return the share of its rate that a product reaches: padding of tiles, and the last wave.

    ``ceil(m / tm) ceil(n / tn)`` tiles go out to the multiprocessors in waves; the last is seldom
    full. A library picks the tile that does best; smaller tiles reach less at their best.
    """
    best: Column = 0.0
    for (rows, columns), at_best in zip(
        TILES, (1.0, constants.middle_tile_share, constants.small_tile_share), strict=True
    ):
        across = np.ceil(m / rows) * np.ceil(n / columns)
        padding = m * n / (across * rows * columns)
        tiles = across * count
        units = np.maximum(rate.units, 1.0)
        wave = np.where(rate.units > 0, tiles / (np.ceil(tiles / units) * units), 1.0)
        best = np.maximum(best, at_best * padding * wave)
    return best


def aligned_share(constants: Constants, n: Column, k: Column) -> Column:
    """Return the share left when rows do not start at the boundaries that the units want."""
    worst_64 = (np.mod(n, 64.0) > 0) | (np.mod(k, 64.0) > 0)
    worst_8 = (np.mod(n, 8.0) > 0) | (np.mod(k, 8.0) > 0)
    return np.where(
        worst_8, constants.unaligned_8_share, np.where(worst_64, constants.unaligned_64_share, 1.0)
    )


def forward_and_backward_s(
    rate: Rates, constants: Constants, size: tuple[Column, Column, Column], count: Column = 1.0
) -> tuple[Column, Column]:
    """Return the seconds of a linear layer: its product, and those for its two gradients."""
    m, n, k = size
    forward = product_s(rate, constants, (m, n, k), count)
    backward = product_s(rate, constants, (m, k, n), count) + product_s(
        rate, constants, (k, n, m), count
    )
    return forward, backward
