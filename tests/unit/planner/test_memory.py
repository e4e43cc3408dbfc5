"""Memory of a rank, against published arithmetic and published measurements."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.unit.planner.memory_machine import MACHINE

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.cases import (
    Cases,
    PlanColumns,
    model_columns,
    plan_columns,
    stack,
)
from gridloom.planner.memory import (
    STAGES,
    Counter,
    fits,
    memory_by_stage,
    memory_lines,
    model_states,
    peak_bytes,
    peak_stage,
    usual_gradient_bytes,
)
from gridloom.planner.memory_constants import GATHERED_LAYERS
from gridloom.planner.models.parameters import parameter_columns

LLAMA_8B = Transformer(
    name="Llama-3.1-8B",
    layers=32,
    hidden=4096,
    ffn=14336,
    heads=32,
    kv_heads=8,
    vocabulary=128256,
)
BLOOM = Transformer(
    name="BLOOM-176B",
    layers=70,
    hidden=14336,
    ffn=57344,
    heads=112,
    kv_heads=112,
    vocabulary=250000,
    gated=False,
    tied=True,
    norm="layer",
    norm_bias=True,
    qkv_bias=True,
    output_bias=True,
    ffn_bias=True,
)
MIXTURE = Transformer(
    name="mixture",
    layers=24,
    hidden=2048,
    ffn=8192,
    heads=16,
    kv_heads=16,
    vocabulary=32000,
    experts=Experts(count=64, per_token=6, ffn=1408, shared_ffn=2816, dense_layers=1),
)


def case(model: Transformer, sequence: int = 4096, batch: int = 512, **plan: Any) -> Cases:
    return Cases(
        model=model_columns(model),
        plan=plan_columns(ParallelPlan(**plan)),
        machine=MACHINE,
        sequence=sequence,
        global_batch=batch,
    )


def columns(**plan: Any) -> PlanColumns:
    return plan_columns(ParallelPlan(**plan))


def total(lines: dict[str, Any]) -> float:
    return float(sum(lines.values()))


# --- states


@pytest.mark.parametrize(
    ("zero", "gigabytes"),
    [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)],  # Rajbhandari et al. (2020), figure 1
)
def test_zero_figure_1(zero: int, gigabytes: float) -> None:
    plan = columns(data=64, zero=zero, precision="fp16")
    assert total(model_states(plan, 7.5e9)) == pytest.approx(gigabytes * 1e9, rel=0.015)


def test_a_hundred_billion_parameters_with_three_states_of_two_bytes() -> None:
    states = dataclasses.replace(columns(data=64, precision="fp16"), moment_bytes=4, master_bytes=2)
    whole = model_states(states, 100e9)
    assert whole["parameters"] == whole["gradients"] == 200e9
    assert whole["optimizer"] + whole["master weights"] == 600e9
    sharded = model_states(dataclasses.replace(states, zero=3), 100e9)
    assert total(sharded) == 15.625e9


def test_a_hundred_billion_parameters_with_the_usual_twelve_bytes() -> None:
    whole = model_states(columns(data=64, precision="fp16"), 100e9)
    assert whole["optimizer"] + whole["master weights"] == 1200e9
    sharded = model_states(columns(data=64, precision="fp16", zero=3), 100e9)
    assert total(sharded) == 25e9


@pytest.mark.parametrize(
    ("layers", "hidden", "tensor", "pipeline", "gib"),
    [  # Korthikanti et al. (2022), figure 1, which leaves the embedding out
        (48, 6144, 8, 1, 45.5625),
        (96, 12288, 8, 8, 45.5625),
        (105, 20480, 8, 35, 31.640625),
        (128, 25600, 8, 64, 32.958984375),
    ],
)
def test_states_of_korthikantis_figure_1(
    layers: int, hidden: int, tensor: int, pipeline: int, gib: float
) -> None:
    plan = columns(tensor=tensor, pipeline=pipeline, precision="fp16", gradient_bytes=4)
    dense = 12 * hidden**2 * layers / (tensor * pipeline)
    assert total(model_states(plan, dense)) / 2**30 == pytest.approx(gib, rel=1e-6)


P, LARGEST, N = 2851e6, 32128 * 1024, 8


@pytest.mark.parametrize(
    ("plan", "beside", "gib"),
    [  # DeepSpeed, memory requirements, t5-3b on 8 devices
        ({"zero": 2, "gradient_bytes": 4}, 2 * P, 15.93),  # and whole 16-bit gradients
        ({"zero": 2, "offload": ("optimizer", "gradients")}, 0.0, 5.31),
        ({"zero": 3, "gradient_bytes": 4}, 2 * GATHERED_LAYERS * LARGEST, 6.10),
        ({"zero": 3, "offload": ("optimizer", "gradients")}, 2 * GATHERED_LAYERS * LARGEST, 0.79),
        (
            {"zero": 3, "offload": ("optimizer", "gradients", "parameters")},
            2 * GATHERED_LAYERS * LARGEST,
            0.12,
        ),
    ],
)
def test_deepspeeds_estimates(plan: dict[str, Any], beside: float, gib: float) -> None:
    states = model_states(columns(data=N, precision="fp16", **plan), P)
    assert (total(states) + beside) / 2**30 == pytest.approx(gib, abs=0.006)


def test_deepspeeds_formulas() -> None:
    def states(**plan: Any) -> float:
        return total(model_states(columns(data=N, precision="fp16", gradient_bytes=4, **plan), P))

    assert states(zero=2) + 2 * P == pytest.approx(4 * P + 16 * P / N)
    assert states(zero=3) == pytest.approx(18 * P / N)
    assert states(zero=3, offload=("optimizer", "gradients")) == pytest.approx(2 * P / N)
    assert states(zero=2, offload=("optimizer", "gradients")) == pytest.approx(2 * P)
    assert states(zero=3, offload=("optimizer", "gradients", "parameters")) == 0.0


@pytest.mark.parametrize(
    ("plan", "width"),
    [
        ({}, 4),
        ({"precision": "fp16"}, 2),
        ({"precision": "fp32"}, 4),
        ({"precision": "bf16_pure"}, 2),
        ({"zero": 3}, 2),
        ({"zero": 1, "gradient_bytes": 6}, 6),
    ],
)
def test_usual_gradients(plan: dict[str, Any], width: int) -> None:
    assert usual_gradient_bytes(columns(**plan)) == width


def test_megatrons_bytes_a_parameter() -> None:
    # theoretical_memory_usage.py of Megatron-LM: 18, or 6 + 12 / d with the distributed optimizer
    assert total(model_states(columns(data=4), 1.0)) == 18.0
    assert total(model_states(columns(data=4, zero=1), 1.0)) == 9.0


def test_experts_are_sharded_by_the_ranks_that_hold_the_same_ones() -> None:
    plan = columns(tensor=2, data=16, expert=8, expert_tensor=1, zero=1)
    found = model_states(plan, 0.0, 1e9)
    assert found["parameters"] == 2e9
    assert found["optimizer"] == pytest.approx(8e9 / 4)  # 32 ranks, each expert on 4 of them


def test_a_shard_group_smaller_than_the_data_ranks_shards_less() -> None:
    whole, hybrid = (model_states(columns(data=64, zero=3, shard=s), 1e9) for s in (0, 8))
    assert total(hybrid) == pytest.approx(8 * total(whole))


@pytest.mark.parametrize(
    ("optimizer", "width"),
    [("adamw", 8.0), ("adamw_16bit", 4.0), ("muon", 4.0), ("adafactor", 0.0), ("sgd", 4.0)],
)
def test_moments_of_optimizers(optimizer: str, width: float) -> None:
    assert model_states(columns(optimizer=optimizer), 1.0)["optimizer"] == width


# --- lines


@pytest.mark.parametrize("model", [LLAMA_8B, BLOOM, MIXTURE])
@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_stages_together_hold_every_parameter(model: Transformer, pipeline: int) -> None:
    even = dataclasses.replace(model_columns(model), layers=model.layers - model.layers % 4)
    cases = dataclasses.replace(case(model, pipeline=pipeline, micro_batch=1), model=even)
    held = sum(s.lines["parameters"] for s in memory_by_stage(cases)) / 2
    counted = parameter_columns(even)
    copy = counted.embedding * (pipeline > 1) * even.tied  # the last stage has the table too
    missing = (1 + even.embedding_norm) * (1 + even.norm_bias) * even.hidden  # the last norm
    assert held == pytest.approx(counted.total + copy - missing, rel=1e-9)


@pytest.mark.parametrize("counter", ["allocated", "reserved", "device"])
def test_the_peak_is_that_of_the_fullest_stage(counter: Counter) -> None:
    cases = case(LLAMA_8B, pipeline=4, micro_batch=1)
    unseen = {
        "allocated": {"fragmentation", "context"},
        "reserved": {"context"},
        "device": set(),
    }[counter]
    sums = [
        sum(float(v) for k, v in memory_lines(cases, s).items() if k not in unseen) for s in STAGES
    ]
    assert float(peak_bytes(cases, counter)) == pytest.approx(max(sums))


def test_the_fullest_stage_may_be_the_last() -> None:
    wide = dataclasses.replace(model_columns(LLAMA_8B), vocabulary=2_000_000)
    cases = dataclasses.replace(case(LLAMA_8B, batch=1, pipeline=4, micro_batch=1), model=wide)
    assert peak_stage(cases) == 3
    assert peak_stage(case(LLAMA_8B, pipeline=4, micro_batch=1)) == 0


def test_an_uneven_middle_stage_is_found() -> None:
    cases = case(LLAMA_8B, pipeline=4, micro_batch=1, stage_layers=(2, 26, 2, 2))
    assert peak_stage(cases) == 1
    by_stage = memory_by_stage(cases)
    assert float(peak_bytes(cases)) == pytest.approx(by_stage[1].peak_bytes)


def test_the_first_stage_that_overflows_is_named() -> None:
    cases = case(LLAMA_8B, pipeline=4, micro_batch=1)
    roomy = memory_by_stage(cases)
    between = (roomy[0].peak_bytes + roomy[1].peak_bytes) / 2
    tight = dataclasses.replace(cases, machine=dataclasses.replace(MACHINE, memory_bytes=between))
    found = memory_by_stage(tight)
    assert [each.stage for each in found] == [0, 1, 2, 3]
    assert [each.fits for each in found[:3]] == [False, True, True]
    assert found[0].peak_bytes == pytest.approx(sum(found[0].lines.values()))


def test_fitting_leaves_a_reserve() -> None:
    cases = case(LLAMA_8B, tensor=8, micro_batch=1)
    spare = 80e9 - float(peak_bytes(cases))
    assert spare > 0
    assert fits(cases)
    assert fits(cases, reserve_bytes=spare * 0.99)
    assert not fits(cases, reserve_bytes=spare * 1.01)


def test_leading_dense_layers_are_the_first_stages() -> None:
    cases = case(MIXTURE, pipeline=4, micro_batch=1, expert=8, data=8)
    first, second = (memory_by_stage(cases)[i].lines["activations: experts"] for i in (0, 1))
    assert first / second == pytest.approx(4 * 5 / (3 * 6))  # in flight x layers with experts


def test_alternating_layers_are_shared_evenly() -> None:
    model = dataclasses.replace(model_columns(MIXTURE), expert_layers=12)
    cases = dataclasses.replace(case(MIXTURE, pipeline=4, micro_batch=1), model=model)
    dense, experts = (
        memory_lines(cases)[f"activations: {kind}"] for kind in ("feed-forward", "experts")
    )
    assert dense > 0
    assert experts > 0
    assert memory_lines(cases)["parameters"] == pytest.approx(
        memory_lines(cases, "middle")["parameters"] + 2 * MIXTURE.vocabulary * MIXTURE.hidden
    )


def test_zero_3_gathers_two_layers_and_the_tables() -> None:
    lines = memory_lines(case(LLAMA_8B, data=8, zero=3, micro_batch=1))
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336 + 2 * 4096
    tables = 2 * 128256 * 4096
    assert lines["communication"] == pytest.approx(2 * (2 * layer + tables))
    by_tensor = memory_lines(case(LLAMA_8B, data=8, zero=3, micro_batch=1, gather_unit="tensor"))
    assert by_tensor["communication"] == pytest.approx(2 * 2 * 4096 * 14336)
    alone = memory_lines(case(LLAMA_8B, data=1, zero=3, micro_batch=1))
    assert alone["communication"] == 0.0


def test_zero_2_adds_a_bucket_and_experts_a_dispatch() -> None:
    plain, bucket = (
        memory_lines(case(LLAMA_8B, data=8, zero=zero, micro_batch=1)) for zero in (1, 2)
    )
    assert bucket["communication"] > plain["communication"] == 0.0
    spread = memory_lines(case(MIXTURE, data=8, expert=8, micro_batch=1))
    tokens = 4096 * 6
    assert spread["communication"] == pytest.approx(2 * tokens * 2048 * 2)


def test_the_optimizers_step_is_the_peak_when_activations_are_few() -> None:
    plan: dict[str, Any] = {"precision": "fp16", "micro_batch": 1, "recompute": "full"}
    lines = memory_lines(case(LLAMA_8B, sequence=8, **plan))
    parameters = lines["parameters"] / 2
    held = sum(
        v for k, v in lines.items() if k.startswith("act") or k in ("logits and loss", "workspace")
    )
    # Gradients of two bytes become fp32 beside the master weights.
    assert held == pytest.approx(4 * parameters, rel=0.01)


def test_prediction_modules_are_on_the_last_stage() -> None:
    plain = case(MIXTURE, pipeline=2, micro_batch=1, expert=8, data=8)
    more = dataclasses.replace(plain.model, prediction_layers=1)
    extra = dataclasses.replace(plain, model=more)
    first, last = (
        memory_lines(extra, s)["parameters"] - memory_lines(plain, s)["parameters"]
        for s in ("first", "last")
    )
    assert first == 0.0
    inner = 8 * 3 * 2048 * 1408 + 3 * 2048 * 2816 + 64 * 2048
    attention, join = 4 * 2048**2, 2 * 2048**2
    assert last == pytest.approx(2 * (inner + attention + join + 5 * 2048))


def test_offloading_moves_each_kind_to_the_host() -> None:
    plan: dict[str, Any] = {"data": 8, "zero": 3, "micro_batch": 1}
    stays = memory_lines(case(LLAMA_8B, **plan))
    for kind, lines in (
        ("optimizer", ("optimizer", "master weights")),
        ("gradients", ("gradients",)),
        ("parameters", ("parameters",)),
    ):
        moved = memory_lines(case(LLAMA_8B, offload=(kind,), **plan))
        assert all(moved[line] == 0.0 for line in lines)
        assert all(v == stays[k] for k, v in moved.items() if k not in (*lines, "workspace"))
    acts = memory_lines(case(LLAMA_8B, offload=("activations",), **plan))
    assert acts["activations: norms"] == pytest.approx(stays["activations: norms"] * 2 / 32)


# --- many at once


def test_a_table_of_cases_is_computed_as_each_of_them() -> None:
    plans: list[dict[str, Any]] = [
        {"tensor": 8, "pipeline": 4, "data": 2, "zero": 1, "sequence_parallel": True},
        {"data": 64, "zero": 3},
        {"pipeline": 8, "virtual_stages": 2, "schedule": "interleaved", "recompute": "full"},
        {"pipeline": 4, "stage_layers": (7, 9, 9, 7), "recompute": "selective"},
        {"tensor": 2, "context": 4, "data": 8, "zero": 2, "precision": "fp8"},
        {"pipeline": 4, "schedule": "zero_bubble", "recompute": "full", "recompute_layers": 3},
        {"tensor": 2, "expert": 8, "data": 8, "precision": "fp16", "sequence_parallel": True},
    ]
    for model in (LLAMA_8B, MIXTURE):
        each = [case(model, micro_batch=2, **plan) for plan in plans]
        together = stack(each)
        assert np.allclose(peak_bytes(together), [peak_bytes(one) for one in each], rtol=1e-12)
        assert np.array_equal(peak_stage(together), [peak_stage(one) for one in each])
        shared = dataclasses.replace(together, model=each[0].model, machine=MACHINE)
        assert np.allclose(peak_bytes(shared), peak_bytes(together), rtol=1e-12)


# --- measured


@pytest.mark.parametrize(
    ("counter", "gigabytes", "sequence", "batch", "plan"),
    [
        # pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3
        ("reserved", 82.68, 8192, 16, {"data": 8, "micro_batch": 2, "recompute": "operators"}),
        ("reserved", 66.57, 8192, 256, {"data": 128, "micro_batch": 2, "recompute": "operators"}),
        (
            "reserved",
            88.48,
            8192,
            16,
            {"data": 8, "micro_batch": 2, "recompute": "operators", "fused": False},
        ),
        # pytorch/ao, torchao/prototype/float8nocompile/README.md
        ("reserved", 53.12, 4096, 8, {"data": 8, "micro_batch": 1, "fused": False}),
        ("reserved", 46.64, 4096, 8, {"data": 8, "micro_batch": 1}),
        (
            "reserved",
            37.38,
            4096,
            8,
            {"data": 8, "micro_batch": 1, "recompute": "full", "recompute_layers": 16},
        ),
        ("reserved", 28.03, 4096, 8, {"data": 8, "micro_batch": 1, "recompute": "full"}),
        # NVIDIA/dgxc-benchmarking, sample output: bf16 gradients, Megatron-Core
        (
            "allocated",
            70.83,
            8192,
            128,
            {"data": 4, "context": 2, "zero": 1, "micro_batch": 1, "gradient_bytes": 2},
        ),
    ],
)
def test_measured_peaks_of_llama_8b(
    counter: Counter, gigabytes: float, sequence: int, batch: int, plan: dict[str, Any]
) -> None:
    plan = {"zero": 3} | plan
    found = float(peak_bytes(case(LLAMA_8B, sequence, batch, **plan), counter))
    assert found == pytest.approx(gigabytes * 1e9, rel=0.045)


@pytest.mark.parametrize(
    ("gigabytes", "layers", "plan"),
    [
        # NVIDIA/Megatron-LM, tests/functional_tests, gpt3_7b_*_memory_speed: exact bytes
        (57.14, 32, {"tensor": 4, "data": 2, "micro_batch": 2}),
        (60.49, 32, {"pipeline": 4, "data": 2, "micro_batch": 1}),
    ],
)
def test_measured_peaks_of_megatrons_own_tests(
    gigabytes: float, layers: int, plan: dict[str, Any]
) -> None:
    model = Transformer(
        name="gpt3-7b",
        layers=layers,
        hidden=4096,
        ffn=16384,
        heads=32,
        kv_heads=8,
        vocabulary=131072,
        gated=False,
        positions=8192,
        norm="layer",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
    )
    cases = case(model, 8192, 8, zero=1, dropout=True, loss="in_place", **plan)
    assert float(peak_bytes(cases, "allocated")) == pytest.approx(gigabytes * 1e9, rel=0.04)


@pytest.mark.parametrize(
    ("gigabytes", "heads", "plan"),
    [  # bigscience, train/tr11-176B-ml/chronicles-prequel.md, "Rebalancing layers"
        (40.0, 64, {"tensor": 8, "pipeline": 12, "data": 4, "micro_batch": 2}),
        (59.0, 112, {"tensor": 4, "pipeline": 12, "data": 8, "micro_batch": 2}),
    ],
)
def test_measured_peaks_of_bloom(gigabytes: float, heads: int, plan: dict[str, Any]) -> None:
    cases = case(
        BLOOM,
        2048,
        2048,
        zero=1,
        gradient_bytes=6,  # bf16 gradients and their fp32 sums
        recompute="full",
        dropout=True,
        flash_attention=False,
        stage_layers=(5, *(6,) * 10, 5),
        **plan,
    )
    cases = dataclasses.replace(cases, model=dataclasses.replace(cases.model, heads=heads))
    assert float(peak_bytes(cases)) == pytest.approx(gigabytes * 1e9, rel=0.05)
