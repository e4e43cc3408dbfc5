"""Laws of a rank's memory: sharing more never costs, keeping more never saves."""

import dataclasses
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.memory_machine import MACHINE

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.cases import Cases, model_columns, plan_columns
from gridloom.planner.memory import memory_by_stage, memory_lines, peak_bytes

ROUNDING = 1 + 1e-9

DEGREES = st.sampled_from([1, 2, 4, 8])


@st.composite
def models(draw: st.DrawFn, experts: bool | None = None) -> Transformer:
    hidden = draw(st.sampled_from([1024, 2048, 4096, 8192]))
    heads = hidden // 128
    some = draw(st.booleans()) if experts is None else experts
    return Transformer(
        name="any",
        layers=draw(st.sampled_from([8, 16, 32, 64])),
        hidden=hidden,
        ffn=draw(st.sampled_from([2, 3, 4])) * hidden,
        heads=heads,
        kv_heads=draw(st.sampled_from([heads, 8])),
        vocabulary=draw(st.sampled_from([32000, 128256, 256000])),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        experts=Experts(count=64, per_token=draw(st.integers(1, 8)), ffn=hidden) if some else None,
    )


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    tensor = draw(DEGREES)
    chunks = draw(st.sampled_from([1, 1, 2]))
    pipeline = draw(st.sampled_from([1, 2, 4])) if chunks == 1 else 4
    schedule = "interleaved" if chunks > 1 else draw(st.sampled_from(["1f1b", "zero_bubble"]))
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": draw(DEGREES),
        "context": draw(st.sampled_from([1, 2, 4])),
        "sequence_parallel": tensor > 1 and draw(st.booleans()),
        "virtual_stages": chunks,
        "schedule": schedule,
        "zero": draw(st.sampled_from([0, 1, 2, 3])),
        "micro_batch": draw(st.sampled_from([1, 2, 4])),
        "recompute": draw(st.sampled_from(["none", "selective", "operators", "full"])),
        "flash_attention": draw(st.booleans()),
        "fused": draw(st.booleans()),
        "dropout": draw(st.booleans()),
        "precision": draw(st.sampled_from(["fp32", "fp16", "bf16", "bf16_pure", "fp8"])),
        "loss": draw(st.sampled_from(["copies", "in_place", "fused", "chunked"])),
        "optimizer": draw(st.sampled_from(["adamw", "adamw_8bit", "muon"])),
    }


def case(model: Transformer, plan: dict[str, Any], sequence: int = 4096) -> Cases:
    return Cases(
        model=model_columns(model),
        plan=plan_columns(ParallelPlan(**plan)),
        machine=MACHINE,
        sequence=sequence,
        global_batch=1024,
    )


def peak(cases: Cases) -> float:
    """Of tensors: what no allocator counts grows with the axes in use, however little is shared."""
    return float(peak_bytes(cases, "allocated"))


def held(cases: Cases) -> float:
    """Of the fullest rank, without what is only there because ranks exchange it."""
    lines = memory_lines(cases)
    return sum(float(v) for k, v in lines.items() if k not in ("communication", "context"))


