"""Seconds of one training step, by kind, from shapes, rates and the network's levels."""

from dataclasses import dataclass

import numpy as np

from gridloom.planner.cases import Cases, Column
from gridloom.planner.communication import all_to_all_s, ring_s
from gridloom.planner.constants import Constants
from gridloom.planner.kernels import layer_seconds, logits_seconds
from gridloom.planner.products import rates
from gridloom.planner.models.parameters import (
    attention_weights,
    embedding_weights,
    expert_weights,
    ffn_weights,
    norm_weights,
    router_weights,
    shared_expert_weights,
)


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one training step on the slowest rank, by kind."""

    compute_s: Column
    recompute_s: Column
    logits_s: Column
    tensor_s: Column
    context_s: Column
    expert_s: Column
    pipeline_s: Column
    bubble_s: Column
    data_s: Column
    sites_s: Column
    update_s: Column
    fixed_s: Column
    jitter_s: Column

    @property
    def total_s(self) -> Column:
        return sum(vars(self).values())


def step_time(cases: Cases, constants: Constants) -> StepTime:
    model, plan, machine = cases.model, cases.plan, cases.machine
    dense = layer_seconds(cases, constants, expert=False)
    share = model.expert_layers / model.layers
    if np.any(model.experts):
        of_experts = layer_seconds(cases, constants, expert=True)
        forward = share * of_experts.forward + (1 - share) * dense.forward
        backward = share * of_experts.backward + (1 - share) * dense.backward
    else:
        forward, backward = dense.forward, dense.backward
    core = dense.core_forward

    layers = np.where(
        plan.stage_layers_max > 0, plan.stage_layers_max, np.ceil(model.layers / plan.pipeline)
    )
    full = plan.recompute_full * np.where(
        plan.recompute_layers > 0, np.minimum(plan.recompute_layers / layers, 1.0), 1.0
    )
    again = full * constants.recompute_share * forward + plan.recompute_selective * (1 - full) * core
    micro_batches = np.maximum(
        np.ceil(cases.global_batch / (plan.data * plan.micro_batch)), 1.0
    )

    tensor_f, tensor_b = _tensor(cases, constants)
    tensor_layer = tensor_f + tensor_b + full * tensor_f
    tensor_layer = tensor_layer * (1 - plan.overlap_tensor * constants.tensor_hidden)
    context_layer = _context(cases, constants, core)
    expert_layer = share * _expert(cases, constants) * (2.0 + full)

    logits = logits_seconds(cases, constants)
    layer = forward + backward + again + tensor_layer + context_layer + expert_layer
    mean_layers = model.layers / plan.pipeline
    stage = np.maximum(layers * layer, mean_layers * layer + logits * 0)
    piped = plan.pipeline > 1
    # The last stage also computes the logits.
    last = np.where(plan.stage_layers_last > 0, plan.stage_layers_last, mean_layers) * layer + logits
    longest = np.where(piped, np.maximum(stage, last), stage + logits)
    extra = longest - layers * layer
    mean_stage = mean_layers * layer + logits / plan.pipeline
    bubble_share = np.where(plan.zero_bubble == 1, 1.0 / 3.0, 1.0 / plan.virtual_stages)
    bubble = (plan.pipeline - 1) * mean_stage * bubble_share

    pipeline = _pipeline(cases, constants, micro_batches)
    accumulate = micro_batches * _accumulate(cases, constants)
    data = _data(cases, constants, micro_batches, layers * (forward + again), layers * backward)
    update = _update(cases, constants)
    work = micro_batches * layers
    compute = work * (forward + backward) + accumulate
    parts = {
        "compute_s": compute,
        "recompute_s": work * again,
        "logits_s": micro_batches * extra,
        "tensor_s": work * tensor_layer,
        "context_s": work * context_layer,
        "expert_s": work * expert_layer,
        "pipeline_s": pipeline,
        "bubble_s": bubble,
        "data_s": data,
        "sites_s": 0.0 * compute,
        "update_s": update,
        "fixed_s": constants.step_fixed_s + 0.0 * compute,
    }
    nodes = np.maximum(
        plan.tensor * plan.pipeline * plan.context * plan.data / machine.node, 1.0
    )
    jitter = constants.jitter * np.log2(nodes) * sum(parts.values())
    return StepTime(**parts, jitter_s=jitter)


def _tensor(cases: Cases, constants: Constants) -> tuple[Column, Column]:
    """Collectives of one layer and micro-batch over the tensor ranks: forward, backward."""
    plan = cases.plan
    tokens = plan.micro_batch * cases.sequence / plan.context
    whole = tokens * cases.model.hidden * np.where(plan.weight_bits == 32, 4.0, 2.0)
    one = ring_s(cases, constants, plan.tensor, 1.0, whole)
    # Two blocks, each a reduce-scatter and an all-gather (an all-reduce is both).
    return 4.0 * one, 4.0 * one


def _context(cases: Cases, constants: Constants, core: Column) -> Column:
    """Exposed exchange of keys and values around the ring of context ranks, one layer."""
    plan, model = cases.plan, cases.model
    tokens = plan.micro_batch * cases.sequence / plan.context
    kv_width = np.maximum(model.kv_heads / plan.tensor, 1.0) * model.head_size
    block = 2.0 * tokens * kv_width * 2.0
    once = ring_s(cases, constants, plan.context, plan.tensor, block * plan.context)
    # Forward once, backward with the gradients of keys and values beside them.
    hidden = constants.data_hidden * core * 4.0
    moved = 3.0 * once
    return np.maximum(moved - hidden, moved * constants.data_interference)


def _expert(cases: Cases, constants: Constants) -> Column:
    """Dispatch and combine of one expert layer's tokens, one direction."""
    plan, model = cases.plan, cases.model
    tokens = plan.micro_batch * cases.sequence / plan.context / plan.tensor * plan.expert_tensor
    sent = tokens * model.per_token * model.hidden * 2.0
    stride = plan.expert_tensor
    return 2.0 * all_to_all_s(cases, constants, plan.expert, stride, sent)


