"""The pieces of the model's parameters that one rank holds: their names, places and owners."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import draw, weight_name
from gridloom.runtime.inside.axes import Axes

_CUTS: tuple[tuple[str, dict[str, int]], ...] = (
    (".attention.qkv.weight", {"tensor": 0}),
    (".attention.out.weight", {"tensor": 1}),
    (".ffn.experts.up", {"expert": 0, "tensor": 1}),
    (".ffn.experts.down", {"expert": 0, "tensor": 2}),
    (".up.weight", {"tensor": 0}),
    (".down.weight", {"tensor": 1}),
)
"""Dimension along which an axis cuts a parameter, by the end of its name; the rest are whole."""

COPYING_AXES = ("replicate", "expert_data", "tensor", "ends")
"""Axes along which boxes may be equal, in the order in which owners give them to the others."""

_EXPERTS = ".ffn.experts."

_WHOLE_GRADIENT = (".attention_norm.weight", ".ffn_norm.weight")
"""Whole parameters whose gradient is the same on all tensor ranks unless the stream is cut; that
of the other whole ones is always an addend on each."""

Kind = Literal["dense", "expert"]


@dataclass(frozen=True, eq=False)
class Piece:
    """This rank's part of one parameter: a box of its numbers.

    Attributes:
        name: Of the parameter in the whole model.
        shape: Of the whole parameter.
        start: Where the box begins, a number a dimension.
        tensor: The box itself: a plain tensor that shares the parameter's memory.
        parameter: The parameter as the module has it, which has the gradient.
        owner: Exactly one rank of the site owns each number; the others have copies of it.
        copies: Axes along which all ranks have the same box.
        kind: Whether it lies on the mesh of the experts.
        addend: Each tensor rank has an addend of the gradient, and all have the whole parameter.
        placements: How the box is cut out, along the axes of the mesh.
    """

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    tensor: Tensor
    parameter: nn.Parameter = field(repr=False)
    owner: bool = True
    copies: tuple[str, ...] = ()
    kind: Kind = "dense"
    addend: bool = False
    placements: tuple[Placement, ...] = ()

    @property
    def gradient(self) -> Tensor | None:
        """The box of the gradient, a plain tensor that may be written to; ``None`` without one."""
        gradient = self.parameter.grad
        return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def pieces_of(modules: Sequence[nn.Module], axes: Axes) -> list[Piece]:
    """Return the pieces of all parameters of this rank's modules, after they were sharded."""
    pieces = []
    for module in modules:
        for name, parameter in module.named_parameters():
            pieces.append(_piece(name.replace("_orig_mod.", ""), parameter, axes))
    return pieces


def fill(pieces: Sequence[Piece], shape: GptShape, seed: int) -> None:
    """Draw the initial weights of every piece: one whole parameter at a time, on the CPU."""
    with torch.no_grad():
        for piece in pieces:
            box = draw(shape, seed, piece.name, piece.shape)
            for dim, (start, length) in enumerate(
                zip(piece.start, piece.tensor.shape, strict=True)
            ):
                box = box.narrow(dim, start, length) if piece.tensor.numel() else box
            if piece.tensor.numel():
                piece.tensor.copy_(box)


def as_distributed(piece: Piece, tensor: Tensor, axes: Axes) -> Tensor:
    """Return ``tensor``, a box like the piece's, as a part of the whole for a checkpoint."""
    mesh = axes.expert_mesh if piece.kind == "expert" else axes.mesh
    if mesh is None or not piece.placements:
        return tensor
    names = tuple(name for name in mesh.mesh_dim_names or () if name != "pipeline")
    whole = torch.empty(piece.shape, device="meta")
    return DTensor.from_local(
        tensor,
        mesh[names],
        piece.placements,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def _piece(name: str, parameter: nn.Parameter, axes: Axes) -> Piece:
    kind: Kind = "expert" if _EXPERTS in name and axes.expert.size > 1 else "dense"
    cuts = _cuts(name, axes)
    shape, start = list(parameter.shape), [0] * parameter.dim()
    placed: dict[str, Placement] = {}
    for axis_name, dim in cuts.items():
        axis = getattr(axes, axis_name)
        start[dim] = axis.position * shape[dim]
        shape[dim] *= axis.size
        placed[axis_name] = Shard(dim)
    local: Tensor = parameter.detach()
    if isinstance(local, DTensor):
        spread_over = "expert_data" if kind == "expert" else "shard"
        axis = getattr(axes, spread_over)
        dim = _sharded_dim(local)
        run = -(-local.shape[dim] // axis.size)  # as torch.chunk shares rows out
        start[dim] += min(axis.position * run, local.shape[dim])
        local = local.to_local()
        placed[spread_over] = Shard(dim)
    copies = tuple(
        other
        for other in ("tensor", "expert_data" if kind == "expert" else "replicate")
        if getattr(axes, other).size > 1 and other not in placed
    )
    if _is_tied(name, axes):
        copies += ("ends",)
    return Piece(
        name=name if axes.shape is None else weight_name(axes.shape, name),
        shape=tuple(shape),
        start=tuple(start),
        tensor=local,
        parameter=parameter,
        owner=all(getattr(axes, other).position == 0 for other in copies),
        copies=copies,
        kind=kind,
        addend=_is_addend(name, cuts, axes),
        placements=tuple(placed.get(other, Replicate()) for other in _mesh_names(kind, axes)),
    )


def _cuts(name: str, axes: Axes) -> dict[str, int]:
    """Return the axes that cut a parameter, and along which of its dimensions."""
    if axes.shape is None:
        return {}
    cuts = next((cuts for end, cuts in _CUTS if name.endswith(end)), {})
    return {axis: dim for axis, dim in cuts.items() if getattr(axes, axis).size > 1}


def _mesh_names(kind: Kind, axes: Axes) -> Iterator[str]:
    mesh = axes.expert_mesh if kind == "expert" else axes.mesh
    names = () if mesh is None else mesh.mesh_dim_names or ()
    return (name for name in names if name != "pipeline")


def _sharded_dim(parameter: DTensor) -> int:
    return next(place.dim for place in parameter.placements if isinstance(place, Shard))


def _is_tied(name: str, axes: Axes) -> bool:
    shape = axes.shape
    if shape is None or axes.ends.size == 1:
        return False
    return name == ("head.weight" if axes.ends.position else "embedding.weight")


def _is_addend(name: str, cuts: dict[str, int], axes: Axes) -> bool:
    if axes.tensor.size == 1 or "tensor" in cuts:
        return False
    return axes.plan.sequence_parallel or not name.endswith(_WHOLE_GRADIENT)
