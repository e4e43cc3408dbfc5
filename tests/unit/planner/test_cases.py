"""Models, plans and machines as numbers, and tables of them."""

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.planner.step_cases import DENSE, LATENT, MACHINE, MIXTURE, case

from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.transformer import Experts
from gridloom.planner.cases import (
    LOGIT_BYTES,
    Cases,
    PlanColumns,
    model_columns,
    plan_columns,
    stack,
    take,
)


def columns(**plan: Any) -> PlanColumns:
    return plan_columns(ParallelPlan(**plan))


def leaves(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(value):
        part = getattr(value, field.name)
        found |= leaves(part) if is_dataclass(part) else {field.name: part}
    return found


# --- models


def test_a_dense_model_in_numbers() -> None:
    found = model_columns(DENSE)
    sizes = (found.layers, found.hidden, found.ffn, found.heads, found.kv_heads, found.vocabulary)
    assert sizes == (32, 4096, 16384, 32, 8, 65536)
    assert found.head_size == 128
    assert (found.gated, found.tied, found.latent, found.experts) == (1, 0, 0, 0)
    assert (found.per_token, found.expert_ffn, found.shared_ffn, found.expert_layers) == (0,) * 4
    assert (found.window, found.windowed_share) == (0, 0.0)


def test_a_stated_head_size_stands() -> None:
    assert model_columns(msgspec.structs.replace(DENSE, head_size=256)).head_size == 256


def test_experts_in_numbers() -> None:
    found = model_columns(MIXTURE)
    assert (found.experts, found.per_token, found.expert_ffn, found.shared_ffn) == (
        64,
        8,
        1024,
        2048,
    )
    assert found.expert_layers == 20
    alternating = msgspec.structs.replace(MIXTURE, experts=Experts(
        count=8, per_token=2, ffn=64, every=2, capacity_factor=1.25, shared_gate=True,
        router_bias=True,
    ))  # fmt: skip
    found = model_columns(alternating)
    assert (found.expert_layers, found.capacity_factor) == (12, 1.25)
    assert (found.shared_gate, found.router_bias) == (1, 1)


def test_latent_attention_in_numbers() -> None:
    found = model_columns(LATENT)
    sizes = (found.query_rank, found.kv_rank, found.rope_size, found.nope_size, found.value_size)
    assert found.latent == 1
    assert sizes == (1536, 512, 64, 128, 128)


@pytest.mark.parametrize(
    ("window", "full_every", "share"),
    [(0, 0, 0.0), (0, 4, 0.0), (1024, 0, 1.0), (1024, 2, 0.5), (1024, 6, 1 - 5 / 32)],
)
def test_the_share_of_windowed_layers(window: int, full_every: int, share: float) -> None:
    model = msgspec.structs.replace(DENSE, window=window, full_every=full_every)
    found = model_columns(model)
    assert found.window == window
    assert found.windowed_share == pytest.approx(share)


@pytest.mark.parametrize(("kind", "flags"), [("", (0, 0)), ("head", (1, 0)), ("all", (0, 1))])
def test_norms_of_queries_and_keys(kind: str, flags: tuple[int, int]) -> None:
    found = model_columns(msgspec.structs.replace(DENSE, qk_norm=kind))
    assert (found.qk_norm_head, found.qk_norm_all) == flags


# --- plans


@pytest.mark.parametrize(
    ("precision", "matrix", "weight", "master", "moments", "half", "rows"),
    [
        ("fp32", 32, 32, 0, 8, 0, 0),
        ("fp16", 16, 16, 4, 8, 0, 0),
        ("bf16", 16, 16, 4, 8, 1, 0),
        ("bf16_pure", 16, 16, 0, 4, 1, 0),
        ("fp8", 8, 16, 4, 8, 1, 0),
        ("fp8_rowwise", 8, 16, 4, 8, 1, 1),
    ],
)
def test_precisions(
    precision: str, matrix: int, weight: int, master: int, moments: int, half: int, rows: int
) -> None:
    found = columns(precision=precision)
    assert (found.matrix_bits, found.weight_bits, found.master_bytes) == (matrix, weight, master)
    assert (found.moment_bytes, found.half_bfloat, found.row_scales) == (moments, half, rows)


@pytest.mark.parametrize(
    ("plan", "expected"), [({}, 8), ({"expert": 4}, 1), ({"expert": 4, "expert_tensor": 2}, 2)]
)
def test_experts_follow_tensor_ranks_unless_spread(plan: dict[str, Any], expected: int) -> None:
    assert columns(tensor=8, data=8, **plan).expert_tensor == expected


def test_stages() -> None:
    even, uneven = columns(pipeline=4), columns(pipeline=4, stage_layers=(5, 9, 10, 8))
    assert (even.stage_layers_max, even.stage_layers_first, even.stage_layers_last) == (0, 0, 0)
    assert (uneven.stage_layers_max, uneven.stage_layers_first, uneven.stage_layers_last) == (
        10,
        5,
        8,
    )


def test_a_shard_group_is_all_data_ranks_unless_stated() -> None:
    assert columns(data=8, context=2, zero=3).shard == 16
    assert columns(data=8, context=2, zero=3, shard=4).shard == 4


@pytest.mark.parametrize("kind", ["none", "selective", "operators", "full"])
def test_recomputation(kind: str) -> None:
    found = columns(recompute=kind, recompute_layers=3)
    flags = {
        "selective": found.recompute_selective,
        "operators": found.recompute_operators,
        "full": found.recompute_full,
    }
    assert flags == {name: int(name == kind) for name in flags}
    assert found.recompute_layers == 3


@pytest.mark.parametrize("kind", ["optimizer", "gradients", "parameters", "activations"])
def test_offloading(kind: str) -> None:
    found = leaves(columns(offload=(kind,)))
    flags = {name: flag for name, flag in found.items() if name.startswith("offload_")}
    assert flags == {name: int(name == f"offload_{kind}") for name in flags}
    assert len(flags) == 4


@pytest.mark.parametrize(
    ("plan", "column", "value"),
    [
        ({"schedule": "zero_bubble"}, "zero_bubble", 1),
        ({"schedule": "interleaved", "virtual_stages": 3}, "virtual_stages", 3),
        ({"micro_batch": 0}, "micro_batch", 1),
        ({"micro_batch": 4}, "micro_batch", 4),
        ({"gather_unit": "tensor"}, "gather_by_tensor", 1),
        ({"sequence_parallel": True}, "sequence_parallel", 1),
        ({"flash_attention": False}, "flash_attention", 0),
        ({"native_attention": False}, "native_attention", 0),
        ({"fused": False}, "fused", 0),
        ({"blocking_launches": True}, "blocking_launches", 1),
        ({"overlap_gradients": False}, "overlap_gradients", 0),
        ({"overlap_parameters": False}, "overlap_parameters", 0),
        ({"overlap_tensor": True}, "overlap_tensor", 1),
        ({"gradient_bytes": 6}, "gradient_bytes", 6),
        ({"reduce_bytes": 2}, "reduce_bytes", 2),
        ({"dropout": True}, "dropout", 1),
        ({"optimizer": "muon"}, "update_flops", 30),
        ({"optimizer": "adamw"}, "update_flops", 0),
        ({"site_sync": SiteSync(kind="outer", every=50, bits=8)}, "sync_every", 50),
        ({"site_sync": SiteSync(kind="outer", every=50, bits=8)}, "sync_bits", 8),
    ],
)
def test_columns_of_a_plan(plan: dict[str, Any], column: str, value: int) -> None:
    assert getattr(columns(**plan), column) == value


@pytest.mark.parametrize("loss", sorted(LOGIT_BYTES))
def test_losses_hold_logits_in_bytes(loss: str) -> None:
    assert columns(loss=loss).logit_bytes == LOGIT_BYTES[loss]


# --- tables


def test_stacked_columns_hold_one_entry_a_case() -> None:
    each = [case(tensor=tensor, sequence=1024 * tensor) for tensor in (1, 2, 4)]
    together = stack(each)
    assert isinstance(together, Cases)
    assert isinstance(together.plan, PlanColumns)
    assert together.plan.tensor.tolist() == [1, 2, 4]
    assert together.sequence.tolist() == [1024, 2048, 4096]
    assert all(c.dtype == np.float64 and c.shape == (3,) for c in leaves(together).values())


def test_stacking_and_taking_gives_every_case_back() -> None:
    each = [case(DENSE, tensor=2), case(MIXTURE, pipeline=4), case(LATENT, data=8, zero=3)]
    together = stack(each)
    for index, one in enumerate(each):
        assert leaves(take(together, index)) == leaves(one)


def test_taking_by_slice_and_mask_leaves_numbers_as_they_are() -> None:
    shared = Cases(
        model=model_columns(DENSE),
        plan=stack([columns(tensor=t) for t in (1, 2, 4, 8)]),
        machine=MACHINE,
        sequence=2048,
        global_batch=np.array([8.0, 16.0, 32.0, 64.0]),
    )
    some = take(shared, slice(1, 3))
    assert some.plan.tensor.tolist() == [2, 4]
    assert some.global_batch.tolist() == [16, 32]
    assert some.model == shared.model
    assert some.sequence == 2048
    masked = take(shared, shared.plan.tensor > 2)
    assert masked.plan.tensor.tolist() == [4, 8]
