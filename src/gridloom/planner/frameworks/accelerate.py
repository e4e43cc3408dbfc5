"""A plan as a configuration file of Hugging Face Accelerate, and such a file as a plan.

Keys and refusals are those of Accelerate 1.15.0 (`commands/config/config_args.py`,
`commands/launch.py`, `parallelism_config.py`, `utils/dataclasses.py`). The file starts processes
and sets up FSDP2; batch sizes, optimizer and model are the program's: `NOT_CARRIED` names them.
"""

from typing import Any, Literal

import yaml
from msgspec.structs import replace

from gridloom.base.errors import InputError
from gridloom.model.parallel import Offload, ParallelPlan, Precision
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal, Imported
from gridloom.planner.frameworks.reader import Reader
from gridloom.planner.frameworks.refusal import Rule, enforce

NOT_CARRIED = (
    "model",
    "plan.micro_batch",
    "plan.optimizer",
    "plan.flash_attention",
    "plan.fused",
    "plan.gradient_bytes",
    "plan.loss",
    "plan.dropout",
    "goal.sequence_length",
    "goal.global_batch",
    "goal.tokens",
)
"""What the program sets itself."""

_PROGRAM: dict[str, Any] = {
    "micro_batch": 0,
    "optimizer": "adamw",
    "flash_attention": True,
    "fused": True,
    "gradient_bytes": 0,
    "loss": "copies",
    "dropout": False,
    "gather_unit": "layer",
}

_HOST: tuple[Offload, ...] = ("optimizer", "gradients", "parameters")
"""What FSDP2's policy of offloading moves to the host, all or nothing."""

_WORDS: dict[Precision, str] = {"fp32": "no", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}

_OURS = (
    "compute_environment",
    "debug",
    "downcast_bf16",
    "enable_cpu_affinity",
    "machine_rank",
    "main_training_function",
    "num_machines",
    "rdzv_backend",
    "same_network",
    "use_cpu",
    "fp8_config.fp8_backend",
    "fsdp_config.fsdp_auto_wrap_policy",
    "fsdp_config.fsdp_cpu_ram_efficient_loading",
    "fsdp_config.fsdp_state_dict_type",
)
"""Keys that start the program, or change where weights are kept in files; nothing of a plan."""

_Zero = Literal[0, 2, 3]


