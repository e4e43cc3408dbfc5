"""Collectives inside a forward pass, each with its own gradient.

For tensor parallelism see Shoeybi et al. 2019 (section 3) and Korthikanti et al. 2022 (section 4).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gridloom.runtime.inside.axes import Axis


def gather(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return the parts of all ranks along ``dim``; the gradients of all ranks are added up."""
    moved: Tensor = _Gather.apply(x, axis, dim)  # type: ignore[no-untyped-call]
    return moved


def gather_equal(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return the parts of all ranks along ``dim``; all ranks go on alike from here."""
    moved: Tensor = _GatherEqual.apply(x, axis, dim)  # type: ignore[no-untyped-call]
    return moved


def own_part(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's part of what all ranks have; undoes ``gather_equal``."""
    moved: Tensor = _OwnPart.apply(x, axis, dim)  # type: ignore[no-untyped-call]
    return moved


def sum_scatter(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Add up what all ranks have and return this rank's part of the sum along ``dim``."""
    moved: Tensor = _SumScatter.apply(x, axis, dim)  # type: ignore[no-untyped-call]
    return moved


def sum_equal(x: Tensor, axis: Axis) -> Tensor:
    """Add up what all ranks have; all ranks go on alike from here."""
    moved: Tensor = _SumEqual.apply(x, axis)  # type: ignore[no-untyped-call]
    return moved


def spread(x: Tensor, axis: Axis) -> Tensor:
    """Return ``x``, which all ranks have; the gradients of all ranks are added up."""
    moved: Tensor = _Spread.apply(x, axis)  # type: ignore[no-untyped-call]
    return moved


def exchange(rows: Tensor, sent: list[int], received: list[int], axis: Axis) -> Tensor:
    """Send ``sent[i]`` rows to rank ``i`` and return the ``received[i]`` from each, in order."""
    moved: Tensor = _Exchange.apply(rows, sent, received, axis)  # type: ignore[no-untyped-call]
    return moved


def gathered(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return the parts of all ranks along ``dim``, without a gradient."""
    parts = x.new_empty((axis.size * x.shape[0], *x.shape[1:]))
    dist.all_gather_single(parts, x.contiguous(), group=axis.group)
    whole: Tensor = parts.unflatten(0, (axis.size, -1)).movedim(0, dim).flatten(dim, dim + 1)
    return whole


def scattered(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's part along ``dim`` of the sum over all ranks, without a gradient."""
    parts: Tensor = x.unflatten(dim, (axis.size, -1)).movedim(dim, 0).contiguous()
    part = parts.new_empty(parts.shape[1:])
    dist.reduce_scatter_single(part, parts.flatten(0, 1), group=axis.group)
    return part


def summed(x: Tensor, axis: Axis) -> Tensor:
    """Return the sum over all ranks, without a gradient."""
    total = x.contiguous().clone()
    dist.all_reduce(total, group=axis.group)
    return total


def part_of(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """Return this rank's part of ``x`` along ``dim``."""
    return x.chunk(axis.size, dim)[axis.position].contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return gathered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return scattered(gradient, ctx.axis, ctx.dim), None, None


class _GatherEqual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return gathered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return part_of(gradient, ctx.axis, ctx.dim), None, None


class _OwnPart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return part_of(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gathered(gradient, ctx.axis, ctx.dim), None, None


class _SumScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int) -> Tensor:
        ctx.axis, ctx.dim = axis, dim
        return scattered(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gathered(gradient, ctx.axis, ctx.dim), None, None


class _SumEqual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        return summed(x, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return summed(gradient, ctx.axis), None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], axis: Axis) -> Tensor:
        ctx.sent, ctx.received, ctx.axis = sent, received, axis
        return _all_to_all(rows, sent, received, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _all_to_all(gradient, ctx.received, ctx.sent, ctx.axis), None, None, None


def _all_to_all(rows: Tensor, sent: list[int], received: list[int], axis: Axis) -> Tensor:
    came = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(came, rows.contiguous(), received, sent, group=axis.group)
    return came
