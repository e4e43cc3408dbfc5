"""Plans that a site cannot carry out are refused, field by field; stages and chunks are cut so."""

from typing import Any

import pytest
import torch

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts
from gridloom.runtime.inside.axes import Axis
from gridloom.runtime.inside.check import check_length, check_plan
from gridloom.runtime.inside.links import context_positions
from gridloom.runtime.inside.pipeline import micro_batches

SHAPE = GptShape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=90)
SPARSE = GptShape(
    layers=4, hidden=64, heads=4, kv_heads=4, ffn=96,
    experts=Experts(count=6, per_token=2, ffn=30, shared_ffn=32),
)  # fmt: skip

BAD: list[tuple[dict[str, Any], int, GptShape | None, str]] = [
    ({"tensor": 2}, 4, SHAPE, "parallel: tensor 2 x pipeline 1 x context 1 x data 1 is 2 ranks, "),
    ({"data": 0}, 1, SHAPE, "parallel.data: is 0, must be at least 1"),
    ({"micro_batch": -1}, 1, SHAPE, "parallel.micro_batch: is -1, must not be negative"),
    ({"precision": "fp8"}, 1, SHAPE, "parallel.precision: fp8 is not built; one of"),
    ({"optimizer": "muon"}, 1, SHAPE, "parallel.optimizer: muon is not built"),
    ({"dropout": True}, 1, SHAPE, "parallel.dropout: the model has none"),
    ({"recompute_layers": 1}, 1, SHAPE, "parallel.recompute_layers: counts layers that"),
    ({"offload": ("optimizer",), "zero": 3}, 1, SHAPE, "parallel.offload: .* go to the host toge"),
    ({"offload": ("parameters",)}, 1, SHAPE, "parallel.offload: .* only when sharded"),
    (
        {"data": 2, "expert": 2, "zero": 3, "offload": ("parameters",)}, 2, SPARSE,
        "parallel.offload: does not go with experts that are spread",
    ),
    ({"data": 4, "zero": 3, "shard": 3}, 4, SHAPE, "parallel.shard: is 3, must divide data x"),
    ({"data": 4, "shard": 2}, 4, SHAPE, "parallel.shard: nothing is sharded with zero 0"),
    ({"data": 2, "expert": 2}, 2, SHAPE, "parallel.expert: is 2, and the model has no experts"),
    ({"data": 4, "expert": 4}, 4, SPARSE, "parallel.expert: is 4, must divide the 6 experts"),
    ({"data": 2, "expert": 3}, 2, SPARSE, "parallel.expert: is 3, must divide data x context"),
    (
        {"data": 4, "expert": 2, "zero": 3, "shard": 2}, 4, SPARSE,
        "parallel.shard: groups smaller than data x context do not go with experts",
    ),
    (
        {"data": 2, "tensor": 2, "expert": 2}, 4, SPARSE,
        "parallel.expert_tensor: is 1, .*; set it to the tensor degree, 2",
    ),
    ({"tensor": 2}, 2, None, "parallel.tensor: is 2; a module of your own is cut along the data"),
    ({"pipeline": 8}, 8, SHAPE, "parallel.pipeline: 8 stages are more than the 4 layers"),
    ({"pipeline": 2, "virtual_stages": 2}, 2, SHAPE, "parallel.virtual_stages: need another"),
    ({"pipeline": 2, "schedule": "interleaved"}, 2, SHAPE, "parallel.virtual_stages: is 1"),
    ({"pipeline": 2, "stage_layers": (4,)}, 2, SHAPE, "parallel.stage_layers: names 1 stages"),
    ({"pipeline": 2, "stage_layers": (4, 1)}, 2, SHAPE, "parallel.stage_layers: .* 4 in all"),
    ({"tensor": 4}, 4, SHAPE, r"the model's kv_heads \(2\); .*\n.*the model's ffn \(90\)"),
    ({"tensor": 4}, 4, SPARSE, r"the model's experts.ffn \(30\)"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "ranks", "shape", "message"), BAD)
def test_a_plan_that_cannot_be(
    fields: dict[str, Any], ranks: int, shape: GptShape | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_plan(ParallelPlan(**{"precision": "fp32", **fields}), ranks, shape)


@pytest.mark.parametrize(
    ("fields", "ranks", "shape"),
    [
        ({}, 1, None),
        ({"data": 4, "zero": 3, "shard": 2}, 4, None),
        ({"tensor": 2, "data": 2, "expert": 2, "expert_tensor": 2}, 4, SPARSE),
        ({"pipeline": 2, "stage_layers": (3, 1), "zero": 1, "data": 2}, 4, SHAPE),
    ],
)
def test_plans_that_can(fields: dict[str, Any], ranks: int, shape: GptShape | None) -> None:
    check_plan(ParallelPlan(**fields), ranks, shape)


@pytest.mark.parametrize(
    ("fields", "layers", "cut"),
    [
        ({"pipeline": 2}, 5, [[0, 1, 2], [3, 4]]),
        ({"pipeline": 2, "virtual_stages": 2}, 6, [[0, 1], [2, 3], [4], [5]]),
        ({"pipeline": 3, "stage_layers": (1, 4, 1)}, 6, [[0], [1, 2, 3, 4], [5]]),
    ],
)
def test_every_layer_is_in_one_stage(
    fields: dict[str, Any], layers: int, cut: list[list[int]]
) -> None:
    assert [list(part) for part in ParallelPlan(**fields).stages(layers)] == cut


@pytest.mark.parametrize(
    ("fields", "batch", "micro_batch", "message"),
    [
        ({}, 7, 2, "is not whole micro-batches of 2"),
        ({}, 2, 1, "is 2 micro-batches of 1, fewer than the stages"),
        ({"schedule": "zero_bubble"}, 11, 1, "is 11 micro-batches, and zero_bubble wants whole"),
    ],
)
def test_batches_that_a_pipeline_cannot_take(
    fields: dict[str, Any], batch: int, micro_batch: int, message: str
) -> None:
    plan = ParallelPlan(pipeline=3, **fields)
    with pytest.raises(InputError, match=message):
        micro_batches(plan, batch, micro_batch)
    assert micro_batches(plan, 12, 2) == 6


@pytest.mark.parametrize(
    ("fields", "chunks"), [({}, 1), ({"tensor": 2}, 2), ({"context": 2, "tensor": 3}, 12)]
)
def test_sequences_are_whole_chunks(fields: dict[str, Any], chunks: int) -> None:
    plan = ParallelPlan(**fields)
    check_length(plan, 3 * chunks)
    if chunks > 1:
        with pytest.raises(InputError, match=f"equal chunks; choose a multiple of {chunks}"):
            check_length(plan, 3 * chunks + 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_context_ranks_share_the_positions_and_the_work(ranks: int) -> None:
    parts = [context_positions(48, Axis(ranks, i)) for i in range(ranks)]
    assert torch.cat(parts).sort().values.tolist() == list(range(48))
    # a query at position p sees p + 1 keys
    assert len({int((part + 1).sum()) for part in parts}) == 1
