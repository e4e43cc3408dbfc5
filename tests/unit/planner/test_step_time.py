"""A training step by kind: pipelines, recomputation, stages and jitter, by hand."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.planner.step_cases import (
    DENSE,
    FREE,
    IDEAL,
    LATENT,
    MIXTURE,
    between_sites,
    case,
    parts,
)

from gridloom.model.transformer import Transformer
from gridloom.planner.cases import Cases, stack, take
from gridloom.planner.constants import Constants
from gridloom.planner.data_parallel import Room, exchange_s, held
from gridloom.planner.exchange import context_s
from gridloom.planner.kernels import layer_seconds, logits_seconds
from gridloom.planner.step_time import StepTime, stage_layers, step_time

PEAK = 4e14
# Of the output layer only what its product takes, and that of a vocabulary of one tile.
SMALL = msgspec.structs.replace(DENSE, vocabulary=256)


def seconds(cases: Cases, constants: Constants = IDEAL) -> dict[str, float]:
    return parts(step_time(cases, constants))


def total(cases: Cases, constants: Constants = IDEAL) -> float:
    return float(step_time(cases, constants).total_s)


def one_layer(cases: Cases) -> float:
    """Return the seconds of a layer's forward, all of it products."""
    return float(layer_seconds(cases, IDEAL, expert=False).forward)


def logits(cases: Cases) -> float:
    return float(logits_seconds(cases, IDEAL))


# --- one stage


def test_a_step_of_products_alone() -> None:
    cases = case(data=8, micro_batch=2, batch=64)
    found = seconds(cases)
    batches = 64 / (8 * 2)
    assert found["compute_s"] == pytest.approx(batches * 32 * 3 * one_layer(cases))
    assert found["logits_s"] == pytest.approx(batches * logits(cases))
    rest = {name: s for name, s in found.items() if name not in {"compute_s", "logits_s"}}
    assert rest == pytest.approx(dict.fromkeys(rest, 0.0), abs=1e-15)
    assert total(cases) == pytest.approx(sum(found.values()))


def test_a_share_that_is_no_whole_number_of_micro_batches_takes_one_more() -> None:
    cases = case(data=8, micro_batch=2, batch=72)
    assert seconds(cases)["compute_s"] == pytest.approx(5 * 32 * 3 * one_layer(cases))
    few = case(data=8, batch=4)
    assert seconds(few)["compute_s"] == pytest.approx(32 * 3 * one_layer(few))


def test_half_the_model_flops_take_half_as_long() -> None:
    narrow = case(machine={"flops_16": PEAK / 2, "flops_32": 1.0, "flops_8": 1.0})
    assert total(narrow) == pytest.approx(2 * total(case()))


# --- pipelines


@pytest.mark.parametrize("pipeline", [2, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 8, 64])
def test_the_bubble_is_that_of_all_other_stages(pipeline: int, micro_batches: int) -> None:
    cases = case(SMALL, pipeline=pipeline, batch=micro_batches)
    stage = 32 / pipeline * 3 * one_layer(cases)
    found = seconds(cases)
    assert found["compute_s"] == pytest.approx(micro_batches * stage)
    mean = stage + logits(cases) / pipeline
    assert found["bubble_s"] == pytest.approx((pipeline - 1) * mean)
    # (m + p - 1) stages' time, but for the little that 256 logits take.
    assert total(cases) == pytest.approx((micro_batches + pipeline - 1) * stage, rel=2e-3)


@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_divide_the_bubble(chunks: int) -> None:
    plain = seconds(case(SMALL, pipeline=4))
    interleaved = seconds(case(SMALL, pipeline=4, schedule="interleaved", virtual_stages=chunks))
    assert interleaved["bubble_s"] == pytest.approx(plain["bubble_s"] / chunks)
    assert interleaved["compute_s"] == plain["compute_s"]


def test_zero_bubble_leaves_a_third() -> None:
    plain, zero = (seconds(case(SMALL, pipeline=4, schedule=s)) for s in ("1f1b", "zero_bubble"))
    assert zero["bubble_s"] == pytest.approx(plain["bubble_s"] / 3)
    assert zero["compute_s"] == plain["compute_s"]


