"""Configuration files of Accelerate: what is written, what is read, what is refused."""

import pytest
import yaml
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import Offload, ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.frameworks import accelerate
from gridloom.planner.frameworks.common import Goal

MODEL = Transformer(
    name="m", layers=24, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocabulary=32000
)
MOE = replace(MODEL, experts=Experts(count=16, per_token=2, ffn=1408))
GOAL = Goal(sequence_length=4096, global_batch=64)
HOST: tuple[Offload, ...] = ("optimizer", "gradients", "parameters")


def test_sharded_copies_in_full() -> None:
    plan = ParallelPlan(
        data=16,
        context=2,
        tensor=2,
        zero=2,
        shard=8,
        micro_batch=2,
        recompute="full",
        offload=("activations",),
    )
    text = accelerate.to_yaml(MODEL, plan, GOAL, node=4)
    assert "# sequences a process takes at once: 2\n# gradient accumulation steps: 2\n" in text
    config = yaml.safe_load(text)
    assert config["distributed_type"] == "FSDP"
    assert (config["num_processes"], config["num_machines"]) == (64, 16)
    assert config["mixed_precision"] == "bf16"
    assert config["fsdp_config"] == {
        "fsdp_activation_checkpointing": True,
        "fsdp_activation_checkpointing_offload": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": False,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_version": 2,
    }
    assert config["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 4,
        "parallelism_config_dp_shard_size": 4,
        "parallelism_config_tp_size": 2,
        "parallelism_config_cp_size": 2,
    }


@pytest.mark.parametrize(
    ("plan", "kind"),
    [(ParallelPlan(), "NO"), (ParallelPlan(data=4), "MULTI_GPU"),
     (ParallelPlan(data=4, zero=3), "FSDP")],
)  # fmt: skip
def test_kinds_of_launch(plan: ParallelPlan, kind: str) -> None:
    assert yaml.safe_load(accelerate.to_yaml(MODEL, plan, GOAL))["distributed_type"] == kind


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (MODEL, ParallelPlan(pipeline=2), "pipeline"),
        (MOE, ParallelPlan(data=4, zero=3, expert=2), "expert"),
        (MODEL, ParallelPlan(data=2, tensor=2, zero=3, sequence_parallel=True),
         "sequence_parallel"),
        (MODEL, ParallelPlan(data=2, tensor=2, zero=3, overlap_tensor=True), "overlap_tensor"),
        (MODEL, ParallelPlan(data=4, zero=1), "zero"),
        (MODEL, ParallelPlan(data=4, tensor=2), "zero"),
        (MODEL, ParallelPlan(data=4, context=4, zero=3, shard=2), "shard"),
        (MODEL, ParallelPlan(data=4, context=4, zero=3, shard=4), "shard"),
        (MODEL, ParallelPlan(data=4, zero=3, recompute="selective"), "recompute"),
        (MODEL, ParallelPlan(data=4, recompute="full"), "recompute"),
        (MODEL, ParallelPlan(data=4, zero=3, recompute="full", recompute_layers=3),
         "recompute_layers"),
        (MODEL, ParallelPlan(data=4, zero=3, offload=("optimizer",)), "offload"),
        (MODEL, ParallelPlan(data=4, offload=HOST), "offload"),
        (MODEL, ParallelPlan(data=4, zero=3, offload=("activations",)), "offload"),
        (MODEL, ParallelPlan(data=4, zero=3, precision="bf16_pure"), "precision"),
    ],
)  # fmt: skip
def test_refusals_name_their_field(model: Transformer, plan: ParallelPlan, field: str) -> None:
    with pytest.raises(InputError) as caught:
        accelerate.to_yaml(model, plan, GOAL)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize(
    ("strategy", "zero"),
    [("FULL_SHARD", 3), ("1", 3), ("SHARD_GRAD_OP", 2), ("2", 2), ("NO_SHARD", 0)],
)
def test_the_first_fsdp_is_read(strategy: str, zero: int) -> None:
    read = accelerate.from_yaml(
        "distributed_type: FSDP\nnum_processes: 16\nmixed_precision: fp16\nmachine_rank: 0\n"
        "deepspeed_config: {}\ntpu_use_cluster: false\n"
        f"fsdp_config:\n  fsdp_sharding_strategy: {strategy}\n  fsdp_offload_params: true\n"
    )
    assert read.plan == replace(
        ParallelPlan(data=16, precision="fp16", offload=HOST),
        zero=zero,
    )
    assert read.absent == accelerate.NOT_CARRIED
    assert read.unread == ("tpu_use_cluster",)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a: [", ""),
        ("just words", ""),
        ("distributed_type: DEEPSPEED", "distributed_type"),
        ("distributed_type: MULTI_GPU\nnum_processes: 0", "num_processes"),
        ("mixed_precision: int4", "mixed_precision"),
        ("distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
         "parallelism_config: {parallelism_config_tp_size: 3}", "num_processes"),
        ("distributed_type: FSDP\nnum_processes: 8\n"
         "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}",
         "fsdp_config.fsdp_sharding_strategy"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(text: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        accelerate.from_yaml(text)
    assert [problem.field for problem in caught.value.problems] == [field]
