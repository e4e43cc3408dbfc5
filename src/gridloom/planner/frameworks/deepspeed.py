"""A plan as a DeepSpeed configuration, and such a configuration as a plan.

Keys, defaults and refusals are those of DeepSpeed 0.19.8 (`deepspeed/runtime/config.py`,
`runtime/zero/config.py`, `module_inject/auto_ep_config.py`). DeepSpeed leaves the model, its
pipeline stages, its attention and its recomputed layers to the program: `NOT_CARRIED` names them.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace

from gridloom.model.parallel import Offload, Optimizer, ParallelPlan, Precision
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal, Imported, Rule
from gridloom.planner.frameworks.reader import Reader

NOT_CARRIED = (
    "model",
    "plan.pipeline",
    "plan.stage_layers",
    "plan.recompute_layers",
    "plan.flash_attention",
    "plan.fused",
    "plan.loss",
    "plan.dropout",
    "goal.sequence_length",
    "goal.tokens",
)
"""What the program sets itself: a `PipelineModule`, attention, data."""

_PROGRAM: dict[str, Any] = {
    "stage_layers": (),
    "recompute_layers": 0,
    "flash_attention": True,
    "fused": True,
    "loss": "copies",
    "dropout": False,
}

_OPTIMIZERS: dict[Optimizer, str] = {
    "adamw": "AdamW",
    "lamb": "Lamb",
    "muon": "Muon",
    "sgd": "SGD",
    "adafactor": "Adafactor",
}
_UNTESTED = {"lamb", "sgd", "adafactor"}  # DeepSpeed asks to be told that ZeRO may hold them

_OURS = (
    "zero_allow_untested_optimizer",
    "optimizer.params",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
)
"""Keys that belong to a plan's but say nothing more of it."""

_PURE = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
"""What leaves out the fp32 copy of the weights, and fp32 moments."""

_Zero = Literal[0, 1, 2, 3]


def to_config(model: Transformer, plan: ParallelPlan, goal: Goal) -> dict[str, Any]:
    """Return the configuration, to be written as JSON, that makes DeepSpeed run ``plan``.

    Raises:
        InputError: DeepSpeed cannot run this; every field is named that stands in the way.
    """
    common.enforce([common.is_positive(model, plan)])
    plan = settled(model, plan, goal)
    common.enforce(
        [*common.rules(model, plan, goal), *_axis_rules(plan), *_state_rules(plan)],
    )
    config: dict[str, Any] = {
        "train_batch_size": goal.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": common.micro_batches(plan, goal),
        "optimizer": {"type": _OPTIMIZERS[plan.optimizer], "params": {}},
        "zero_optimization": _zero_section(plan),
    }
    if plan.precision == "bf16_pure":
        config["bf16"] = {"enabled": True, **dict.fromkeys(_PURE, True)}
    elif plan.precision != "fp32":
        config[plan.precision] = {"enabled": True}
    if plan.precision in {"fp16", "bf16"} and common.gradient_bytes(plan) == 4:
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    if plan.zero and plan.optimizer in _UNTESTED:
        config["zero_allow_untested_optimizer"] = True
    if plan.tensor > 1:
        config["tensor_parallel"] = {
            "autotp_size": plan.tensor,
            "tp_overlap_comm": plan.overlap_tensor,
        }
    if plan.context > 1:
        config["sequence_parallel_size"] = plan.context
    if plan.expert > 1:
        config["expert_parallel"] = {
            "enabled": True,
            "autoep_size": plan.expert,
            "expert_tensor_parallel_size": common.expert_tensor(plan),
        }
    if plan.recompute == "full":
        config["activation_checkpointing"] = {"cpu_checkpointing": "activations" in plan.offload}
    return config


