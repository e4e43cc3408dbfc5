"""From a plan to a model cut over the ranks of a site."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn

from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import Block, Gpt
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.gradients import Gradients
from gridloom.runtime.inside.links import CutLinks
from gridloom.runtime.inside.passes import Passes
from gridloom.runtime.inside.pieces import fill, pieces_of
from gridloom.runtime.inside.pipeline import parts_of
from gridloom.runtime.inside.scaler import LossScaler
from gridloom.runtime.inside.shard import LOW_PRECISION, shard_module
from gridloom.runtime.inside.site_model import SiteModel


def parallelize_gpt(
    shape: GptShape, seed: int, axes: Axes, *, compile_blocks: bool = False
) -> SiteModel:
    """Build this rank's part of gridloom's own model.

    A rank draws the weights of its own part alone; they are those that one process would have.

    Args:
        shape: Of the whole model; ``axes`` was built with it.
        seed: Of the weights.
        axes: The site.
        compile_blocks: Compile each block with ``torch.compile``.

    Raises:
        InputError: The shape cannot be built, or is not that of the axes, or the plan's schedule
            cannot run compiled blocks.
    """
    if axes.shape != shape:
        raise InputError("build the axes with the shape of the model")
    if compile_blocks and axes.pipeline.size > 1 and axes.plan.schedule == "zero_bubble":
        # torch cannot split the backward of a compiled block in two
        raise InputError("zero_bubble does not go with compiled blocks; use 1f1b or interleaved")
    links, plan = CutLinks(axes), axes.plan
    low = LOW_PRECISION.get(plan.precision)
    sharded = axes.shard.size > 1
    stages = []
    for part in parts_of(axes, shape):
        with torch.device("meta"):
            stage = Gpt(shape, seed, links, part)
        _set_recompute(stage, plan)
        if sharded:
            shard_module(stage, list(stage.blocks.values()), axes)
            stage.to_empty(device=_home(axes))
        else:
            _materialise(stage, axes.device)
            stage.low_precision = low
        if compile_blocks:
            for block in stage.blocks.values():
                block.compile()
        stages.append(stage)
    pieces = pieces_of(stages, axes)
    fill(pieces, shape, seed)
    gradients = Gradients(stages, pieces, axes, mean=False)
    scaler = LossScaler() if plan.precision == "fp16" else None
    formats = (
        low if low is not None and sharded else torch.float32,
        low if low is not None else torch.float32,
    )
    passes = Passes(stages, axes, gradients, scaler or LossScaler(1.0), formats)
    return SiteModel(stages, pieces, axes, gradients, passes, scaler)


def parallelize(
    module: nn.Module, axes: Axes, *, reduce: Literal["mean", "sum"] = "mean"
) -> SiteModel:
    """Spread any module over the data axis of a site, in place.

    All ranks begin with the weights of the first. With zero 0 each keeps a copy; otherwise weights,
    gradients and what an optimizer keeps of them are sharded, in the plan's precision. An optimizer
    is built afterwards, over ``module.parameters()``. The forward pass stays the user's: where
    nothing is sharded, ``torch.autocast`` is theirs too.

    Args:
        module: The user's; it is moved to the device of the axes.
        axes: The site, built without a shape.
        reduce: Whether gradients are averaged over the copies, as losses are that are means of
            a batch, or summed.
    """
    module.to(axes.device)
    _begin_alike(module, axes)
    if axes.shard.size > 1:
        shard_module(module, blocks_of(module), axes, mean=reduce == "mean")
    pieces = pieces_of([module], axes)
    gradients = Gradients([module], pieces, axes, mean=reduce == "mean")
    return SiteModel([module], pieces, axes, gradients)


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """Return the submodules that are gathered together: what lists of modules hold, outermost.

    Deep models keep their layers in a list; a module without one is a single block.
    """
    if isinstance(module, nn.ModuleList | nn.Sequential | nn.ModuleDict):
        return [part for part in module.children() if any(True for _ in part.parameters())]
    return [block for child in module.children() for block in blocks_of(child)]


def _begin_alike(module: nn.Module, axes: Axes) -> None:
    """Give all ranks the parameters and buffers of the first, one at a time."""
    if axes.world == 1:
        return
    for tensor in (*module.parameters(), *module.buffers()):
        sent = tensor.detach().contiguous()
        dist.broadcast(sent, src=0)
        tensor.detach().copy_(sent)


def _home(axes: Axes) -> torch.device:
    """Return where sharded weights live."""
    return torch.device("cpu") if "parameters" in axes.plan.offload else axes.device


def _set_recompute(stage: Gpt, plan: ParallelPlan) -> None:
    blocks = [block for block in stage.blocks.values() if isinstance(block, Block)]
    chosen: Sequence[Block] = blocks[: plan.recompute_layers or len(blocks)]
    for block in chosen:
        block.recompute = block.attention.recompute = plan.recompute


def _materialise(stage: Gpt, device: torch.device) -> None:
    """Give memory to parameters built on ``meta``, tied ones once."""
    made: dict[int, nn.Parameter] = {}
    for module in stage.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in made:
                empty = torch.empty_like(parameter, device=device)
                made[id(parameter)] = nn.Parameter(empty)
            setattr(module, name, made[id(parameter)])
