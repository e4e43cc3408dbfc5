"""Cases as columns: a model, a plan and a machine each become numbers, or arrays of numbers.

Every formula of the planner reads `Cases` and works on scalars and numpy arrays alike, so that one
plan, a table of measured runs and a million candidates are computed by the same lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.memory_constants import CONTEXT_BYTES, GROUP_BYTES

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
    positions: Column = 0
    """Rows of a learned table of positions; this and the columns below complete the count."""
    norm_bias: Column = 0
    norms_per_layer: Column = 2
    qk_norm_head: Column = 0
    """1 with one scale of a head's size for queries and one for keys."""
    qk_norm_all: Column = 0
    """1 with a scale for the whole projection of queries and of keys."""
    embedding_norm: Column = 0
    qkv_bias: Column = 0
    output_bias: Column = 0
    ffn_bias: Column = 0
    head_bias: Column = 0
    shared_gate: Column = 0
    router_bias: Column = 0


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
    native_attention: Column
    fused: Column
    """1 when element-wise kernels are fused, by a compiler or by hand."""
    blocking_launches: Column
    row_scales: Column
    """1 for 8-bit products with a scale for each row."""
    gather_by_tensor: Column
    """1 when ZeRO-3 gathers parameter by parameter, not layer by layer."""
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
    gradient_bytes: Column = 0
    """Of a parameter's summed gradient; 0 for the usual (`memory.usual_gradient_bytes`)."""
    reduce_bytes: Column = 0
    """Of a gradient on its way between data ranks; 0 for the usual."""
    logit_bytes: Column = 14
    """Held for each logit at the loss: see `LOGIT_BYTES`."""
    dropout: Column = 0
    recompute_operators: Column = 0


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
    units: Column
    """Multiprocessors that share the tiles of a product; 0 when tiles do not matter."""
    sites: Column
    """Sites over which the copies of the model are spread."""
    wan_bytes_per_s: Column
    """Of one site to another; 0 with one site."""
    wan_latency_s: Column
    context_bytes: Column = CONTEXT_BYTES
    """Taken by the runtime's context and its loaded kernels, which no allocator counts."""
    group_bytes: Column = GROUP_BYTES
    """Taken by buffers of the groups of one axis of the mesh, which no allocator counts."""


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
        positions=model.positions,
        norm_bias=int(model.norm_bias),
        norms_per_layer=model.norms_per_layer,
        qk_norm_head=int(model.qk_norm == "head"),
        qk_norm_all=int(model.qk_norm == "all"),
        embedding_norm=int(model.embedding_norm),
        qkv_bias=int(model.qkv_bias),
        output_bias=int(model.output_bias),
        ffn_bias=int(model.ffn_bias),
        head_bias=int(model.head_bias),
        shared_gate=int(experts.shared_gate) if experts else 0,
        router_bias=int(experts.router_bias) if experts else 0,
    )


_MATRIX_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "fp8_rowwise": 8, "bf16_pure": 16}

_MOMENT_BYTES = {
    "adamw": 8.0,
    "adamw_16bit": 4.0,  # both moments in bf16 beside an fp32 master (Megatron's precision-aware)
    "adamw_8bit": 2.03125,  # two bytes and two fp32 scales a block of 256 (Dettmers et al., 2022)
    "adafactor": 0.0,  # one row and one column of fp32 a matrix: nothing beside the matrix
    "lamb": 8.0,
    "muon": 4.0,
    "sgd": 4.0,
}

LOGIT_BYTES = {"copies": 14.0, "in_place": 6.0, "fused": 4.0, "chunked": 2.0}
"""Bytes a logit at the peak of the loss, by kernel, with logits of two bytes.

``copies``: the logits, then in fp32 their copy or log-softmax, the gradient of that and one more
(``torch.nn.functional.cross_entropy`` on ``logits.float()``, and Megatron-Core's jit-fused loss);
``in_place``: one fp32 copy that becomes the softmax and then its gradient (Megatron-Core's
``vocab_parallel_cross_entropy``); ``fused``: the logits and their gradient in two bytes each
(compiled, Transformer Engine's); ``chunked``: an eighth of the tokens at a time, with copies.
"""

MUON_ITERATIONS = 5
"""Newton-Schulz iterations of Muon (Jordan et al., 2024)."""


def plan_columns(plan: ParallelPlan) -> PlanColumns:
    """Return ``plan`` in numbers; its micro-batch must be stated."""
    stages = plan.stage_layers
    expert_tensor = plan.expert_tensor or (plan.tensor if plan.expert == 1 else 1)
    pure = plan.precision == "bf16_pure"
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
        native_attention=int(plan.native_attention),
        fused=int(plan.fused),
        blocking_launches=int(plan.blocking_launches),
        row_scales=int(plan.precision == "fp8_rowwise"),
        gather_by_tensor=int(plan.gather_unit == "tensor"),
        matrix_bits=_MATRIX_BITS[plan.precision],
        weight_bits=32 if plan.precision == "fp32" else 16,
        half_bfloat=int(plan.precision not in {"fp32", "fp16"}),
        moment_bytes=_MOMENT_BYTES[plan.optimizer] / (2 if pure else 1),
        master_bytes=0 if pure or plan.precision == "fp32" else 4,
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
        gradient_bytes=plan.gradient_bytes,
        reduce_bytes=plan.reduce_bytes,
        logit_bytes=LOGIT_BYTES[plan.loss],
        dropout=int(plan.dropout),
        recompute_operators=int(plan.recompute == "operators"),
    )
