"""The plan and the goal that Megatron-LM's arguments stand for, with Megatron-LM's defaults."""

import re
from typing import Literal

from gridloom.model.parallel import (
    Loss,
    Offload,
    Optimizer,
    ParallelPlan,
    Precision,
    Recompute,
    Schedule,
)
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks.common import Goal
from gridloom.planner.frameworks.megatron_text import Arguments

STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")
"""Sharding strategies of Megatron-FSDP by stage of ZeRO."""

MOMENTS: dict[Optimizer, str] = {"adamw_16bit": "bf16", "adamw_8bit": "fp8"}
"""Formats of the moments of the precision-aware optimizer."""

UNFUSED = (
    "no-masked-softmax-fusion",
    "no-bias-gelu-fusion",
    "no-bias-swiglu-fusion",
    "no-bias-dropout-fusion",
    "no-rope-fusion",
)
"""What switches the fused element-wise kernels off."""

_Zero = Literal[0, 1, 2, 3]


def read_plan(
    given: Arguments, model: Transformer, tensor: int, world_size: int
) -> tuple[ParallelPlan, int]:
    """Return the plan, and the number of processes; 0 when nothing says it.

    What is wrong is added to ``given.problems``.
    """
    pipeline = given.number("pipeline-model-parallel-size", 1)
    context = given.number("context-parallel-size", 1)
    ranks = world_size or _processes(given)
    replica = tensor * pipeline * context
    if ranks % replica:
        given.fault(
            "world-size",
            f"{ranks} processes are no whole number of copies of {replica} ranks",
            "choose a multiple of tensor x pipeline x context",
        )
    data = max(1, ranks // replica)
    zero, optimizer = _zero(given), _optimizer(given)
    chunks, cut = _cut(given, model.layers, pipeline)
    schedule: Schedule = "interleaved" if chunks > 1 else "1f1b"
    recompute, recompute_layers = _recompute(given, chunks)
    expert = given.number("expert-model-parallel-size", 1)
    given.has("moe-token-dispatcher-type")
    torch_fsdp = given.has("use-torch-fsdp2")
    precision = _precision(given)
    plan = ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=expert,
        expert_tensor=given.number("expert-tensor-parallel-size", tensor),
        sequence_parallel=given.has("sequence-parallel"),
        schedule=schedule,
        virtual_stages=chunks,
        stage_layers=cut,
        zero=zero,
        shard=_shard(given, data * context),
        micro_batch=given.number("micro-batch-size", 1),
        recompute=recompute,
        recompute_layers=recompute_layers,
        flash_attention=_flash(given),
        fused=_fused(given),
        precision=precision,
        optimizer=optimizer,
        offload=_offload(given),
        overlap_gradients=given.has("overlap-grad-reduce") or torch_fsdp,
        overlap_parameters=given.has("overlap-param-gather") or torch_fsdp,
        overlap_tensor=given.has("tp-comm-overlap"),
        gradient_bytes=_gradient_bytes(given, precision),
        loss=_loss(given),
        dropout=_dropout(given),
    )
    return plan, ranks


def _processes(given: Arguments) -> int:
    if given.has("world-size"):
        return given.number("world-size")
    nodes, each = given.word("nnodes", "1"), given.word("nproc-per-node")
    return int(nodes) * int(each) if nodes.isdigit() and each.isdigit() else 0


def read_goal(given: Arguments, plan: ParallelPlan) -> Goal:
    """Return what is trained on; what is wrong is added to ``given.problems``."""
    given.has("seq-length", "encoder-seq-length")
    sequence = given.number("seq-length", 0) or given.number("encoder-seq-length", 0)
    if not sequence:
        given.fault("seq-length", "is not given", "add it: the tokens of a sequence")
    batch = given.number("global-batch-size", plan.micro_batch * plan.data)
    samples = given.number("train-samples", 0) or given.number("train-iters", 0) * batch
    return Goal(sequence_length=sequence, global_batch=batch, tokens=samples * sequence)


def _zero(given: Arguments) -> _Zero:
    strategy = given.choice("data-parallel-sharding-strategy", STRATEGIES, "no_shard")
    distributed = given.has("use-distributed-optimizer")
    if given.has("use-megatron-fsdp", "use-custom-fsdp"):
        stages: tuple[_Zero, ...] = (0, 1, 2, 3)
        return stages[STRATEGIES.index(strategy)]
    if given.has("use-torch-fsdp2"):
        return 2 if given.has("torch-fsdp2-no-reshard-after-forward") else 3
    return 1 if distributed or given.word("optimizer") == "dist_muon" else 0


def _shard(given: Arguments, ranks: int) -> int:
    copies = given.number("num-distributed-optimizer-instances", 1)
    if ranks % copies:
        given.fault(
            "num-distributed-optimizer-instances",
            f"{copies} does not divide {ranks} data and context ranks",
            "choose a divisor of them",
        )
        return 0
    return ranks // copies


def _optimizer(given: Arguments) -> Optimizer:
    name = given.choice("optimizer", ("adam", "sgd", "muon", "dist_muon"), "adam")
    moments = given.word("exp-avg-dtype", "fp32"), given.word("exp-avg-sq-dtype", "fp32")
    given.has("use-precision-aware-optimizer")
    if name == "adam":
        short = [kind for kind, form in MOMENTS.items() if moments == (form, form)]
        return short[0] if short else "adamw"
    return "sgd" if name == "sgd" else "muon"