def test_the_longest_stage_sets_the_pace() -> None:
    even, uneven = case(SMALL, pipeline=4), case(SMALL, pipeline=4, stage_layers=(6, 10, 9, 7))
    assert float(stage_layers(even)) == 8
    assert float(stage_layers(uneven)) == 10
    layer = 3 * one_layer(even)
    assert seconds(uneven)["compute_s"] == pytest.approx(512 * 10 * layer)
    # The pipeline fills with stages of the mean length.
    assert seconds(uneven)["bubble_s"] == pytest.approx(seconds(even)["bubble_s"])


def test_layers_that_do_not_divide_make_one_stage_longer() -> None:
    model = msgspec.structs.replace(SMALL, layers=30)
    cases = case(model, pipeline=4)
    assert float(stage_layers(cases)) == 8
    found = seconds(cases)
    assert found["compute_s"] == pytest.approx(512 * 8 * 3 * one_layer(cases))
    assert found["bubble_s"] == pytest.approx(3 * (7.5 * 3 * one_layer(cases) + logits(cases) / 4))


@pytest.mark.parametrize(
    ("stages", "last"), [((), 8), ((8, 9, 9, 6), 6), ((9, 9, 9, 5), 5), ((9, 9, 9, 1), 1)]
)
def test_logits_lengthen_the_last_stage(stages: tuple[int, ...], last: int) -> None:
    wide = msgspec.structs.replace(DENSE, vocabulary=262144)
    cases = case(wide, pipeline=4, stage_layers=stages)
    layer, longest = 3 * one_layer(cases), max(stages, default=8)
    beyond = last * layer + logits(cases) - longest * layer
    found = seconds(cases)["logits_s"]
    assert found == pytest.approx(512 * max(beyond, 0.0), abs=1e-9)
    assert (beyond > 0) == (found > 1e-9)


def test_a_last_stage_may_hide_its_logits_behind_longer_ones() -> None:
    cases = case(DENSE, pipeline=4, stage_layers=(9, 9, 9, 5))
    assert logits(cases) < 4 * 3 * one_layer(cases)
    assert seconds(cases)["logits_s"] == pytest.approx(0.0, abs=1e-9)


# --- recomputation


def test_full_recomputation_adds_a_forward() -> None:
    plain, full = (seconds(case(recompute=kind)) for kind in ("none", "full"))
    assert plain["recompute_s"] == 0.0
    assert full["recompute_s"] == pytest.approx(plain["compute_s"] / 3)
    some = seconds(case(pipeline=2, recompute="full", recompute_layers=4))
    assert some["recompute_s"] == pytest.approx(full["recompute_s"] / 2 * 4 / 16)
    all_ = seconds(case(pipeline=2, recompute="full", recompute_layers=40))
    assert all_["recompute_s"] == pytest.approx(full["recompute_s"] / 2)
    cheaper = seconds(case(recompute="full"), replace(IDEAL, recompute_share=0.9))
    assert cheaper["recompute_s"] == pytest.approx(0.9 * full["recompute_s"])


def test_selective_recomputation_repeats_attentions_core() -> None:
    constants = replace(IDEAL, attention_share=0.5, recompute_share=0.1)
    cases = case(recompute="selective")
    core = float(layer_seconds(cases, constants, expert=False).core)
    assert seconds(cases, constants)["recompute_s"] == pytest.approx(512 * 32 * core)


def test_recomputation_by_operator_lies_between_the_others() -> None:
    constants = Constants()
    cases = case(recompute="operators")
    operators = float(layer_seconds(cases, constants, expert=False).operators)
    found = seconds(cases, constants)["recompute_s"]
    assert found == pytest.approx(512 * 32 * operators * constants.recompute_share)
    none, selective, full = (
        seconds(case(recompute=kind), constants)["recompute_s"]
        for kind in ("none", "selective", "full")
    )
    assert none < selective < full
    assert none < found < full


def test_a_layer_computed_again_exchanges_again() -> None:
    constants = replace(IDEAL, scaleup_share=0.5, all_to_all_share=0.5)
    plan: dict[str, Any] = {"tensor": 4, "data": 8, "expert": 8}
    plain, full = (
        seconds(case(MIXTURE, recompute=kind, **plan), constants) for kind in ("none", "full")
    )
    for kind in ("tensor_s", "expert_s"):
        assert plain[kind] > 0
        assert full[kind] == pytest.approx(1.5 * plain[kind])


# --- experts


