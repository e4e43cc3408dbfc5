"""Seconds of what a training step does to parameters: sum, exchange, gather, update, offload."""

from dataclasses import dataclass

import numpy as np

from gridloom.planner.activations import kept
from gridloom.planner.cases import Cases, Column, PlanColumns
from gridloom.planner.communication import ring_s, sites_s
from gridloom.planner.constants import Constants
from gridloom.planner.memory import usual_gradient_bytes
from gridloom.planner.models.parameters import (
    attention_weights,
    embedding_weights,
    expert_weights,
    ffn_weights,
    norm_weights,
    router_weights,
    shared_expert_weights,
)
from gridloom.planner.products import rates

GATHERED_TENSORS = 12.0
"""Parameter tensors of a layer, where ZeRO-3 gathers one by one."""


@dataclass(frozen=True)
class Held:
    """Parameters of a rank of the fullest stage before data ranks shard them.

    Attributes:
        dense: All but the routed experts.
        routed: The routed experts.
        model: Of the whole model, on all ranks together.
    """

    dense: Column
    routed: Column
    model: Column


@dataclass(frozen=True)
class Room:
    """Seconds of compute of one micro-batch on a stage, behind which traffic can hide."""

    forward: Column
    backward: Column
    micro_batches: Column


def held(cases: Cases) -> Held:
    """Return the parameters of a rank."""
    model, plan = cases.model, cases.plan
    expert_layers = model.expert_layers
    layers = (
        model.layers * (attention_weights(model) + norm_weights(model))
        + (model.layers - expert_layers) * ffn_weights(model)
        + expert_layers * (router_weights(model) + shared_expert_weights(model))
    )
    table = embedding_weights(model)
    ends = table * np.where(plan.pipeline > 1, 1.0, 2.0 - model.tied)
    routed = expert_layers * model.experts * expert_weights(model)
    return Held(
        dense=(layers / plan.pipeline + ends) / plan.tensor,
        routed=routed / plan.pipeline / (plan.expert * plan.expert_tensor),
        model=layers + routed + table * (2.0 - model.tied),
    )


def accumulate_s(cases: Cases, constants: Constants, weights: Held) -> Column:
    """Return the seconds of adding one micro-batch's gradients to those before.

    fp32 sums are read and written; ZeRO-3 keeps only its shard of them and writes 16 bits first.
    """
    width = np.where(cases.plan.zero == 3, 4.0, 8.0)
    moved = (weights.dense + weights.routed) * width
    return constants.accumulate_passes * moved / rates(cases, constants).memory


def exchange_s(cases: Cases, constants: Constants, weights: Held, room: Room) -> Column:
    """Return the exposed seconds of averaging gradients and of gathering sharded parameters.

    Without ZeRO gradients are all-reduced once a step; ZeRO-1 reduce-scatters them and gathers
    parameters once; ZeRO-2, which keeps no more than its shard, scatters once a micro-batch; ZeRO-3
    gathers twice as well (Rajbhandari et al., 2020, section 7). A hybrid shard gathers inside
    its group and all-reduces across.
    """
    plan = cases.plan
    width = np.where(plan.weight_bits == 32, 4.0, 2.0)
    zero3, unsharded = plan.zero == 3, plan.zero == 0
    turns = np.where(zero3, room.micro_batches, 1.0)
    stall = np.where(zero3, _ring_latency_s(cases, constants), 0.0)
    shard = _over_shard_s(cases, constants, weights, width) + stall
    summed = _reduced_bytes(plan, width)
    whole = _over_all_s(cases, constants, weights, width)
    hybrid = (plan.shard < plan.data * plan.context) & (plan.zero > 0)
    gather = np.where(hybrid, shard, whole + stall)
    across = np.where(hybrid, 2.0 * _across_shards_s(cases, constants, weights, summed), 0.0)
    scatter = _over_all_s(cases, constants, weights, summed)
    inside = np.where(hybrid, shard * summed / width, scatter + stall)
    reduce = np.where(unsharded, 2.0 * scatter, inside) + across
    gathered = np.where(unsharded, 0.0, np.where(zero3, 2.0 * turns, 1.0) * gather)
    scatters = np.where(plan.zero >= 2, room.micro_batches, 1.0)
    reduced = scatters * reduce
    # ZeRO-3 gathers half of its parameters in the backward, beside the reduction.
    late = np.where(zero3, 0.5 * gathered, 0.0)
    first = _exposed(constants, gathered - late, turns * room.forward, plan.overlap_parameters)
    second = _exposed(constants, reduced + late, scatters * room.backward, plan.overlap_gradients)
    return first + second


def between_sites_s(cases: Cases, weights: Held) -> Column:
    """Return the seconds of exchange between sites, a training step's share of it, all exposed."""
    payload = weights.model * cases.plan.sync_bits / 8.0
    return sites_s(cases, payload) / np.maximum(cases.plan.sync_every, 1.0)


