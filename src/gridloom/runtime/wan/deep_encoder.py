"""Deep Gradient Compression between sites: what is sent is not a gradient but what became of it."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import SiteSync
from gridloom.runtime.compress import WARM_UP, DeepGradient, DeepPolicy


def policy(how: SiteSync) -> DeepPolicy:
    """Return how much is sent when."""
    warm: tuple[float, ...] = ()
    if how.warm_up:
        warm = tuple(share for share in WARM_UP if share > how.share)
    return DeepPolicy(
        shares=(*warm, how.share),
        rounds_a_share=max(1, how.warm_up // max(1, len(warm))),
        momentum=how.momentum,
    )


def check_optimizer(how: SiteSync, optimizer: torch.optim.Optimizer) -> None:
    """Raise ``InputError`` if momentum would be applied twice.

    Momentum correction gathers the momentum at the site, before anything is left out; an optimiser
    that has one of its own would gather it once more.
    """
    if how.codec != "deep" or not how.momentum:
        return
    own = max(_momentum(group) for group in optimizer.param_groups)
    if own:
        text = f"the optimiser has momentum of its own, {own:g}, which this takes the place of"
        remedy = "take SGD without momentum, or set sync.momentum to 0"
        raise InputError([Problem(text, remedy, field="sync.momentum")])


class DeepEncoder:
    """Gradients of one bucket as payloads (plays ``Encoder`` and ``Staged``)."""

    def __init__(self, numbers: int, how: DeepPolicy) -> None:
        """Begin with the share of the first round."""
        self._deep = DeepGradient(numbers, how)
        self._policy, self._numbers = how, numbers
        self._round = 1

    def stages(self) -> list[int]:
        """As ``Staged``."""
        every = self._policy.rounds_a_share
        return [1 + place * every for place in range(len(self._policy.shares))]

    def at(self, round_: int) -> None:
        """As ``Staged``."""
        self._round = round_

    def for_averages(self) -> "DeepEncoder":
        """As ``Staged``: what is averaged has its momentum already."""
        made = DeepEncoder(self._numbers, dataclasses.replace(self._policy, momentum=0.0))
        made.at(self._round)
        return made

    def size_at(self, numbers: int, round_: int) -> int:
        """As ``Staged``."""
        return self._deep.codec(round_ - 1).size_bytes(numbers)

    def size_bytes(self, numbers: int) -> int:
        """As ``Encoder``."""
        return self.size_at(numbers, self._round)

    def encode(self, values: Tensor) -> Tensor:
        """As ``Encoder``."""
        self._deep.round = self._round - 1
        return self._deep.encode(values)

    def take_back(self, payload: Tensor) -> None:
        """As ``Encoder``."""
        self._deep.take_back(payload)

    def withdraw(self, payload: Tensor, values: Tensor) -> None:
        """As ``Encoder``."""
        self._deep.withdraw(payload, values)

    def decode(self, payload: Tensor, numbers: int) -> Tensor:
        """As ``Encoder``; of any round."""
        return self._deep.codec(0).decode(payload, numbers)

    def state_dict(self) -> dict[str, Tensor]:
        """As ``Encoder``."""
        return self._deep.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As ``Encoder``."""
        self._deep.load_state_dict(state)


def _momentum(group: Mapping[str, object]) -> float:
    """Return the momentum of a group of parameters, as torch's optimisers name it."""
    betas = group.get("betas")
    first = betas[0] if isinstance(betas, tuple | list) and betas else 0.0
    return max(float(group.get("momentum", 0.0) or 0.0), float(first))  # type: ignore[arg-type]