def test_layers_with_experts_count_by_their_share() -> None:
    cases = case(MIXTURE)
    dense, experts = (
        float(layer_seconds(cases, IDEAL, expert=expert).forward) for expert in (False, True)
    )
    expected = 512 * 3 * (4 * dense + 20 * experts)
    assert seconds(cases)["compute_s"] == pytest.approx(expected)
    sent = replace(FREE, all_to_all_share=0.5)
    spread = case(MIXTURE, data=8, expert=8)
    by_hand = 7 / 8 * 4096 * 8 * 2048 * 2 / (400e9 * 0.5)
    # Dispatch and combine, forward and backward, of 20 layers and 64 micro-batches.
    assert seconds(spread, sent)["expert_s"] == pytest.approx(64 * 20 * 4 * by_hand)


# --- context ranks


@pytest.mark.parametrize("zero", [0, 1])
def test_what_hides_the_ring_of_keys_hides_no_gradients(zero: int) -> None:
    constants = replace(
        IDEAL, attention_share=0.5, scaleup_share=0.01, data_hidden=0.8, data_interference=0.0
    )
    cases = case(context=4, data=2, batch=2, zero=zero)
    one = layer_seconds(cases, constants, expert=False)
    exposed, hidden = context_s(cases, constants, one.attention)
    assert float(exposed) > 0
    assert float(hidden) == pytest.approx(0.8 * float(one.attention))
    found = seconds(cases, constants)
    assert found["context_s"] == pytest.approx(32 * float(exposed))
    spare = 1 - float(hidden) / float(one.forward + one.backward)
    room = Room(32 * float(one.forward) * spare, 32 * float(one.backward) * spare, 1.0)
    expected = float(exchange_s(cases, constants, held(cases), room))
    assert found["data_s"] == pytest.approx(expected)
    roomier = Room(32 * float(one.forward), 32 * float(one.backward), 1.0)
    assert expected > float(exchange_s(cases, constants, held(cases), roomier))


# --- the whole


def test_sums_of_gradients_are_compute() -> None:
    constants = replace(FREE, hbm_share=1.0, accumulate_passes=1.0)
    base = replace(constants, accumulate_passes=0.0)
    some, none = (seconds(case(pipeline=2), c)["compute_s"] for c in (constants, base))
    weights = float(held(case(pipeline=2)).dense)
    assert some - none == pytest.approx(512 * weights * 8 / 2e12)


@pytest.mark.parametrize(
    ("plan", "doublings"),
    [({}, 0), ({"data": 8}, 0), ({"data": 16}, 1), ({"tensor": 8, "pipeline": 2, "data": 8}, 4)],
)
def test_jitter_grows_with_the_doublings_of_domains(plan: dict[str, Any], doublings: int) -> None:
    calm = seconds(case(**plan), replace(IDEAL, step_fixed_s=0.5))
    rough = seconds(case(**plan), replace(IDEAL, step_fixed_s=0.5, jitter=0.01))
    assert calm["jitter_s"] == 0.0
    assert calm["fixed_s"] == 0.5
    expected = 0.01 * doublings * sum(calm.values())
    assert rough["jitter_s"] == pytest.approx(expected)
    assert {k: v for k, v in rough.items() if k != "jitter_s"} == pytest.approx(
        {k: v for k, v in calm.items() if k != "jitter_s"}
    )


def test_every_kind_of_time_occurs_and_adds_up() -> None:
    cases = case(
        msgspec.structs.replace(MIXTURE, vocabulary=262144),
        tensor=2,
        pipeline=4,
        context=2,
        data=8,
        expert=8,
        zero=1,
        recompute="full",
        offload=("optimizer",),
        site_sync=between_sites(10),
        machine={"sites": 2, "wan_bytes_per_s": 1e9, "wan_latency_s": 0.01},
    )
    found = step_time(cases, Constants())
    by_kind = parts(found)
    assert set(by_kind) == {field.name for field in fields(StepTime)}
    assert all(value > 0 for value in by_kind.values()), by_kind
    assert float(found.total_s) == pytest.approx(sum(by_kind.values()))


# --- conservation


CUTS: list[dict[str, Any]] = [
    {},
    {"tensor": 8},
    {"tensor": 2, "context": 2, "data": 4},
    {"pipeline": 4, "data": 2, "micro_batch": 2},
    {"tensor": 4, "pipeline": 2, "zero": 1, "data": 4},
    {"data": 16, "zero": 3, "micro_batch": 4},
    {"pipeline": 4, "schedule": "interleaved", "virtual_stages": 2},
    {"tensor": 2, "data": 8, "expert": 8},
    {"tensor": 2, "data": 8, "expert": 4, "expert_tensor": 2, "pipeline": 2},
    {"context": 2, "data": 8, "expert": 16},
]


