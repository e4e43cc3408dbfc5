"""What is exported to a framework and read back is the same plan, or the export is refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Experts, LatentAttention, Norm, Transformer
from gridloom.planner.frameworks import accelerate, common, deepspeed, megatron, torchtitan
from gridloom.planner.frameworks.common import Goal, Imported

DENSE = Transformer(
    name="", layers=24, hidden=2048, ffn=5632, heads=16, kv_heads=8, vocabulary=32000
)
SPARSE = replace(DENSE, experts=Experts(count=16, per_token=2, ffn=1408))

Case = tuple[Transformer, ParallelPlan, Goal]


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    """A model that Megatron-LM can build."""
    layers, heads = draw(st.integers(1, 40)), draw(st.sampled_from([4, 8, 12]))
    head_size = draw(st.sampled_from([0, 96]))
    norms: list[Norm] = ["rms", "layer"]
    norm = draw(st.sampled_from(norms))
    bias = draw(st.sampled_from([(False,) * 3, (True,) * 3, (True, False, False)]))
    window = draw(st.sampled_from([0, 512]))
    latent = draw(st.none() | st.builds(LatentAttention, **dict.fromkeys(SIZES, st.just(64))))
    return Transformer(
        name="",
        layers=layers,
        hidden=heads * 64,
        ffn=draw(st.integers(1, 4000)),
        heads=heads,
        kv_heads=heads if latent else draw(st.sampled_from([1, heads // 2, heads])),
        head_size=head_size,
        vocabulary=draw(st.integers(1, 200_000)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        positions=draw(st.sampled_from([0, 4096])),
        norm=norm,
        norm_bias=norm == "layer",
        qk_norm="" if latent else draw(st.sampled_from(["", "head"])),
        qkv_bias=bias[0],
        output_bias=bias[1],
        ffn_bias=bias[2],
        window=window,
        full_every=draw(st.integers(0, 6)) if window else 0,
        latent=latent,
        experts=draw(st.none() | experts(layers)),
        prediction_layers=draw(st.integers(0, 2)),
    )


SIZES = ("query_rank", "kv_rank", "rope_size", "nope_size", "value_size")


@st.composite
def experts(draw: st.DrawFn, layers: int) -> Experts:
    dense = draw(st.integers(0, layers - 1))
    every = draw(st.integers(1, 4))
    if (layers - dense) // every < 2:  # one layer alone, or none, has no distance to the next
        every = layers - dense
    shared = draw(st.sampled_from([0, 1408]))
    return Experts(
        count=draw(st.integers(1, 64)),
        per_token=draw(st.integers(1, 8)),
        ffn=draw(st.integers(1, 4000)),
        shared_ffn=shared,
        shared_gate=shared > 0 and draw(st.booleans()),
        dense_layers=dense,
        every=every,
        capacity_factor=draw(st.sampled_from([0.0, 1.25])),
        router_bias=draw(st.booleans()),
    )


@given(transformers())
def test_megatron_gives_the_model_back(model: Transformer) -> None:
    plan, goal = ParallelPlan(micro_batch=1), Goal(sequence_length=2048, global_batch=8)
    words = megatron.to_arguments(model, plan, goal)
    assert megatron.from_arguments(words, world_size=1).model == model


def any_plans() -> st.SearchStrategy[ParallelPlan]:
    """Plans of all kinds; few of them fit a framework."""
    return st.builds(
        ParallelPlan,
        tensor=st.sampled_from([1, 2, 3, 8]),
        pipeline=st.sampled_from([1, 2, 3, 4]),
        context=st.sampled_from([1, 2]),
        data=st.sampled_from([1, 2, 3, 8]),
        expert=st.sampled_from([1, 1, 2, 4]),
        expert_tensor=st.sampled_from([0, 1, 2]),
        sequence_parallel=st.booleans(),
        schedule=st.sampled_from(["1f1b", "interleaved", "zero_bubble"]),
        virtual_stages=st.sampled_from([1, 2, 3]),
        stage_layers=st.sampled_from([(), (), (13, 11), (7, 9, 8), (6, 6, 6, 6), (5, 7, 7, 5)]),
        zero=st.sampled_from([0, 1, 2, 3]),
        shard=st.sampled_from([0, 0, 1, 2, 4]),
        micro_batch=st.sampled_from([0, 1, 2, 4]),
        recompute=st.sampled_from(["none", "selective", "operators", "full"]),
        recompute_layers=st.sampled_from([0, 0, 2, 100]),
        flash_attention=st.booleans(),
        gather_unit=st.sampled_from(["layer", "tensor"]),
        native_attention=st.booleans(),
        fused=st.booleans(),
        blocking_launches=st.booleans(),
        gradient_bytes=st.sampled_from([0, 0, 2, 4]),
        loss=st.sampled_from(["copies", "in_place", "fused", "chunked"]),
        dropout=st.booleans(),
        precision=st.sampled_from(["fp32", "fp16", "bf16", "bf16_pure", "fp8", "fp8_rowwise"]),
        optimizer=st.sampled_from(
            ["adamw", "adamw", "adamw_8bit", "adamw_16bit", "lamb", "muon", "sgd"]
        ),
        offload=st.lists(
            st.sampled_from(["optimizer", "gradients", "parameters", "activations"]), max_size=4
        ).map(tuple),
        overlap_gradients=st.booleans(),
        overlap_parameters=st.booleans(),
        overlap_tensor=st.booleans(),
    )


@dataclass(frozen=True)
class Framework:
    """One way out and back; ``usual`` plans have the field at one of a few values."""

    back: Callable[[Case], Imported]
    settled: Callable[[Transformer, ParallelPlan, Goal], ParallelPlan]
    usual: dict[str, list[Any]] = field(default_factory=dict)


def through_megatron(case: Case) -> Imported:
    words = megatron.to_arguments(*case)
    ranks = case[1].world_size
    text = "torchrun pretrain_gpt.py \\\n    " + " \\\n    ".join(words)
    read = megatron.from_arguments(words, world_size=ranks)
    assert megatron.from_arguments(text, world_size=ranks) == read
    assert read.unread == ()
    assert read.goal == case[2]
    assert megatron.to_arguments(case[0], read.plan, read.goal) == words
    return read


def through_deepspeed(case: Case) -> Imported:
    config = json.loads(json.dumps(deepspeed.to_config(*case)))
    plan = case[1]
    read = deepspeed.from_config(config, plan.world_size, pipeline=plan.pipeline)
    assert read.unread == ()
    assert read.goal.global_batch == case[2].global_batch
    return read


def through_toml(case: Case) -> Imported:
    read = torchtitan.from_toml(torchtitan.to_toml(*case), world_size=case[1].world_size)
    assert read.unread == ()
    assert read.goal == case[2]
    assert torchtitan.to_toml(case[0], read.plan, read.goal) == torchtitan.to_toml(*case)
    return read


def through_yaml(case: Case) -> Imported:
    read = accelerate.from_yaml(accelerate.to_yaml(*case))
    assert read.unread == ()
    return read


FRAMEWORKS = {
    "megatron": Framework(
        through_megatron,
        megatron.settled,
        {
            "schedule": ["1f1b", "interleaved"],
            "optimizer": ["adamw", "sgd"],
            "offload": [()],
            "overlap_gradients": [True],
            "shard": [0],
            "precision": ["fp32", "bf16", "fp8"],
            "zero": [0, 1],
            "sequence_parallel": [True],
            "gather_unit": ["layer"],
            "gradient_bytes": [0, 4],
            "recompute": ["none", "selective", "full"],
            "loss": ["copies", "in_place", "fused"],
        },
    ),
    "deepspeed": Framework(
        through_deepspeed,
        deepspeed.settled,
        {
            "schedule": ["1f1b"],
            "optimizer": ["adamw", "lamb", "muon", "sgd"],
            "offload": [()],
            "recompute": ["none", "full"],
            "precision": ["fp16", "bf16", "bf16_pure"],
            "gradient_bytes": [0, 2],
            "expert": [1],
            "expert_tensor": [0],
            "zero": [3],
            "pipeline": [1],
            "shard": [0],
            "sequence_parallel": [False],
        },
    ),
    "torchtitan": Framework(
        through_toml,
        torchtitan.settled,
        {
            "schedule": ["1f1b", "zero_bubble"],
            "optimizer": ["adamw"],
            "offload": [()],
            "recompute_layers": [0],
            "precision": ["fp32", "bf16_pure"],
            "recompute": ["none", "operators", "full"],
            "loss": ["copies", "fused"],
            "dropout": [False],
            "expert": [1],
            "expert_tensor": [0],
            "zero": [2, 3],
            "shard": [0],
        },
    ),
    "accelerate": Framework(
        through_yaml,
        accelerate.settled,
        {
            "pipeline": [1],
            "tensor": [1],
            "expert": [1],
            "expert_tensor": [0],
            "sequence_parallel": [False],
            "overlap_tensor": [False],
            "zero": [2, 3],
            "context": [2],
            "shard": [0],
            "offload": [(), ("optimizer", "gradients", "parameters")],
            "recompute": ["none", "full"],
            "recompute_layers": [0],
            "precision": ["fp32", "fp16", "bf16", "fp8"],
        },
    ),
}


@st.composite
def cases(draw: st.DrawFn, usual: dict[str, list[Any]]) -> Case:
    """A plan with what is ``usual``, on a batch that it divides."""
    plan = draw(any_plans())
    plan = replace(plan, **{name: draw(st.sampled_from(values)) for name, values in usual.items()})
    model = draw(st.sampled_from([DENSE, SPARSE])) if plan.expert == 1 else SPARSE
    share = plan.data * max(1, plan.micro_batch) * plan.pipeline
    goal = Goal(sequence_length=2304, global_batch=share * draw(st.sampled_from([1, 3])))
    if usual:
        goal = replace_tokens(goal, draw(st.sampled_from([0, 5])))
        tensor = plan.tensor if model.heads % plan.tensor == 0 else 2
        fit = len(plan.stage_layers) == plan.pipeline and plan.schedule != "interleaved"
        plan = replace(plan, tensor=tensor, stage_layers=plan.stage_layers if fit else ())
        even = plan.schedule != "interleaved" or 24 % (plan.pipeline * plan.virtual_stages) == 0
        whole = plan.recompute_layers % plan.virtual_stages == 0
        plan = replace(
            plan,
            virtual_stages=plan.virtual_stages if even else 1,
            micro_batch=max(1, plan.micro_batch),
            recompute_layers=plan.recompute_layers if whole else 0,
        )
        ranks = plan.tensor * plan.context * plan.data
        if ranks % (plan.expert * common.expert_tensor(plan)):
            plan = replace(plan, expert=1, expert_tensor=0)
    return model, plan, goal


def replace_tokens(goal: Goal, steps: int) -> Goal:
    tokens = steps * goal.sequence_length * goal.global_batch
    return Goal(sequence_length=goal.sequence_length, global_batch=goal.global_batch, tokens=tokens)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_export_then_import_gives_the_plan(name: str) -> None:
    framework = FRAMEWORKS[name]

    @given(cases(framework.usual))
    def holds(case: Case) -> None:
        model, plan, goal = case
        if name == "deepspeed":
            goal = Goal(sequence_length=2304, global_batch=goal.global_batch)
        assert framework.back((model, plan, goal)).plan == framework.settled(model, plan, goal)

    holds()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_any_plan_is_refused_or_comes_back(name: str) -> None:
    framework = FRAMEWORKS[name]

    @given(cases({}))
    def holds(case: Case) -> None:
        refused: tuple[Problem, ...] = ()
        try:
            plan = framework.back(case).plan
        except InputError as error:
            refused = error.problems
        else:
            assert plan == framework.settled(*case)
        assert all(problem.field and problem.remedy for problem in refused)

    holds()


@given(cases({}))
def test_what_is_settled_stays(case: Case) -> None:
    model, plan, goal = case
    assume(min(common.stages(model, plan)) > 0)
    once = common.settled(model, plan, goal)
    assert common.settled(model, once, goal) == once
    assert once.world_size == plan.world_size