def doubled(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return plan | {name: 2 * plan[name]}


@given(models(experts=False), plans())
def test_more_tensor_ranks_never_cost(model: Transformer, plan: dict[str, Any]) -> None:
    plan["sequence_parallel"] = True
    assert peak(case(model, doubled(plan, "tensor"))) <= peak(case(model, plan)) * ROUNDING


@given(models(), plans(), st.sampled_from([1, 2, 3]))
def test_more_data_ranks_with_zero_never_cost(
    model: Transformer, plan: dict[str, Any], zero: int
) -> None:
    plan["zero"] = zero
    more, fewer = case(model, doubled(plan, "data")), case(model, plan)
    assert held(more) <= held(fewer) * ROUNDING
    if plan["data"] * plan["context"] > 1:
        assert peak(more) <= peak(fewer) * ROUNDING


@given(models(), plans())
def test_more_context_ranks_never_cost(model: Transformer, plan: dict[str, Any]) -> None:
    more, fewer = case(model, doubled(plan, "context")), case(model, plan)
    assert held(more) <= held(fewer) * ROUNDING
    if plan["data"] * plan["context"] > 1:
        assert peak(more) <= peak(fewer) * ROUNDING


@given(models(experts=True), plans())
def test_spreading_experts_never_costs(model: Transformer, plan: dict[str, Any]) -> None:
    plan |= {"data": 8, "expert_tensor": 1}
    fewer = case(model, plan | {"expert": 2})
    assert peak(case(model, plan | {"expert": 8})) <= peak(fewer) * ROUNDING
    assert held(fewer) <= held(case(model, plan | {"expert": 1})) * ROUNDING


@given(models(), plans())
def test_more_stages_hold_no_more_states_and_no_more_activations(
    model: Transformer, plan: dict[str, Any]
) -> None:
    plan |= {"virtual_stages": 1, "schedule": "1f1b"}

    def worst(cases: Cases, *kinds: str) -> float:
        return max(
            sum(v for k, v in stage.lines.items() if k.startswith(kinds))
            for stage in memory_by_stage(cases)
        )

    more, fewer = case(model, doubled(plan, "pipeline")), case(model, plan)
    for kinds in (("parameters", "gradients", "optimizer", "master"), ("activations",)):
        assert worst(more, *kinds) <= worst(fewer, *kinds) * ROUNDING


@given(models(), plans())
def test_a_later_stage_holds_no_more_activations(model: Transformer, plan: dict[str, Any]) -> None:
    sums = [
        sum(v for k, v in stage.lines.items() if k.startswith("activations"))
        for stage in memory_by_stage(case(model, plan))
    ]
    assert all(b <= a * ROUNDING for a, b in pairwise(sums))


@given(models(), plans())
def test_more_recomputation_never_costs(model: Transformer, plan: dict[str, Any]) -> None:
    def at(**more: Any) -> float:
        return peak(case(model, plan | more))

    none, full = at(recompute="none"), at(recompute="full")
    for some in ("selective", "operators"):
        assert at(recompute=some) <= none * ROUNDING
    assert full <= none * ROUNDING
    few = [at(recompute="full", recompute_layers=n) for n in (1, 2, 8)]
    assert full <= few[2] * ROUNDING <= few[1] * ROUNDING**2 <= few[0] * ROUNDING**3


@given(models(), plans())
def test_each_level_of_zero_holds_no_more_states(model: Transformer, plan: dict[str, Any]) -> None:
    def states(zero: int) -> float:
        lines = memory_lines(case(model, plan | {"zero": zero}))
        kinds = ("parameters", "gradients", "optimizer", "master weights")
        return sum(float(lines[kind]) for kind in kinds)

    held = [states(zero) for zero in (0, 1, 2, 3)]
    assert all(b <= a * ROUNDING for a, b in pairwise(held))


@given(models(), plans(), st.sampled_from(["micro_batch", "sequence", "vocabulary", "layers"]))
def test_more_of_anything_never_saves(model: Transformer, plan: dict[str, Any], what: str) -> None:
    less = case(model, plan)
    if what == "micro_batch":
        more = case(model, doubled(plan, what))
    elif what == "sequence":
        more = dataclasses.replace(less, sequence=2 * less.sequence)
    else:
        columns = {what: 2 * getattr(less.model, what)}
        if what == "layers":
            columns["expert_layers"] = 2 * less.model.expert_layers
        more = dataclasses.replace(less, model=dataclasses.replace(less.model, **columns))
    assert peak(more) * ROUNDING >= peak(less)


@given(models(), plans(), st.sampled_from(["optimizer", "gradients", "parameters", "activations"]))
def test_offloading_never_costs(model: Transformer, plan: dict[str, Any], kind: str) -> None:
    assert peak(case(model, plan | {"offload": (kind,)})) <= peak(case(model, plan)) * ROUNDING


@given(models(), plans())
def test_lines_are_never_negative_and_wider_counters_see_more(
    model: Transformer, plan: dict[str, Any]
) -> None:
    cases = case(model, plan)
    assert all(v >= 0 for stage in memory_by_stage(cases) for v in stage.lines.values())
    allocated, reserved, device = (
        float(peak_bytes(cases, "allocated")),
        float(peak_bytes(cases, "reserved")),
        float(peak_bytes(cases, "device")),
    )
    assert 0 < allocated < reserved < device