def to_yaml(model: Transformer, plan: ParallelPlan, goal: Goal, *, node: int = 8) -> str:
    """Return the file for ``accelerate launch --config_file`` that runs ``plan``.

    Args:
        model: The model, whose program is launched.
        plan: How it is cut.
        goal: What is trained on; the file names in comments what the program must be told of it.
        node: Devices of one machine.

    Raises:
        InputError: Accelerate cannot run this; every field is named that stands in the way.
    """
    enforce([common.is_positive(model, plan)])
    known = common.settled(model, plan, goal)
    plan = settled(model, plan, goal)
    enforce(
        [*common.rules(model, known, goal), *_axis_rules(plan), *_state_rules(plan)],
    )
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": _kind(plan),
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": _WORDS[plan.precision],
        "num_machines": -(-plan.world_size // node),
        "num_processes": plan.world_size,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if plan.precision == "fp8":
        config["fp8_config"] = {"fp8_backend": "AO"}
    if plan.zero:
        config["fsdp_config"] = {
            "fsdp_activation_checkpointing": plan.recompute == "full",
            "fsdp_activation_checkpointing_offload": "activations" in plan.offload,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_cpu_ram_efficient_loading": False,
            "fsdp_offload_params": "parameters" in plan.offload,
            "fsdp_reshard_after_forward": plan.zero == 3,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_version": 2,
        }
        config["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": plan.data // _shards(plan),
            "parallelism_config_dp_shard_size": _shards(plan),
            "parallelism_config_tp_size": plan.tensor,
            "parallelism_config_cp_size": plan.context,
        }
    notes = (
        "# The program sets what this file cannot:",
        f"# sequences a process takes at once: {known.micro_batch}",
        f"# gradient accumulation steps: {common.micro_batches(known, goal)}",
        f"# tokens a sequence: {goal.sequence_length}",
        f"# optimizer: {known.optimizer}",
    )
    return "\n".join((*notes, yaml.safe_dump(config)))


def from_yaml(text: str) -> Imported:
    """Return the part of a plan that a configuration file of Accelerate holds.

    Raises:
        InputError: Not YAML, another kind of launch, or a value cannot be; every one is named.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"the text is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise InputError("the text is no configuration of Accelerate")
    reader = Reader(document, ours=_OURS)
    kind = reader.word("distributed_type", ("NO", "MULTI_GPU", "FSDP"), "NO")
    processes = reader.number("num_processes", 1, least=1)
    words = {word: precision for precision, word in _WORDS.items()}
    precision = words[str(reader.word("mixed_precision", tuple(words), "no"))]
    plan = ParallelPlan(data=processes, precision=precision)
    if kind == "FSDP":
        plan = _read_sharding(reader, plan, processes)
    reader.end()
    return Imported(
        plan=plan,
        goal=Goal(sequence_length=0, global_batch=0),
        absent=NOT_CARRIED,
        unread=reader.unread,
    )


def settled(model: Transformer, plan: ParallelPlan, goal: Goal) -> ParallelPlan:
    """Return ``plan`` as Accelerate runs it; `from_yaml` gives this back.

    FSDP2 and DDP always overlap what they send. What the program sets stands at its default.
    """
    plan = common.settled(model, plan, goal)
    sharded = plan.zero if common.shard_ranks(plan) > 1 else 0
    return replace(
        plan,
        zero=sharded,
        shard=plan.shard if sharded else 0,
        overlap_gradients=True,
        overlap_parameters=True,
        **_PROGRAM,
    )


def _kind(plan: ParallelPlan) -> str:
    if plan.zero:
        return "FSDP"
    return "MULTI_GPU" if plan.world_size > 1 else "NO"


def _shards(plan: ParallelPlan) -> int:
    return common.shard_ranks(plan) // plan.context


def _axis_rules(plan: ParallelPlan) -> list[Rule]:
    group = common.shard_ranks(plan)
    copies = plan.data * plan.context // max(1, group)
    elsewhere = "export to torchtitan or Megatron-LM"
    return [
        Rule(
            plan.pipeline > 1,
            "pipeline",
            "Accelerate trains without a pipeline",
            f"set `pipeline` to 1, or {elsewhere}",
        ),
        Rule(
            plan.expert > 1 or plan.expert_tensor != 0,
            "expert",
            "Accelerate's file does not spread experts",
            f"set `expert` to 1 and `expert_tensor` to 0, or {elsewhere}",
        ),
        Rule(
            plan.sequence_parallel or plan.overlap_tensor,
            "sequence_parallel" if plan.sequence_parallel else "overlap_tensor",
            "Accelerate's tensor ranks hold all tokens and wait for each other",
            f"set it to false, or {elsewhere}",
        ),
        Rule(
            plan.zero == 1,
            "zero",
            "FSDP2 shards gradients with the optimizer's states",
            "set `zero` to 2 or 3",
        ),
        Rule(
            plan.zero == 0 and (plan.tensor > 1 or plan.context > 1),
            "zero",
            "tensor and context ranks need FSDP2 beside them",
            "set `zero` to 2 or 3 and `data` x `context` above 1",
        ),
        Rule(
            plan.zero > 0 and group % plan.context != 0,
            "shard",
            f"a shard group of {plan.shard} ranks must hold all {plan.context} context ranks",
            "choose a multiple of `context`",
        ),
        Rule(
            copies > 1 and group == plan.context and (plan.tensor > 1 or plan.context > 1),
            "shard",
            "with tensor or context ranks, several copies must each be sharded over data ranks",
            "choose a `shard` above `context`",
        ),
    ]


def _state_rules(plan: ParallelPlan) -> list[Rule]:
    host = tuple(kind for kind in plan.offload if kind != "activations")
    return [
        Rule(
            plan.recompute in {"selective", "operators"},
            "recompute",
            "Accelerate recomputes whole layers",
            "choose none or full",
        ),
        Rule(
            plan.precision not in _WORDS,
            "precision",
            f"Accelerate's file knows no {plan.precision}",
            f"choose one of {', '.join(_WORDS)}",
        ),
        Rule(
            plan.recompute != "none" and plan.zero == 0,
            "recompute",
            "without FSDP2 the program recomputes, not Accelerate",
            "set `zero` to 2 or 3, or `recompute` to none",
        ),
        Rule(
            plan.recompute_layers != 0,
            "recompute_layers",
            "Accelerate recomputes every layer or none",
            "set `recompute_layers` to 0",
        ),
        Rule(
            host not in {(), _HOST},
            "offload",
            "FSDP2 offloads optimizer, gradients and parameters together",
            f"write [{', '.join(_HOST)}], or leave them out",
        ),
        Rule(
            bool(plan.offload) and plan.zero == 0,
            "offload",
            "only FSDP2 offloads",
            "set `zero` to 2 or 3, or leave `offload` out",
        ),
        Rule(
            "activations" in plan.offload and plan.recompute != "full",
            "offload",
            "Accelerate offloads the inputs of recomputed layers",
            "set `recompute` to full, or leave `activations` out",
        ),
    ]


def _read_sharding(reader: Reader, plan: ParallelPlan, processes: int) -> ParallelPlan:
    """Return ``plan`` with what FSDP and the sizes of the axes say."""
    sizes = {
        name: reader.number(f"parallelism_config.parallelism_config_{name}_size", 1, least=1)
        for name in ("tp", "cp", "dp_replicate", "dp_shard")
    }
    if reader.value("parallelism_config") is None:
        sizes["dp_shard"] = processes  # FSDP alone shards over all
    tensor, context = sizes["tp"], sizes["cp"]
    data = sizes["dp_replicate"] * sizes["dp_shard"]
    if data * tensor * context != processes:
        reader.fault(
            "num_processes", f"{processes} is not {data} x {context} x {tensor} of the sizes"
        )
    shard = sizes["dp_shard"] * context
    recompute = reader.flag("fsdp_config.fsdp_activation_checkpointing")
    inputs = reader.flag("fsdp_config.fsdp_activation_checkpointing_offload")
    offload = _HOST if reader.flag("fsdp_config.fsdp_offload_params") else ()
    return replace(
        plan,
        tensor=tensor,
        context=context,
        data=data,
        zero=_read_zero(reader) if shard > 1 else 0,
        shard=shard if 1 < shard < data * context else 0,
        recompute="full" if recompute else "none",
        offload=(*offload, "activations") if inputs else offload,
    )


def _read_zero(reader: Reader) -> _Zero:
    """Return the stage of ZeRO; FSDP1 names a strategy, FSDP2 says whether it reshards."""
    version = reader.number("fsdp_config.fsdp_version", 1)
    after = reader.value("fsdp_config.fsdp_reshard_after_forward")
    strategy = str(reader.value("fsdp_config.fsdp_sharding_strategy") or after or "FULL_SHARD")
    if version > 1:
        return 2 if after is False else 3
    if strategy.upper().startswith("HYBRID") or strategy in {"4", "5"}:
        reader.fault(
            "fsdp_config.fsdp_sharding_strategy",
            f"{strategy} does not say over how many ranks",
            "write fsdp_version 2 and parallelism_config_dp_shard_size",
        )
    if strategy.upper() in {"NO_SHARD", "3"}:
        return 0
    return 2 if strategy.upper() in {"SHARD_GRAD_OP", "2"} else 3
