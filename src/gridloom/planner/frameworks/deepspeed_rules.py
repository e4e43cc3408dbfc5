"""What DeepSpeed cannot run, and what would be right instead.

The refusals are those of DeepSpeed 0.19.8: its configuration, `runtime/engine.py`,
`runtime/pipe/engine.py` and `runtime/zero`.
"""

from gridloom.model.parallel import Optimizer, ParallelPlan
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.refusal import Rule

OPTIMIZERS: dict[Optimizer, str] = {
    "adamw": "AdamW",
    "lamb": "Lamb",
    "muon": "Muon",
    "sgd": "SGD",
    "adafactor": "Adafactor",
}
"""Names of the optimizers that DeepSpeed brings or takes from torch."""


def refusals(plan: ParallelPlan) -> list[Rule]:
    """Return all that DeepSpeed asks of a settled ``plan``."""
    return [
        *_axis_rules(plan),
        *_expert_rules(plan),
        *_number_rules(plan),
        *_overlap_rules(plan),
        *_host_rules(plan),
    ]


def _axis_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what DeepSpeed asks of ranks and layers."""
    return [
        Rule(
            plan.pipeline > 1 and plan.zero > 1,
            "zero",
            "DeepSpeed's pipeline shards optimizer states at most",
            "set `zero` to 0 or 1, or `pipeline` to 1",
        ),
        Rule(
            plan.schedule != "1f1b",
            "schedule",
            f"DeepSpeed's pipeline has no {plan.schedule} schedule",
            "choose 1f1b",
        ),
        Rule(
            plan.sequence_parallel,
            "sequence_parallel",
            "tensor ranks of DeepSpeed hold all tokens",
            "set `sequence_parallel` to false, or export to Megatron-LM",
        ),
        Rule(
            plan.shard != 0,
            "shard",
            "DeepSpeed shards over all data ranks since it removed MiCS",
            "set `shard` to 0, or export to torchtitan or Accelerate",
        ),
        Rule(
            plan.recompute in {"selective", "operators"},
            "recompute",
            "DeepSpeed recomputes whole layers",
            "choose none or full",
        ),
    ]


def _expert_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what DeepSpeed asks of experts (`module_inject/auto_ep_folding.py`)."""
    return [
        Rule(
            plan.expert > 1 and plan.pipeline > 1,
            "expert",
            "DeepSpeed does not spread experts in a pipeline",
            "set `pipeline` or `expert` to 1",
        ),
        Rule(
            plan.expert_tensor != 0,
            "expert_tensor",
            "DeepSpeed does not share spread experts among tensor ranks",
            "set `expert_tensor` to 0",
        ),
        Rule(
            plan.expert > 1
            and plan.tensor > 1
            and bool({"optimizer", "parameters"} & set(plan.offload)),
            "offload",
            "DeepSpeed does not offload experts that are folded into tensor ranks",
            "leave `offload` out, or set `tensor` to 1",
        ),
        Rule(
            plan.expert > 1 and plan.context > 1 and plan.tensor > 1,
            "context",
            "DeepSpeed folds experts into tensor ranks or into sequence ranks, not into both",
            "set `tensor` or `context` to 1",
        ),
    ]


def _number_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what DeepSpeed asks of numbers and of the optimizer."""
    return [
        Rule(
            plan.precision in {"fp8", "fp8_rowwise"},
            "precision",
            "DeepSpeed's configuration has no fp8",
            "choose bf16, or export to Megatron-LM or torchtitan",
        ),
        Rule(
            plan.precision == "bf16_pure" and plan.zero == 0,
            "precision",
            "DeepSpeed keeps bf16 alone only where it shards",
            "set `zero` to 1 or more, or choose bf16",
        ),
        Rule(
            common.gradient_bytes(plan) not in _widths(plan),
            "gradient_bytes",
            f"DeepSpeed sums no gradients of {common.gradient_bytes(plan)} bytes with"
            f" {plan.precision} and stage {plan.zero}",
            f"choose one of {', '.join(str(size) for size in sorted(_widths(plan)))}",
        ),
        Rule(
            plan.optimizer not in OPTIMIZERS,
            "optimizer",
            f"DeepSpeed has no {plan.optimizer}",
            f"choose one of {', '.join(OPTIMIZERS)}",
        ),
    ]


def _overlap_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what DeepSpeed cannot hide behind computation."""
    ranks = plan.data * plan.context
    return [
        Rule(
            plan.overlap_gradients and ranks > 1 and reduces_late(plan),
            "overlap_gradients",
            "DeepSpeed reduces gradients when the backward has ended, without ZeRO and in stage 1"
            " with fp32 gradients beside bf16",
            "set `overlap_gradients` to false or `zero` to 2, or `gradient_bytes` to 2 in stage 1",
        ),
        Rule(
            plan.zero in {1, 2} and plan.overlap_parameters and ranks > 1,
            "overlap_parameters",
            f"stage {plan.zero} of DeepSpeed gathers parameters at the end of a step",
            "set `overlap_parameters` to false, or `zero` to 3",
        ),
    ]


def _host_rules(plan: ParallelPlan) -> list[Rule]:
    """Return what DeepSpeed asks of what lives in the host's memory."""
    host = set(plan.offload)
    return [
        Rule(
            "optimizer" in host and plan.zero == 0,
            "offload",
            "DeepSpeed offloads what it shards",
            "set `zero` to 1 or more",
        ),
        Rule(
            "parameters" in host and plan.zero != 3,
            "offload",
            "DeepSpeed offloads parameters in stage 3 only",
            "set `zero` to 3, or leave `parameters` out",
        ),
        Rule(
            "gradients" in host and "optimizer" not in host,
            "offload",
            "DeepSpeed offloads gradients with the optimizer",
            "add `optimizer`",
        ),
        Rule(
            "optimizer" in host and plan.optimizer != "adamw",
            "offload",
            f"DeepSpeed does not offload {plan.optimizer}",
            "choose adamw, or leave `optimizer` out",
        ),
        Rule(
            "activations" in host and plan.recompute != "full",
            "offload",
            "DeepSpeed offloads the inputs of recomputed layers",
            "set `recompute` to full, or leave `activations` out",
        ),
    ]


def _widths(plan: ParallelPlan) -> set[int]:
    """Return the bytes that a summed gradient can have (`_do_optimizer_sanity_check`)."""
    if plan.precision == "fp32":
        return {4}
    return {2} if plan.precision == "bf16_pure" or plan.zero == 0 else {2, 4}


def reduces_late(plan: ParallelPlan) -> bool:
    """Return whether gradients are reduced only when the backward has ended.

    So do the engine without ZeRO, and the optimizer that stands in for stage 1 with bf16 weights
    and fp32 gradients (`runtime/bf16_optimizer.py`).
    """
    wide = plan.precision == "bf16" and common.gradient_bytes(plan) == 4
    return plan.zero == 0 or (plan.zero == 1 and wide and "optimizer" not in plan.offload)