def update_s(cases: Cases, constants: Constants, weights: Held) -> Column:
    """Return the seconds of the optimizer: its state is read and written once or more."""
    plan = cases.plan
    state = plan.moment_bytes + plan.master_bytes + 4.0
    mine, rate = _shard_of(cases, weights), rates(cases, constants)
    moved = mine * state * 2.0 * constants.update_passes / rate.memory
    products = mine * plan.update_flops * cases.model.hidden / rate.products
    return moved + products


def offload_s(cases: Cases, weights: Held, micro_batches: Column) -> Column:
    """Return the seconds over the link to the host: what is offloaded goes down and comes back.

    Gradients go down and new parameters come up for an optimizer on the host; offloaded gradients
    come and go with each micro-batch that is added to them; offloaded parameters come up for each
    forward and backward; activations go down in the forward and come up in the backward. None of
    it is taken to hide: the link is far slower than the device.
    """
    plan = cases.plan
    offloads = (
        plan.offload_optimizer,
        plan.offload_gradients,
        plan.offload_parameters,
        plan.offload_activations,
    )
    if not any(np.any(offload) for offload in offloads):
        return 0.0
    mine, whole = _shard_of(cases, weights), weights.dense + weights.routed
    optimizer = plan.offload_optimizer * mine * (4.0 + 2.0)
    summed = np.where(plan.zero >= 2, mine, whole) * usual_gradient_bytes(plan)
    gradients = plan.offload_gradients * summed * (2.0 * micro_batches)
    stored = np.where(plan.zero == 3, mine, whole)
    parameters = plan.offload_parameters * stored * 2.0 * (2.0 * micro_batches + 1.0)
    down = plan.offload_activations * micro_batches * _kept_bytes(cases)
    return (optimizer + gradients + parameters + 2.0 * down) / cases.machine.host_bytes_per_s


def _kept_bytes(cases: Cases) -> Column:
    """Return the bytes of activations that a stage keeps of one micro-batch."""
    layer = kept(cases)
    experts = cases.model.expert_layers / cases.model.layers
    each = experts * layer.of_experts() + (1.0 - experts) * layer.of_dense()
    return each * cases.model.layers / cases.plan.pipeline


def _reduced_bytes(plan: PlanColumns, width: Column) -> Column:
    """Return the bytes of a gradient on its way: as stated, else the usual."""
    usual = np.where(plan.zero == 3, width, np.minimum(usual_gradient_bytes(plan), 4.0))
    return np.where(plan.reduce_bytes > 0, plan.reduce_bytes, usual)


def _exposed(constants: Constants, moved: Column, room: Column, overlapped: Column) -> Column:
    """Return what of ``moved`` seconds no compute hides; what is hidden slows the compute too."""
    hidden = np.minimum(moved, constants.data_hidden * room) * overlapped
    return moved - hidden * (1.0 - constants.data_interference)


def _shard_of(cases: Cases, weights: Held) -> Column:
    plan = cases.plan
    dense = np.where(plan.zero > 0, plan.shard, 1.0)
    routed = np.maximum(plan.shard * plan.tensor / (plan.expert * plan.expert_tensor), 1.0)
    return weights.dense / dense + weights.routed / np.where(plan.zero > 0, routed, 1.0)


def _over_all_s(cases: Cases, constants: Constants, weights: Held, width: Column) -> Column:
    """Return one pass over all data ranks, and one of the experts over theirs."""
    plan = cases.plan
    ranks = plan.data * plan.context
    time = ring_s(cases, constants, ranks, plan.tensor, weights.dense * width)
    if not np.any(cases.model.experts):
        return time
    stride = plan.expert * plan.expert_tensor
    copies = np.maximum(ranks * plan.tensor / stride, 1.0)
    routed = ring_s(cases, constants, copies, stride, weights.routed * width)
    # A dense model in a table with others has no experts to exchange, and no ring to wait for.
    return time + np.where(cases.model.experts > 0, routed, 0.0)


def _over_shard_s(cases: Cases, constants: Constants, weights: Held, width: Column) -> Column:
    plan = cases.plan
    moved = (weights.dense + weights.routed) * width
    return ring_s(cases, constants, plan.shard, plan.tensor, moved)


def _across_shards_s(cases: Cases, constants: Constants, weights: Held, width: Column) -> Column:
    plan = cases.plan
    moved = (weights.dense + weights.routed) * width / plan.shard
    copies = plan.data * plan.context / plan.shard
    return ring_s(cases, constants, copies, plan.tensor * plan.shard, moved)


def _ring_latency_s(cases: Cases, constants: Constants) -> Column:
    """Return the latency of gathering all layers one after the other, each around the whole ring.

    All-gather and reduce-scatter know no trees in NCCL: their latency grows with the ranks. When
    nothing is gathered ahead, the host's work for each tensor comes on top.
    """
    plan = cases.plan
    step = np.where(
        (plan.gather_by_tensor == 1) & (plan.overlap_parameters == 0),
        GATHERED_TENSORS * constants.tensor_latency_s,
        constants.ring_latency_s,
    )
    return step * cases.model.layers / plan.pipeline * np.maximum(plan.shard - 1.0, 0.0)