def _pipeline(cases: Cases, constants: Constants, micro_batches: Column) -> Column:
    plan, machine = cases.plan, cases.machine
    tokens = plan.micro_batch * cases.sequence / plan.context
    # Each tensor rank sends its share; the receiving ones gather it over the scale-up links.
    sent = tokens * cases.model.hidden * 2.0 / plan.tensor
    inner = plan.tensor * plan.context * plan.data
    far = inner >= machine.node
    rate = np.where(
        far,
        machine.network_bytes_per_s * constants.network_share,
        machine.scaleup_bytes_per_s * constants.scaleup_share,
    )
    latency = np.where(far, constants.network_latency_s, constants.scaleup_latency_s)
    hops = 2.0 * plan.virtual_stages * micro_batches
    time = hops * (sent / rate + latency) * constants.pipeline_exposed
    return np.where(plan.pipeline > 1, time, 0.0)


def _data(cases: Cases, constants: Constants, micro_batches: Column, forward_stage: Column, backward_stage: Column) -> Column:
    plan, model = cases.plan, cases.model
    dense, routed = held_weights(cases)
    half = np.where(plan.weight_bits == 32, 4.0, 2.0)
    ranks = plan.data * plan.context
    stride = plan.tensor
    shard = plan.shard
    expert_ranks = np.maximum(ranks * plan.tensor / (plan.expert * plan.expert_tensor), 1.0)
    # One pass over the dense weights, and one over the routed experts of a rank.
    def once(width: Column) -> Column:
        time = ring_s(cases, constants, ranks, stride, dense * width)
        if np.any(model.experts):
            time = time + ring_s(
                cases, constants, expert_ranks, plan.expert * plan.expert_tensor, routed * width
            )
        return time

    def sharded(width: Column) -> Column:
        inside = ring_s(cases, constants, shard, stride, dense * width)
        return np.where(shard < ranks, inside, once(width))

    gradient = constants_gradient_bytes(cases)
    reduce = once(gradient)
    gather = sharded(half)
    # Without shards gradients are all-reduced: twice the traffic of a reduce-scatter.
    simple = 2.0 * reduce
    replicated = ring_s(
        cases, constants, ranks / shard, stride * shard, dense * gradient / shard
    )
    hsdp = np.where(shard < ranks, sharded(gradient) + 2.0 * replicated, reduce)
    zero3 = plan.zero == 3
    gathers = np.where(zero3, 2.0 * micro_batches, 1.0)
    reduces = np.where(zero3, micro_batches, 1.0)
    room_f = np.where(zero3, micro_batches, 1.0) * forward_stage
    room_b = np.where(zero3, micro_batches, 1.0) * backward_stage
    # Each gather goes around the whole ring: by tensor that is a dozen times a layer.
    latency = np.where(
        plan.gather_by_tensor == 1, 12.0 * constants.tensor_latency_s, constants.ring_latency_s
    )
    rounds = latency * model.layers / plan.pipeline * np.maximum(shard - 1.0, 0.0)
    rounds = np.where(zero3, rounds, 0.0)
    gather = gather + rounds
    reduce = reduce + rounds
    hsdp = hsdp + rounds
    unsharded = plan.zero == 0
    moved_gather = np.where(unsharded, 0.0, gathers * gather)
    moved_reduce = np.where(unsharded, simple, reduces * hsdp)

    # ZeRO-3 gathers half of its weights in the backward too.
    in_backward = np.where(zero3, 0.5 * moved_gather, 0.0)
    first = _exposed(constants, moved_gather - in_backward, room_f, plan.overlap_parameters)
    second = _exposed(constants, moved_reduce + in_backward, room_b, plan.overlap_gradients)
    return np.where(plan.gather_by_tensor == 1, moved_gather + moved_reduce, first + second)


