"""A plan as torchtitan's settings, and such settings as a plan.

torchtitan up to 0.2.2 reads a TOML file (`to_toml`), from 0.3 on only arguments on top of a
function that it names (`to_arguments`). Keys, defaults and refusals are those of
`torchtitan/config/job_config.py` and `distributed/` of 0.2.2, and of `config/configs.py` of 0.3.0.
The model is chosen by its name there, so that nothing of it is written but the cut of its layers.
"""

import json
import tomllib
from typing import Any

from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, Schedule
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal, Imported
from gridloom.planner.frameworks.reader import Reader
from gridloom.planner.frameworks.refusal import Rule, enforce
from gridloom.planner.frameworks.torchtitan_read import read_plan
from gridloom.planner.frameworks.torchtitan_rules import (
    argument_rules,
    axis_rules,
    chunks_a_stage,
    shard_rules,
    state_rules,
)

_SCHEDULES: dict[Schedule, str] = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero_bubble": "ZBVZeroBubble",
}


def to_toml(model: Transformer, plan: ParallelPlan, goal: Goal) -> str:
    """Return the TOML file that makes torchtitan up to 0.2.2 run ``plan``.

    Name and flavor of the model, data and learning rate are to be added.

    Raises:
        InputError: torchtitan cannot run this; every field is named that stands in the way.
    """
    plan = _checked(model, plan, goal, [])
    sections = _sections(plan, goal)
    parallelism = sections["parallelism"]
    parallelism["enable_async_tensor_parallel"] = plan.overlap_tensor
    if plan.expert > 1:
        parallelism["expert_tensor_parallel_degree"] = common.expert_tensor(plan)
    if plan.pipeline > 1:
        parallelism["module_fqns_per_model_part"] = _modules(_chunks(model, plan))
    sections["optimizer"] = {"name": "AdamW"}
    sections["activation_checkpoint"] = {"mode": _mode(plan)}
    if plan.recompute == "operators":
        sections["activation_checkpoint"]["selective_ac_option"] = "op"
    if plan.precision in {"fp8", "fp8_rowwise"}:
        recipe = "rowwise" if plan.precision == "fp8_rowwise" else "tensorwise"
        sections["model"] = {"converters": ["quantize.linear.float8"]}
        sections["quantize.linear.float8"] = {"recipe_name": recipe}
    lines = []
    for name, values in sections.items():
        lines.append(f"[{name}]")
        # A TOML value of these kinds is written as in JSON
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines.append("")
    return "\n".join(lines)


def to_arguments(model: Transformer, plan: ParallelPlan, goal: Goal) -> tuple[str, ...]:
    """Return the arguments that make torchtitan from 0.3 on run ``plan``.

    They follow ``--module`` and ``--config``, which choose the model.

    Raises:
        InputError: torchtitan cannot run this; every field is named that stands in the way.
    """
    plan = _checked(model, plan, goal, argument_rules(model, plan))
    sections = _sections(plan, goal)
    if plan.pipeline > 1:
        chunks = plan.pipeline * chunks_a_stage(plan)
        sections["parallelism"] |= {
            "pipeline_parallel_layers_per_stage": model.layers // chunks,
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
        }
    if plan.pipeline > 1 or plan.expert > 1:  # `Trainer.Config._validate_cuda_graphs`
        sections["training"]["disable_cuda_graphs"] = True
    if plan.overlap_tensor:
        sections["compile"]["enable_async_tensor_parallel"] = True
    words: list[str] = []
    for name, values in sections.items():
        for key, value in values.items():
            words += _argument(f"{name}.{key}", value)
    return (*words, f"activation-checkpoint:{_mode(plan)}")


