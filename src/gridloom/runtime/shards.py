"""The weights that one rank of a site speaks for, whoever has spread the model over the ranks.

gridloom's own ``parallelize``, torch's ``fully_shard``, ``parallelize_module`` and
``DistributedDataParallel``, or another library, which then says itself what a rank has.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gridloom.base.codec import digest
from gridloom.base.errors import InputError, Problem
from gridloom.runtime.wan.site_ranks import SiteRanks
from gridloom.runtime.wan.state import local

if TYPE_CHECKING:  # a site of one rank does without it
    from gridloom.runtime.inside.site_model import SiteModel

_Copied = tuple[dist.ProcessGroup | None, Tensor]
"""A tensor that all ranks of a group have alike; ``None`` for those of the site."""

_INT64_DIGITS = 15
"""Hexadecimal digits that a whole number of 64 bits surely holds."""


@dataclass(frozen=True, eq=False)
class Shards:
    """The weights of a model as one rank holds them, where a library keeps them in its own way.

    A loop gives ``gl.sync`` one of what the library's optimizer works on, as the fp32 weights of
    ZeRO that are cut over the ranks.

    Attributes:
        owned: Floating-point tensors where this rank's part of the weights lies; every number of
            the model is on one rank of the site alone. They are read and written in place.
        spread: Has all copies of the weights follow ``owned``, on this rank and on others; all
            ranks of the site call it at once. ``None`` where there are none on any rank.
    """

    owned: Sequence[Tensor]
    spread: Callable[[], None] | None = None


@dataclass(frozen=True, eq=False)
class Held(Shards):
    """The weights of any model as one rank holds them.

    Attributes:
        alike: Every rank has a whole copy of the model, and the first one owns it.
        boxes: What tells how the model is cut, if sizes do not.
        has_gradients: Gradients can be averaged between sites too: no library has cut the model.
        is_all: No other rank has any of them.
    """

    alike: bool = False
    boxes: Sequence[object] = ()
    has_gradients: bool = False
    is_all: bool = False

    def follow(self) -> None:
        """Have all copies follow, if there are any."""
        if self.spread is not None:
            self.spread()

    def layout(self) -> list[int]:
        """Return what tells how each rank's part is cut out: equal at sites that fit together.

        All ranks of a site call it at once.
        """
        if self.alike:
            return []
        boxes = self.boxes or [tuple(one.shape) for one in self.owned]
        own = int(digest(boxes)[:_INT64_DIGITS], 16)
        return [own] if self.is_all else SiteRanks().table(torch.tensor([own])).flatten().tolist()

    def fingerprint(self) -> str:
        """Return what names the weights as they are: another start of a training, another chain."""
        found = hashlib.blake2b(digest_size=8)
        for tensor in self.owned:
            found.update(tensor.detach().cpu().float().numpy().tobytes())
        return found.hexdigest()

    def check(self, kind: str, sizes: Mapping[str, int]) -> None:
        """Look whether sites can train one model so.

        Args:
            kind: Of the method.
            sizes: Ranks of every site, by its name.

        Raises:
            InputError: They cannot.
        """
        for number, one in enumerate(self.owned if len(sizes) > 1 else ()):
            if not (one.is_floating_point() and one.is_contiguous()):
                text = f"tensor {number} that this rank owns is no run of floating-point numbers"
                raise InputError([Problem(text, field="model")])
        if not self.alike and len(set(sizes.values())) > 1:
            told = ", ".join(f"{site} {size}" for site, size in sizes.items())
            text = f"a model is spread over the ranks of a site, and sites have different: {told}"
            remedy = "give every site as many ranks, or each rank a whole copy of the model"
            raise InputError([Problem(text, remedy, field="resources.accelerators")])
        is_averaged = kind == "accumulated" or (kind == "every_step" and len(sizes) > 1)
        if is_averaged and not self.has_gradients:
            text = f"{kind} averages gradients, and another library has spread the model over ranks"
            remedy = "take kind outer, or give gl.sync what gl.parallelize returned"
            raise InputError([Problem(text, remedy=remedy, field="sync.kind")])


def held(model: "nn.Module | SiteModel | Shards", ranks: int) -> Held:
    """Return what this rank speaks for.

    Args:
        model: Whole, or spread over the ranks of the site by whomever.
        ranks: Of the site.

    Raises:
        InputError: It cannot be told which rank has which part of the model.
    """
    if isinstance(model, Shards):
        return Held(model.owned, model.spread, is_all=ranks == 1 and model.spread is None)
    if not isinstance(model, nn.Module):
        return _of_site_model(model, ranks)
    if any(kind.__module__.partition(".")[0] == "deepspeed" for kind in type(model).__mro__):
        text = "a DeepSpeed engine works on weights of its own, beside those of the module"
        raise InputError([Problem(text, remedy="give gl.sync gl.Shards of them", field="model")])
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    spread = [p for _, p in trained if _is_spread(p)]
    if ranks == 1 and not spread:
        return Held([p.detach() for _, p in trained], alike=True, has_gradients=True, is_all=True)
    if spread:
        return _of_spread(model, trained, ranks)
    return _of_copies(model, trained)


def pieces_of(module: nn.Module, cut: "SiteModel | None") -> list[tuple[nn.Parameter, bool]]:
    """Return what is trained on this rank, and whether it speaks for it.

    Args:
        module: What this rank has of the model.
        cut: The model that it is a part of, if gridloom has cut it.
    """
    if cut is None:
        return [(p, True) for p in module.parameters() if p.requires_grad]
    return [(one.parameter, one.owner) for one in cut.parameters if one.parameter.requires_grad]


def module_of(model: "nn.Module | SiteModel | Shards") -> nn.Module:
    """Return the module whose parameters are trained; of shards alone, one without any."""
    if isinstance(model, Shards):
        return nn.Module()
    return model if isinstance(model, nn.Module) else model.module


def check_update(averaging: str, clip_norm: float) -> None:
    """Raise ``InputError`` unless nothing is to be done to gradients before a library's update.

    Args:
        averaging: Kind of method that averages gradients; empty where none are averaged.
        clip_norm: To which gradients are to be clipped; 0 for any.
    """
    if averaging:
        text = f"{averaging} averages gradients before an update; this one is a library's"
        raise InputError([Problem(text, remedy="take kind outer", field="sync.kind")])
    if clip_norm:
        text = "gradients are to be clipped before an update that a library makes itself"
        remedy = "leave it 0, and have the library clip them"
        raise InputError([Problem(text, remedy=remedy, field="options.clip_norm")])


def clip(parameters: Sequence[nn.Parameter], norm: float) -> float:
    """Clip gradients to a global norm over all ranks; return it as it was before.

    Raises:
        InputError: There are none, for a library keeps them.
    """
    if not parameters:
        text = "the gradients of shards are their library's to clip"
        raise InputError([Problem(text, remedy="leave it 0", field="options.clip_norm")])
    gradients = [p.grad for p in parameters if p.grad is not None]
    found = nn.utils.get_total_norm(gradients)
    if _is_spread(found):
        whole: Any = found
        found = whole.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, norm, found)
    return float(found)


def _of_site_model(model: "SiteModel", ranks: int) -> Held:
    pieces = model.parameters
    return Held(
        [piece.tensor for piece in pieces if piece.owner],
        model.spread if ranks > 1 else None,
        alike=not model.axes.is_spread,
        boxes=[(p.name, p.start, tuple(p.tensor.shape), p.owner) for p in pieces],
        has_gradients=True,
        is_all=ranks == 1,
    )


def _of_copies(model: nn.Module, trained: Sequence[tuple[str, nn.Parameter]]) -> Held:
    """Return the first rank's weights of a model that all ranks have whole, and keep so."""
    kept = {
        id(parameter)
        for part in model.modules()
        if isinstance(part, DistributedDataParallel)
        for parameter in part.parameters()
    }
    for name, parameter in trained:
        if id(parameter) not in kept:
            text = f"{name} is a plain tensor on each of several ranks, and nothing keeps it one"
            remedy = (
                "give gl.sync what gl.parallelize returned, or a model in DistributedDataParallel "
                "or under fully_shard (FSDP2)"
            )
            raise InputError([Problem(text, remedy=remedy, field="model")])
    weights = [parameter.detach() for _, parameter in trained]
    owned = weights if dist.get_rank() == 0 else []
    return Held(owned, partial(_copy, [(None, one) for one in weights]), alike=True)


