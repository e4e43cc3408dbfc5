"""Settings of torchtitan: what is written, what is read, what is refused."""

import tomllib

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import Offload, ParallelPlan
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.frameworks import torchtitan
from gridloom.planner.frameworks.common import Goal

MODEL = Transformer(
    name="m", layers=8, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocabulary=32000
)
MOE = replace(MODEL, experts=Experts(count=16, per_token=2, ffn=1408))
GOAL = Goal(sequence_length=4096, global_batch=64, tokens=4096 * 64 * 10)
HOST: tuple[Offload, ...] = ("optimizer", "gradients", "parameters")


def test_a_pipeline_in_full() -> None:
    plan = ParallelPlan(
        data=4, pipeline=2, tensor=2, zero=2, shard=2, micro_batch=2, schedule="zero_bubble"
    )
    assert tomllib.loads(torchtitan.to_toml(MODEL, plan, GOAL)) == {
        "training": {
            "seq_len": 4096,
            "local_batch_size": 16,
            "global_batch_size": 64,
            "mixed_precision_param": "bfloat16",
            "steps": 10,
        },
        "parallelism": {
            "data_parallel_replicate_degree": 2,
            "data_parallel_shard_degree": 2,
            "fsdp_reshard_after_forward": "never",
            "tensor_parallel_degree": 2,
            "pipeline_parallel_degree": 2,
            "context_parallel_degree": 1,
            "expert_parallel_degree": 1,
            "pipeline_parallel_schedule": "ZBVZeroBubble",
            "pipeline_parallel_microbatch_size": 2,
            "enable_async_tensor_parallel": False,
            "module_fqns_per_model_part": [
                ["tok_embeddings", "layers.0", "layers.1"],
                ["layers.2", "layers.3"],
                ["layers.4", "layers.5"],
                ["layers.6", "layers.7", "norm", "output"],
            ],
        },
        "compile": {"enable": True, "components": ["model"]},
        "optimizer": {"name": "AdamW"},
        "activation_checkpoint": {"mode": "none"},
    }


