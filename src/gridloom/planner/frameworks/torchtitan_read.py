"""The plan that torchtitan's settings stand for, with torchtitan's defaults."""

from typing import Literal

from gridloom.model.parallel import ParallelPlan, Precision, Recompute, Schedule
from gridloom.planner.frameworks.reader import Reader
from gridloom.planner.frameworks.torchtitan_rules import HOST

_SCHEDULES: dict[str, Schedule] = {
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved",
    "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zero_bubble",
    "dualpipev": "zero_bubble",
}
_V_SHAPED = {"zbvzerobubble", "dualpipev"}  # the last stages sit with the first

_Zero = Literal[0, 2, 3]


def read_plan(reader: Reader, world_size: int, layers: int) -> ParallelPlan:
    """Return the plan without its micro-batch; what is wrong becomes a fault of ``reader``."""

    def degree(name: str, default: int = 1) -> int:
        return reader.number(f"parallelism.{name}", default, least=1)

    tensor, pipeline = degree("tensor_parallel_degree"), degree("pipeline_parallel_degree")
    context, copies = degree("context_parallel_degree"), degree("data_parallel_replicate_degree")
    shards = reader.number("parallelism.data_parallel_shard_degree", -1, least=-1)
    shards = _shards(reader, shards, world_size, copies * context * tensor * pipeline)
    schedule, chunks, cut = _pipeline(reader, pipeline, layers)
    recompute, recompute_layers = _recompute(reader, layers // pipeline)
    expert = degree("expert_parallel_degree")
    shared = degree("expert_tensor_parallel_degree")
    offload = HOST if reader.flag("training.enable_cpu_offload") else ()
    overlap = reader.flag("parallelism.enable_async_tensor_parallel")
    data = copies * shards
    compiled = _compiled(reader)
    return ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=expert,
        expert_tensor=shared if expert > 1 and shared > 1 else 0,
        sequence_parallel=tensor > 1,
        schedule=schedule,
        virtual_stages=chunks if schedule == "interleaved" else 1,
        stage_layers=cut,
        zero=_zero(reader, shards * context, pipeline),
        shard=0 if copies == 1 or shards * context == 1 else shards * context,
        recompute=recompute,
        recompute_layers=recompute_layers,
        fused="model" in compiled,
        precision=_precision(reader),
        loss="fused" if "loss" in compiled else "copies",
        offload=offload,
        overlap_tensor=overlap and tensor > 1,
    )


def _shards(reader: Reader, given: int, world_size: int, others: int) -> int:
    if given > 0 and world_size in {0, given * others}:
        return given
    if given > 0 or given == 0 or world_size % others or not world_size:
        reader.fault(
            "parallelism.data_parallel_shard_degree",
            f"{given} with {others} other ranks does not make {world_size or 'a known number of'}"
            " processes",
            "state the number of processes, a multiple of the other degrees",
        )
        return 1
    return world_size // others


def _zero(reader: Reader, ranks: int, pipeline: int) -> _Zero:
    policies = ("default", "always", "never")
    policy = reader.word("parallelism.fsdp_reshard_after_forward", policies, "default")
    if ranks == 1:
        return 0
    # By default parameters stay gathered in a pipeline, where they are soon needed again
    return 2 if policy == "never" or (policy == "default" and pipeline > 1) else 3


def _precision(reader: Reader) -> Precision:
    converters = reader.value("model.converters") or []
    kinds = ("bfloat16", "float32")
    word = reader.word("training.mixed_precision_param", kinds, "bfloat16")
    recipe = str(reader.value("quantize.linear.float8.recipe_name"))
    dtype = reader.word("training.dtype", kinds, "float32")
    if any("float8" in str(name) for name in converters):
        return "fp8_rowwise" if recipe.startswith("rowwise") else "fp8"
    if dtype == "bfloat16":
        return "bf16_pure"
    return "fp32" if word == "float32" else "bf16"


def _compiled(reader: Reader) -> tuple[str, ...]:
    parts = reader.value("compile.components")
    if not reader.flag("compile.enable"):
        return ()
    return tuple(str(part) for part in parts) if isinstance(parts, list) else ("model", "loss")


def _recompute(reader: Reader, stage: int) -> tuple[Recompute, int]:
    modes = ("none", "selective", "full")
    mode = reader.word("activation_checkpoint.mode", modes, "selective")
    option = str(reader.value("activation_checkpoint.selective_ac_option") or "2")
    if mode == "selective" and option.isdigit() and int(option) > 0:
        return "full", 0 if option == "1" else stage // int(option)  # every so many layers, whole
    if mode == "selective":
        return "operators", 0
    return ("full" if mode == "full" else "none"), 0


def _pipeline(reader: Reader, pipeline: int, layers: int) -> tuple[Schedule, int, tuple[int, ...]]:
    """Return the schedule, the chunks of a stage, and the layers of each stage when uneven."""
    word = str(reader.value("parallelism.pipeline_parallel_schedule") or "1F1B").lower()
    parts = reader.value("parallelism.module_fqns_per_model_part")
    each = reader.number("parallelism.pipeline_parallel_layers_per_stage", 0)
    ends = [
        reader.number(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1)
        for end in ("first", "last")
    ]
    if pipeline == 1:
        return "1f1b", 1, ()
    if word not in _SCHEDULES:
        reader.fault("parallelism.pipeline_parallel_schedule", f"{word} has no counterpart")
    schedule = _SCHEDULES.get(word, "1f1b")
    if isinstance(parts, list) and parts and len(parts) % pipeline == 0:
        held = [sum(str(name).startswith("layers.") for name in part) for part in parts]
        return schedule, len(parts) // pipeline, _by_stage(held, pipeline, word)
    chunks = 1 if schedule == "1f1b" else 2
    if each and layers:
        chunks = -(-(layers + sum(ends)) // each) // pipeline
    return schedule, max(1, chunks), ()


def _by_stage(held: list[int], pipeline: int, schedule: str) -> tuple[int, ...]:
    if schedule in _V_SHAPED:
        back = held[pipeline:][::-1] or [0] * pipeline
        cut = tuple(a + b for a, b in zip(held[:pipeline], back, strict=True))
    else:
        cut = tuple(sum(held[rank::pipeline]) for rank in range(pipeline))
    return () if len(set(cut)) == 1 else cut
