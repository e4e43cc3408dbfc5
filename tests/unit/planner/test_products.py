"""Seconds of matrix products: tiles, waves, alignment and the roofline, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.planner.step_cases import IDEAL, MACHINE, case

from gridloom.planner.constants import Constants
from gridloom.planner.products import (
    Rates,
    aligned_share,
    forward_and_backward_s,
    product_s,
    rates,
    tile_share,
)

CONSTANTS = Constants(
    middle_tile_share=0.9, small_tile_share=0.7, unaligned_64_share=0.8, unaligned_8_share=0.4
)
RATE = Rates(
    products=1e14,
    attention=1e14,
    memory=1e12,
    units=108,
    weight_bytes=2.0,
    operand_bytes=2.0,
)
UNLIMITED = replace(RATE, units=0)


# --- rates


@pytest.mark.parametrize(
    ("plan", "products", "operand", "weight"),
    [
        ({"precision": "fp32"}, 1e14 * 0.5, 4, 4),
        ({"precision": "fp16"}, 4e14 * 0.5, 2, 2),
        ({"precision": "bf16"}, 4e14 * 0.5, 2, 2),
        ({"precision": "bf16_pure"}, 4e14 * 0.5, 2, 2),
        ({"precision": "fp8"}, 8e14 * 0.4, 1, 2),
        ({"precision": "fp8_rowwise"}, 8e14 * 0.4 * 0.6, 1, 2),
    ],
)
def test_rates_by_precision(
    plan: dict[str, Any], products: float, operand: int, weight: int
) -> None:
    constants = Constants(
        matrix_share=0.5,
        matrix_share_8=0.4,
        row_scale_share=0.6,
        attention_share=0.3,
        hbm_share=0.9,
    )
    found = rates(case(**plan), constants)
    assert float(found.products) == pytest.approx(products)
    assert float(found.attention) == pytest.approx(4e14 * 0.3)
    assert float(found.memory) == pytest.approx(2e12 * 0.9)
    assert (float(found.operand_bytes), float(found.weight_bytes)) == (operand, weight)
    assert found.units == MACHINE.units


# --- tiles


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        # 32 x 21 tiles of 128 x 256 are 7 waves of 108; 13 and 25 waves of smaller ones lose more
        (4096, 5376, 672 / 756),
        # 8 x 4 tiles leave 76 idle, 8 x 8 leave 44; 16 x 8 take two waves for 128 of 216
        (1024, 1024, 0.9 * 64 / 108),
        # exactly one wave
        (1152, 3072, 1.0),
        # one tile more than a wave: 9 x 13 = 117 of 216, 234 of 324, and 468 of 540 small ones
        (1152, 3328, max(117 / 216, 0.9 * 234 / 324, 0.7 * 468 / 540)),
    ],
)
def test_waves_over_the_units(m: int, n: int, expected: float) -> None:
    assert float(tile_share(RATE, CONSTANTS, m, n)) == pytest.approx(expected)


def test_middle_tiles_win_where_the_last_wave_of_large_ones_is_empty() -> None:
    # 109 large tiles: two waves for one more; 218 middle ones: three waves of which two are full
    rows, columns = 109 * 128, 256
    large, middle = 109 / 216, 0.9 * 218 / 324
    small = 0.7 * 436 / 540
    assert middle > max(large, small)
    assert float(tile_share(RATE, CONSTANTS, rows, columns)) == pytest.approx(middle)


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (128, 256, 1.0),
        (256, 512, 1.0),
        (128, 128, 0.9),  # half of a large tile, or all of a middle one
        (64, 128, 0.7),
        (1, 1, 0.7 / (64 * 128)),
        (129, 256, 129 / 256),  # a second row of tiles for one row of numbers
        (192, 256, 0.75),
        (192, 128, 0.7),  # three small tiles are full, two middle ones three quarters
    ],
)
def test_padding_where_waves_do_not_matter(m: int, n: int, expected: float) -> None:
    assert float(tile_share(UNLIMITED, CONSTANTS, m, n)) == pytest.approx(expected)


def test_a_batch_of_products_fills_waves_together() -> None:
    alone = tile_share(RATE, CONSTANTS, 512, 256)
    together = tile_share(RATE, CONSTANTS, 512, 256, 27)
    assert float(alone) == pytest.approx(max(4 / 108, 0.9 * 8 / 108, 0.7 * 16 / 108))
    assert float(together) == pytest.approx(1.0)


# --- alignment


@pytest.mark.parametrize(
    ("n", "k", "share"),
    [
        (4096, 4096, 1.0),
        (64, 128, 1.0),
        (4104, 4096, 0.8),
        (4096, 4104, 0.8),
        (32, 64, 0.8),
        (4097, 4096, 0.4),
        (4096, 4097, 0.4),
        (50257, 1600, 0.4),
        (4104, 4097, 0.4),
    ],
)
def test_alignment(n: int, k: int, share: float) -> None:
    assert float(aligned_share(CONSTANTS, n, k)) == share


def test_an_unaligned_product_takes_longer_by_its_share() -> None:
    free = replace(IDEAL, unaligned_64_share=0.8, unaligned_8_share=0.4)
    rate = replace(UNLIMITED, memory=np.inf)
    # Rows are never what is misaligned.
    flops = 2.0 * 4096 * 4096
    for k, share in ((4096, 1.0), (4104, 0.8), (4097, 0.4)):
        assert float(product_s(rate, free, (4096, 4096, k))) == pytest.approx(
            flops * k / 1e14 / share
        )
    assert float(product_s(rate, free, (8192 + 128, 4096, 4096))) == pytest.approx(
        2.0 * 8320 * 4096 * 4096 / 1e14
    )


# --- the roofline


def test_a_large_product_tends_to_the_peak() -> None:
    n = 2**17
    found = float(product_s(RATE, Constants(), (n, n, n)))
    assert found == pytest.approx(2.0 * n**3 / 1e14, rel=0.005)
    assert found > 2.0 * n**3 / 1e14


def test_a_product_with_few_rows_is_bound_by_memory() -> None:
    # One row: the matrix is read once, and the arithmetic is nothing beside it.
    found = float(product_s(replace(RATE, units=0), IDEAL, (1, 16384, 16384)))
    moved = 2.0 * (16384 + 16384**2 + 16384) / 1e12
    padded = 2.0 * 16384**2 * 64 / 1e14
    assert found == pytest.approx((moved**2 + padded**2) ** 0.5)
    assert found == pytest.approx(moved, rel=0.25)
    slower = float(product_s(replace(RATE, units=0, memory=1e11), IDEAL, (1, 16384, 16384)))
    assert slower == pytest.approx(10 * moved, rel=0.01)


def test_a_shallow_product_is_half_as_fast_at_the_half_depth() -> None:
    rate = replace(UNLIMITED, memory=np.inf)
    shallow = replace(IDEAL, depth_half=128.0)
    ideal = 2.0 * 4096 * 4096 * 128 / 1e14
    assert float(product_s(rate, shallow, (4096, 4096, 128))) == pytest.approx(2 * ideal)
    assert float(product_s(rate, shallow, (4096, 4096, 384))) == pytest.approx(3 * ideal * 4 / 3)


def test_outputs_are_written_in_16_bits_whatever_the_operands() -> None:
    rate = replace(UNLIMITED, products=np.inf, operand_bytes=1.0)
    found = float(product_s(rate, IDEAL, (512, 1024, 2048)))
    assert found == pytest.approx((512 * 2048 + 2048 * 1024 + 2 * 512 * 1024) / 1e12)


def test_many_products_take_their_number_but_start_once() -> None:
    constants = replace(IDEAL, kernel_s=5e-6)
    one = float(product_s(UNLIMITED, constants, (256, 256, 256))) - 5e-6
    many = float(product_s(UNLIMITED, constants, (256, 256, 256), 10)) - 5e-6
    assert many == pytest.approx(10 * one)


def test_a_linear_layers_backward_is_two_products() -> None:
    size = (2048.0, 4096.0, 1024.0)
    forward, backward = forward_and_backward_s(RATE, CONSTANTS, size)
    m, n, k = size
    assert forward == product_s(RATE, CONSTANTS, (m, n, k))
    of_inputs = product_s(RATE, CONSTANTS, (m, k, n))
    of_weights = product_s(RATE, CONSTANTS, (k, n, m))
    assert backward == of_inputs + of_weights
    flat = replace(UNLIMITED, memory=np.inf)
    forward, backward = forward_and_backward_s(flat, IDEAL, size, 3)
    assert float(backward) == pytest.approx(2 * float(forward))


def test_a_table_of_products_is_computed_as_each_of_them() -> None:
    sizes = [(4096, 5376, 1024), (1, 16384, 16384), (2048, 50257, 1600), (128, 128, 4104)]
    m, n, k = (np.array(column, dtype=float) for column in zip(*sizes, strict=True))
    together = product_s(RATE, CONSTANTS, (m, n, k), np.array([1.0, 2.0, 3.0, 4.0]))
    each = [
        float(product_s(RATE, CONSTANTS, size, count)) for count, size in enumerate(sizes, start=1)
    ]
    assert np.allclose(together, each, rtol=1e-12)
