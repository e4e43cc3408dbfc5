"""What the runtime can build: every rule of a shape and of a plan, and what goes."""

from typing import Any

import pytest
from msgspec.structs import replace

from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import (
    copies_problems,
    cut_problems,
    length_problems,
    micro_batch_problems,
    shape_problems,
    share_problems,
    site_problems,
)
from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts

SHAPE = GptShape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=96)
EXPERTS = Experts(count=6, per_token=2, ffn=30, shared_ffn=32)
SPARSE = replace(SHAPE, experts=EXPERTS)


def plan(**fields: Any) -> ParallelPlan:
    return ParallelPlan(**{"precision": "fp32", **fields})


def test_what_can_be_has_no_problems() -> None:
    assert shape_problems(SHAPE) == shape_problems(SPARSE) == []
    assert cut_problems(plan(), None) == cut_problems(plan(tensor=2, zero=3, shard=2), SHAPE) == []
    assert cut_problems(plan(expert=2, tensor=2, expert_tensor=2), SPARSE) == []
    assert site_problems(plan(data=4, context=2, zero=1, shard=4)) == []
    assert length_problems(plan(context=2, tensor=2), 64) == []
    assert copies_problems(plan(pipeline=2, data=4), 2, 16) == []


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"layers": 0, "ffn": 0}, ["model.layers", "model.ffn"]),
        ({"hidden": 60}, ["model.hidden"]),
        ({"kv_heads": 3}, ["model.kv_heads"]),
        ({"experts": replace(EXPERTS, per_token=0, ffn=0, every=0, dense_layers=-1)},
         [f"model.experts.{name}" for name in ("per_token", "ffn", "every", "dense_layers")]),
        ({"experts": replace(EXPERTS, per_token=7)}, ["model.experts.per_token"]),
        ({"experts": replace(EXPERTS, dense_layers=2, every=3)}, ["model.experts.dense_layers"]),
        ({"experts": replace(EXPERTS, shared_ffn=0, shared_gate=True)},
         ["model.experts.shared_gate"]),
        ({"experts": replace(EXPERTS, capacity_factor=1.0, router_bias=True)},
         ["model.experts.capacity_factor", "model.experts.router_bias"]),
    ],
)  # fmt: skip
def test_a_shape_that_cannot_be(changes: dict[str, Any], fields: list[str]) -> None:
    found = shape_problems(replace(SHAPE, **changes))
    assert [problem.field for problem in found] == fields
    assert all(problem.remedy for problem in found)


@pytest.mark.parametrize(
    ("fields", "shape", "named"),
    [
        ({"context": 0, "shard": -1}, SHAPE, ["context", "shard", "shard"]),
        ({"precision": "fp8", "optimizer": "lamb", "dropout": True}, SHAPE,
         ["precision", "optimizer", "dropout"]),
        ({"recompute_layers": 2, "shard": 2}, SHAPE, ["recompute_layers", "shard"]),
        ({"offload": ("gradients",), "zero": 1}, SHAPE, ["offload"]),
        ({"expert": 2, "zero": 1, "offload": ("parameters",)}, SPARSE, ["offload"]),
        ({"expert": 2}, None, ["expert", "expert"]),
        ({"expert": 4}, SPARSE, ["expert"]),
        ({"expert": 2, "tensor": 2}, SPARSE, ["expert_tensor"]),
        ({"tensor": 2, "pipeline": 2, "context": 2}, None, ["tensor", "pipeline", "context"]),
        ({"virtual_stages": 2, "schedule": "zero_bubble"}, SHAPE, ["virtual_stages"]),
        ({"pipeline": 2, "schedule": "interleaved"}, SHAPE, ["virtual_stages"]),
        ({"pipeline": 5}, SHAPE, ["pipeline"]),
        ({"pipeline": 2, "stage_layers": (4,)}, SHAPE, ["stage_layers"]),
        ({"pipeline": 2, "stage_layers": (4, 0)}, SHAPE, ["stage_layers"]),
        ({"tensor": 4}, SHAPE, ["tensor"]),
        ({"tensor": 3}, replace(SPARSE, experts=replace(EXPERTS, every=2)), ["tensor"] * 3),
    ],
)  # fmt: skip
def test_a_cut_that_cannot_be(
    fields: dict[str, Any], shape: GptShape | None, named: list[str]
) -> None:
    found = cut_problems(plan(**fields), shape)
    assert [problem.field for problem in found] == [f"parallel.{name}" for name in named]
    assert all(problem.remedy for problem in found)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"data": 4, "zero": 3, "shard": 3}, ["shard"]),
        ({"data": 2, "expert": 4}, ["expert"]),
        ({"data": 4, "expert": 2, "zero": 3, "shard": 2}, ["shard"]),
    ],
)
def test_copies_of_a_site_that_cannot_share_out(fields: dict[str, Any], named: list[str]) -> None:
    assert [p.field for p in site_problems(plan(**fields))] == [f"parallel.{n}" for n in named]


@pytest.mark.parametrize(
    ("fields", "copies", "batch", "said"),
    [
        ({}, 3, 2, "fewer sequences than"),
        ({}, 3, 4, ""),
        ({"expert": 2}, 2, 3, "must have equal shares"),
        ({"zero": 1}, 2, 3, "must have equal shares"),
        ({"pipeline": 2}, 2, 3, "must have equal shares"),
        ({"pipeline": 2}, 2, 4, ""),
    ],
)
def test_a_batch_is_shared(fields: dict[str, Any], copies: int, batch: int, said: str) -> None:
    found = share_problems(plan(**fields), copies, batch)
    assert (said in found[0].message) if said else not found


def test_a_pipeline_takes_whole_micro_batches_and_enough_of_them() -> None:
    three = plan(pipeline=3)
    assert "is not whole" in micro_batch_problems(three, 7, 2)[0].message
    assert "fewer than the stages" in micro_batch_problems(three, 2, 1)[0].message
    zero_bubble = replace(three, schedule="zero_bubble")
    assert "wants whole rounds of 3" in micro_batch_problems(zero_bubble, 11, 1)[0].message
    assert micro_batch_problems(three, 11, 1) == []
    # four copies at two sites: each takes 3 of 12 sequences
    found = copies_problems(plan(pipeline=2, data=4), 2, 12, 2)
    assert [problem.field for problem in found] == ["micro_batch"]


def test_layers_lie_in_stages_in_order() -> None:
    assert [list(part) for part in plan(pipeline=2, virtual_stages=2).stages(5)] == [
        [0, 1], [2], [3], [4]
    ]  # fmt: skip
    assert [len(part) for part in plan(pipeline=2, stage_layers=(3, 2)).stages(5)] == [3, 2]


@pytest.mark.parametrize(
    ("fields", "spread"),
    [({"data": 4}, False), ({"tensor": 2}, True), ({"expert": 2}, True), ({"zero": 1}, True)],
)
def test_whether_a_rank_holds_a_whole_copy(fields: dict[str, Any], spread: bool) -> None:
    assert plan(**fields).is_spread is spread
