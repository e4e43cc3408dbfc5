"""Configurations of DeepSpeed: what is written, what is read, what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.frameworks import deepspeed
from gridloom.planner.frameworks.common import Goal

MODEL = Transformer(
    name="m", layers=24, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocabulary=32000
)
MOE = replace(MODEL, experts=Experts(count=16, per_token=2, ffn=1408))
GOAL = Goal(sequence_length=4096, global_batch=64)


def test_stage_three_in_full() -> None:
    plan = ParallelPlan(
        data=8,
        context=2,
        zero=3,
        micro_batch=2,
        recompute="full",
        offload=("optimizer", "parameters", "activations"),
        overlap_parameters=False,
    )
    assert deepspeed.to_config(MODEL, plan, GOAL) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "sequence_parallel_size": 2,
        "optimizer": {"type": "AdamW", "params": {}},
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "stage3_prefetch_bucket_size": 0,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "cpu", "pin_memory": True},
        },
        "activation_checkpointing": {"cpu_checkpointing": True},
    }


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        (ParallelPlan(data=4, zero=3, gradient_bytes=4),
         {"data_types": {"grad_accum_dtype": "fp32"}}),
        (ParallelPlan(data=4, zero=3, precision="bf16_pure"),
         {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True,
                   "bf16_optimizer_states": True}}),
        (ParallelPlan(data=4, zero=3, precision="fp16"), {"fp16": {"enabled": True}}),
        (ParallelPlan(data=4, zero=3, optimizer="sgd"), {"zero_allow_untested_optimizer": True}),
        (ParallelPlan(data=4, tensor=2, zero=3, overlap_tensor=True),
         {"tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": True}}),
        (ParallelPlan(precision="fp32"), {"zero_optimization": {"stage": 0}}),
    ],
)  # fmt: skip
def test_parts_of_the_configuration(plan: ParallelPlan, part: dict[str, Any]) -> None:
    config = deepspeed.to_config(MODEL, plan, GOAL)
    assert config | part == config


def test_experts_are_spread() -> None:
    config = deepspeed.to_config(MOE, ParallelPlan(data=8, expert=4, zero=3), GOAL)
    spread = {"enabled": True, "autoep_size": 4, "expert_tensor_parallel_size": 1}
    assert config["expert_parallel"] == spread


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (MODEL, ParallelPlan(data=2, pipeline=2, zero=3), "zero"),
        (MODEL, ParallelPlan(pipeline=2, schedule="zero_bubble", precision="fp32"), "schedule"),
        (MODEL, ParallelPlan(data=2, tensor=2, sequence_parallel=True, zero=3),
         "sequence_parallel"),
        (MODEL, ParallelPlan(data=4, zero=3, shard=2), "shard"),
        (MODEL, ParallelPlan(data=4, zero=3, recompute="selective"), "recompute"),
        (MODEL, ParallelPlan(data=4, zero=3, precision="fp8"), "precision"),
        (MODEL, ParallelPlan(precision="bf16_pure"), "precision"),
        (MODEL, ParallelPlan(data=4, zero=3, optimizer="adamw_8bit"), "optimizer"),
        (MODEL, ParallelPlan(data=4, precision="fp16"), "overlap_gradients"),
        (MODEL, ParallelPlan(data=4, zero=1, overlap_parameters=False), "overlap_gradients"),
        (MODEL, ParallelPlan(data=4, zero=2), "overlap_parameters"),
        (MODEL, ParallelPlan(data=4, overlap_gradients=False), "gradient_bytes"),
        (MODEL, ParallelPlan(precision="fp16", offload=("optimizer",)), "offload"),
        (MODEL, ParallelPlan(data=4, zero=2, overlap_parameters=False, offload=("parameters",)),
         "offload"),
        (MODEL, ParallelPlan(data=4, zero=3, offload=("gradients",)), "offload"),
        (MODEL, ParallelPlan(data=4, zero=3, optimizer="lamb", offload=("optimizer",)), "offload"),
        (MODEL, ParallelPlan(data=4, zero=3, offload=("activations",)), "offload"),
        (MOE, ParallelPlan(data=4, pipeline=2, expert=2, zero=1, overlap_gradients=False,
                           overlap_parameters=False), "expert"),
        (MOE, ParallelPlan(data=4, tensor=2, context=2, expert=2, zero=3), "context"),
        (MOE, ParallelPlan(data=4, tensor=2, expert=2, expert_tensor=2, zero=3), "expert_tensor"),
        (MOE, ParallelPlan(data=4, tensor=2, expert=2, zero=3, offload=("optimizer",)), "offload"),
    ],
)  # fmt: skip
def test_refusals_name_their_field(model: Transformer, plan: ParallelPlan, field: str) -> None:
    with pytest.raises(InputError) as caught:
        deepspeed.to_config(model, plan, GOAL)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_configuration_of_somebody_else_is_read() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
        "train_batch_size": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": True, "loss_scale": 0},
        "zero_optimization": {
            "stage": 2,
            "overlap_comm": True,
            "allgather_bucket_size": 5e8,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"},
        },
        "gradient_clipping": 1.0,
    }
    read = deepspeed.from_config(config, 16)
    assert read.plan == ParallelPlan(
        data=16,
        zero=2,
        micro_batch=4,
        precision="fp16",
        offload=("optimizer", "gradients"),
        overlap_parameters=False,
    )
    assert read.goal == Goal(sequence_length=0, global_batch=512)
    assert read.model is None
    assert "plan.pipeline" in read.absent
    assert read.unread == (
        "fp16.loss_scale",
        "zero_optimization.allgather_bucket_size",
        "zero_optimization.offload_optimizer.nvme_path",
        "gradient_clipping",
    )


def test_stages_are_handed_in() -> None:
    read = deepspeed.from_config({"train_batch_size": 8}, 16, pipeline=4)
    assert (read.plan.pipeline, read.plan.data, read.plan.micro_batch) == (4, 4, 2)
    assert read.plan.precision == "fp32"
    assert not read.plan.overlap_gradients
    assert "plan.pipeline" not in read.absent


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "train_batch_size"),
        ({"train_batch_size": 10}, "train_batch_size"),
        ({"train_batch_size": True}, "train_batch_size"),
        ({"train_batch_size": 8, "sequence_parallel_size": 3}, "world_size"),
        ({"train_batch_size": 8, "sequence_parallel_size": 0}, "sequence_parallel_size"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": 4}}, "zero_optimization.stage"),
        ({"train_batch_size": 8, "zero_optimization": {"stage": -1}}, "zero_optimization.stage"),
        ({"train_batch_size": 8, "optimizer": {"type": "Shampoo"}}, "optimizer.type"),
        ({"train_batch_size": 8, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
         "fp16.enabled"),
        ({"train_batch_size": 8, "data_types": {"grad_accum_dtype": "int8"}},
         "data_types.grad_accum_dtype"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        deepspeed.from_config(config, 8)
    assert field in {problem.field for problem in caught.value.problems}
