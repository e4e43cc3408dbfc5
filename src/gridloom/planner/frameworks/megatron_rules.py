"""What Megatron-LM cannot run, and what would be right instead.

The refusals are those of `validate_args` in `megatron/training/arguments.py` of NVIDIA/Megatron-LM
and of the configuration classes of Megatron-Core 0.16.
"""

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal
from gridloom.planner.frameworks.refusal import Rule


def pipeline_rules(model: Transformer, plan: ParallelPlan, goal: Goal) -> list[Rule]:
    """Return what Megatron-LM asks of stages and of what they keep."""
    interleaved = plan.schedule == "interleaved"
    return [
        Rule(
            plan.schedule == "zero_bubble",
            "schedule",
            "Megatron-LM has no zero-bubble schedule",
            "choose 1f1b or interleaved, or export to torchtitan",
        ),
        Rule(
            interleaved and plan.stage_layers != (),
            "stage_layers",
            "uneven stages are given to Megatron-LM without the interleaved schedule only",
            "leave `stage_layers` out, or choose 1f1b",
        ),
        Rule(
            interleaved and common.micro_batches(plan, goal) % plan.pipeline != 0,
            "micro_batch",
            f"the interleaved schedule wants a multiple of {plan.pipeline} micro-batches, not"
            f" {common.micro_batches(plan, goal)}",
            "change `micro_batch` or the global batch, or choose 1f1b",
        ),
        Rule(
            plan.recompute_layers % plan.virtual_stages != 0,
            "recompute_layers",
            f"{plan.recompute_layers} layers a stage cannot be the same in {plan.virtual_stages}"
            " chunks",
            "choose a multiple of `virtual_stages`",
        ),
        Rule(
            "activations" in plan.offload
            and (plan.pipeline > 1 or plan.recompute != "none" or model.layers < 2),
            "offload",
            "Megatron-LM offloads activations without a pipeline and without recomputation only",
            "leave `activations` out, or set `pipeline` to 1 and `recompute` to none",
        ),
    ]


def sharding_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what Megatron-LM asks of sharding."""
    return [
        Rule(
            plan.zero > 1 and plan.pipeline > 1,
            "zero",
            f"Megatron-FSDP, which shards as stage {plan.zero} does, is not made for a pipeline",
            "set `zero` to 1, or `pipeline` to 1",
        ),
        Rule(
            plan.zero > 1 and plan.precision == "fp16",
            "precision",
            "Megatron-FSDP is not made for fp16",
            "choose bf16, or set `zero` to 1",
        ),
        Rule(
            plan.zero > 0 and plan.overlap_parameters and not plan.overlap_gradients,
            "overlap_parameters",
            "Megatron-LM overlaps the gathering of parameters only with that of gradients",
            "set `overlap_gradients` too",
        ),
    ]


def optimizer_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what Megatron-LM asks of the optimizer, and of what it leaves to the host."""
    return [
        Rule(
            plan.optimizer in {"lamb", "adafactor"},
            "optimizer",
            f"Megatron-LM has no {plan.optimizer}",
            "choose adamw, sgd or muon, or export to DeepSpeed",
        ),
        Rule(
            plan.optimizer == "muon" and plan.zero > 1,
            "optimizer",
            "Muon in Megatron-LM has its state sharded by layers, nothing more",
            "set `zero` to 0 or 1",
        ),
        Rule(
            plan.optimizer == "muon" and plan.zero == 1 and plan.overlap_parameters,
            "overlap_parameters",
            "Megatron-LM does not gather parameters behind the forward with Muon",
            "set `overlap_parameters` to false",
        ),
        Rule(
            plan.optimizer == "muon" and plan.zero == 1 and plan.shard != 0,
            "shard",
            "Megatron-LM shards Muon's state over all data ranks",
            "set `shard` to 0",
        ),
        Rule(
            plan.optimizer in {"adamw_16bit", "adamw_8bit"} and plan.zero != 1,
            "optimizer",
            "short moments need Megatron-LM's distributed optimizer",
            "set `zero` to 1",
        ),
        Rule(
            "optimizer" in plan.offload and (plan.zero == 0 or plan.optimizer != "adamw"),
            "offload",
            "Megatron-LM offloads only AdamW, and only in its distributed optimizer",
            "set `zero` to 1 and choose adamw, or leave `optimizer` out",
        ),
        Rule(
            bool({"gradients", "parameters"} & set(plan.offload)),
            "offload",
            "Megatron-LM offloads neither gradients nor parameters",
            "leave them out, or export to DeepSpeed",
        ),
    ]


def rank_rules(model: Transformer, plan: ParallelPlan, goal: Goal) -> list[Rule]:
    """Return what Megatron-LM asks of tensor, context and expert ranks."""
    experts = model.experts is not None
    return [
        Rule(
            goal.sequence_length < 1,
            "sequence_length",
            "is not known",
            "state the tokens of a sequence",
        ),
        Rule(
            plan.context > 1 and goal.sequence_length % (2 * plan.context) != 0,
            "context",
            f"{goal.sequence_length} tokens do not divide into 2 x {plan.context} parts",
            "choose a sequence that is a multiple of 2 x `context`",
        ),
        Rule(
            plan.overlap_tensor and not plan.sequence_parallel,
            "overlap_tensor",
            "Megatron-LM overlaps tensor-parallel collectives with sequence parallelism only",
            "set `sequence_parallel` too",
        ),
        Rule(
            experts and plan.tensor > 1 and not plan.sequence_parallel,
            "sequence_parallel",
            "experts and tensor parallelism train with sequence parallelism only",
            "set `sequence_parallel`",
        ),
        Rule(
            plan.expert > 1 and plan.precision == "fp16",
            "precision",
            "Megatron-LM does not spread experts with fp16",
            "choose bf16",
        ),
    ]


def number_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what Megatron-LM asks of numbers, and of what is computed again."""
    width = common.gradient_bytes(plan)
    allowed = {4} if plan.precision == "fp32" else {2, 4}
    return [
        Rule(
            plan.precision in {"bf16_pure", "fp8_rowwise"},
            "precision",
            f"Megatron-LM has no {plan.precision}: master weights are fp32, scales a tensor's or a"
            " block's",
            "choose bf16 or fp8, or export to torchtitan",
        ),
        Rule(
            width not in allowed,
            "gradient_bytes",
            f"Megatron-LM sums no gradients of {width} bytes with {plan.precision}",
            f"choose one of {', '.join(str(size) for size in sorted(allowed))}, or 0",
        ),
        Rule(
            plan.recompute == "operators",
            "recompute",
            "Megatron-LM recomputes attention's core or whole layers",
            "choose selective or full, or export to torchtitan",
        ),
        Rule(
            plan.loss == "chunked",
            "loss",
            "Megatron-LM computes the loss of all tokens at a time",
            "choose in_place, copies or fused",
        ),
    ]
