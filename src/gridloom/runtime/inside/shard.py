"""Weights sharded over the ranks of a site: ZeRO 1, 2 and 3 and HSDP, by torch's FSDP2.

ZeRO (Rajbhandari et al. 2020) says what is sharded while a step runs. In FSDP2's words: with
level 3 a block's weights are given up after its forward; with 2 they stay until the last
backward of the step; with 1, gradients too stay whole until then.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from gridloom.runtime.feed_forward import ExpertWeights
from gridloom.runtime.inside.axes import Axes

LOW_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Number format of the matrix products by the plan's precision; else that of the weights."""


def shard_module(
    module: nn.Module, blocks: Sequence[nn.Module], axes: Axes, *, mean: bool = False
) -> None:
    """Shard a module's weights in place, a block at a time and then what is left.

    Args:
        module: On its device, or on ``meta``.
        blocks: Submodules whose weights are gathered together, in the order of the forward.
        axes: The site; its ``shard`` axis has several ranks.
        mean: Gradients are averaged over the ranks, not summed.
    """
    dense = _submesh(axes.mesh, "replicate", "shard")
    experts = _submesh(axes.expert_mesh, "expert_data")
    elsewhere: set[nn.Parameter] = set()
    if axes.expert.size > 1:
        for layer in _expert_weights(module):
            if experts is None:
                elsewhere.update(layer.parameters())
            else:
                _shard(layer, experts, axes, elsewhere)
    for block in blocks:
        _shard(block, dense, axes, elsewhere)
    _shard(module, dense, axes, elsewhere)
    ranks = axes.shard.size * axes.replicate.size
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(float(ranks) if mean else 1.0)
            # else it would scale inside the collective, which gloo cannot
            part.set_force_sum_reduction_for_comms(enable=True)


def set_phase(module: nn.Module, zero: int, *, last: bool) -> None:
    """Say whether the next backward is the last of its step, for what may wait until then."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last or zero > 1)
        module.set_requires_all_reduce(last)
        module.set_reshard_after_backward(last or zero == 3)
        module.set_is_last_backward(last)


def set_sync(module: nn.Module, *, sync: bool) -> None:
    """Let backward passes send gradients from now on, or not."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(sync)


def _submesh(mesh: DeviceMesh | None, *names: str) -> DeviceMesh | None:
    kept = tuple(name for name in names if mesh is not None and name in _names(mesh))
    return mesh[kept] if mesh is not None and kept else None


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or ()


def _expert_weights(module: nn.Module) -> list[ExpertWeights]:
    return [part for part in module.modules() if isinstance(part, ExpertWeights)]


def _shard(
    module: nn.Module,
    mesh: DeviceMesh | None,
    axes: Axes,
    elsewhere: set[nn.Parameter],
) -> None:
    low = LOW_PRECISION.get(axes.plan.precision)
    precision = MixedPrecisionPolicy(
        param_dtype=low,
        reduce_dtype=torch.float32 if low is not None else None,
        # our own stream takes its format from the embedding, and rotary tables stay exact
        cast_forward_inputs=axes.shape is None,
    )
    offload = OffloadPolicy()
    if "parameters" in axes.plan.offload:
        offload = CPUOffloadPolicy(pin_memory=axes.device.type != "cpu")
    fully_shard(
        module,
        mesh=mesh,
        # None: all but the outermost, which the backward begins with
        reshard_after_forward=None if axes.plan.zero == 3 else False,
        mp_policy=precision,
        offload_policy=offload,
        ignored_params=elsewhere,
    )