def model_flops(model: Transformer, tokens: int) -> float:
    """Return the flops of products in forward and backward, routers' and attention's core apart."""
    size = model.width_per_head
    attention = 2 * model.hidden * size * (model.heads + model.kv_heads)
    dense = (2 + model.gated) * model.hidden * model.ffn
    layers = model.layers * attention + (model.layers - model.expert_layers) * dense
    if model.experts is not None:
        width = model.experts.per_token * model.experts.ffn + model.experts.shared_ffn
        layers += model.expert_layers * (2 + model.gated) * model.hidden * width
    return 6.0 * tokens * layers


@pytest.mark.parametrize("model", [DENSE, MIXTURE], ids=lambda model: model.name)
@pytest.mark.parametrize("plan", CUTS, ids=str)
def test_ranks_together_compute_the_models_flops_however_it_is_cut(
    model: Transformer, plan: dict[str, Any]
) -> None:
    if model.experts is None:
        plan = {k: v for k, v in plan.items() if not k.startswith("expert")}
    cases = case(model, batch=64, **plan)
    columns = cases.plan
    ranks = columns.tensor * columns.context * columns.data
    tokens = 64 * 4096
    done = seconds(cases)["compute_s"] * ranks * columns.pipeline * PEAK
    assert done == pytest.approx(model_flops(model, tokens))
    # The output layer is on the ranks of one stage.
    batches = 64 / (columns.data * columns.micro_batch)
    output = logits(cases) * batches * ranks * PEAK
    assert output == pytest.approx(6.0 * tokens * model.hidden * model.vocabulary)


def test_precision_changes_the_rate_and_not_the_flops() -> None:
    for precision, peak in (("fp32", 1e14), ("fp8", 8e14)):
        cases = case(precision=precision)
        done = seconds(cases)["compute_s"] * peak
        assert done == pytest.approx(model_flops(DENSE, 512 * 4096))


# --- tables


def table() -> list[Cases]:
    sites = {"sites": 2, "wan_bytes_per_s": 1e9, "wan_latency_s": 0.01}
    windowed = msgspec.structs.replace(DENSE, window=1024, full_every=2)
    return [
        case(),
        case(tensor=8, sequence_parallel=True, data=4, zero=1, machine={"sharp": 1}),
        case(data=64, zero=3, shard=8, offload=("optimizer", "gradients", "parameters")),
        case(pipeline=8, schedule="interleaved", virtual_stages=2, recompute="full"),
        case(pipeline=4, stage_layers=(7, 9, 9, 7), recompute="selective", flash_attention=False),
        case(LATENT, context=4, data=2, zero=2, precision="fp8_rowwise"),
        case(MIXTURE, tensor=2, data=8, expert=8, precision="fp16", batch=100),
        case(windowed, pipeline=4, schedule="zero_bubble", recompute="operators"),
        case(MIXTURE, data=16, zero=3, gather_unit="tensor", overlap_parameters=False),
        case(data=8, site_sync=between_sites(20, 8), machine=sites, optimizer="muon"),
        case(tensor=4, blocking_launches=True, fused=False, machine={"units": 108}),
        case(data=16, machine={"leaf": 8, "spine_share": 0.5}, offload=("activations",)),
    ]


def test_a_table_is_computed_as_each_of_its_cases() -> None:
    each = table()
    together = step_time(stack(each), Constants())
    for index, one in enumerate(each):
        alone = parts(step_time(one, Constants()))
        found = {
            name: float(np.broadcast_to(value, len(each))[index])
            for name, value in vars(together).items()
        }
        assert found == pytest.approx(alone, rel=1e-12, abs=1e-15)
    totals = [total(one, Constants()) for one in each]
    assert np.allclose(together.total_s, totals, rtol=1e-12)


def test_the_order_of_a_table_does_not_matter() -> None:
    together = stack(table())
    order = np.arange(len(table()))[::-1]
    forwards = step_time(together, Constants()).total_s
    backwards = step_time(take(together, order), Constants()).total_s
    assert np.array_equal(backwards[::-1], forwards)
