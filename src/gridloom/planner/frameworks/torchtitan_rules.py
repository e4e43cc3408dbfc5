"""What torchtitan cannot run, and what would be right instead.

The refusals are those of torchtitan 0.2.2 (`distributed/parallel_dims.py`, `pipeline_parallel.py`,
`models/llama3/infra/parallelize.py`, `maybe_enable_amp`) and of 0.3.0's settings.
"""

from gridloom.model.parallel import Offload, ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal
from gridloom.planner.frameworks.refusal import Rule

HOST: tuple[Offload, ...] = ("optimizer", "gradients", "parameters")
"""What torchtitan moves to the host, all or nothing (`training.enable_cpu_offload`)."""


def chunks_a_stage(plan: ParallelPlan) -> int:
    """Return the chunks of layers that a stage holds."""
    return 2 if plan.schedule == "zero_bubble" else plan.virtual_stages


def shard_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what torchtitan asks of sharding, and of what goes with it."""
    wide = plan.tensor > 1 or plan.pipeline > 1
    return [
        Rule(
            plan.zero == 1,
            "zero",
            "FSDP2 shards gradients with the optimizer's states",
            "set `zero` to 2 or 3",
        ),
        Rule(
            plan.zero == 0 and plan.context > 1,
            "zero",
            "torchtitan shards parameters over context ranks",
            "set `zero` to 2 or 3",
        ),
        Rule(
            plan.zero == 0 and plan.data > 1 and wide,
            "zero",
            "torchtitan joins unsharded copies with no other axis",
            "set `zero` to 2 or 3, or `tensor` and `pipeline` to 1",
        ),
        Rule(
            plan.zero == 0
            and plan.data * plan.context == 1
            and wide
            and plan.precision not in {"fp32", "bf16_pure"},
            "precision",
            "torchtitan mixes precisions only where it shards, or on data ranks alone",
            "choose fp32 or bf16_pure, or let `data` or `context` be above 1 with `zero` 2 or 3",
        ),
        Rule(
            plan.zero > 1 and common.shard_ranks(plan) % plan.context != 0,
            "shard",
            f"a shard group of {plan.shard} ranks must hold all {plan.context} context ranks",
            "choose a multiple of `context`",
        ),
        Rule(
            bool(plan.offload) and (plan.offload != HOST or plan.zero == 0),
            "offload",
            "torchtitan offloads optimizer, gradients and parameters together, where it shards",
            f"write [{', '.join(HOST)}] with `zero` 2 or 3, or leave `offload` out",
        ),
    ]


def axis_rules(model: Transformer, plan: ParallelPlan, goal: Goal) -> list[Rule]:
    """Return what torchtitan asks of stages, sequences and expert ranks."""
    batches = common.micro_batches(plan, goal)
    rounds = max(1, batches // plan.pipeline)
    folded = common.shard_ranks(plan) if plan.zero else 1
    shared = common.expert_tensor(plan)
    if shared == 1:
        folded *= plan.tensor
    return [
        Rule(
            goal.sequence_length < 1,
            "sequence_length",
            "is not known",
            "state the tokens of a sequence",
        ),
        Rule(
            goal.sequence_length % (plan.tensor * 2 * plan.context) != 0
            and (plan.tensor > 1 or plan.context > 1),
            "sequence_length",
            f"{goal.sequence_length} tokens do not divide into 2 x {plan.context} x {plan.tensor}",
            "choose a multiple of 2 x `context` x `tensor`",
        ),
        Rule(
            plan.schedule == "interleaved" and plan.stage_layers != (),
            "stage_layers",
            "the chunks of an interleaved schedule are equal",
            "leave `stage_layers` out, or choose 1f1b",
        ),
        Rule(
            plan.schedule == "interleaved" and batches % rounds != 0,
            "micro_batch",
            f"the interleaved schedule cannot do {batches} micro-batches in {rounds} rounds",
            "choose a multiple of `pipeline` micro-batches",
        ),
        Rule(
            plan.schedule == "zero_bubble" and min(common.stages(model, plan)) < 2,
            "stage_layers",
            "a stage of the zero-bubble schedule holds two chunks",
            "give each stage at least two layers, or choose 1f1b",
        ),
        Rule(
            plan.expert > 1 and shared not in {1, plan.tensor},
            "expert_tensor",
            "torchtitan shares an expert among all tensor ranks or none",
            f"set `expert_tensor` to 1 or {plan.tensor}",
        ),
        Rule(
            plan.expert > 1 and folded % plan.expert != 0,
            "expert",
            f"{plan.expert} expert ranks do not divide the {folded} ranks of a shard group",
            "choose a divisor, or a larger shard group",
        ),
        Rule(
            plan.expert == 1 and plan.expert_tensor != 0,
            "expert_tensor",
            "experts that are not spread are shared as all matrices are",
            "set `expert_tensor` to 0",
        ),
    ]


def state_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what torchtitan asks of numbers, optimizer and recomputation."""
    return [
        Rule(
            plan.precision == "fp16",
            "precision",
            "torchtitan does not scale losses for fp16",
            "choose bf16",
        ),
        Rule(
            plan.optimizer != "adamw",
            "optimizer",
            f"torchtitan's settings name no {plan.optimizer}",
            "choose adamw",
        ),
        Rule(
            plan.recompute == "selective",
            "recompute",
            "torchtitan recomputes operators or whole layers",
            "choose operators or full",
        ),
        Rule(
            plan.loss not in {"copies", "fused"},
            "loss",
            "torchtitan's settings choose between a loss that is compiled and one that is not",
            "choose fused or copies",
        ),
        Rule(
            plan.dropout,
            "dropout",
            "torchtitan's models drop nothing out",
            "set `dropout` to false",
        ),
        Rule(
            plan.recompute_layers != 0,
            "recompute_layers",
            "torchtitan recomputes every layer or none",
            "set `recompute_layers` to 0",
        ),
    ]


def argument_rules(model: Transformer, plan: ParallelPlan) -> list[Rule]:
    """Return what cannot be said by arguments, which is all that torchtitan reads from 0.3 on."""
    return [
        Rule(
            plan.precision in {"fp8", "fp8_rowwise"},
            "precision",
            "torchtitan's arguments cannot switch fp8 on since 0.3",
            "choose bf16 and a function of torchtitan's that converts to float8, or use a TOML"
            " file with 0.2",
        ),
        Rule(
            plan.expert > 1 and common.expert_tensor(plan) != 1,
            "expert_tensor",
            "torchtitan shares no expert among tensor ranks since 0.3",
            "set `expert_tensor` to 1",
        ),
        Rule(
            plan.pipeline > 1 and model.layers % (plan.pipeline * chunks_a_stage(plan)) != 0,
            "stage_layers",
            "torchtitan's arguments cannot name uneven stages",
            "choose a `pipeline` that divides the layers, or use a TOML file with 0.2",
        ),
        Rule(
            plan.pipeline > 1 and len(set(plan.stage_layers)) > 1,
            "stage_layers",
            "torchtitan's arguments cannot name uneven stages",
            "leave `stage_layers` out, or use a TOML file with 0.2",
        ),
    ]