def test_arguments_of_the_newer_releases() -> None:
    plan = ParallelPlan(data=4, pipeline=2, zero=3, micro_batch=2, recompute="operators")
    text = " ".join(torchtitan.to_arguments(MODEL, plan, GOAL))
    assert "--parallelism.pipeline_parallel_layers_per_stage 4" in text
    assert "--parallelism.pipeline_parallel_first_stage_less_layers 0" in text
    assert "--training.disable_cuda_graphs" in text
    assert "--compile.enable --compile.components model" in text
    assert text.endswith(" activation-checkpoint:selective")
    bare = torchtitan.to_arguments(MODEL, ParallelPlan(data=4, fused=False), GOAL)
    assert "--compile.no-enable" in bare


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (MODEL, ParallelPlan(data=4, zero=1), "zero"),
        (MODEL, ParallelPlan(context=2), "zero"),
        (MODEL, ParallelPlan(data=4, tensor=2), "zero"),
        (MODEL, ParallelPlan(tensor=2), "precision"),
        (MODEL, ParallelPlan(data=4, context=4, zero=3, shard=2), "shard"),
        (MODEL, ParallelPlan(data=4, zero=3, offload=("optimizer",)), "offload"),
        (MODEL, ParallelPlan(data=4, offload=HOST), "offload"),
        (MODEL, ParallelPlan(data=2, context=3, zero=3), "sequence_length"),
        (MODEL, ParallelPlan(data=2, pipeline=2, zero=3, schedule="interleaved", virtual_stages=2,
                             micro_batch=1, stage_layers=(5, 3)), "stage_layers"),
        (MODEL, ParallelPlan(pipeline=4, data=2, zero=3, schedule="interleaved", virtual_stages=2,
                             micro_batch=2, precision="fp16"), "precision"),
        (MODEL, ParallelPlan(pipeline=8, data=2, zero=3, schedule="zero_bubble", micro_batch=1),
         "stage_layers"),
        (MOE, ParallelPlan(data=4, tensor=4, zero=3, expert=2, expert_tensor=2), "expert_tensor"),
        (MOE, ParallelPlan(data=4, zero=3, shard=2, expert=4), "expert"),
        (MOE, ParallelPlan(data=4, tensor=4, zero=3, expert_tensor=2), "expert_tensor"),
        (MODEL, ParallelPlan(data=4, optimizer="muon"), "optimizer"),
        (MODEL, ParallelPlan(data=4, recompute="selective"), "recompute"),
        (MODEL, ParallelPlan(data=4, recompute="full", recompute_layers=2), "recompute_layers"),
        (MODEL, ParallelPlan(data=4, loss="in_place"), "loss"),
        (MODEL, ParallelPlan(data=4, dropout=True), "dropout"),
    ],
)  # fmt: skip
def test_refusals_name_their_field(model: Transformer, plan: ParallelPlan, field: str) -> None:
    with pytest.raises(InputError) as caught:
        torchtitan.to_toml(model, plan, GOAL)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_micro_batches_must_fit_rounds() -> None:
    plan = ParallelPlan(
        pipeline=4, data=2, zero=3, schedule="interleaved", virtual_stages=2, micro_batch=1
    )
    with pytest.raises(InputError, match="9 micro-batches in 2 rounds"):
        torchtitan.to_toml(MODEL, plan, Goal(sequence_length=4096, global_batch=18))


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (MODEL, ParallelPlan(data=4, zero=3, precision="fp8"), "precision"),
        (MODEL, ParallelPlan(data=4, pipeline=3, zero=3, micro_batch=1), "stage_layers"),
        (MOE, ParallelPlan(data=4, tensor=2, zero=3, expert=2, expert_tensor=2), "expert_tensor"),
    ],
)
def test_what_only_a_file_can_say(model: Transformer, plan: ParallelPlan, field: str) -> None:
    assert torchtitan.to_toml(model, plan, GOAL)
    with pytest.raises(InputError) as caught:
        torchtitan.to_arguments(model, plan, GOAL)
    assert {problem.field for problem in caught.value.problems} == {field}


def test_a_file_of_somebody_else_is_read() -> None:
    text = """
        [model]
        name = "llama3"
        flavor = "8B"
        converters = ["quantize.linear.float8"]
        [training]
        local_batch_size = 2
        seq_len = 8192
        steps = 1000
        [parallelism]
        data_parallel_shard_degree = -1
        tensor_parallel_degree = 4
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "Interleaved1F1B"
        pipeline_parallel_layers_per_stage = 8
        pipeline_parallel_first_stage_less_layers = 0
        pipeline_parallel_last_stage_less_layers = 0
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "2"
    """
    read = torchtitan.from_toml(text, world_size=64, layers=32)
    assert read.plan == ParallelPlan(
        tensor=4,
        pipeline=2,
        data=8,
        sequence_parallel=True,
        schedule="interleaved",
        virtual_stages=2,
        zero=2,
        micro_batch=1,
        recompute="full",
        recompute_layers=8,
        fused=False,
        precision="fp8",
    )
    assert read.goal == Goal(sequence_length=8192, global_batch=16, tokens=1000 * 16 * 8192)
    assert read.unread == ("model.name", "model.flavor")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[parallelism", ""),
        ("", "parallelism.data_parallel_shard_degree"),
        ("[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 0",
         "parallelism.tensor_parallel_degree"),
        ("[parallelism]\ndata_parallel_shard_degree = 4\npipeline_parallel_degree = 2\n"
         'pipeline_parallel_schedule = "GPipe"', "parallelism.pipeline_parallel_schedule"),
        ('[optimizer]\nname = "Lion"\n[parallelism]\ndata_parallel_shard_degree = 4',
         "optimizer.name"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(text: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        torchtitan.from_toml(text)
    assert [problem.field for problem in caught.value.problems] == [field]
