"""The whole state of a site as bytes, for a newcomer."""

from collections.abc import Mapping
from typing import Protocol

import safetensors.torch
import torch
from torch import Tensor

from gridloom.runtime.wan.history import Buffer

_INNER = "inner."


class InnerState(Protocol):
    """State of a site beside its weights, as the optimiser's moments."""

    def pack(self) -> dict[str, Tensor]:
        """Return it by name."""
        ...

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        """Take it over."""
        ...


class OptimizerState:
    """The state of a torch optimiser, as every one keeps it: tensors by parameter and name."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def pack(self) -> dict[str, Tensor]:
        """Return moments and step counts, by the number of the parameter and their name."""
        return {
            f"{number}.{name}": value.detach()
            for number, parameter in enumerate(self._parameters())
            for name, value in self._optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        """Take them over; a parameter that has no state yet gets it."""
        parameters = self._parameters()
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            parameter = parameters[int(number)]
            own = self._optimizer.state[parameter].get(name)
            if own is None:  # step counts stay where the optimiser that sent them had them
                device = parameter.device if value.dim() else value.device
                self._optimizer.state[parameter][name] = value.to(device, copy=True)
            else:
                own.copy_(value)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]


def pack_state(own: Mapping[str, Tensor], inner: InnerState) -> bytes:
    """Return everything as one block of bytes (safetensors)."""
    tensors = dict(own)
    tensors.update({f"{_INNER}{name}": tensor for name, tensor in inner.pack().items()})
    return safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()})


def unpack_state(body: Buffer, inner: InnerState) -> dict[str, Tensor]:
    """Hand the inner state on; return what was packed beside it."""
    tensors = safetensors.torch.load(bytes(body))
    moments = {name: tensors.pop(name) for name in sorted(tensors) if name.startswith(_INNER)}
    inner.unpack({name.removeprefix(_INNER): tensor for name, tensor in moments.items()})
    return tensors


def as_buffer(payload: Tensor) -> Buffer:
    """Return a payload, uint8 on the CPU, as bytes that share its memory."""
    data: memoryview = payload.numpy().data
    return data


def as_payload(buffer: Buffer) -> Tensor:
    """Return bytes as a payload that shares their memory."""
    return torch.frombuffer(buffer, dtype=torch.uint8)