def _offload(given: Arguments) -> tuple[Offload, ...]:
    found: list[Offload] = []
    if given.has("optimizer-cpu-offload"):
        found.append("optimizer")
    if given.number("cpu-offloading-num-layers", 0, least=0):
        found.append("activations")
    return tuple(found)


def _flash(given: Arguments) -> bool:
    flash = given.has("use-flash-attn")
    backends = ("auto", "flash", "fused", "unfused", "local")
    backend = given.choice("attention-backend", backends, "auto")
    local = given.word("transformer-impl", "transformer_engine") == "local"
    return flash or (backend in {"auto", "flash", "fused"} and not local)


def _fused(given: Arguments) -> bool:
    """Return whether activation functions are fused; other switches often stand there by habit."""
    given.has(*UNFUSED)
    return not given.has("no-bias-gelu-fusion", "no-bias-swiglu-fusion")


def _precision(given: Arguments) -> Precision:
    fp16, bf16 = given.has("fp16"), given.has("bf16")
    fp8 = given.choice("fp8-format", ("", "e4m3", "hybrid"), "") != ""
    given.has("fp8-recipe")  # scales of a tensor or of blocks: one to the planner
    if fp16 and bf16:
        given.fault("fp16", "and --bf16 exclude each other", "leave one out")
    if fp8:
        return "fp8"
    if bf16:
        return "bf16"
    return "fp16" if fp16 else "fp32"


def _gradient_bytes(given: Arguments, precision: Precision) -> int:
    """Return the bytes of a summed gradient: fp32 beside bf16 unless told otherwise."""
    short = given.has("grad-reduce-in-bf16") or given.word("main-grads-dtype") == "bf16"
    wide = given.has("accumulate-allreduce-grads-in-fp32")
    if precision == "fp32" or wide:
        return 4
    return 4 if precision in {"bf16", "fp8"} and not short else 2


def _loss(given: Arguments) -> Loss:
    kernel = given.choice("cross-entropy-fusion-impl", ("native", "te"), "native")
    if not given.has("cross-entropy-loss-fusion"):
        return "in_place"
    return "fused" if kernel == "te" else "copies"


def _dropout(given: Arguments) -> bool:
    rates = [given.real(f"{place}-dropout", 0.1) for place in ("attention", "hidden")]
    return any(rates)


def _recompute(given: Arguments, chunks: int) -> tuple[Recompute, int]:
    word = given.choice("recompute-granularity", ("none", "selective", "full"), "none")
    method = given.choice("recompute-method", ("uniform", "block"), "uniform")
    layers = given.number("recompute-num-layers", 0) * chunks
    if word == "full" or given.has("checkpoint-activations"):
        return "full", layers if method == "block" else 0
    return ("selective" if word == "selective" or given.has("recompute-activations") else "none"), 0


def _cut(given: Arguments, layers: int, pipeline: int) -> tuple[int, tuple[int, ...]]:
    """Return the chunks of a stage, and the layers of each stage when they are uneven."""
    layout = given.word("pipeline-model-parallel-layout")
    if layout:
        return _layout(given, layout, pipeline)
    chunks = given.number("num-virtual-stages-per-pipeline-rank", 1)
    each = given.number("num-layers-per-virtual-pipeline-stage", 0)
    if each:
        chunks = layers // pipeline // each
        if chunks * each * pipeline != layers:
            given.fault(
                "num-layers-per-virtual-pipeline-stage",
                f"{each} x {pipeline} does not divide {layers} layers",
                "choose a divisor of the layers of a stage",
            )
    return max(1, chunks), _ends(given, layers, pipeline)


def _ends(given: Arguments, layers: int, pipeline: int) -> tuple[int, ...]:
    """Return the layers of each stage from what is said of the first and the last."""
    first = given.number("decoder-first-pipeline-num-layers", 0)
    last = given.number("decoder-last-pipeline-num-layers", 0)
    extra = (
        int(given.has("account-for-embedding-in-pipeline-split")),
        int(given.has("account-for-loss-in-pipeline-split")),
    )
    if pipeline == 1 or not (first or last or any(extra)):
        return ()
    if any(extra):
        even = (layers + sum(extra)) // pipeline
        first, last = even - extra[0], even - extra[1]
    rest, others = layers - first - last, pipeline - bool(first) - bool(last)
    if rest < 0 or (rest != 0 if others == 0 else rest % others != 0):
        given.fault(
            "decoder-first-pipeline-num-layers",
            f"what the first and the last stage leave of {layers} layers does not divide",
            "leave the other stages a whole number of layers each",
        )
        return ()
    each = rest // others if others else 0
    return (first or each, *(each,) * (pipeline - 2), last or each)


def _layout(given: Arguments, layout: str, pipeline: int) -> tuple[int, tuple[int, ...]]:
    text = re.sub(r"\(([^()]+)\)\*(\d+)", _repeated, re.sub(r"[,\\]", "", layout))
    parts = re.sub(r"(.)\*(\d+)", _repeated, text).split("|")
    if len(parts) % pipeline or set("".join(parts)) - set("EtmL"):
        given.fault(
            "pipeline-model-parallel-layout",
            f"{layout} is no layout of {pipeline} stages",
            "separate the stages by |, and write E, t, m and L only",
        )
        return 1, ()
    held = [part.count("t") for part in parts]
    # The chunks of a stage are `pipeline` apart (`PipelineParallelLayerLayout`)
    return len(parts) // pipeline, tuple(sum(held[rank::pipeline]) for rank in range(pipeline))


def _repeated(found: re.Match[str]) -> str:
    return found.group(1) * min(int(found.group(2)), 10_000)
