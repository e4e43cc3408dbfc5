"""Machines in numbers: data sheets, fabrics, caps on power."""

import pytest

from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.hardware import AcceleratorType, Fabric, machine_columns
from gridloom.planner.memory_constants import CONTEXT_BYTES, GROUP_BYTES

PLAIN = AcceleratorType(
    name="plain",
    title="Plain",
    family="plain",
    flops_32=1e14,
    flops_16=2e14,
    flops_8=4e14,
    memory_bytes=64e9,
    hbm_bytes_per_s=1e12,
    node=4,
    scaleup_bytes_per_s=200e9,
    network_bytes_per_s=20e9,
    host_bytes_per_s=16e9,
    sharp=True,
    units=100,
)


def test_zeros_of_a_fabric_stand_for_the_makers_machine() -> None:
    found = machine_columns(PLAIN, Fabric())
    assert (found.node, found.scaleup_bytes_per_s, found.network_bytes_per_s) == (4, 200e9, 20e9)
    assert (found.leaf, found.spine_share) == (0, 1.0)
    assert (found.sites, found.wan_bytes_per_s, found.wan_latency_s) == (1, 0.0, 0.0)
    assert (found.sharp, found.units, found.host_bytes_per_s) == (1, 100, 16e9)


def test_a_fabrics_own_numbers_stand() -> None:
    fabric = Fabric(
        node=16,
        scaleup_bytes_per_s=1e9,
        network_bytes_per_s=2e9,
        leaf=32,
        spine_share=0.25,
        sites=3,
        wan_bytes_per_s=3e8,
        wan_latency_s=0.02,
    )
    found = machine_columns(PLAIN, fabric)
    assert (found.node, found.scaleup_bytes_per_s, found.network_bytes_per_s) == (16, 1e9, 2e9)
    assert (found.leaf, found.spine_share, found.sites) == (32, 0.25, 3)
    assert (found.wan_bytes_per_s, found.wan_latency_s) == (3e8, 0.02)


def test_without_8_bit_products_they_run_as_16_bit_ones() -> None:
    assert machine_columns(ACCELERATORS["a100"], Fabric()).flops_8 == 312e12
    assert machine_columns(ACCELERATORS["h100"], Fabric()).flops_8 == 1979e12


def test_an_eighth_of_the_power_halves_the_clock() -> None:
    capped = AcceleratorType(**{f: getattr(PLAIN, f) for f in PLAIN.__struct_fields__} | {
        "power_cap": 1 / 8,
    })  # fmt: skip
    full, half = machine_columns(PLAIN, Fabric()), machine_columns(capped, Fabric())
    for rate in ("flops_32", "flops_16", "flops_8"):
        assert getattr(half, rate) == pytest.approx(getattr(full, rate) / 2)
    assert half.hbm_bytes_per_s == full.hbm_bytes_per_s


def test_a_tpu_has_neither_context_nor_group_buffers() -> None:
    gpu = machine_columns(ACCELERATORS["h100"], Fabric())
    tpu = machine_columns(ACCELERATORS["tpu-v4"], Fabric())
    assert (gpu.context_bytes, gpu.group_bytes) == (CONTEXT_BYTES, GROUP_BYTES)
    assert (tpu.context_bytes, tpu.group_bytes) == (0.0, 0.0)