def _exposed(constants: Constants, moved: Column, room: Column, overlapped: Column) -> Column:
    hidden = np.minimum(moved, constants.data_hidden * room) * overlapped
    return moved - hidden * (1.0 - constants.data_interference)


def constants_gradient_bytes(cases: Cases) -> Column:
    return np.where(cases.plan.weight_bits == 32, 4.0, 2.0)


def held_weights(cases: Cases) -> tuple[Column, Column]:
    """Weights that a rank of the fullest stage holds before sharding: dense ones, routed ones."""
    model, plan = cases.model, cases.plan
    share = model.expert_layers
    per_stage = 1.0 / plan.pipeline
    dense_layers = (
        model.layers * (attention_weights(model) + norm_weights(model))
        + (model.layers - share) * ffn_weights(model)
        + share * (router_weights(model) + shared_expert_weights(model))
    )
    ends = embedding_weights(model) * np.where(plan.pipeline > 1, 1.0, 2.0 - model.tied)
    dense = (dense_layers * per_stage + ends) / plan.tensor
    routed = share * per_stage * model.experts * expert_weights(model) / (
        plan.expert * plan.expert_tensor
    )
    return dense, routed


def _accumulate(cases: Cases, constants: Constants) -> Column:
    """Seconds that adding one micro-batch's gradients to those before takes."""
    dense, routed = held_weights(cases)
    # fp32 sums are read and written; ZeRO-3 keeps only its shard of them and writes 16 bits first.
    width = np.where(cases.plan.zero == 3, 4.0, 8.0)
    return constants.accumulate_passes * (dense + routed) * width / rates(cases, constants).memory


def _update(cases: Cases, constants: Constants) -> Column:
    plan = cases.plan
    dense, routed = held_weights(cases)
    shard = np.where(plan.zero > 0, plan.shard, 1.0)
    expert_shard = np.where(
        plan.zero > 0,
        np.maximum(plan.shard * plan.tensor / (plan.expert * plan.expert_tensor), 1.0),
        1.0,
    )
    held = dense / shard + routed / expert_shard
    state = plan.moment_bytes + plan.master_bytes + 4.0
    rate = rates(cases, constants).memory
    device = held * state * 2.0 * constants.update_passes / rate
    host = held * (4.0 + 2.0) / cases.machine.host_bytes_per_s
    return device + plan.offload_optimizer * host
