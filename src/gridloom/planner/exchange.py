"""Seconds of what ranks exchange for a micro-batch: tensor, context and expert ranks, stages.

All of it is counted for one layer and one micro-batch, but for the hops between stages.
"""

import numpy as np

from gridloom.planner.activations import tokens
from gridloom.planner.cases import Cases, Column
from gridloom.planner.communication import all_to_all_s, hop_s, ring_s
from gridloom.planner.constants import Constants
from gridloom.planner.products import rates

_MERGED_BYTES = 12.0
"""Of a number of the output: the sum so far is read and written in fp32, and what is added read."""


def stream_bytes(cases: Cases) -> Column:
    """Return the bytes of the residual stream of a micro-batch, whole."""
    width = np.where(cases.plan.weight_bits == 32, 4.0, 2.0)
    return tokens(cases) * cases.model.hidden * width


def tensor_s(cases: Cases, constants: Constants) -> Column:
    """Return the collectives of a forward over the tensor ranks; a backward has as many.

    Attention and feed-forward each end in an all-reduce of the residual stream, or with sequence
    parallelism in a reduce-scatter, and begin with an all-gather: the same bytes (Korthikanti et
    al., 2022, section 4.2.2).
    """
    plan, machine = cases.plan, cases.machine
    exposed = 1.0 - plan.overlap_tensor * constants.tensor_hidden
    once = ring_s(cases, constants, plan.tensor, 1.0, stream_bytes(cases))
    # Switches that reduce halve an all-reduce, not the pair that sequence parallelism makes of it.
    reduced = (machine.sharp == 1) & (plan.sequence_parallel == 0) & (plan.tensor <= machine.node)
    saved = np.minimum((plan.tensor + 1.0) / (2.0 * np.maximum(plan.tensor - 1.0, 1.0)), 1.0)
    return 4.0 * once * exposed * np.where(reduced, saved, 1.0)


def context_s(cases: Cases, constants: Constants, attention: Column) -> tuple[Column, Column]:
    """Return the exchange of keys and values over the context ranks: exposed, and hidden.

    Ring attention (Liu et al., 2023): blocks go around behind attention itself, once in the
    forward, and with their gradients in the backward; latent attention's keys and values go around
    as heads, expanded. What a block adds is merged into the output so far, in fp32, which is read
    and written for each block but the first; the backward sums gradients likewise.

    Args:
        cases: What is to be predicted.
        constants: Of the devices and networks.
        attention: Seconds that attention's core adds to the layer, forward and backward.
    """
    plan, model = cases.plan, cases.model
    if not np.any(plan.context > 1):
        return 0.0, 0.0
    heads = model.heads / plan.tensor
    plain = 2.0 * np.maximum(model.kv_heads / plan.tensor, 1.0) * model.head_size
    expanded = heads * (model.nope_size + model.rope_size + model.value_size)
    whole = 2.0 * tokens(cases) * np.where(model.latent == 1, expanded, plain) * plan.context
    moved = 3.0 * ring_s(cases, constants, plan.context, plan.tensor, whole)
    room = constants.data_hidden * attention
    exposed = np.maximum(moved - room, moved * constants.data_interference)
    output = np.where(model.latent == 1, model.value_size, model.head_size)
    merged = 2.0 * (plan.context - 1.0) * tokens(cases) * heads * output * _MERGED_BYTES
    return exposed + merged / rates(cases, constants).memory, moved - exposed


def expert_s(cases: Cases, constants: Constants) -> Column:
    """Return dispatch and combine of a layer of experts, forward; a backward has as many."""
    plan, model = cases.plan, cases.model
    each = tokens(cases) / plan.tensor * plan.expert_tensor * model.hidden * 2.0
    copies = (each, np.maximum(model.per_token, 1.0))
    return 2.0 * all_to_all_s(cases, constants, plan.expert, plan.expert_tensor, copies)


def pipeline_s(cases: Cases, constants: Constants) -> Column:
    """Return the exposed hops between stages of one micro-batch, forward and backward.

    Tensor ranks send a share each, which the receiving ones gather over the links of their domain
    (Narayanan et al., 2021, section 4.1).
    """
    plan = cases.plan
    stride = plan.tensor * plan.context * plan.data
    hop = hop_s(cases, constants, stride, stream_bytes(cases) / plan.tensor)
    hops = 2.0 * plan.virtual_stages * constants.pipeline_exposed
    return np.where(plan.pipeline > 1, hops * hop, 0.0)