def from_config(config: Mapping[str, Any], world_size: int, *, pipeline: int = 1) -> Imported:
    """Return the part of a plan that a DeepSpeed configuration holds.

    Args:
        config: The configuration, as read from JSON.
        world_size: Processes.
        pipeline: Stages of the program's `PipelineModule`; 1 without one.

    Raises:
        InputError: A value cannot be; every one is named.
    """
    reader = Reader(config, ours=_OURS)
    tensor = reader.number("tensor_parallel.autotp_size", 0) or reader.number(
        "tensor_parallel.tp.tp_size", 1
    )
    tensor, context = max(1, tensor), reader.number("sequence_parallel_size", 1)
    replica = max(1, tensor * context * pipeline)
    if world_size < 1 or world_size % replica:
        reader.fault("world_size", f"{world_size} is no whole number of copies of {replica} ranks")
    data = max(1, world_size // replica)
    batch, micro = _batches(reader, data)
    zero, offload = _zero_and_offload(reader)
    recompute = isinstance(config.get("activation_checkpointing"), Mapping)
    if recompute and reader.flag("activation_checkpointing.cpu_checkpointing"):
        offload = (*offload, "activations")
    spread = reader.flag("expert_parallel.enabled")
    precision = _precision(reader)
    wide = _gradient_bytes(reader, precision)
    bare = ParallelPlan(zero=zero, precision=precision)
    plan = ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=reader.number("expert_parallel.autoep_size", 1) if spread else 1,
        expert_tensor=reader.number("expert_parallel.expert_tensor_parallel_size", 1),
        zero=zero,
        micro_batch=micro,
        recompute="full" if recompute else "none",
        gather_unit="tensor" if zero == 3 else "layer",
        precision=precision,
        gradient_bytes=wide if wide != common.gradient_bytes(bare) else 0,
        optimizer=_optimizer(reader),
        offload=offload,
        overlap_parameters=_overlaps_parameters(reader, zero, data * context),
        overlap_tensor=tensor > 1 and reader.flag("tensor_parallel.tp_overlap_comm"),
    )
    plan = replace(
        plan,
        expert_tensor=_usual_expert_tensor(plan),
        overlap_gradients=_overlaps_gradients(reader, plan),
    )
    reader.end()
    return Imported(
        plan=plan,
        goal=Goal(sequence_length=0, global_batch=batch),
        absent=tuple(name for name in NOT_CARRIED if name != "plan.pipeline" or pipeline == 1),
        unread=reader.unread,
    )


def settled(model: Transformer, plan: ParallelPlan, goal: Goal) -> ParallelPlan:
    """Return ``plan`` as DeepSpeed runs it; `from_config` gives this back without a pipeline.

    Stage 3 gathers one parameter at a time. An optimizer in the host's memory takes the gradients
    with it (ZeRO-Offload, Ren et al., 2021).
    A single rank of data has nothing to overlap.
    """
    plan = common.settled(model, plan, goal)
    offload = tuple(
        kind
        for kind in ("optimizer", "gradients", "parameters", "activations")
        if kind in plan.offload or (kind == "gradients" and "optimizer" in plan.offload)
    )
    alone = plan.data * plan.context == 1
    return replace(
        plan,
        offload=offload,
        overlap_gradients=plan.overlap_gradients or alone,
        overlap_parameters=plan.overlap_parameters or alone,
        gather_unit="tensor" if plan.zero == 3 else "layer",
        **_PROGRAM,
    )


def _axis_rules(plan: ParallelPlan) -> list[Rule]:
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


