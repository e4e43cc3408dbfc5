"""What ranks exchange for a micro-batch: collectives counted and priced by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.planner.step_cases import DENSE, LATENT, MIXTURE, case

from gridloom.planner.activations import tokens
from gridloom.planner.cases import Cases, stack
from gridloom.planner.communication import all_to_all_s, hop_s, ring_s
from gridloom.planner.constants import Constants
from gridloom.planner.exchange import (
    context_s,
    expert_s,
    pipeline_s,
    stream_bytes,
    tensor_s,
)
from gridloom.planner.products import rates

CONSTANTS = Constants(
    scaleup_share=0.5,
    network_share=0.8,
    all_to_all_share=0.25,
    scaleup_latency_s=1e-6,
    network_latency_s=10e-6,
    tensor_hidden=0.4,
    data_hidden=0.5,
    data_interference=0.1,
    pipeline_exposed=0.25,
)
STREAM_BYTES = 4096 * 4096 * 2


# --- the residual stream


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, STREAM_BYTES),
        ({"precision": "fp32"}, 2 * STREAM_BYTES),
        ({"precision": "fp8"}, STREAM_BYTES),
        ({"micro_batch": 4}, 4 * STREAM_BYTES),
        ({"context": 4}, STREAM_BYTES / 4),
        ({"tensor": 8}, STREAM_BYTES),
    ],
)
def test_the_stream(plan: dict[str, Any], expected: float) -> None:
    assert float(stream_bytes(case(**plan))) == expected
    width = 4 if plan.get("precision") == "fp32" else 2
    assert float(tokens(case(**plan))) == expected / 4096 / width


# --- tensor ranks


def test_a_forward_has_four_collectives() -> None:
    cases = case(tensor=8)
    once = 7 / 8 * STREAM_BYTES / 200e9 + 7e-6
    assert float(tensor_s(cases, CONSTANTS)) == pytest.approx(4 * once)
    shared = case(tensor=8, sequence_parallel=True)
    assert float(tensor_s(shared, CONSTANTS)) == pytest.approx(4 * once)


def test_one_rank_needs_none() -> None:
    assert float(tensor_s(case(), CONSTANTS)) == 0.0
    assert float(tensor_s(case(machine={"sharp": 1}), CONSTANTS)) == 0.0


def test_tensor_ranks_across_domains_pay_the_network() -> None:
    found = float(tensor_s(case(tensor=16), CONSTANTS))
    assert found == pytest.approx(4 * (15 / 16 * STREAM_BYTES / 200e9 + 10e-6 + 7e-6))
    slow = float(tensor_s(case(tensor=16, machine={"network_bytes_per_s": 1e9}), CONSTANTS))
    assert slow == pytest.approx(4 * (15 / 16 * STREAM_BYTES / 6.4e9 + 10e-6 + 7e-6))


def test_overlap_hides_its_share() -> None:
    plain, hidden = (
        float(tensor_s(case(tensor=8, overlap_tensor=o), CONSTANTS)) for o in (False, True)
    )
    assert hidden == pytest.approx(0.6 * plain)


@pytest.mark.parametrize(("ranks", "share"), [(2, 1.0), (4, 5 / 6), (8, 9 / 14)])
def test_switches_that_reduce_shorten_an_all_reduce(ranks: int, share: float) -> None:
    # (n + 1) / n of the bytes instead of 2 (n - 1) / n
    plain, reduced = (
        float(tensor_s(case(tensor=ranks, machine={"sharp": s}), CONSTANTS)) for s in (0, 1)
    )
    assert reduced == pytest.approx(share * plain)


def test_switches_that_reduce_do_not_help_where_no_all_reduce_is() -> None:
    plans: list[dict[str, Any]] = [{"tensor": 8, "sequence_parallel": True}, {"tensor": 16}]
    for plan in plans:
        plain, reduced = (
            float(tensor_s(case(machine={"sharp": s}, **plan), CONSTANTS)) for s in (0, 1)
        )
        assert reduced == plain


# --- context ranks


def merged(heads: float, context: int, size: int = 128) -> float:
    """Return the seconds of merging blocks: forward and backward, each block but the first."""
    numbers = 2 * (context - 1) * (4096 / context) * heads * size
    return numbers * 12 / float(rates(case(), CONSTANTS).memory)


def ring(cases: Cases, heads: float = 32) -> float:
    """Return the exchange with nothing to hide it, beside merging blocks of ``heads``."""
    exposed, hidden = context_s(cases, CONSTANTS, 0.0)
    assert float(hidden) == 0.0
    return float(exposed) - merged(heads, int(cases.plan.context))


def ring_of_keys(width: int, context: int, stride: int) -> float:
    whole = 2.0 * 4096 * width
    cases = case()
    return 3 * float(ring_s(cases, CONSTANTS, context, stride, whole))


def test_keys_and_values_go_around_three_times() -> None:
    found = ring(case(context=4))
    assert found == pytest.approx(ring_of_keys(2 * 8 * 128, 4, 1))
    # 2 bytes of keys and values of all 4096 tokens
    by_hand = 3 * (3 / 4 * (2 * 4096 * 2 * 8 * 128) / 200e9 + 3e-6)
    assert found == pytest.approx(by_hand)


def test_tensor_ranks_share_the_key_heads_and_stand_between() -> None:
    found = ring(case(context=4, tensor=4), 8)
    assert found == pytest.approx(ring_of_keys(2 * 2 * 128, 4, 4))
    # One head at least: 16 tensor ranks share 8 key heads.
    found = ring(case(context=4, tensor=16), 2)
    assert found == pytest.approx(ring_of_keys(2 * 128, 4, 16))


def test_latent_attention_sends_heads_expanded() -> None:
    found = ring(case(LATENT, context=4))
    assert found == pytest.approx(ring_of_keys(32 * (128 + 64 + 128), 4, 1))


def test_merging_costs_more_the_more_blocks_there_are() -> None:
    quick = replace(CONSTANTS, scaleup_share=1e9, scaleup_latency_s=0.0)
    cases = [case(context=context) for context in (2, 4, 8)]
    costs = [float(context_s(one, quick, 0.0)[0]) for one in cases]
    # 2 x 3 of 4 blocks of 1024 tokens, 32 heads of 128, 12 bytes a number
    by_hand = 2 * 3 * 1024 * 32 * 128 * 12 / float(rates(case(), CONSTANTS).memory)
    assert costs[1] == pytest.approx(by_hand)
    assert costs == sorted(costs)


def test_attention_hides_the_ring() -> None:
    moved = ring(case(context=4))
    exposed, hidden = context_s(case(context=4), CONSTANTS, moved)
    assert float(exposed) - merged(32, 4) == pytest.approx(moved / 2)
    assert float(hidden) == pytest.approx(moved / 2)
    exposed, hidden = context_s(case(context=4), CONSTANTS, 10 * moved)
    assert float(exposed) - merged(32, 4) == pytest.approx(0.1 * moved)
    assert float(hidden) == pytest.approx(0.9 * moved)


def test_without_context_ranks_nothing_goes_around() -> None:
    assert context_s(case(), CONSTANTS, 1.0) == (0.0, 0.0)
    exposed, hidden = context_s(stack([case(), case(context=2)]), CONSTANTS, 1e-6)
    assert (exposed[0], hidden[0]) == (0.0, 0.0)
    assert exposed[1] > 0.0
    assert hidden[1] == pytest.approx(0.5e-6)


# --- expert ranks


def test_tokens_go_to_their_experts_and_back() -> None:
    found = float(expert_s(case(MIXTURE, data=8, expert=8), CONSTANTS))
    sent = 4096 * 8 * 2048 * 2
    assert found == pytest.approx(2 * (7 / 8 * sent / 100e9 + 1e-6))


def test_tensor_ranks_send_a_share_of_the_tokens_unless_they_share_experts() -> None:
    apart = case(MIXTURE, tensor=4, data=8, expert=8)
    each = 4096 * 2048 * 2
    expected = 2 * float(all_to_all_s(apart, CONSTANTS, 8, 1, (each / 4, 8)))
    assert float(expert_s(apart, CONSTANTS)) == pytest.approx(expected)
    together = case(MIXTURE, tensor=4, data=8, expert=8, expert_tensor=4)
    expected = 2 * float(all_to_all_s(together, CONSTANTS, 8, 4, (each, 8)))
    assert float(expert_s(together, CONSTANTS)) == pytest.approx(expected)


def test_experts_that_are_not_spread_receive_nothing() -> None:
    assert float(expert_s(case(MIXTURE, data=8), CONSTANTS)) == 0.0


# --- stages


@pytest.mark.parametrize(
    ("plan", "stride"), [({}, 1), ({"data": 8}, 8), ({"tensor": 2, "context": 2, "data": 2}, 8)]
)
def test_a_micro_batch_hops_forward_and_back(plan: dict[str, Any], stride: int) -> None:
    cases = case(pipeline=4, **plan)
    shared = plan.get("tensor", 1) * plan.get("context", 1)
    hop = float(hop_s(cases, CONSTANTS, stride, STREAM_BYTES / shared))
    rate = 200e9 if stride < 8 else 40e9
    latency = 1e-6 if stride < 8 else 10e-6
    assert hop == pytest.approx(STREAM_BYTES / shared / rate + latency)
    assert float(pipeline_s(cases, CONSTANTS)) == pytest.approx(2 * 0.25 * hop)


def test_chunks_hop_each() -> None:
    plain = float(pipeline_s(case(pipeline=4), CONSTANTS))
    chunks = case(pipeline=4, schedule="interleaved", virtual_stages=3)
    assert float(pipeline_s(chunks, CONSTANTS)) == pytest.approx(3 * plain)


def test_one_stage_hops_nowhere() -> None:
    assert float(pipeline_s(case(), CONSTANTS)) == 0.0


# --- tables


def test_a_table_is_computed_as_each_of_its_cases() -> None:
    grouped = msgspec.structs.replace(DENSE, kv_heads=2)
    each = [
        case(tensor=8, pipeline=4, machine={"sharp": 1}),
        case(LATENT, context=4, tensor=2, overlap_tensor=True),
        case(MIXTURE, expert=16, data=16, pipeline=2, precision="fp32"),
        case(grouped, tensor=4, context=2, data=4, sequence_parallel=True),
    ]
    together = stack(each)
    core = np.array([1e-5, 2e-5, 3e-5, 4e-5])
    found = [
        tensor_s(together, CONSTANTS),
        *context_s(together, CONSTANTS, core),
        expert_s(together, CONSTANTS),
        pipeline_s(together, CONSTANTS),
    ]
    for index, one in enumerate(each):
        want = [
            tensor_s(one, CONSTANTS),
            *context_s(one, CONSTANTS, core[index]),
            expert_s(one, CONSTANTS),
            pipeline_s(one, CONSTANTS),
        ]
        assert np.allclose([column[index] for column in found], want, rtol=1e-12)


def test_constants_may_differ_by_case() -> None:
    each = [replace(CONSTANTS, scaleup_share=share) for share in (0.25, 0.5)]
    column = replace(CONSTANTS, scaleup_share=np.array([0.25, 0.5]))
    cases = [case(tensor=8), case(tensor=4)]
    want = [float(tensor_s(one, c)) for one, c in zip(cases, each, strict=True)]
    assert np.allclose(tensor_s(stack(cases), column), want, rtol=1e-12)