def from_toml(text: str, *, world_size: int = 0, layers: int = 0) -> Imported:
    """Return the part of a plan that a TOML file of torchtitan holds.

    Args:
        text: The file.
        world_size: Processes; needed where the shard degree is left to torchtitan (-1).
        layers: Of the model; needed where the file gives only the layers of a stage.

    Raises:
        InputError: Not TOML, or a value cannot be; every one is named.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the text is not TOML: {error}") from None
    reader = Reader(document, ours=("compile.backend",))
    reader.word("optimizer.name", ("AdamW", "Adam"), "AdamW")
    plan = read_plan(reader, world_size, layers)
    local = reader.number("training.local_batch_size", 8, least=1)
    batch = reader.number("training.global_batch_size", -1, least=-1)
    batch = local * plan.data if batch < 0 else batch
    sequence = reader.number("training.seq_len", 2048, least=1)
    steps = reader.number("training.steps", 0)
    if plan.pipeline > 1:
        micro = reader.number("parallelism.pipeline_parallel_microbatch_size", 1, least=1)
    else:
        micro = local
    reader.end()
    goal = Goal(sequence_length=sequence, global_batch=batch, tokens=steps * batch * sequence)
    absent = ["model", *([] if steps else ["goal.tokens"])]
    return Imported(
        plan=replace(plan, micro_batch=micro),
        goal=goal,
        absent=tuple(absent),
        unread=reader.unread,
    )


def settled(model: Transformer, plan: ParallelPlan, goal: Goal) -> ParallelPlan:
    """Return ``plan`` as torchtitan runs it; `from_toml` gives this back.

    Gradients are as wide as the weights. torchtitan always overlaps what FSDP2 and DDP send, never
    stores attention's scores, and shares tokens among tensor ranks.
    """
    plan = common.settled(model, plan, goal)
    sharded = plan.zero if common.shard_ranks(plan) > 1 else 0
    return replace(
        plan,
        zero=sharded,
        shard=plan.shard if sharded else 0,
        sequence_parallel=plan.tensor > 1,
        flash_attention=True,
        fused=plan.fused or plan.overlap_tensor,
        overlap_gradients=True,
        overlap_parameters=True,
        gather_unit="layer",
        gradient_bytes=0,
    )


def _checked(model: Transformer, plan: ParallelPlan, goal: Goal, more: list[Rule]) -> ParallelPlan:
    """Return the settled plan when torchtitan can run it."""
    enforce([common.is_positive(model, plan)])
    plan = settled(model, plan, goal)
    enforce(
        [
            *common.rules(model, plan, goal),
            *shard_rules(plan),
            *axis_rules(model, plan, goal),
            *state_rules(plan),
            *more,
        ]
    )
    return plan


def _sections(plan: ParallelPlan, goal: Goal) -> dict[str, dict[str, Any]]:
    """Return what both kinds of settings have in common."""
    local = plan.micro_batch if plan.pipeline == 1 else goal.global_batch // plan.data
    shards = common.shard_ranks(plan) // plan.context if plan.zero else 1
    training: dict[str, Any] = {
        "seq_len": goal.sequence_length,
        "local_batch_size": local,
        "global_batch_size": goal.global_batch,
        "mixed_precision_param": "float32" if plan.precision == "fp32" else "bfloat16",
    }
    if goal.tokens:
        training["steps"] = goal.tokens // (goal.sequence_length * goal.global_batch)
    if plan.precision == "bf16_pure":
        training["dtype"] = "bfloat16"
    if plan.offload:
        training["enable_cpu_offload"] = True
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": plan.data // shards,
        "data_parallel_shard_degree": shards,
        "fsdp_reshard_after_forward": "never" if plan.zero == 2 else "always",
        "tensor_parallel_degree": plan.tensor,
        "pipeline_parallel_degree": plan.pipeline,
        "context_parallel_degree": plan.context,
        "expert_parallel_degree": plan.expert,
    }
    if plan.pipeline > 1:
        parallelism |= {
            "pipeline_parallel_schedule": _SCHEDULES[plan.schedule],
            "pipeline_parallel_microbatch_size": plan.micro_batch,
        }
    return {
        "training": training,
        "parallelism": parallelism,
        "compile": _compiled(plan),
    }


def _compiled(plan: ParallelPlan) -> dict[str, Any]:
    """Return what is compiled: fused kernels, and with them async tensor parallelism."""
    parts = [part for part, on in (("model", plan.fused), ("loss", plan.loss == "fused")) if on]
    return {"enable": True, "components": parts} if parts else {"enable": False}


def _mode(plan: ParallelPlan) -> str:
    return "selective" if plan.recompute == "operators" else plan.recompute


def _argument(name: str, value: Any) -> list[str]:
    if value is True:
        return [f"--{name}"]
    if value is False:
        section, _, key = name.rpartition(".")
        return [f"--{section}.no-{key.replace('_', '-')}"]
    if isinstance(value, list):
        return [f"--{name}", ",".join(value)]
    return [f"--{name}", str(value)]


def _chunks(model: Transformer, plan: ParallelPlan) -> list[int]:
    """Return the layers of each chunk, in the order of the model."""
    cut = list(common.stages(model, plan))
    if plan.schedule == "zero_bubble":  # V-shaped: rank r holds chunk r and the r-th from the end
        return [(held + 1) // 2 for held in cut] + [held // 2 for held in reversed(cut)]
    return [held // plan.virtual_stages for held in cut] * plan.virtual_stages


def _modules(chunks: list[int]) -> list[list[str]]:
    parts, first = [], 0
    for layers in chunks:
        parts.append([f"layers.{number}" for number in range(first, first + layers)])
        first += layers
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts
