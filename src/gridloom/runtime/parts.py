"""The parts of a training that a checkpoint keeps, and what each rank has to do with them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gridloom.base.errors import InputError, Problem
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.states import Taken


@runtime_checkable
class Stateful(Protocol):
    """What goes on from its last state.

    A part whose state is another one on each rank has an attribute ``each_rank`` that is true. It
    begins anew with another number of ranks, but for what it takes over by ``inherit``, if it has
    that. Of the others, what is not cut over the ranks is taken from the first.
    """

    def state_dict(self) -> Mapping[str, Any]:
        """Return all that is to be remembered."""
        ...

    def load_state_dict(self, state: Any) -> object:
        """Go on from there."""
        ...


class RandomState:
    """The states of torch's random number generators on one rank."""

    each_rank = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the CPU's, and of the device's if it is another."""
        state = {"cpu": torch.get_rng_state()}
        if self._device.type != "cpu":
            state["device"] = torch.get_device_module(self._device).get_rng_state(self._device)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there; a generator whose state is not known stays as it is."""
        torch.set_rng_state(state["cpu"])
        if self._device.type != "cpu" and "device" in state:
            module = torch.get_device_module(self._device)
            module.set_rng_state(state["device"], self._device)


class _CutModel:
    """gridloom's own model, of which each rank holds what the plan gives it."""

    def __init__(self, model: SiteModel) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Tensor]:
        return self._model.state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._model.load_state(state)


def as_parts(given: Mapping[str, object]) -> dict[str, Stateful]:
    """Return what to ask for the states of what a user wants to keep.

    Raises:
        InputError: Something has no state.
    """
    parts: dict[str, Stateful] = {}
    problems = []
    for name, part in given.items():
        if isinstance(part, SiteModel):
            # a module of the user's own also has buffers
            parts[name] = part.module if part.axes.shape is None else _CutModel(part)
        elif isinstance(part, Stateful):
            parts[name] = part
        else:
            text = f"{name} is a {type(part).__name__}, without state_dict and load_state_dict"
            remedy = "give models, optimizers, schedulers, gl.data, or anything that has both"
            problems.append(Problem(text, remedy, field="checkpoint"))
    if problems:
        raise InputError(problems)
    return parts


def is_cut(part: Stateful) -> bool:
    """Return whether ranks have different frames, which follow from how the model is cut."""
    return isinstance(part, _CutModel)


def inherit(part: Stateful, frame: object) -> None:
    """Give a part of each rank the frame of one, where there were more or fewer of them."""
    take_over = getattr(part, "inherit", None)
    if take_over is not None:
        take_over(frame)


def of_each_rank(part: Stateful) -> bool:
    """Return whether the part's state is another one on each rank."""
    return bool(getattr(part, "each_rank", False))


def written(part: Stateful, taken: Taken, name: str, rank: int) -> dict[str, Tensor]:
    """Return the tensors of a part that a rank hands in to be written.

    What several ranks hand in is written by any of them, so that each writes as much as the
    others. Buffers, and what is not known to be alike on all ranks, are those of the first.

    Args:
        part: The part.
        taken: Its state on this rank.
        name: Of the part.
        rank: This rank.
    """
    if rank == 0 or of_each_rank(part) or is_cut(part) or isinstance(part, torch.optim.Optimizer):
        return dict(taken.tensors)
    alike: set[str] = set()
    if isinstance(part, nn.Module):
        alike = {f"{name}/{parameter}" for parameter, _ in part.named_parameters()}
    return {n: t for n, t in taken.tensors.items() if isinstance(t, DTensor) or n in alike}


def room_for(part: Stateful, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return where a tensor of an optimizer's saved state is to be read into.

    An optimizer that has not made an update has no state yet: a moment is cut over the ranks as
    its parameter is.

    Args:
        part: Whose it is.
        name: Of the tensor: ``<part>/state/<number of the parameter>/...`` for an optimizer's.
        shape: Of the whole tensor.
        dtype: As it was saved.
    """
    words = name.split("/")
    if isinstance(part, torch.optim.Optimizer) and words[1] == "state" and words[2].isdecimal():
        parameters = [p for group in part.param_groups for p in group["params"]]
        number = int(words[2])
        if number < len(parameters) and parameters[number].shape == torch.Size(shape):
            return torch.empty_like(parameters[number], dtype=dtype, requires_grad=False)
    return torch.empty(torch.Size(shape), dtype=dtype)
