"""Memory of a rank, by kind and by stage, for one plan or for a million at once.

Every function reads `Cases`; the answer is a number, or an array with one entry a case, in bytes. A
rank's memory has two heights: when the backward begins, with all activations held, and when the
optimizer steps, with none but with copies of its own. The lines that are returned add up to the
higher one.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gridloom.planner import activations
from gridloom.planner.activations import LayerActivations
from gridloom.planner.cases import Cases, Column, PlanColumns
from gridloom.planner.memory_constants import (
    BUCKET_PARAMETERS,
    FP8_COPY_BYTES,
    FP32_BYTES,
    FRAGMENTED_SHARE,
    GATHERED_LAYERS,
    WORKSPACE_BYTES,
)
from gridloom.planner.models.parameters import (
    attention_weights,
    embedding_weights,
    expert_weights,
    ffn_weights,
    norm_weights,
    output_weights,
    prediction_weights,
    router_weights,
    shared_expert_weights,
)

Stage = Literal["first", "middle", "last"]
"""The stage with the embedding, one between (the second), the stage with the loss."""

Counter = Literal["allocated", "reserved", "device"]
"""What is counted: tensors (torch's ``max_memory_allocated``), what the allocator took for them
(``max_memory_reserved``), or all that the device has given away (``nvidia-smi``)."""

STAGES: tuple[Stage, ...] = ("first", "middle", "last")

_UNSEEN: dict[Counter, tuple[str, ...]] = {
    "allocated": ("fragmentation", "context"),
    "reserved": ("context",),
    "device": (),
}
"""Lines that a counter does not see."""


@dataclass(frozen=True)
class StageMemory:
    """One stage of one plan.

    Attributes:
        stage: Its index, from 0.
        lines: Bytes of one of its ranks by kind.
        peak_bytes: Their sum.
        fits: Whether that is no more than the device has.
    """

    stage: int
    lines: dict[str, float]
    peak_bytes: float
    fits: bool


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """What does not depend on the stage, computed once: per layer and per rank."""

    dense_layer: Column
    """Parameters of a layer beside its feed-forward part, on one rank."""
    ffn: Column
    experts: Column
    """Routed experts of one layer, on one rank."""
    shared: Column
    """Router and shared experts of one layer, on one rank."""
    table: Column
    """Input embedding, on one rank."""
    output: Column
    kept: LayerActivations
    whole: LayerActivations
    stream: Column


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """Where a stage is and what it holds, in parameters of one rank and in layers."""

    index: Column
    first: Column
    last: Column
    layers: Column
    expert_layers: Column
    dense: Column
    experts: Column


def memory_lines(cases: Cases, stage: Stage = "first") -> dict[str, Column]:
    """Return the bytes of a rank of ``stage`` by kind; their sum is its peak on the device.

    ``parameters``, ``gradients``, ``optimizer`` and ``master weights``; ``activations: attention``,
    ``norms``, ``feed-forward``, ``experts``; ``logits and loss``; ``communication``: gathered
    layers, buckets, buffers of the exchange between ranks; ``workspace``; ``fragmentation``: seen
    by ``reserved`` and ``device``; ``context``: seen by ``device``.
    """
    return _lines(cases, _rank(cases), _place(cases, stage))


def peak_bytes(cases: Cases, counter: Counter = "device") -> Column:
    """Return the bytes of the fullest rank, over all stages, as ``counter`` sees them."""
    rank = _rank(cases)
    peak = _height(cases, rank, "first", counter)
    for stage in _other_stages(cases):
        peak = np.maximum(peak, _height(cases, rank, stage, counter))
    return peak


def peak_stage(cases: Cases) -> Column:
    """Return the index of the stage with the fullest rank: 0, 1 (one between) or the last."""
    rank = _rank(cases)
    peak = _height(cases, rank, "first", "device")
    index: Column = np.zeros_like(peak)
    for stage in _other_stages(cases):
        other = _height(cases, rank, stage, "device")
        index = np.where(other > peak, _place_index(cases, stage), index)
        peak = np.maximum(peak, other)
    return index


def fits(cases: Cases, reserve_bytes: float = 0.0) -> Column:
    """Return whether every rank's peak leaves ``reserve_bytes`` of the device free."""
    return peak_bytes(cases) + reserve_bytes <= cases.machine.memory_bytes


def memory_by_stage(cases: Cases) -> tuple[StageMemory, ...]:
    """Return every stage of the one plan in ``cases``, in order.

    The first that does not fit is where a run would end. Stages between the first and the last
    differ in what they hold in flight.
    """
    rank = _rank(cases)
    found = []
    for index in range(int(cases.plan.pipeline)):
        lines = {k: float(v) for k, v in _lines(cases, rank, _at(cases, index)).items()}
        peak = sum(lines.values())
        found.append(StageMemory(index, lines, peak, peak <= float(cases.machine.memory_bytes)))
    return tuple(found)


def usual_gradient_bytes(plan: PlanColumns) -> Column:
    """Return the bytes of a summed gradient: as stated, else the usual.

    The usual is that of the weights, but 4 beside bf16 weights that have an fp32 copy, below
    ZeRO-3: Megatron-LM's ``accumulate_allreduce_grads_in_fp32`` is always on with bf16.
    """
    summed = plan.half_bfloat * (plan.zero < 3) * (plan.master_bytes > 0)
    fp32 = np.maximum(plan.weight_bits > 16, summed)
    return np.where(plan.gradient_bytes > 0, plan.gradient_bytes, 2 + 2 * fp32)


def model_states(plan: PlanColumns, dense: Column, experts: Column = 0.0) -> dict[str, Column]:
    """Return the bytes that a rank holds for its parameters, by kind, sharded as ZeRO does.

    Args:
        plan: How the model is cut.
        dense: Parameters of one rank before data ranks share them, experts apart.
        experts: Parameters of the routed experts of one rank, likewise.

    With 16-bit weights, their gradients and AdamW: 2, 2 and 12 bytes a parameter, of which ZeRO
    stage 1 shards the last, 2 the last two and 3 all (Rajbhandari et al., 2020, section 5). fp8
    products keep an 8-bit copy of each weight beside it, below ZeRO-3.
    """
    sharded = dense / plan.shard + experts / _expert_shards(plan)
    full = dense + experts

    def held(level: int) -> Column:
        return np.where(plan.zero >= level, sharded, full)

    copies = FP8_COPY_BYTES * (plan.matrix_bits == 8) * (plan.zero < 3)
    on_device = 1 - plan.offload_optimizer
    return {
        "parameters": (1 - plan.offload_parameters) * held(3) * (plan.weight_bits / 8 + copies),
        "gradients": (1 - plan.offload_gradients) * held(2) * usual_gradient_bytes(plan),
        "optimizer": on_device * held(1) * plan.moment_bytes,
        "master weights": on_device * held(1) * plan.master_bytes,
    }


def _expert_shards(plan: PlanColumns) -> Column:
    """Return the ranks that share one expert's optimizer state: those that hold the same expert."""
    return np.maximum(1, plan.shard * plan.tensor / (plan.expert * plan.expert_tensor))


# --- what a rank holds, whatever its stage


def _rank(cases: Cases) -> _Rank:
    model, plan = cases.model, cases.plan
    tensor = plan.tensor
    routed = model.experts * expert_weights(model) / (plan.expert * plan.expert_tensor)
    return _Rank(
        dense_layer=attention_weights(model) / tensor + norm_weights(model),
        ffn=ffn_weights(model) / tensor,
        experts=routed,
        shared=router_weights(model) + shared_expert_weights(model) / tensor,
        table=embedding_weights(model) / tensor + model.positions * model.hidden,
        output=output_weights(model) / tensor,
        kept=activations.kept(cases),
        whole=activations.whole(cases),
        stream=activations.stream_bytes(cases),
    )


# --- stages


def _place_index(cases: Cases, stage: Stage) -> Column:
    pipeline = cases.plan.pipeline
    if stage == "first":
        return 0 * pipeline
    return pipeline - 1 if stage == "last" else np.minimum(1, pipeline - 1)


def _place(cases: Cases, stage: Stage) -> tuple[Column, Column]:
    """Return the index of ``stage`` and its layers."""
    plan = cases.plan
    even = np.ceil(cases.model.layers / plan.pipeline)
    stated = {
        "first": plan.stage_layers_first,
        "middle": plan.stage_layers_max,
        "last": plan.stage_layers_last,
    }[stage]
    return _place_index(cases, stage), np.where(stated > 0, stated, even)


def _at(cases: Cases, index: int) -> tuple[Column, Column]:
    last = int(cases.plan.pipeline) - 1
    stage: Stage = "first" if index == 0 else "last" if index == last else "middle"
    return index, _place(cases, stage)[1]


def _other_stages(cases: Cases) -> tuple[Stage, ...]:
    """Return the stages beside the first that could be the fullest of any case.

    A stage between holds no more than the first unless it has more layers, or more of experts.
    """
    plan, model = cases.plan, cases.model
    if not np.any(plan.pipeline > 1):
        return ()
    uneven = np.any(plan.stage_layers_max > plan.stage_layers_first)
    mixed = np.any((model.expert_layers > 0) & (model.expert_layers < model.layers))
    return ("middle", "last") if uneven or mixed else ("last",)


def _stage(cases: Cases, rank: _Rank, place: tuple[Column, Column]) -> _Stage:
    """Return what the stage at ``place`` holds.

    When fewer than half of the layers are dense they are the model's first ones; else layers with
    and without experts alternate, and every stage has its share of both.
    """
    model, plan = cases.model, cases.plan
    index, layers = place
    first, last = index == 0, index == plan.pipeline - 1
    dense_layers = model.layers - model.expert_layers
    leading = np.where(2 * dense_layers < model.layers, dense_layers, 0)
    share = layers * model.expert_layers / model.layers
    of_experts = np.where(leading > 0, layers - first * np.minimum(leading, layers), share)
    of_experts = of_experts * (model.expert_layers > 0)
    extra = last * model.prediction_layers
    has_experts = model.experts > 0
    tied_copy = last * (plan.pipeline > 1) * model.tied * rank.table
    dense = (
        layers * rank.dense_layer
        + (layers - of_experts) * rank.ffn
        + of_experts * rank.shared
        + first * rank.table
        + last * rank.output
        + tied_copy
        + extra
        * (prediction_weights(model) - has_experts * model.experts * expert_weights(model))
        / plan.tensor
    )
    return _Stage(
        index=index,
        first=first,
        last=last,
        layers=layers + extra,
        expert_layers=of_experts + extra * has_experts,
        dense=dense,
        experts=(of_experts + extra * has_experts) * rank.experts,
    )


# --- lines


def _lines(cases: Cases, rank: _Rank, place: tuple[Column, Column]) -> dict[str, Column]:
    stage = _stage(cases, rank, place)
    lines = model_states(cases.plan, stage.dense, stage.experts)
    kinds = _activations(cases, rank, stage)
    lines.update(kinds)
    held = sum(kinds.values())
    loss = _loss(cases, rank, stage)
    passing = np.maximum(loss, _backward(cases, rank, stage))
    lines["logits and loss"] = loss
    lines["communication"] = _communication(cases, rank, stage)
    above = _step(cases, stage) - held - passing
    lines["workspace"] = WORKSPACE_BYTES + passing - loss + np.maximum(0, above)
    lines["fragmentation"] = FRAGMENTED_SHARE * (held + passing)
    lines["context"] = _context(cases)
    return lines


def _height(cases: Cases, rank: _Rank, stage: Stage, counter: Counter) -> Column:
    lines = _lines(cases, rank, _place(cases, stage))
    return sum(value for kind, value in lines.items() if kind not in _UNSEEN[counter])


def _activations(cases: Cases, rank: _Rank, stage: _Stage) -> dict[str, Column]:
    """Return what is kept for the backward, over the layers and micro-batches in flight.

    Full recomputation keeps a layer's input, ``2 s b h`` (Korthikanti et al., 2022, section 5), for
    all layers of the stage or for the stated number of them.
    """
    plan = cases.plan
    covered = np.where(plan.recompute_layers > 0, plan.recompute_layers, stage.layers)
    whole = 1 - plan.recompute_full * np.minimum(covered / stage.layers, 1)
    held = activations.layers_in_flight(cases, stage.layers, stage.index)
    held = activations.on_device(cases, held, stage.layers)
    kept, experts = rank.kept, stage.expert_layers / stage.layers
    return {
        "activations: attention": held * whole * kept.attention,
        "activations: norms": held * (whole * kept.norms + (1 - whole) * rank.stream),
        "activations: feed-forward": held * whole * (1 - experts) * kept.ffn,
        "activations: experts": held * whole * experts * kept.experts,
    }


def _loss(cases: Cases, rank: _Rank, stage: _Stage) -> Column:
    """Return bytes at the loss: of the logits, and the inputs of the last norm and the output."""
    model, plan = cases.model, cases.plan
    logits = activations.tokens(cases) * model.vocabulary / plan.tensor
    width = plan.logit_bytes + plan.weight_bits / 8 - 2
    return stage.last * (1 + model.prediction_layers) * (logits * width + 2 * rank.stream)


def _backward(cases: Cases, rank: _Rank, stage: _Stage) -> Column:
    """Return bytes of one layer in its backward, beyond what was kept of it, or of a table's.

    A recomputed layer is whole again, the gradient of its widest part lives beside it, and that of
    a matrix before it is added to the others: of all the layer's under ZeRO-3 layer by layer.
    """
    plan = cases.plan
    dense, experts = rank.whole.of_dense(), rank.whole.of_experts()
    has_dense, has_experts = stage.expert_layers < stage.layers, stage.expert_layers > 0
    whole = np.maximum(has_dense * dense, has_experts * experts)
    kept = np.maximum(has_dense * rank.kept.of_dense(), has_experts * rank.kept.of_experts())
    kept = np.where(plan.recompute_full > 0, rank.stream, kept)
    widest = np.maximum(has_dense * rank.whole.ffn, has_experts * rank.whole.experts)
    by_layer = (plan.zero == 3) * (1 - plan.gather_by_tensor)
    weights = np.where(by_layer > 0, _layer_weights(rank, stage), rank.ffn)
    width = plan.weight_bits / 8
    table = np.maximum(stage.first, stage.last) * rank.table
    return np.maximum(whole - kept + widest / 2 + weights * width, table * width)


def _layer_weights(rank: _Rank, stage: _Stage) -> Column:
    """Return the parameters of one layer on one rank, of an expert layer if there are any."""
    inner = np.where(stage.expert_layers > 0, rank.shared + rank.experts, rank.ffn)
    return rank.dense_layer + inner


def _communication(cases: Cases, rank: _Rank, stage: _Stage) -> Column:
    """Return bytes of what ranks exchange.

    Gathered parameters, a bucket of gradients, gathered tokens, tokens on their way to experts, and
    what a stage sent on and keeps until its gradient comes back (DeepSpeed's pipeline buffers).
    """
    plan = cases.plan
    width = plan.weight_bits / 8
    bucket = np.minimum(BUCKET_PARAMETERS, _layer_weights(rank, stage)) * width
    buckets = bucket * (plan.zero == 2) * (plan.shard > 1)
    tokens = (activations.stream_ranks(cases) - 1) * rank.stream
    routed = activations.routed_tokens(cases) * cases.model.hidden * width
    dispatch = (plan.expert > 1) * (stage.expert_layers > 0) * 2 * routed
    sent = activations.layers_in_flight(cases, 1, stage.index) * (1 - stage.last) * rank.stream
    return _gathered(cases, rank, stage) + buckets + tokens + dispatch + sent


def _gathered(cases: Cases, rank: _Rank, stage: _Stage) -> Column:
    """Return bytes of whole parameters under ZeRO-3.

    Layer by layer: two layers, and the tables, which most programs gather once for both directions.
    Tensor by tensor: the largest matrix twice.
    """
    plan = cases.plan
    layers = GATHERED_LAYERS * _layer_weights(rank, stage)
    tables = stage.first * rank.table + stage.last * rank.output
    tensors = GATHERED_LAYERS * rank.ffn / (2 + cases.model.gated)
    units = np.where(plan.gather_by_tensor > 0, tensors, layers + tables)
    return units * (plan.weight_bits / 8) * (plan.zero == 3) * (plan.shard > 1)


def _step(cases: Cases, stage: _Stage) -> Column:
    """Return bytes of what the optimizer's step holds beside the states.

    Gradients of 16 bits become fp32 beside the master weights they update, sharded alike.
    """
    plan = cases.plan
    sharded = stage.dense / plan.shard + stage.experts / _expert_shards(plan)
    updated = np.where(plan.zero >= 1, sharded, stage.dense + stage.experts)
    narrow = (usual_gradient_bytes(plan) < FP32_BYTES) * (plan.master_bytes > 0)
    return FP32_BYTES * updated * narrow * (1 - plan.offload_optimizer)


def _context(cases: Cases) -> Column:
    """Return bytes that no allocator counts: the context, and buffers of each axis' groups."""
    plan = cases.plan
    axes = 1 * (plan.tensor > 1) + (plan.pipeline > 1) + (plan.data * plan.context > 1)
    return cases.machine.context_bytes + cases.machine.group_bytes * axes
