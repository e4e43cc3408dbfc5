"""Cases as columns: a model, a plan and a machine each become numbers, or arrays of numbers.

Every formula of the planner reads `Cases` and works on scalars and numpy arrays alike, so that one
plan, a table of measured runs and a million candidates are computed by the same lines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer

Column: TypeAlias = Any
"""A number, or a one-dimensional float64 array with one entry a case."""


@dataclass(frozen=True, kw_only=True)
class ModelColumns:
    """A transformer in numbers; flags are 0 or 1. Widths in features, ``layers`` in blocks."""

    layers: Column
    hidden: Column
    ffn: Column
    heads: Column
    kv_heads: Column
    head_size: Column
    vocabulary: Column
    gated: Column
    tied: Column
    window: Column
    """Tokens seen by a windowed layer; 0 without windows."""
    windowed_share: Column
    """Share of the layers that are windowed."""
    latent: Column
    """1 for latent attention; the five sizes below are 0 without."""
    query_rank: Column
    kv_rank: Column
    rope_size: Column
    nope_size: Column
    value_size: Column
    experts: Column
    """Routed experts a layer; 0 for a dense model."""
    per_token: Column
    expert_ffn: Column
    shared_ffn: Column
    expert_layers: Column
    capacity_factor: Column
    prediction_layers: Column


@dataclass(frozen=True, kw_only=True)
class PlanColumns:
    """A parallel plan in numbers; flags are 0 or 1."""

    tensor: Column
    pipeline: Column
    context: Column
    data: Column
    expert: Column
    expert_tensor: Column
    sequence_parallel: Column
    virtual_stages: Column
    """1 unless the schedule is interleaved."""
    zero_bubble: Column
    stage_layers_max: Column
    """Layers of the longest stage; 0 for an even cut (``ceil(layers / pipeline)``)."""
    stage_layers_first: Column
    """Layers of the first stage; 0 for an even cut."""
    stage_layers_last: Column
    zero: Column
    shard: Column
    """Ranks of one shard group, never 0: ``data x context`` unless HSDP says otherwise."""
    micro_batch: Column
    """Sequences, at least 1."""
    recompute_selective: Column
    recompute_full: Column
    recompute_layers: Column
    """Layers a stage that full recomputation covers; 0 for all of them."""
    flash_attention: Column
    matrix_bits: Column
    """32, 16 or 8: of the operands of matrix products."""
    weight_bits: Column
    """Of the weights in the forward: 32, or 16 for fp16, bf16 and fp8."""
    half_bfloat: Column
    """1 for bf16 and fp8, 0 for fp16 and fp32."""
    moment_bytes: Column
    """Optimizer moments, bytes a parameter: 8 for AdamW in fp32."""
    master_bytes: Column
    """fp32 copy of the weights, bytes a parameter: 4, or 0 when the weights are fp32."""
    update_flops: Column
    """Matrix work of the update, flops a parameter and hidden unit: 0 but for Muon."""
    offload_optimizer: Column
    offload_gradients: Column
    offload_parameters: Column
    offload_activations: Column
    overlap_gradients: Column
    overlap_parameters: Column
    overlap_tensor: Column
    sync_every: Column
    """Training steps from one exchange between sites to the next."""
    sync_bits: Column


@dataclass(frozen=True, kw_only=True)
class MachineColumns:
    """Devices and the levels of the network between them; rates are per device, one direction."""

    flops_32: Column
    """Peak matrix rate in flop/s, fp32 (TF32 where the device has it)."""
    flops_16: Column
    flops_8: Column
    """Equal to ``flops_16`` where the device has no 8-bit rate."""
    memory_bytes: Column
    hbm_bytes_per_s: Column
    node: Column
    """Devices of one scale-up domain (NVLink island)."""
    scaleup_bytes_per_s: Column
    network_bytes_per_s: Column
    """Between scale-up domains."""
    leaf: Column
    """Devices under one leaf switch; 0 when unknown or when the fabric is not oversubscribed."""
    spine_share: Column
    """Share of ``network_bytes_per_s`` that remains above the leaf."""
    host_bytes_per_s: Column
    """To the memory of the host."""
    sharp: Column
    """1 when switches of the scale-up domain reduce (NVLink SHARP)."""
    sites: Column
    """Sites over which the copies of the model are spread."""
    wan_bytes_per_s: Column
    """Of one site to another; 0 with one site."""
    wan_latency_s: Column


@dataclass(frozen=True, kw_only=True)
class Cases:
    """What is to be predicted.

    Attributes:
        model: Shape of the model.
        plan: How it is cut.
        machine: On what.
        sequence: Tokens a sequence.
        global_batch: Sequences a training step.
    """

    model: ModelColumns
    plan: PlanColumns
    machine: MachineColumns
    sequence: Column
    global_batch: Column


_C = TypeVar("_C")


def stack(items: Sequence[_C]) -> _C:
    """Return one value of the same class whose columns hold one entry for each of ``items``."""
    first = items[0]
    columns: dict[str, Any] = {}
    for field in fields(first):  # type: ignore[arg-type]
        values = [getattr(item, field.name) for item in items]
        nested = hasattr(values[0], "__dataclass_fields__")
        columns[field.name] = stack(values) if nested else np.asarray(values, dtype=np.float64)
    return type(first)(**columns)


def take(cases: _C, index: Column) -> _C:
    """Return the cases at ``index`` (a slice, numbers or a mask); scalars stay as they are."""
    columns: dict[str, Any] = {}
    for field in fields(cases):  # type: ignore[arg-type]
        value = getattr(cases, field.name)
        if hasattr(value, "__dataclass_fields__"):
            columns[field.name] = take(value, index)
        else:
            columns[field.name] = value[index] if np.ndim(value) else value
    return type(cases)(**columns)


def model_columns(model: Transformer) -> ModelColumns:
    """Return ``model`` in numbers."""
    latent, experts = model.latent, model.experts
    windowed = 0.0 if not model.window else 1.0
    if model.window and model.full_every:
        windowed = 1.0 - (model.layers // model.full_every) / model.layers
    return ModelColumns(
        layers=model.layers,
        hidden=model.hidden,
        ffn=model.ffn,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_size=model.width_per_head,
        vocabulary=model.vocabulary,
        gated=int(model.gated),
        tied=int(model.tied),
        window=model.window,
        windowed_share=windowed,
        latent=int(latent is not None),
        query_rank=latent.query_rank if latent else 0,
        kv_rank=latent.kv_rank if latent else 0,
        rope_size=latent.rope_size if latent else 0,
        nope_size=latent.nope_size if latent else 0,
        value_size=latent.value_size if latent else 0,
        experts=experts.count if experts else 0,
        per_token=experts.per_token if experts else 0,
        expert_ffn=experts.ffn if experts else 0,
        shared_ffn=experts.shared_ffn if experts else 0,
        expert_layers=model.expert_layers,
        capacity_factor=experts.capacity_factor if experts else 0,
        prediction_layers=model.prediction_layers,
    )


_MATRIX_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8}

_MOMENT_BYTES = {
    "adamw": 8.0,
    "adamw_8bit": 2.03125,  # two bytes and two fp32 scales a block of 256 (Dettmers et al., 2022)
    "adafactor": 0.0,  # one row and one column of fp32 a matrix: nothing beside the matrix
    "lamb": 8.0,
    "muon": 4.0,
    "sgd": 4.0,
}

MUON_ITERATIONS = 5
"""Newton-Schulz iterations of Muon (Jordan et al., 2024)."""


def plan_columns(plan: ParallelPlan) -> PlanColumns:
    """Return ``plan`` in numbers; its micro-batch must be stated."""
    stages = plan.stage_layers
    expert_tensor = plan.expert_tensor or (plan.tensor if plan.expert == 1 else 1)
    return PlanColumns(
        tensor=plan.tensor,
        pipeline=plan.pipeline,
        context=plan.context,
        data=plan.data,
        expert=plan.expert,
        expert_tensor=expert_tensor,
        sequence_parallel=int(plan.sequence_parallel),
        virtual_stages=plan.virtual_stages,
        zero_bubble=int(plan.schedule == "zero_bubble"),
        stage_layers_max=max(stages, default=0),
        stage_layers_first=stages[0] if stages else 0,
        stage_layers_last=stages[-1] if stages else 0,
        zero=plan.zero,
        shard=plan.shard or plan.data * plan.context,
        micro_batch=max(1, plan.micro_batch),
        recompute_selective=int(plan.recompute == "selective"),
        recompute_full=int(plan.recompute == "full"),
        recompute_layers=plan.recompute_layers,
        flash_attention=int(plan.flash_attention),
        matrix_bits=_MATRIX_BITS[plan.precision],
        weight_bits=32 if plan.precision == "fp32" else 16,
        half_bfloat=int(plan.precision in {"bf16", "fp8"}),
        moment_bytes=_MOMENT_BYTES[plan.optimizer],
        master_bytes=0 if plan.precision == "fp32" else 4,
        update_flops=6 * MUON_ITERATIONS if plan.optimizer == "muon" else 0,
        offload_optimizer=int("optimizer" in plan.offload),
        offload_gradients=int("gradients" in plan.offload),
        offload_parameters=int("parameters" in plan.offload),
        offload_activations=int("activations" in plan.offload),
        overlap_gradients=int(plan.overlap_gradients),
        overlap_parameters=int(plan.overlap_parameters),
        overlap_tensor=int(plan.overlap_tensor),
        sync_every=plan.site_sync.every,
        sync_bits=plan.site_sync.bits,
    )


def column_length(values: Iterable[Column]) -> int:
    """Return how many cases ``values`` describe: the longest column's length, 1 for numbers."""
    return max((len(value) for value in values if np.ndim(value)), default=1)
