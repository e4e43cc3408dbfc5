"""Seconds of compute of a layer and a micro-batch: products, attention, element-wise kernels."""

from dataclasses import dataclass

import numpy as np

from gridloom.planner import activations
from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants
from gridloom.planner.products import Rates, forward_and_backward_s, product_s, rates

Pair = tuple[Column, Column]
"""Seconds of the forward and of the backward."""


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one layer and one micro-batch.

    Attributes:
        forward: All of its forward.
        backward: All of its backward.
        core: Of the forward, attention between its projections.
        operators: What recomputation by operator repeats: the forward without attention's core and
            every second matrix product, launches and all.
        attention: What the core adds to forward and backward: less than it takes where the host
            is the slower one.
    """

    forward: Column
    backward: Column
    core: Column
    operators: Column
    attention: Column


def layer_seconds(cases: Cases, constants: Constants, *, expert: bool) -> LayerSeconds:
    """Return the seconds of a layer with a dense feed-forward, or with one of experts."""
    plan = cases.plan
    rate = rates(cases, constants)
    tokens = activations.tokens(cases)
    projections = _projections(cases, rate, constants, tokens)
    feed = _experts if expert else _dense
    feed_forward, elements = feed(cases, rate, constants, tokens)
    core = _core(cases, rate, constants, tokens)
    wide = _element_wise(cases, rate, constants, tokens, elements)
    others = (
        projections[0] + feed_forward[0] + wide,
        projections[1] + feed_forward[1] + constants.backward_passes * wide,
    )
    kernels = constants.layer_kernels * np.where(plan.fused == 1, 1.0, constants.unfused_kernels)
    kernels = kernels + (constants.expert_kernels if expert else 0.0)
    floor = constants.launch_s * kernels
    waits = plan.blocking_launches * constants.blocking_s * kernels
    forward = _longer(others[0] + core[0], floor)
    backward = _longer(others[1] + core[1], 2.0 * floor)
    repeated = (projections[0] + feed_forward[0]) / 2.0 + wide
    without = _longer(others[0], floor) + _longer(others[1], 2.0 * floor)
    return LayerSeconds(
        forward=forward + waits,
        backward=backward + 2.0 * waits,
        core=core[0],
        operators=_longer(repeated, floor) + waits,
        attention=forward + backward - without,
    )


def logits_seconds(cases: Cases, constants: Constants) -> Column:
    """Return the seconds of output layer and loss of one micro-batch, forward and backward."""
    model, plan = cases.model, cases.plan
    rate = rates(cases, constants)
    tokens = activations.tokens(cases)
    width = model.vocabulary / plan.tensor
    # The output layer is not cast to 8 bits.
    flops = 6.0 * tokens * model.hidden * width
    peak = np.where(plan.matrix_bits == 32, cases.machine.flops_32, cases.machine.flops_16)
    product = flops / (peak * constants.matrix_share * constants.logit_gain)
    passes = constants.logit_passes * np.where(plan.fused == 1, 1.0, constants.unfused_passes)
    return product + tokens * width * 2.0 * passes / rate.memory


def _longer(a: Column, b: Column) -> Column:
    """Return a smooth maximum: the device or the host that feeds it, whichever is slower."""
    return (a**4 + b**4) ** 0.25


def _sum(*pairs: Pair) -> Pair:
    forward: Column = sum(pair[0] for pair in pairs)
    backward: Column = sum(pair[1] for pair in pairs)
    return forward, backward


def _element_wise(
    cases: Cases, rate: Rates, constants: Constants, tokens: Column, elements: Column
) -> Column:
    """Norms, residuals, dropout and activation functions, and casts to 8 bits: a forward."""
    model, plan = cases.model, cases.plan
    shared = np.where(plan.sequence_parallel == 1, plan.tensor, 1.0)
    residual = tokens * model.hidden / shared
    passes = residual * constants.hidden_passes + elements * constants.ffn_passes
    passes = passes * np.where(plan.fused == 1, 1.0, constants.unfused_passes)
    casts = (2.0 * residual + elements) * constants.cast_passes * 2.0 / rate.memory
    return passes * rate.weight_bytes / rate.memory + np.where(plan.matrix_bits == 8, casts, 0.0)


def _projections(cases: Cases, rate: Rates, constants: Constants, tokens: Column) -> Pair:
    model, plan = cases.model, cases.plan
    heads = model.heads / plan.tensor
    kv_heads = np.maximum(model.kv_heads / plan.tensor, 1.0)
    size, hidden = model.head_size, model.hidden

    def linear(n: Column, k: Column) -> Pair:
        return forward_and_backward_s(rate, constants, (tokens, n, k))

    plain = _sum(linear((heads + 2 * kv_heads) * size, hidden), linear(hidden, heads * size))
    if not np.any(model.latent):
        return plain
    # Without a latent of their own, queries are projected from the residual stream directly.
    query = np.where(model.query_rank > 0, model.query_rank, hidden)
    key = np.maximum(model.kv_rank, 1.0)
    latent = _sum(
        linear(model.query_rank + key + model.rope_size, hidden),
        linear(heads * np.maximum(model.nope_size + model.rope_size, 1.0), query),
        linear(heads * np.maximum(model.nope_size + model.value_size, 1.0), key),
        linear(hidden, heads * np.maximum(model.value_size, 1.0)),
    )
    return tuple(np.where(model.latent == 1, a, b) for a, b in zip(latent, plain, strict=True))


def _feed(
    cases: Cases,
    rate: Rates,
    constants: Constants,
    rows: Column,
    width: Column,
    count: Column = 1.0,
) -> Pair:
    model = cases.model
    up = forward_and_backward_s(
        rate, constants, (rows, (1 + model.gated) * width, model.hidden), count
    )
    return _sum(up, forward_and_backward_s(rate, constants, (rows, model.hidden, width), count))


def _dense(cases: Cases, rate: Rates, constants: Constants, tokens: Column) -> tuple[Pair, Column]:
    width = np.maximum(cases.model.ffn / cases.plan.tensor, 1.0)
    feed = _feed(cases, rate, constants, tokens, width)
    return feed, tokens * (1 + cases.model.gated) * width


def _experts(
    cases: Cases, rate: Rates, constants: Constants, tokens: Column
) -> tuple[Pair, Column]:
    model, plan = cases.model, cases.plan
    routed = tokens * np.maximum(model.per_token, 1.0) / plan.tensor * plan.expert_tensor
    held = np.maximum(model.experts / plan.expert, 1.0)
    each = np.maximum(routed / held, 1.0)
    width = np.maximum(model.expert_ffn, 1.0) / plan.expert_tensor
    feed = _feed(cases, rate, constants, each, width, held)
    uneven = constants.expert_imbalance
    feed = (feed[0] * uneven, feed[1] * uneven)
    shared_width = np.maximum(model.shared_ffn, 1.0) / plan.tensor
    shared = _feed(cases, rate, constants, tokens, shared_width)
    has_shared = np.where(model.shared_ffn > 0, 1.0, 0.0)
    # Tokens are permuted to their experts and back.
    permute = constants.permute_passes * routed * model.hidden * 2.0 / rate.memory
    elements = (1 + model.gated) * (routed * width + has_shared * tokens * shared_width)
    both = _sum(feed, (shared[0] * has_shared, shared[1] * has_shared), (permute, permute))
    return both, elements


def _core(cases: Cases, rate: Rates, constants: Constants, tokens: Column) -> Pair:
    """Attention between the projections: scores, softmax, values."""
    model, plan = cases.model, cases.plan
    heads = model.heads / plan.tensor
    size = np.where(
        model.latent == 1,
        (model.nope_size + model.rope_size + model.value_size) / 2.0,
        model.head_size,
    )
    fused = 4.0 * tokens * _seen(cases) * heads * size / rate.attention
    fused = fused / np.where(plan.native_attention == 1, 1.0, constants.older_attention_share)
    fused = fused * (1.0 + constants.small_head * (128.0 / np.minimum(size, 128.0) - 1.0))
    fused = fused + 2 * constants.kernel_s
    batch = heads * plan.micro_batch
    rows = cases.sequence / plan.context
    plain = product_s(rate, constants, (rows, cases.sequence, size), batch) + product_s(
        rate, constants, (rows, size, cases.sequence), batch
    )
    traffic = tokens * cases.sequence * heads * 2.0 * constants.score_passes / rate.memory
    flash = plan.flash_attention == 1
    forward = np.where(flash, fused, plain + traffic)
    backward = np.where(
        flash,
        2.5 * fused * constants.attention_backward,
        2.0 * plain + traffic * constants.backward_passes,
    )
    return forward, backward


def _seen(cases: Cases) -> Column:
    """Tokens that one token looks at on average, causal, over windowed and full layers."""
    model = cases.model
    seen = cases.sequence / 2.0
    if not np.any(model.window):
        return seen
    windowed = np.minimum(np.maximum(model.window, 1.0), seen)
    share = np.where(model.window > 0, model.windowed_share, 0.0)
    return share * windowed + (1.0 - share) * seen
