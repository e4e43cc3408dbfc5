"""What a training step does to parameters: exchange, ZeRO, offload and update, by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.planner.step_cases import DENSE, FREE, MIXTURE, between_sites, case

from gridloom.planner.activations import kept
from gridloom.planner.cases import Cases, stack
from gridloom.planner.communication import ring_s
from gridloom.planner.constants import Constants
from gridloom.planner.data_parallel import (
    GATHERED_TENSORS,
    Held,
    Room,
    accumulate_s,
    between_sites_s,
    exchange_s,
    held,
    offload_s,
    update_s,
)
from gridloom.planner.models.parameters import count_parameters

# Bandwidth alone: nothing hides, and no step around a ring takes time of its own.
CONSTANTS = replace(
    FREE,
    scaleup_share=0.5,
    network_share=0.8,
    data_hidden=0.0,
    data_interference=0.0,
    hbm_share=0.5,
    accumulate_passes=1.0,
    update_passes=1.5,
)
NONE = Room(forward=0.0, backward=0.0, micro_batches=1.0)
WEIGHTS = Held(dense=1e9, routed=0.0, model=1e9)
SPREAD = Held(dense=1e9, routed=8e9, model=64e9)


def exposed(cases: Cases, room: Room = NONE, weights: Held = WEIGHTS, **constants: Any) -> float:
    return float(exchange_s(cases, replace(CONSTANTS, **constants), weights, room))


def ring(cases: Cases, ranks: int, stride: int, whole_bytes: float) -> float:
    return float(ring_s(cases, CONSTANTS, ranks, stride, whole_bytes))


# --- held


def test_one_rank_holds_the_model() -> None:
    found = held(case(DENSE))
    total = float(count_parameters(DENSE).total)
    assert float(found.dense) == pytest.approx(total - 4096)  # but for the last norm
    assert float(found.model) == float(found.dense)
    assert float(found.routed) == 0.0


@pytest.mark.parametrize("tied", [False, True])
def test_a_stage_holds_one_table(tied: bool) -> None:
    model = msgspec.structs.replace(DENSE, tied=tied)
    counted = count_parameters(model)
    layers = float(counted.attention + counted.ffn) + 32 * 2 * 4096
    table = 65536 * 4096
    found = held(case(model, pipeline=4, tensor=2))
    assert float(found.dense) == pytest.approx((layers / 4 + table) / 2)
    assert float(found.model) == pytest.approx(layers + table * (1 if tied else 2))


def test_experts_are_spread() -> None:
    counted = count_parameters(MIXTURE)
    found = held(case(MIXTURE, data=8, expert=8, pipeline=2))
    assert float(found.routed) == pytest.approx(float(counted.routed_experts) / 8 / 2)
    shared = held(case(MIXTURE, tensor=2, data=8, expert=8, expert_tensor=2))
    assert float(shared.routed) == pytest.approx(float(counted.routed_experts) / 16)
    rest = float(counted.total - counted.routed_experts) - 2048
    assert float(held(case(MIXTURE)).dense) == pytest.approx(rest)


# --- exchange


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_single_rank_exchanges_nothing(zero: int) -> None:
    assert exposed(case(zero=zero), ring_latency_s=1.0, tensor_latency_s=1.0) == 0.0


def test_gradients_are_reduced_and_gathered_once_a_step() -> None:
    cases = case(data=8, zero=0)
    assert exposed(cases) == pytest.approx(2 * 7 / 8 * 4e9 / 200e9)
    # However many micro-batches are summed first.
    many = Room(forward=0.0, backward=0.0, micro_batches=16.0)
    assert exposed(cases, many) == exposed(cases)


@pytest.mark.parametrize("zero", [1, 2])
def test_zero_1_and_2_scatter_gradients_and_gather_parameters(zero: int) -> None:
    cases = case(data=8, zero=zero)
    assert exposed(cases) == pytest.approx(7 / 8 * (4e9 + 2e9) / 200e9)
    many = Room(forward=0.0, backward=0.0, micro_batches=16.0)
    # ZeRO-2 keeps no more than its shard of the sums: it scatters each micro-batch's gradients.
    scatters = 1 if zero == 1 else 16
    assert exposed(cases, many) == pytest.approx(7 / 8 * (scatters * 4e9 + 2e9) / 200e9)


def test_zero_3_gathers_twice_and_reduces_once_a_micro_batch() -> None:
    cases = case(data=8, zero=3)
    once = 7 / 8 * (2 * 2e9 + 2e9) / 200e9
    assert exposed(cases) == pytest.approx(once)
    many = Room(forward=0.0, backward=0.0, micro_batches=16.0)
    assert exposed(cases, many) == pytest.approx(16 * once)


@pytest.mark.parametrize(
    ("plan", "width"),
    [
        ({}, 4),  # bf16 gradients are summed in fp32
        ({"precision": "fp16"}, 2),
        ({"precision": "fp32"}, 4),
        ({"precision": "bf16_pure"}, 2),
        ({"precision": "fp8"}, 4),
        ({"gradient_bytes": 2}, 2),
        ({"gradient_bytes": 6}, 4),  # the fp32 sum beside the bf16 gradient goes out
        ({"reduce_bytes": 2}, 2),
        ({"reduce_bytes": 8}, 8),
    ],
)
def test_bytes_of_a_gradient(plan: dict[str, Any], width: int) -> None:
    assert exposed(case(data=8, **plan)) == pytest.approx(2 * 7 / 8 * width * 1e9 / 200e9)


@pytest.mark.parametrize(
    ("plan", "reduced"),
    [({}, 2), ({"precision": "fp32"}, 4), ({"reduce_bytes": 4}, 4), ({"gradient_bytes": 4}, 2)],
)
def test_bytes_of_a_gradient_under_zero_3(plan: dict[str, Any], reduced: int) -> None:
    gathered = 4 if plan.get("precision") == "fp32" else 2
    moved = (2 * gathered + reduced) * 1e9
    assert exposed(case(data=8, zero=3, **plan)) == pytest.approx(7 / 8 * moved / 200e9)


def test_context_ranks_hold_the_same_parameters() -> None:
    assert exposed(case(data=2, context=4)) == pytest.approx(exposed(case(data=8)))


def test_tensor_ranks_stand_between_data_ranks() -> None:
    cases = case(tensor=8, data=4)
    assert exposed(cases) == pytest.approx(2 * 3 / 4 * 4e9 / 40e9)


def test_experts_are_reduced_over_the_ranks_that_hold_the_same_ones() -> None:
    cases = case(MIXTURE, data=64, expert=8)
    expected = 2 * ring(cases, 64, 1, 4e9) + 2 * ring(cases, 8, 8, 4 * 8e9)
    assert exposed(cases, weights=SPREAD) == pytest.approx(expected)
    alone = case(MIXTURE, data=8, expert=8)
    assert exposed(alone, weights=SPREAD) == pytest.approx(2 * ring(alone, 8, 1, 4e9))


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_hybrid_shard_gathers_inside_and_reduces_across(zero: int) -> None:
    cases = case(data=64, zero=zero, shard=8)
    width = 2 if zero == 3 else 4
    gathers = 2 if zero == 3 else 1
    inside = ring(cases, 8, 1, 2e9)
    across = 2 * ring(cases, 8, 8, width * 1e9 / 8)
    expected = gathers * inside + inside * width / 2 + across
    assert exposed(cases) == pytest.approx(expected)


def test_a_shard_group_of_all_ranks_is_no_hybrid() -> None:
    whole, same = case(data=64, zero=3), case(data=64, zero=3, shard=64)
    assert exposed(whole) == exposed(same)
    # Without ZeRO nothing is sharded, whatever the group.
    assert exposed(case(data=64, shard=8)) == exposed(case(data=64))


# --- latency of gathering


def test_zero_3_waits_for_each_layer_around_the_ring() -> None:
    plan: dict[str, Any] = {"data": 8, "zero": 3, "pipeline": 2}
    free = exposed(case(**plan))
    waits = exposed(case(**plan), ring_latency_s=1e-5, tensor_latency_s=1.0)
    stall = 1e-5 * 16 * 7
    assert waits - free == pytest.approx(3 * stall)


@pytest.mark.parametrize(
    ("gather_unit", "prefetch", "step"),
    [
        ("tensor", False, 12 * 1e-4),
        ("tensor", True, 1e-5),
        ("layer", False, 1e-5),
        ("layer", True, 1e-5),
    ],
)
def test_tensor_by_tensor_waits_more_unless_gathered_ahead(
    gather_unit: str, prefetch: bool, step: float
) -> None:
    assert GATHERED_TENSORS == 12
    cases = case(data=8, zero=3, gather_unit=gather_unit, overlap_parameters=prefetch)
    waits = exposed(cases, ring_latency_s=1e-5, tensor_latency_s=1e-4)
    assert waits - exposed(cases) == pytest.approx(3 * step * 32 * 7)


def test_zero_1_does_not_wait_by_layer() -> None:
    cases = case(data=8, zero=1)
    assert exposed(cases, ring_latency_s=1.0) == exposed(cases)


# --- overlap


def test_gradients_hide_behind_the_backward() -> None:
    moved = 2 * 7 / 8 * 4e9 / 200e9
    plenty = Room(forward=0.0, backward=10.0, micro_batches=4.0)
    hidden: dict[str, Any] = {"data_hidden": 0.8, "data_interference": 0.25}
    assert exposed(case(data=8), plenty, **hidden) == pytest.approx(0.25 * moved)
    apart = case(data=8, overlap_gradients=False)
    assert exposed(apart, plenty, **hidden) == pytest.approx(moved)
    little = Room(forward=10.0, backward=moved / 2, micro_batches=4.0)
    under = 0.8 * moved / 2
    assert exposed(case(data=8), little, **hidden) == pytest.approx(moved - 0.75 * under)


def test_parameters_hide_behind_the_forward() -> None:
    gathered, scattered = 7 / 8 * 2e9 / 200e9, 7 / 8 * 4e9 / 200e9
    room = Room(forward=10.0, backward=0.0, micro_batches=1.0)
    ahead = case(data=8, zero=1)
    hidden: dict[str, Any] = {"data_hidden": 1.0}
    assert exposed(ahead, room, **hidden) == pytest.approx(scattered)
    waits = case(data=8, zero=1, overlap_parameters=False)
    assert exposed(waits, room, **hidden) == pytest.approx(scattered + gathered)


def test_zero_3_gathers_half_in_the_backward() -> None:
    gather = 7 / 8 * 2e9 / 200e9
    hidden: dict[str, Any] = {"data_hidden": 1.0}
    forward = Room(forward=gather, backward=0.0, micro_batches=5.0)
    assert exposed(case(data=8, zero=3), forward, **hidden) == pytest.approx(5 * 2 * gather)
    backward = Room(forward=0.0, backward=2 * gather, micro_batches=5.0)
    assert exposed(case(data=8, zero=3), backward, **hidden) == pytest.approx(5 * gather)


# --- between sites


def test_sites_exchange_the_whole_model() -> None:
    machine = {"sites": 4, "wan_bytes_per_s": 1.25e9, "wan_latency_s": 0.02}
    cases = case(data=8, machine=machine)
    found = float(between_sites_s(cases, WEIGHTS))
    assert found == pytest.approx(1.5 * 4e9 / 1.25e9 + 6 * 0.02)
    assert float(between_sites_s(case(data=8), WEIGHTS)) == 0.0


@pytest.mark.parametrize(("every", "bits", "share"), [(1, 16, 0.5), (50, 32, 1 / 50), (50, 4, 0)])
def test_fewer_and_smaller_exchanges(every: int, bits: int, share: float) -> None:
    machine = {"sites": 2, "wan_bytes_per_s": 1e9}
    plain = float(between_sites_s(case(machine=machine), WEIGHTS))
    rare = case(machine=machine, site_sync=between_sites(every, bits))
    expected = plain * (share or 4 / 32 / 50)
    assert float(between_sites_s(rare, WEIGHTS)) == pytest.approx(expected)


# --- sums, updates


@pytest.mark.parametrize(("zero", "width"), [(0, 8), (1, 8), (2, 8), (3, 4)])
def test_gradients_of_each_micro_batch_are_summed(zero: int, width: int) -> None:
    found = float(accumulate_s(case(data=8, zero=zero), CONSTANTS, SPREAD))
    assert found == pytest.approx(9e9 * width / 1e12)


@pytest.mark.parametrize(
    ("plan", "state"),
    [
        ({}, 16),  # moments, master weights, gradients
        ({"precision": "fp32"}, 12),
        ({"precision": "bf16_pure"}, 8),
        ({"optimizer": "adamw_8bit"}, 2.03125 + 8),
        ({"optimizer": "sgd"}, 12),
    ],
)
def test_the_optimizer_reads_and_writes_its_state(plan: dict[str, Any], state: float) -> None:
    found = float(update_s(case(**plan), CONSTANTS, WEIGHTS))
    assert found == pytest.approx(1e9 * state * 2 * 1.5 / 1e12)


@pytest.mark.parametrize(
    ("plan", "mine"),
    [
        ({"data": 8}, 9e9),
        ({"data": 8, "zero": 1}, 9e9 / 8),
        ({"data": 64, "zero": 3, "shard": 8}, 9e9 / 8),
        # 64 shard ranks, of which 8 hold the same experts
        ({"data": 64, "zero": 1, "expert": 8}, 1e9 / 64 + 8e9 / 8),
        ({"data": 8, "zero": 1, "expert": 8}, 1e9 / 8 + 8e9),
        ({"tensor": 2, "data": 8, "zero": 1, "expert": 8}, 1e9 / 8 + 8e9 / 2),
    ],
)
def test_ranks_update_their_shard(plan: dict[str, Any], mine: float) -> None:
    found = float(update_s(case(MIXTURE, **plan), CONSTANTS, SPREAD))
    assert found == pytest.approx(mine * 16 * 2 * 1.5 / 1e12)


def test_muon_multiplies_matrices() -> None:
    constants = replace(CONSTANTS, matrix_share=0.5)
    found = float(update_s(case(optimizer="muon"), constants, WEIGHTS))
    products = 1e9 * 6 * 5 * 4096 / (4e14 * 0.5)
    assert found == pytest.approx(1e9 * 12 * 2 * 1.5 / 1e12 + products)


# --- offload


@pytest.mark.parametrize(
    ("plan", "moved"),
    [
        ({"offload": ("optimizer",)}, 9e9 * 6),
        ({"offload": ("optimizer",), "data": 8, "zero": 1}, 9e9 / 8 * 6),
        ({"offload": ("gradients",)}, 9e9 * 4 * 2 * 3),
        ({"offload": ("gradients",), "data": 8, "zero": 1}, 9e9 * 4 * 2 * 3),
        ({"offload": ("gradients",), "data": 8, "zero": 2}, 9e9 / 8 * 4 * 2 * 3),
        ({"offload": ("gradients",), "data": 8, "zero": 3}, 9e9 / 8 * 2 * 2 * 3),
        ({"offload": ("parameters",)}, 9e9 * 2 * 7),
        ({"offload": ("parameters",), "data": 8, "zero": 3}, 9e9 / 8 * 2 * 7),
        (
            {"offload": ("optimizer", "parameters"), "data": 8, "zero": 3},
            9e9 / 8 * (6 + 2 * 7),
        ),
    ],
)
def test_states_over_the_link_to_the_host(plan: dict[str, Any], moved: float) -> None:
    # Three micro-batches over 20 GB/s.
    assert float(offload_s(case(**plan), SPREAD, 3.0)) == pytest.approx(moved / 20e9)


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_activations_go_down_and_come_up(model: Any) -> None:
    cases = case(model, pipeline=2, offload=("activations",))
    layer = kept(cases)
    experts = model.expert_layers
    stage = experts * layer.of_experts() + (model.layers - experts) * layer.of_dense()
    expected = 3 * 2 * float(stage) / 2 / 20e9
    assert float(offload_s(cases, SPREAD, 3.0)) == pytest.approx(expected)


def test_nothing_offloaded_is_free() -> None:
    assert offload_s(case(), SPREAD, 3.0) == 0.0
    table = offload_s(stack([case(), case(offload=("optimizer",))]), SPREAD, 3.0)
    assert table[0] == 0.0
    assert table[1] > 0.0


# --- tables


def test_a_table_is_computed_as_each_of_its_cases() -> None:
    machine = {"sites": 2, "wan_bytes_per_s": 1e9, "leaf": 32, "spine_share": 0.5}
    each = [
        case(data=8, machine=machine),
        case(MIXTURE, data=16, expert=8, zero=1, offload=("optimizer", "activations")),
        case(data=64, zero=3, shard=8, gather_unit="tensor", overlap_parameters=False),
        case(MIXTURE, tensor=2, data=8, zero=2, expert=4, precision="fp8", optimizer="muon"),
    ]
    constants = Constants()

    def everything(cases: Cases) -> list[Any]:
        weights = held(cases)
        room = Room(forward=0.01, backward=0.02, micro_batches=4.0)
        return [
            accumulate_s(cases, constants, weights),
            exchange_s(cases, constants, weights, room),
            between_sites_s(cases, weights),
            update_s(cases, constants, weights),
            offload_s(cases, weights, 4.0),
        ]

    together = everything(stack(each))
    for index, one in enumerate(each):
        want = everything(one)
        assert np.allclose([column[index] for column in together], want, rtol=1e-12)
