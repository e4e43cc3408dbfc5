"""What rows of measured runs say of machines, step times and memory."""

import pytest
from tests.unit.planner.published_rows import run

from gridloom.planner.flops import flops_per_token

# --- the machine


@pytest.mark.parametrize(
    ("cells", "node"),
    [
        ({"n_gpus": "128", "nodes": "16"}, 8),
        ({"nodes": "1"}, 0),  # one node: the maker's usual machine
        ({"nodes": ""}, 0),
        ({"nodes": "32"}, 4),
        ({"nodes": "12"}, 11),
        ({"gpu": "GB200", "nodes": "16"}, 0),  # its domain is a rack, whatever a node is
    ],
)
def test_devices_of_a_node(cells: dict[str, str], node: int) -> None:
    assert run(**cells).fabric.node == node


@pytest.mark.parametrize(
    ("interconnect", "gigabytes_per_s"),
    [
        ("", 0.0),
        ("InfiniBand", 0.0),
        ("8x HDR 200 Gb/s per node", 25.0),
        ("4x OPA 100 Gb per node", 0.58 * 6.25),
        ("NVLink3 in node, 4x Omni-Path 100 Gb/s per node", 0.58 * 6.25),
        ("800 Gb/s per node", 12.5),
        ("100 Gb/s inter-node", 1.5625),
        ("400 Gb/s per GPU", 50.0),
        ("200 Gb/s InfiniBand per GPU", 25.0),
        ("NVLink3 + HDR200 InfiniBand", 25.0),
        ("NDR400", 50.0),
        ("8x400 Gb/s", 50.0),
    ],
)
def test_words_for_a_network(interconnect: str, gigabytes_per_s: float) -> None:
    found = run(interconnect=interconnect).fabric.network_bytes_per_s
    assert found == pytest.approx(gigabytes_per_s * 1e9)
    noted = run(notes=interconnect).fabric.network_bytes_per_s
    assert noted == found


@pytest.mark.parametrize(
    ("source", "notes", "share"),
    [
        ("bigscience", "date 02-17", 0.5),
        ("bigscience", "memory is a snapshot; date 02-24", 0.5),
        ("bigscience", "date 02-25; heads not stated", 1.0),
        ("bigscience", "date 03-02", 1.0),
        ("bigscience", "", 1.0),
        ("a paper", "date 02-17", 1.0),
    ],
)
def test_half_of_bigsciences_interfaces_until_nodes_were_set_up_well(
    source: str, notes: str, share: float
) -> None:
    found = run(source=source, notes=notes, interconnect="4x Omni-Path 100 Gb/s per node").fabric
    assert found.network_bytes_per_s == pytest.approx(share * 0.58 * 6.25e9)
    assert found.node == 8


def test_a_node_without_a_stated_size_has_eight_interfaces() -> None:
    assert run(nodes="", interconnect="800 Gb/s per node").fabric.network_bytes_per_s == 12.5e9


# --- what was measured


TOKENS = 512 * 2048


def test_a_step_from_tokens_a_second() -> None:
    found = run(measured_step_time_s="", tokens_per_s_per_gpu="2000")
    assert found.step_s == pytest.approx(TOKENS / (2000 * 128))


@pytest.mark.parametrize(
    ("cells", "share"),
    [
        ({}, 1.0),
        ({"act_ckpt": "full", "flops_convention": "hardware flops incl. recomputation"}, 4 / 3),
        ({"act_ckpt": "none", "flops_convention": "hardware flops incl. recomputation"}, 1.0),
        ({"act_ckpt": "full", "flops_convention": "model flops"}, 1.0),
    ],
)
def test_a_step_from_flops_a_second(cells: dict[str, str], share: float) -> None:
    found = run(measured_step_time_s="", measured_TFLOPs_per_gpu="150", **cells)
    flops = TOKENS * flops_per_token(found.model, 2048)
    assert found.step_s == pytest.approx(share * flops / (150e12 * 128))


def test_a_run_that_was_not_timed_has_no_step() -> None:
    assert run(measured_step_time_s="").step_s == 0.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("3.5", 3.5), ("about 12 s", 12.0), ("1.5e-1", 0.15), ("n/a", 0.0)]
)
def test_the_first_number_of_a_cell_counts(text: str, seconds: float) -> None:
    assert run(measured_step_time_s=text).step_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("cells", "memory_bytes"),
    [
        ({}, 0.0),
        ({"peak_memory_GB": "55.5"}, 55.5e9),
        ({"peak_memory_GB": "55.5", "kind": "measured", "value": "1", "unit": "GB"}, 55.5e9),
        ({"kind": "measured peak", "value": "55.5", "unit": "GB"}, 55.5e9),
        ({"kind": "measured peak", "value": "55.5", "unit": "GiB"}, 55.5 * 2**30),
        ({"kind": "measured peak", "value": "4096", "unit": "MiB per GPU"}, 4096 * 2**20),
        ({"kind": "measured peak", "value": "123456", "unit": "bytes"}, 123456.0),
        ({"kind": "measured peak", "value": "3", "unit": "apples"}, 0.0),
        ({"kind": "measured peak", "value": "3", "unit": ""}, 0.0),
        ({"value": "55.5", "unit": "GB"}, 0.0),  # a table of runs, whose value is no memory
    ],
)
def test_measured_memory(cells: dict[str, str], memory_bytes: float) -> None:
    assert run(**cells).memory_bytes == pytest.approx(memory_bytes)


@pytest.mark.parametrize(
    ("cells", "counter"),
    [
        ({}, "reserved"),
        ({"counter": "max_memory_reserved"}, "reserved"),
        ({"counter": "max_memory_allocated"}, "allocated"),
        ({"counter": "peak active"}, "allocated"),
        ({"counter": "nvidia-smi"}, "device"),
        ({"source": "bigscience chronicles"}, "device"),
    ],
)
def test_what_was_counted(cells: dict[str, str], counter: str) -> None:
    assert run(**cells).counter == counter


@pytest.mark.parametrize(
    "cells",
    [
        {"completeness": "OOM"},
        {"step_time_or_throughput": "OOM by 3 GB"},
        {"step_time_or_throughput": "OOM"},
        {"value": "OOM rank 0"},
    ],
)
def test_a_run_that_ran_out_has_no_peak(cells: dict[str, str]) -> None:
    found = run(peak_memory_GB="80", **cells)
    assert found.grade == "OOM"
    assert found.memory_bytes == 0.0


def test_a_row_that_mentions_running_out_in_passing_did_not() -> None:
    assert run(step_time_or_throughput="3.5 s (OOM at 8)").grade == "A"


@pytest.mark.parametrize(
    ("cell", "seconds"), [("1,024.5", 1024.5), (".5", 0.5), ("3.", 3.0), ("about 2e1 s", 20.0)]
)
def test_numbers_as_people_write_them(cell: str, seconds: float) -> None:
    assert run(measured_step_time_s=cell).step_s == seconds
