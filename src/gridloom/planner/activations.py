"""What the backward needs of the forward: bytes that a rank keeps, by kind, and for how long.

Counted from the tensors that autograd saves, as Korthikanti et al. (2022, arXiv 2205.05198, section
4) do for GPT; grouped queries, gates, latent attention and experts follow from the same rule: each
matrix product keeps its input, each elementwise chain its first input, attention its queries, keys,
values and output. Statistics of norms and log-sums are left out, as there: a few bytes a token.
"""

from dataclasses import dataclass

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.memory_constants import EXPERT_IMBALANCE, FP32_BYTES, OFFLOADED_LAYERS


@dataclass(frozen=True, kw_only=True)
class LayerActivations:
    """Bytes of one micro-batch in one layer on one rank, by kind.

    Attributes:
        attention: Its core and the projections around it.
        norms: Inputs of the norms, the residual stream: what a recomputed layer keeps.
        ffn: The dense feed-forward layer, in a layer without experts.
        experts: Router, routed and shared experts, in a layer with them.
    """

    attention: Column
    norms: Column
    ffn: Column
    experts: Column

    def of_dense(self) -> Column:
        """Return the sum for a layer without experts."""
        return self.attention + self.norms + self.ffn

    def of_experts(self) -> Column:
        """Return the sum for a layer with experts."""
        return self.attention + self.norms + self.experts


def tokens(cases: Cases) -> Column:
    """Return the tokens of a micro-batch on one rank, before tensor ranks share them."""
    return cases.plan.micro_batch * cases.sequence / cases.plan.context


def _number_bytes(cases: Cases) -> Column:
    """Return the bytes of one activation: those of a weight in the forward."""
    return cases.plan.weight_bits / 8


def _operand_bytes(cases: Cases) -> Column:
    """Return the bytes of what a matrix product keeps of its input.

    Transformer Engine keeps the 8-bit one; under ZeRO-3 weights and inputs are cast on the way and
    the 16-bit input is kept (torchao's float8 training: its published peaks equal those of bf16).
    """
    plan = cases.plan
    return _choose((plan.matrix_bits == 8) * (plan.zero < 3), 1, _number_bytes(cases))


def stream_ranks(cases: Cases) -> Column:
    """Return over how many ranks the residual stream is cut: ``tensor`` when they share tokens."""
    return 1 + (cases.plan.tensor - 1) * cases.plan.sequence_parallel


def stream_bytes(cases: Cases) -> Column:
    """Return the bytes of one tensor of the residual stream: ``tokens x hidden`` numbers."""
    return _number_bytes(cases) * tokens(cases) * cases.model.hidden / stream_ranks(cases)


def whole(cases: Cases) -> LayerActivations:
    """Return what a layer keeps when nothing is computed again.

    For GPT with dropout and unfused attention this is ``s b h (10 + 24/t + 5 a s/(h t))`` and with
    sequence parallelism ``s b h/t (34 + 5 a s/h)`` (Korthikanti et al., 2022, equations 2 and 4).
    """
    model, plan = cases.model, cases.plan
    stream = stream_bytes(cases)
    numbers = stream / _number_bytes(cases)
    outer = numbers * (_operand_bytes(cases) + plan.dropout)
    per_rank = tokens(cases) / plan.tensor
    return LayerActivations(
        attention=outer + per_rank * _attention_width(cases) + scores(cases),
        norms=stream * model.norms_per_layer,
        ffn=outer + per_rank * _feed_forward(cases, model.ffn),
        experts=_experts(cases, outer),
    )


def kept(cases: Cases) -> LayerActivations:
    """Return what a layer keeps between its forward and its backward, full recomputation apart.

    ``selective`` computes attention's scores again, of which fused attention keeps none anyway
    (Korthikanti et al., 2022, section 5). ``operators`` keeps the layer's input, attention's output
    and every second matrix product's (queries, values, the first of the feed-forward layer), as
    torchtitan's selective checkpointing by operator does.
    """
    every = whole(cases)
    plan = cases.plan
    again = np.maximum(plan.recompute_selective, plan.recompute_operators)
    by_operator = plan.recompute_operators
    some = _by_operator(cases, every)
    return LayerActivations(
        attention=_choose(by_operator, some.attention, every.attention - again * scores(cases)),
        norms=_choose(by_operator, some.norms, every.norms),
        ffn=_choose(by_operator, some.ffn, every.ffn),
        experts=_choose(by_operator, some.experts, every.experts),
    )


def scores(cases: Cases) -> Column:
    """Return the bytes of attention's scores in one layer; 0 when attention is fused.

    The softmax, and with dropout its mask and the masked softmax: ``5 a s^2 b`` in 16 bits.
    """
    model, plan = cases.model, cases.plan
    width = _number_bytes(cases) * (1 + plan.dropout) + plan.dropout
    pairs = tokens(cases) * cases.sequence * model.heads / plan.tensor
    return (1 - plan.flash_attention) * width * pairs


