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
from gridloom.planner.frameworks.common import Goal, Imported
from gridloom.planner.frameworks.deepspeed_rules import OPTIMIZERS, reduces_late, refusals
from gridloom.planner.frameworks.reader import Reader
from gridloom.planner.frameworks.refusal import enforce

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

_UNTESTED = {"lamb", "sgd", "adafactor"}  # DeepSpeed asks to be told that ZeRO may hold them

_OURS = (
    "zero_allow_untested_optimizer",
    "optimizer.params",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
)
"""Keys that go with those of a plan, and say nothing more of it."""

_PURE = ("bf16_master_weights_and_grads", "bf16_optimizer_states")
"""What leaves out the fp32 copy of the weights, and fp32 moments."""

_Zero = Literal[0, 1, 2, 3]


def to_config(model: Transformer, plan: ParallelPlan, goal: Goal) -> dict[str, Any]:
    """Return the configuration, to be written as JSON, that makes DeepSpeed run ``plan``.

    Raises:
        InputError: DeepSpeed cannot run this; every field is named that stands in the way.
    """
    enforce([common.is_positive(model, plan)])
    known = common.settled(model, plan, goal)
    plan = settled(model, plan, goal)
    enforce(
        [*common.rules(model, known, goal), *refusals(plan)],
    )
    config: dict[str, Any] = {
        "train_batch_size": goal.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": common.micro_batches(plan, goal),
        "optimizer": {"type": OPTIMIZERS[plan.optimizer], "params": {}},
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
    tensor, context = max(1, tensor), reader.number("sequence_parallel_size", 1, least=1)
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
        expert=reader.number("expert_parallel.autoep_size", 1, least=1) if spread else 1,
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
        overlap_tensor=reader.flag("tensor_parallel.tp_overlap_comm") and tensor > 1,
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
    names: dict[str, Optimizer] = {name.lower(): kind for kind, name in OPTIMIZERS.items()}
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
    return not reduces_late(plan) and (plan.zero == 3 if found is None else found is True)


def _overlaps_parameters(reader: Reader, zero: int, ranks: int) -> bool:
    ahead = reader.number("zero_optimization.stage3_prefetch_bucket_size", 1)
    return zero == 0 or ranks == 1 or (zero == 3 and ahead > 0)


def _usual_expert_tensor(plan: ParallelPlan) -> int:
    usual = plan.tensor if plan.expert == 1 else 1
    return 0 if plan.expert == 1 or plan.expert_tensor == usual else plan.expert_tensor
