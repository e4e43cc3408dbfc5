"""Seconds of one training step, by kind, from shapes, rates and the levels of the network."""

from dataclasses import dataclass

import numpy as np

from gridloom.planner.activations import micro_batches
from gridloom.planner.cases import Cases, Column
from gridloom.planner.constants import Constants
from gridloom.planner.data_parallel import (
    Room,
    accumulate_s,
    between_sites_s,
    exchange_s,
    held,
    offload_s,
    update_s,
)
from gridloom.planner.exchange import context_s, expert_s, pipeline_s, tensor_s
from gridloom.planner.kernels import LayerSeconds, layer_seconds, logits_seconds

ZERO_BUBBLE_SHARE = 1.0 / 3.0
"""Of 1F1B's bubble, left when weight gradients fill it (ZB-H1; Qi et al., 2023, table 2)."""

_INSTANT_S = 1e-15
"""No layer takes less; it only keeps a share of nothing defined."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one training step on the slowest rank, by kind.

    Attributes:
        compute_s: Forward and backward of the layers, and summing gradients.
        recompute_s: Activations computed again.
        logits_s: Output layer and loss, as far as they make a stage the longest.
        tensor_s: Exposed collectives of tensor ranks.
        context_s: Exposed exchange of keys and values.
        expert_s: Tokens on the way to experts and back.
        pipeline_s: Exposed hops between stages.
        bubble_s: Stages that wait for the first or the last micro-batch.
        data_s: Exposed exchange of gradients and of sharded parameters.
        sites_s: Exchange between sites.
        update_s: The optimizer.
        offload_s: To the host and back.
        fixed_s: What every training step takes.
        jitter_s: Waiting for the slowest of many nodes.
    """

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
    offload_s: Column
    fixed_s: Column
    jitter_s: Column

    @property
    def total_s(self) -> Column:
        """All of it."""
        total: Column = sum(vars(self).values())
        return total


@dataclass(frozen=True)
class _Layer:
    """Seconds of one layer and one micro-batch on the way through a stage.

    ``spare`` is no time but a share: of the compute, behind which nothing of the layer hides yet.
    """

    forward: Column
    backward: Column
    again: Column
    tensor: Column
    context: Column
    expert: Column
    spare: Column

    @property
    def total(self) -> Column:
        compute = self.forward + self.backward + self.again
        return compute + self.tensor + self.context + self.expert


def step_time(cases: Cases, constants: Constants) -> StepTime:
    """Return the seconds of a training step of each case.

    A stage of the pipeline takes its layers' time for each micro-batch; the longest stage sets the
    pace, and ``(pipeline - 1)`` stages' time passes before all of them work (Narayanan et al.,
    2021, section 2.2), less by the number of chunks when they are interleaved.
    """
    model, plan = cases.model, cases.plan
    layers = stage_layers(cases)
    layer = _layer(cases, constants, layers)
    turns = micro_batches(cases)
    logits = logits_seconds(cases, constants)

    mean_layers = model.layers / plan.pipeline
    last = np.where(plan.stage_layers_last > 0, plan.stage_layers_last, mean_layers)
    longest = np.maximum(layers * layer.total, last * layer.total + logits)
    mean_stage = mean_layers * layer.total + logits / plan.pipeline
    waiting = np.where(plan.zero_bubble == 1, ZERO_BUBBLE_SHARE, 1.0 / plan.virtual_stages)

    weights = held(cases)
    room = Room(
        forward=layers * (layer.forward + layer.again) * layer.spare,
        backward=layers * layer.backward * layer.spare,
        micro_batches=turns,
    )
    work = turns * layers
    parts = {
        "compute_s": work * (layer.forward + layer.backward)
        + turns * accumulate_s(cases, constants, weights),
        "recompute_s": work * layer.again,
        "logits_s": turns * (longest - layers * layer.total),
        "tensor_s": work * layer.tensor,
        "context_s": work * layer.context,
        "expert_s": work * layer.expert,
        "pipeline_s": turns * pipeline_s(cases, constants),
        "bubble_s": (plan.pipeline - 1) * mean_stage * waiting,
        "data_s": exchange_s(cases, constants, weights, room),
        "sites_s": between_sites_s(cases, weights),
        "update_s": update_s(cases, constants, weights),
        "offload_s": offload_s(cases, weights, turns),
        "fixed_s": constants.step_fixed_s,
    }
    spread = plan.tensor * plan.pipeline * plan.context * plan.data / cases.machine.node
    slower = constants.jitter * np.log2(np.maximum(spread, 1.0))
    return StepTime(**parts, jitter_s=slower * sum(parts.values()))


def stage_layers(cases: Cases) -> Column:
    """Return the layers of the longest stage."""
    even = np.ceil(cases.model.layers / cases.plan.pipeline)
    return np.where(cases.plan.stage_layers_max > 0, cases.plan.stage_layers_max, even)


def _layer(cases: Cases, constants: Constants, layers: Column) -> _Layer:
    model, plan = cases.model, cases.plan
    one = layer_seconds(cases, constants, expert=False)
    expert: Column = 0.0
    if np.any(model.experts):
        share = model.expert_layers / model.layers
        one = _mixed(layer_seconds(cases, constants, expert=True), one, share)
        expert = share * expert_s(cases, constants)
    covered = np.where(plan.recompute_layers > 0, plan.recompute_layers / layers, 1.0)
    full = plan.recompute_full * np.minimum(covered, 1.0)
    again = full * one.forward + plan.recompute_operators * one.operators
    again = again * constants.recompute_share + plan.recompute_selective * one.core
    tensor = tensor_s(cases, constants)
    context, hidden = context_s(cases, constants, one.attention)
    return _Layer(
        forward=one.forward,
        backward=one.backward,
        again=again,
        tensor=(2.0 + full) * tensor,
        context=context,
        expert=(2.0 + full) * expert,
        spare=1.0 - hidden / np.maximum(one.forward + one.backward, _INSTANT_S),
    )


def _mixed(one: LayerSeconds, other: LayerSeconds, share: Column) -> LayerSeconds:
    """Return a layer that is ``share`` of ``one`` and the rest of ``other``."""
    return LayerSeconds(
        forward=share * one.forward + (1 - share) * other.forward,
        backward=share * one.backward + (1 - share) * other.backward,
        core=share * one.core + (1 - share) * other.core,
        operators=share * one.operators + (1 - share) * other.operators,
        attention=share * one.attention + (1 - share) * other.attention,
    )
