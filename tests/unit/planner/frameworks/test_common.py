"""What every framework is asked for, and plans that are made comparable."""

import pytest
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.transformer import Experts, Transformer
from gridloom.planner.frameworks import accelerate, common, deepspeed, megatron, torchtitan
from gridloom.planner.frameworks.common import Goal

MODEL = Transformer(name="m", layers=10, hidden=512, ffn=2048, heads=8, kv_heads=8, vocabulary=1000)
SPARSE = replace(MODEL, experts=Experts(count=12, per_token=2, ffn=512))
GOAL = Goal(sequence_length=1024, global_batch=24)


@pytest.mark.parametrize(
    ("model", "plan", "field"),
    [
        (MODEL, ParallelPlan(data=5), "micro_batch"),
        (MODEL, ParallelPlan(data=2, micro_batch=5), "micro_batch"),
        (MODEL, ParallelPlan(data=2, pipeline=2, stage_layers=(5, 4)), "stage_layers"),
        (MODEL, ParallelPlan(data=2, pipeline=2, stage_layers=(3, 3, 4)), "stage_layers"),
        (MODEL, ParallelPlan(data=2, pipeline=12), "stage_layers"),
        (MODEL, ParallelPlan(tensor=3), "tensor"),
        (MODEL, ParallelPlan(data=8, zero=3, shard=3), "shard"),
        (MODEL, ParallelPlan(site_sync=SiteSync(kind="outer", every=50)), "site_sync"),
        (MODEL, ParallelPlan(data=2, expert=2), "expert"),
        (SPARSE, ParallelPlan(data=8, expert=8), "expert"),
        (SPARSE, ParallelPlan(data=6, expert=4), "expert"),
        (MODEL, ParallelPlan(data=0), "data"),
        (replace(MODEL, layers=0), ParallelPlan(), "layers"),
    ],
)
def test_what_no_framework_runs_is_refused_by_all(
    model: Transformer, plan: ParallelPlan, field: str
) -> None:
    for export in (
        megatron.to_arguments,
        deepspeed.to_config,
        torchtitan.to_toml,
        torchtitan.to_arguments,
        accelerate.to_yaml,
    ):
        with pytest.raises(InputError) as caught:
            export(model, plan, GOAL)
        assert field in {problem.field for problem in caught.value.problems}


def test_every_problem_is_named_at_once() -> None:
    plan = ParallelPlan(data=5, tensor=3, schedule="zero_bubble", pipeline=2, optimizer="lamb")
    with pytest.raises(InputError) as caught:
        megatron.to_arguments(MODEL, plan, GOAL)
    fields = {problem.field for problem in caught.value.problems}
    assert fields >= {"micro_batch", "tensor", "schedule", "optimizer"}
    assert all(problem.remedy for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("plan", "same"),
    [
        (ParallelPlan(), ParallelPlan(micro_batch=24)),
        (ParallelPlan(data=4, micro_batch=2, sequence_parallel=True, overlap_tensor=True),
         ParallelPlan(data=4, micro_batch=2)),
        (ParallelPlan(data=4, micro_batch=1, zero=3, shard=4),
         ParallelPlan(data=4, micro_batch=1, zero=3)),
        (ParallelPlan(data=4, micro_batch=1, shard=2, overlap_parameters=False),
         ParallelPlan(data=4, micro_batch=1)),
        (ParallelPlan(micro_batch=1, schedule="interleaved", virtual_stages=5),
         ParallelPlan(micro_batch=1)),
        (ParallelPlan(micro_batch=1, pipeline=2, schedule="interleaved"),
         ParallelPlan(micro_batch=1, pipeline=2)),
        (ParallelPlan(micro_batch=1, pipeline=2, stage_layers=(5, 5)),
         ParallelPlan(micro_batch=1, pipeline=2)),
        (ParallelPlan(micro_batch=1, pipeline=4),
         ParallelPlan(micro_batch=1, pipeline=4, stage_layers=(3, 3, 2, 2))),
        (ParallelPlan(micro_batch=1, recompute="full", recompute_layers=10),
         ParallelPlan(micro_batch=1, recompute="full")),
        (ParallelPlan(micro_batch=1, recompute="selective", recompute_layers=3),
         ParallelPlan(micro_batch=1, recompute="selective")),
        (ParallelPlan(micro_batch=1, offload=("gradients", "optimizer", "optimizer")),
         ParallelPlan(micro_batch=1, offload=("optimizer", "gradients"))),
        (ParallelPlan(micro_batch=1, gradient_bytes=4), ParallelPlan(micro_batch=1)),
        (ParallelPlan(micro_batch=1, data=2, zero=3, gradient_bytes=2),
         ParallelPlan(micro_batch=1, data=2, zero=3)),
        (ParallelPlan(micro_batch=1, tensor=2, expert_tensor=1),
         ParallelPlan(micro_batch=1, tensor=2)),
    ],
)  # fmt: skip
def test_plans_that_run_alike_are_settled_alike(plan: ParallelPlan, same: ParallelPlan) -> None:
    assert common.settled(MODEL, plan, GOAL) == same


def test_ranks_that_share_an_expert_are_kept_where_there_are_experts() -> None:
    plan = ParallelPlan(micro_batch=1, tensor=2, expert_tensor=1)
    assert common.settled(SPARSE, plan, GOAL) == plan
    usual = replace(plan, expert_tensor=2)
    assert common.settled(SPARSE, usual, GOAL).expert_tensor == 0


@pytest.mark.parametrize(
    ("plan", "width"),
    [
        (ParallelPlan(), 4),
        (ParallelPlan(zero=3), 2),
        (ParallelPlan(precision="fp16"), 2),
        (ParallelPlan(precision="fp32", zero=3), 4),
        (ParallelPlan(precision="bf16_pure"), 2),
        (ParallelPlan(precision="fp8"), 4),
        (ParallelPlan(gradient_bytes=2), 2),
    ],
)
def test_bytes_of_a_summed_gradient(plan: ParallelPlan, width: int) -> None:
    assert common.gradient_bytes(plan) == width
