"""A model and a plan as the arguments of Megatron-LM, and such arguments as a model and a plan.

Names, defaults and refusals are those of `megatron/training/arguments.py` in NVIDIA/Megatron-LM
(main branch of late 2025, Megatron-Core 0.16). Learning rate, data and checkpoints stay the user's.
"""

from collections.abc import Sequence

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import common
from gridloom.planner.frameworks.common import Goal, Imported
from gridloom.planner.frameworks.megatron_model import model_arguments, model_rules, read_model
from gridloom.planner.frameworks.megatron_read import (
    MOMENTS,
    STRATEGIES,
    UNFUSED,
    read_goal,
    read_plan,
)
from gridloom.planner.frameworks.megatron_rules import (
    number_rules,
    optimizer_rules,
    pipeline_rules,
    rank_rules,
    sharding_rules,
)
from gridloom.planner.frameworks.megatron_text import Arguments, read
from gridloom.planner.frameworks.refusal import enforce


def to_arguments(model: Transformer, plan: ParallelPlan, goal: Goal) -> tuple[str, ...]:
    """Return the arguments that make Megatron-LM train ``model`` as ``plan`` says.

    The number of processes is not among them: start ``plan.world_size``, with what `environment`
    returns in their environment.

    Raises:
        InputError: Megatron-LM cannot run this; every field is named that stands in the way.
    """
    enforce([common.is_positive(model, plan)])
    plan = settled(model, plan, goal)
    enforce(
        [
            *common.rules(model, plan, goal),
            *model_rules(model, goal),
            *pipeline_rules(model, plan, goal),
            *sharding_rules(plan),
            *optimizer_rules(plan),
            *number_rules(plan),
            *rank_rules(model, plan, goal),
        ]
    )
    words: list[tuple[object, ...]] = [
        ("--tensor-model-parallel-size", plan.tensor),
        ("--pipeline-model-parallel-size", plan.pipeline),
        ("--context-parallel-size", plan.context),
        *_pipeline_words(model, plan),
        *_expert_words(model, plan),
        *_sharding_words(plan),
        *_memory_words(model, plan),
        *_number_words(model, plan),
        ("--micro-batch-size", plan.micro_batch),
        ("--global-batch-size", goal.global_batch),
    ]
    if goal.tokens:
        words.append(("--train-samples", goal.tokens // goal.sequence_length))
    switches = {
        "--sequence-parallel": plan.sequence_parallel,
        "--tp-comm-overlap": plan.overlap_tensor,
        "--overlap-grad-reduce": plan.overlap_gradients,
        "--overlap-param-gather": plan.zero > 0 and plan.overlap_parameters,
    }
    words += [(name,) for name, on in switches.items() if on]
    return (*model_arguments(model, goal), *(str(word) for group in words for word in group))


def from_arguments(
    source: str | Sequence[str], *, world_size: int = 0, vocabulary: int = 0
) -> Imported:
    """Return the model, plan and goal that Megatron-LM's arguments stand for.

    Args:
        source: The words of a command, or a text: a command, a piece of a shell script, or YAML
            with one ``name: value`` a line (as below ``MODEL_ARGS`` in Megatron-LM's own tests).
        world_size: Processes; 0 to take them from ``--world-size`` or torchrun's arguments, and
            one copy of the model when these are missing too.
        vocabulary: Rows of the embedding; 0 to take them from the arguments.

    Raises:
        InputError: A value is missing or cannot be; every one is named.
    """
    given = read(source)
    tensor = given.number("tensor-model-parallel-size", 1)
    model = read_model(given, vocabulary, tensor)
    plan, ranks = read_plan(given, model, tensor, world_size)
    goal = read_goal(given, plan)
    if given.problems:
        raise InputError(given.problems)
    plan = settled(model, plan, goal)
    enforce(common.rules(model, plan, goal))
    absent = [
        *([] if ranks else ["plan.data"]),
        *([] if goal.tokens else ["goal.tokens"]),
        *([] if model.name else ["model.name"]),
    ]
    return Imported(plan=plan, goal=goal, model=model, absent=tuple(absent), unread=_foreign(given))


def environment(plan: ParallelPlan) -> dict[str, str]:
    """Return the variables that Megatron-LM asks for before Blackwell.

    Tensor and context parallelism want one hardware queue, so that collectives start in the order
    in which they were given; Megatron-FSDP must not have that (`validate_args` checks both).
    """
    one_queue = plan.zero < 2 and (plan.tensor > 1 or plan.context > 1)
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if one_queue else {}


def settled(model: Transformer, plan: ParallelPlan, goal: Goal) -> ParallelPlan:
    """Return ``plan`` as Megatron-LM runs it; `from_arguments` gives this back."""
    return common.settled(model, plan, goal)


def _pipeline_words(model: Transformer, plan: ParallelPlan) -> list[tuple[object, ...]]:
    if plan.schedule == "interleaved":
        return [("--num-virtual-stages-per-pipeline-rank", plan.virtual_stages)]
    cut = plan.stage_layers
    if not cut:
        return []
    if len(set(cut[1:-1])) <= 1:
        return [
            ("--decoder-first-pipeline-num-layers", cut[0]),
            ("--decoder-last-pipeline-num-layers", cut[-1]),
        ]
    parts = [f"t*{layers}" for layers in cut]
    parts[0] = f"E{parts[0]}"
    parts[-1] += f"{'m' * model.prediction_layers}L"
    return [("--pipeline-model-parallel-layout", "|".join(parts))]


def _expert_words(model: Transformer, plan: ParallelPlan) -> list[tuple[object, ...]]:
    if model.experts is None:
        return []
    words: list[tuple[object, ...]] = [
        ("--expert-model-parallel-size", plan.expert),
        ("--expert-tensor-parallel-size", common.expert_tensor(plan)),
        ("--moe-token-dispatcher-type", "alltoall"),
    ]
    if plan.precision in {"bf16", "fp8"}:  # the only formats of the grouped product
        words.append(("--moe-grouped-gemm",))
    return words


def _sharding_words(plan: ParallelPlan) -> list[tuple[object, ...]]:
    words: list[tuple[object, ...]] = []
    if plan.zero > 0 and plan.optimizer != "muon":
        words.append(("--use-distributed-optimizer",))
    if plan.zero > 1:
        words += [
            ("--use-megatron-fsdp",),
            ("--data-parallel-sharding-strategy", STRATEGIES[plan.zero]),
            ("--no-gradient-accumulation-fusion",),
            ("--ckpt-format", "fsdp_dtensor"),
        ]
    if plan.shard:
        copies = plan.data * plan.context // plan.shard
        words.append(("--num-distributed-optimizer-instances", copies))
    if plan.optimizer == "muon":
        words += [
            ("--optimizer", "dist_muon" if plan.zero else "muon"),
            ("--ckpt-format", "torch"),
        ]
    else:
        words.append(("--optimizer", "sgd" if plan.optimizer == "sgd" else "adam"))
    moments = MOMENTS.get(plan.optimizer)
    if moments or "optimizer" in plan.offload:
        words.append(("--use-precision-aware-optimizer",))
    if moments:
        words += [("--exp-avg-dtype", moments), ("--exp-avg-sq-dtype", moments)]
    if "optimizer" in plan.offload:
        words.append(("--optimizer-cpu-offload",))
    return words


def _memory_words(model: Transformer, plan: ParallelPlan) -> list[tuple[object, ...]]:
    words: list[tuple[object, ...]] = []
    if plan.recompute != "none":
        words.append(("--recompute-granularity", plan.recompute))
    if plan.recompute == "full":
        # A block is counted in each chunk of a stage (`TransformerBlock._checkpointed_forward`)
        layers = plan.recompute_layers // plan.virtual_stages
        words += [
            ("--recompute-method", "block" if layers else "uniform"),
            ("--recompute-num-layers", layers or 1),
        ]
    if "activations" in plan.offload:  # Megatron-Core keeps at least one layer on the device
        words.append(("--cpu-offloading-num-layers", model.layers - 1))
    return words


def _number_words(model: Transformer, plan: ParallelPlan) -> list[tuple[object, ...]]:
    if not plan.flash_attention:
        backend = "unfused"
    else:  # heads of latent attention differ in size, which only cuDNN's fused kernel takes
        backend = "flash" if model.latent is None else "fused"
    words: list[tuple[object, ...]] = [("--attention-backend", backend)]
    if plan.precision != "fp32":
        words.append(("--fp16" if plan.precision == "fp16" else "--bf16",))
    if plan.precision == "fp8":
        words.append(("--fp8-format", "hybrid"))
    wide = common.gradient_bytes(plan) == 4
    if plan.precision in {"bf16", "fp8"} and not wide:  # summed in fp32 otherwise
        words.append(("--grad-reduce-in-bf16",))
    if plan.precision == "fp16" and wide:
        words.append(("--accumulate-allreduce-grads-in-fp32",))
    if not plan.dropout:
        words += [("--attention-dropout", "0.0"), ("--hidden-dropout", "0.0")]
    if plan.loss != "in_place":
        kernel = "te" if plan.loss == "fused" else "native"
        words += [("--cross-entropy-loss-fusion",), ("--cross-entropy-fusion-impl", kernel)]
    if not plan.fused:
        words += [(f"--{name}",) for name in UNFUSED]
    return words


def _foreign(given: Arguments) -> tuple[str, ...]:
    settings = {"--ckpt-format", "--no-gradient-accumulation-fusion", "--moe-grouped-gemm"}
    return tuple(name for name in given.unread if name not in settings)
