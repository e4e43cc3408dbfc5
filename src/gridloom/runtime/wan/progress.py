"""How far a training has come, as it goes from site to site with the state of the optimizer."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.state import InnerState

_STEPS = "training.steps"
"""Name of the count of training steps among the tensors of an optimizer's state."""


class Counter(Protocol):
    """Who counts training steps.

    Attributes:
        steps: Behind the model.
    """

    steps: int


class Progress:
    """The state of an optimizer and the training steps behind it (plays ``InnerState``)."""

    def __init__(self, optimizer: InnerState, counter: Counter, *, only_on: bool) -> None:
        """Join what belongs together.

        Args:
            optimizer: The optimizer's.
            counter: Counts the steps.
            only_on: A count that is behind this site's own is not taken over.
        """
        self._optimizer, self._counter, self._only_on = optimizer, counter, only_on

    def pack(self) -> dict[str, Tensor]:
        """As ``InnerState``."""
        return {**self._optimizer.pack(), _STEPS: torch.tensor([self._counter.steps])}

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """As ``InnerState``."""
        if _STEPS not in tensors or tensors[_STEPS].numel() != 1:
            raise MessageError("a state that does not say how far its training has come")
        self._optimizer.check({name: t for name, t in tensors.items() if name != _STEPS})

    def unpack(self, tensors: Mapping[str, Tensor]) -> None:
        """As ``InnerState``."""
        own, theirs = self._counter.steps, int(tensors[_STEPS])
        self._counter.steps = max(own, theirs) if self._only_on else theirs
        self._optimizer.unpack({name: t for name, t in tensors.items() if name != _STEPS})