def layers_in_flight(cases: Cases, layers: Column, index: Column) -> Column:
    """Return how many layers' micro-batches stage ``index`` holds, of its ``layers``.

    One forward, one backward (Narayanan et al., 2021, section 2.2): ``min(pipeline - index, m)`` of
    ``m`` micro-batches, each through all layers. Interleaved: ``2 (pipeline - index - 1) +
    (chunks - 1) pipeline + 1`` micro-batches of one chunk, which on the first stage is ``1 +
    (p - 1)/(p v)`` of all layers (Korthikanti et al., 2022, section 4.2.3). Zero bubble holds on
    each stage what 1F1B does on the first (ZB-H1; Qi et al., 2023, section 2.3).
    """
    plan = cases.plan
    batches = micro_batches(cases)
    ahead = plan.pipeline - 1 - index * (1 - plan.zero_bubble)
    plain = np.minimum(ahead + 1, batches)
    chunks = plan.virtual_stages
    warm = 2 * ahead + (chunks - 1) * plan.pipeline + 1
    interleaved = np.minimum(warm, batches * chunks) / chunks
    return layers * _choose(chunks > 1, interleaved, plain)


def micro_batches(cases: Cases) -> Column:
    """Return the micro-batches of a training step on one rank, at least 1."""
    plan = cases.plan
    return np.maximum(1, np.ceil(cases.global_batch / (plan.data * plan.micro_batch)))


def on_device(cases: Cases, held: Column, layers: Column) -> Column:
    """Return how many of ``held`` layers' micro-batches stay when activations are offloaded."""
    few = np.minimum(held, np.minimum(layers, OFFLOADED_LAYERS))
    return _choose(cases.plan.offload_activations, few, held)


def _choose(flag: Column, yes: Column, no: Column) -> Column:
    """Return ``yes`` where ``flag`` is 1: cheaper than a selection, and scalars stay scalars."""
    return no + flag * (yes - no)


def _attention_width(cases: Cases) -> Column:
    """Return bytes a token of what tensor ranks share of attention's projections and core."""
    model, plan = cases.model, cases.plan
    width = _number_bytes(cases)
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    normed = model.qk_norm_head + model.qk_norm_all
    # Eager attention copies keys and values to every query head.
    eager = (1 - plan.fused) * 2 * (query - key)
    projected = 2 * query + 2 * key + normed * (query + key) + eager
    split = model.heads * (2 * (model.nope_size + model.rope_size) + 2 * model.value_size)
    up = model.heads * model.nope_size
    latents = 2 * (model.query_rank + model.kv_rank) * plan.tensor / stream_ranks(cases)
    narrow = _operand_bytes(cases) < width
    output = (
        narrow
        * _operand_bytes(cases)
        * _choose(model.latent, model.heads * model.value_size, query)
    )
    return width * _choose(model.latent, split + up + latents, projected) + output


def _feed_forward(cases: Cases, width: Column) -> Column:
    """Return bytes a token of a feed-forward layer ``width`` wide, its input apart.

    What goes into the activation function (two such with a gate) and what comes out of it, into the
    second product; eager kernels keep the gate's activation too.
    """
    gated = cases.model.gated
    inner = _number_bytes(cases) * (1 + gated * (2 - cases.plan.fused))
    return width * (inner + _operand_bytes(cases))


def _experts(cases: Cases, shared_input: Column) -> Column:
    """Return bytes of an expert layer's feed-forward part.

    The router keeps its input (the experts' own), and its scores in fp32; each routed token its
    copy at the expert, what the expert's two products keep, and its output, which the router's
    weight multiplies.
    """
    model, plan = cases.model, cases.plan
    width = _number_bytes(cases)
    routed = routed_tokens(cases)
    inner = _feed_forward(cases, model.expert_ffn) / plan.expert_tensor
    each = width * 2 * model.hidden + inner
    router = 2 * FP32_BYTES * model.experts * tokens(cases) / stream_ranks(cases)
    shared = _feed_forward(cases, model.shared_ffn) * tokens(cases) / plan.tensor
    return (model.experts > 0) * (shared_input + router + routed * each + shared)


def routed_tokens(cases: Cases) -> Column:
    """Return the tokens that the experts of one rank work on, an even share of all.

    Tensor ranks that share an expert work on the same tokens; others each on theirs.
    """
    model, plan = cases.model, cases.plan
    each = tokens(cases) / stream_ranks(cases) * model.per_token
    gathered = np.maximum(plan.sequence_parallel, plan.tensor == 1)
    together = _choose(gathered, plan.expert_tensor, 1)
    room = np.maximum(model.capacity_factor, EXPERT_IMBALANCE)
    return each * together * room


def _by_operator(cases: Cases, every: LayerActivations) -> LayerActivations:
    model, plan = cases.model, cases.plan
    width = _number_bytes(cases) * tokens(cases)
    query, key = model.heads * model.head_size, model.kv_heads * model.head_size
    projected = (2 * query + key) / plan.tensor
    latent = 2 * model.heads * model.value_size / plan.tensor
    # A compiler drops the last product's output, which nothing in the backward reads.
    last = (1 - plan.fused) * model.hidden / stream_ranks(cases)
    inner = model.ffn / plan.tensor + last
    return LayerActivations(
        attention=width * _choose(model.latent, latent, projected),
        norms=stream_bytes(cases),
        ffn=width * inner,
        experts=every.experts / 2,
    )