def _state_rules(plan: ParallelPlan) -> list[Rule]:
    ranks = plan.data * plan.context
    host = set(plan.offload)
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
            plan.optimizer not in _OPTIMIZERS,
            "optimizer",
            f"DeepSpeed has no {plan.optimizer}",
            f"choose one of {', '.join(_OPTIMIZERS)}",
        ),
        Rule(
            plan.overlap_gradients and ranks > 1 and _reduces_late(plan),
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


def _reduces_late(plan: ParallelPlan) -> bool:
    """Return whether gradients are reduced only when the backward has ended.

    So do the engine without ZeRO, and the optimizer that stands in for stage 1 with bf16 weights
    and fp32 gradients (`runtime/bf16_optimizer.py`).
    """
    wide = plan.precision == "bf16" and common.gradient_bytes(plan) == 4
    return plan.zero == 0 or (plan.zero == 1 and wide and "optimizer" not in plan.offload)


def _zero_section(plan: ParallelPlan) -> dict[str, Any]:
    section: dict[str, Any] = {"stage": plan.zero}
    if plan.zero:
        section |= {
            "overlap_comm": plan.overlap_gradients,
            "contiguous_gradients": True,
            # Muon needs whole gradients (`runtime/zero/stage3.py`)
            "reduce_scatter": plan.optimizer != "muon",
        }
    if plan.zero == 3 and not plan.overlap_parameters:
        section["stage3_prefetch_bucket_size"] = 0
    for kind in ("optimizer", "parameters"):
        if kind in plan.offload:
            key = f"offload_{'param' if kind == 'parameters' else kind}"
            section[key] = {"device": "cpu", "pin_memory": True}
    return section


def _batches(reader: Reader, data: int) -> tuple[int, int]:
    """Return the global and the micro-batch; DeepSpeed derives what one of three leaves open."""
    batch = reader.number("train_batch_size", 0)
    micro = reader.number("train_micro_batch_size_per_gpu", 0)
    steps = reader.number("gradient_accumulation_steps", 0)
    if not batch and not micro:
        reader.fault("train_batch_size", "neither it nor train_micro_batch_size_per_gpu is given")
        return 1, 1
    if not batch:
        batch = micro * max(1, steps) * data
    if not micro:
        micro = batch // (data * max(1, steps))
    if not steps:
        steps = batch // (data * max(1, micro))
    if micro * steps * data != batch or batch == 0:
        reader.fault("train_batch_size", f"{batch} is not {micro} x {steps} x {data} copies")
    return batch, micro


def _zero_and_offload(reader: Reader) -> tuple[_Zero, tuple[Offload, ...]]:
    stage = reader.number("zero_optimization.stage", 0)
    stages: tuple[_Zero, ...] = (0, 1, 2, 3)
    if stage not in stages:
        reader.fault("zero_optimization.stage", f"there is no stage {stage}")
    offload: list[Offload] = []
    devices = ("none", "cpu", "nvme")
    if reader.word("zero_optimization.offload_optimizer.device", devices, "none") != "none":
        offload += ["optimizer", "gradients"]
    if reader.word("zero_optimization.offload_param.device", devices, "none") != "none":
        offload.append("parameters")
    return stages[min(stage, 3)], tuple(offload)


def _precision(reader: Reader) -> Precision:
    fp16 = reader.flag("fp16.enabled")
    bf16 = reader.flag("bf16.enabled") or reader.flag("bfloat16.enabled")
    if fp16 and bf16:
        reader.fault("fp16.enabled", "fp16 and bf16 exclude each other")
    pure = [reader.flag(f"bf16.{name}") for name in _PURE]
    if bf16:
        return "bf16_pure" if all(pure) else "bf16"
    return "fp16" if fp16 else "fp32"


def _gradient_bytes(reader: Reader, precision: Precision) -> int:
    """Return the bytes of a summed gradient: the weights' unless told otherwise."""
    forms = ("fp32", "fp16", "bf16")
    form = reader.word("data_types.grad_accum_dtype", forms, "")
    return 4 if form == "fp32" or (not form and precision == "fp32") else 2


def _optimizer(reader: Reader) -> Optimizer:
    names: dict[str, Optimizer] = {name.lower(): kind for kind, name in _OPTIMIZERS.items()}
    names["adam"] = "adamw"  # with decoupled decay unless told otherwise
    found = reader.value("optimizer.type")
    if found is None:
        return "adamw"
    if str(found).lower() not in names:
        reader.fault("optimizer.type", f"{found!r} is not one of {', '.join(names)}")
        return "adamw"
    return names[str(found).lower()]


def _overlaps_gradients(reader: Reader, plan: ParallelPlan) -> bool:
    found = reader.value("zero_optimization.overlap_comm")
    if plan.data * plan.context == 1:
        return True
    # Not given, it is on in stage 3 only (`overlap_comm_valid`)
    return not _reduces_late(plan) and (plan.zero == 3 if found is None else found is True)


def _overlaps_parameters(reader: Reader, zero: int, ranks: int) -> bool:
    ahead = reader.number("zero_optimization.stage3_prefetch_bucket_size", 1)
    return zero == 0 or ranks == 1 or (zero == 3 and ahead > 0)


def _usual_expert_tensor(plan: ParallelPlan) -> int:
    usual = plan.tensor if plan.expert == 1 else 1
    return 0 if plan.expert == 1 or plan.expert_tensor == usual else plan.expert_tensor
