"""The whole state of a site as bytes, for a newcomer."""

from collections.abc import Mapping
from typing import Protocol

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.messages import MessageError

_INNER = "inner."


class InnerState(Protocol):
    """State of a site beside its weights, as the optimiser's moments."""

    def pack(self) -> dict[str, Tensor]:
        """Return it by name."""
        ...

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise ``MessageError`` if ``unpack`` could not take it over; nothing changes."""
        ...

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        """Take it over."""
        ...


class _Nothing:
    """No state beside the weights (plays ``InnerState``)."""

    def pack(self) -> dict[str, Tensor]:
        return {}

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        pass

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        pass


NO_STATE: InnerState = _Nothing()
"""Gives nothing, and leaves what it is given."""


class OptimizerState:
    """The state of a torch optimiser, as every one keeps it: tensors by parameter and name."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def pack(self) -> dict[str, Tensor]:
        """Return moments and step counts, by the number of the parameter and their name."""
        return {
            f"{number}.{name}": local(value.detach())
            for number, parameter in enumerate(self._parameters())
            for name, value in self._optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """As ``InnerState``: of parameters that are there, and shaped as what this one has."""
        parameters = self._parameters()
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            if not (number.isdecimal() and name and int(number) < len(parameters)):
                raise MessageError(f"a state of another optimiser: it has {key!r}")
            own = self._optimizer.state.get(parameters[int(number)], {}).get(name, value)
            if not isinstance(own, Tensor) or local(own).shape != value.shape:
                raise MessageError(f"a state of another optimiser: its {key} is {value.shape}")

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        """Take them over; a parameter that has no state yet gets it."""
        parameters = self._parameters()
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            parameter = parameters[int(number)]
            state = self._optimizer.state[parameter]
            if name not in state:
                state[name] = _room_for(value, parameter)
            local(state[name]).copy_(value)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]


def local(tensor: Tensor) -> Tensor:
    """Return this rank's box of a tensor that may be a part of a whole, sharing its memory."""
    # asked, not compared with DTensor: to load that costs a site of one rank its start
    to_local = getattr(tensor, "to_local", None)
    box: Tensor = tensor if to_local is None else to_local()
    return box


def pack_state(own: Mapping[str, Tensor], inner: InnerState) -> bytes:
    """Return everything as one block of bytes (safetensors)."""
    tensors = dict(own)
    tensors.update({f"{_INNER}{name}": tensor for name, tensor in inner.pack().items()})
    return safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()})


def unpack_state(body: Buffer, inner: InnerState) -> dict[str, Tensor]:
    """Hand the inner state on; return what was packed beside it.

    Raises:
        MessageError: The bytes are no state.
    """
    tensors, moments = _apart(body)
    inner.unpack(moments)
    return tensors


def check_state(body: Buffer, numbers: Mapping[str, int], inner: InnerState) -> None:
    """Look whether a state can be taken over; nothing changes.

    Args:
        body: The state.
        numbers: How many each tensor beside the inner state has, by name.
        inner: What is to take the rest over.

    Raises:
        MessageError: It cannot.
    """
    tensors, moments = _apart(body)
    found = {name: tensor.numel() for name, tensor in tensors.items()}
    wrong = sorted(name for name in found | dict(numbers) if found.get(name) != numbers.get(name))
    if wrong:
        raise MessageError(f"a state of another model: {wrong[0]} is not as it should be")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise MessageError(f"a state whose {name} is not finite")
    inner.check(moments)


def _apart(body: Buffer) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what was packed beside the inner state, and that."""
    try:
        tensors = safetensors.torch.load(bytes(body))
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise MessageError(f"a state that cannot be read: {error}") from error
    moments = {name: tensors.pop(name) for name in sorted(tensors) if name.startswith(_INNER)}
    return tensors, {name.removeprefix(_INNER): tensor for name, tensor in moments.items()}


def as_buffer(payload: Tensor) -> Buffer:
    """Return a payload, uint8 on the CPU, as bytes that share its memory."""
    data: memoryview = payload.numpy().data
    return data


def as_payload(buffer: Buffer) -> Tensor:
    """Return bytes as a payload that shares their memory."""
    return torch.frombuffer(buffer, dtype=torch.uint8)


def _room_for(value: Tensor, parameter: Tensor) -> Tensor:
    """Return where an optimiser keeps a value beside a parameter that is perhaps spread."""
    if not value.dim():  # step counts stay where the optimiser that sent them had them
        return torch.empty_like(value)
    if local(parameter) is parameter:
        return torch.empty_like(value, device=parameter.device)
    return torch.zeros_like(parameter, dtype=value.dtype)