def _of_spread(model: nn.Module, trained: Sequence[tuple[str, nn.Parameter]], ranks: int) -> Held:
    """Return this rank's boxes of a model whose parameters are torch's distributed tensors."""
    owned: list[Tensor] = []
    boxes: list[object] = []
    copied: list[_Copied] = []
    for name, parameter in trained:
        _require_all(name, parameter, ranks)
        box, is_owned = local(parameter.detach()), True
        for group, position in _copies(parameter):
            is_owned = is_owned and position == 0
            copied.append((group, box))
        if is_owned:
            owned.append(box)
        placed: Any = parameter
        boxes.append((name, str(placed.placements), tuple(box.shape), is_owned))

    def spread() -> None:
        for part in model.modules():
            reshard = getattr(part, "reshard", None)
            if callable(reshard):  # FSDP2: gathered weights are those from before
                reshard()
        _copy(copied)

    return Held(owned, spread, boxes=boxes)


def _is_spread(tensor: Tensor) -> bool:
    # asked, not compared with DTensor: to load that costs a site of one rank its start
    return hasattr(tensor, "device_mesh")


def _require_all(name: str, parameter: Any, ranks: int) -> None:
    """Raise ``InputError`` unless a parameter is spread over all ranks of the site."""
    if not _is_spread(parameter):
        text = f"{name} is a plain tensor in a model of distributed ones"
        remedy = "spread it too, or replicate it as a distributed tensor"
        raise InputError([Problem(text, remedy=remedy, field="model")])
    if parameter.device_mesh.size() != ranks:
        text = f"{name} is spread over {parameter.device_mesh.size()} of {ranks} ranks of the site"
        remedy = "spread every parameter over all of them; pipeline stages cannot be told apart"
        raise InputError([Problem(text, remedy=remedy, field="model")])


def _copies(parameter: Any) -> Iterator[tuple[dist.ProcessGroup, int]]:
    """Yield the groups of ranks that have the same box, and this rank's place in each."""
    mesh = parameter.device_mesh
    for dim, placement in enumerate(parameter.placements):
        if placement.is_replicate() and mesh.size(dim) > 1:
            yield mesh.get_group(dim), mesh.get_local_rank(dim)


def _copy(copied: Sequence[_Copied]) -> None:
    """Give all ranks of a group what its first one has, in place."""
    for group, tensor in copied:
        dist.broadcast(tensor, group=group, group_src=0)
