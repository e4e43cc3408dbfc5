"""Deep Gradient Compression (Lin et al., 2018, arXiv:1712.01887): a thousandth of the gradients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gridloom.runtime.compress.codec import Cast, Codec, require_finite
from gridloom.runtime.compress.feedback import add_within_range
from gridloom.runtime.compress.sparse import TopK

WARM_UP = (0.25, 0.0625, 0.015625, 0.004, 0.001)
"""Shares of the first rounds, as in the paper (section 3.3); the last one stays."""

_FP32 = Cast(torch.float32)


@dataclass(frozen=True)
class DeepPolicy:
    """How much is sent when, and how it is held together.

    Attributes:
        shares: Sent in the first rounds; the last one from then on.
        rounds_a_share: How many rounds each of them but the last is for.
        momentum: Of the optimiser, 0 to below 1.
        clip_norm: Of the gradient summed over all sites; infinite: no clipping.
        sites: How many sites there are.
    """

    shares: tuple[float, ...] = WARM_UP
    rounds_a_share: int = 1
    momentum: float = 0.9
    clip_norm: float = math.inf
    sites: int = 1

    def __post_init__(self) -> None:
        """Raise ``ValueError`` naming what cannot be."""
        if not self.shares or min(self.rounds_a_share, self.sites) < 1:
            raise ValueError("no shares, rounds or sites; at least 1 of each is needed")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"a momentum of {self.momentum:g}; it lies from 0 to below 1")
        if not self.clip_norm > 0:
            raise ValueError(f"a norm of {self.clip_norm:g} to clip to; it lies above 0")

    def clip_norm_of_a_site(self) -> float:
        """Return the norm a site's part is clipped to.

        Independent parts of this norm add up to one of ``clip_norm``.
        """
        return self.clip_norm / math.sqrt(self.sites)


_DEFAULT = DeepPolicy()


class DeepGradient:
    """The largest numbers of a gradient, with all that the paper found to be needed.

    - Momentum correction: what is gathered until it is sent is the velocity, not the gradient.
    - Momentum factor masking: where a number is sent, its velocity starts anew, so that momentum
      from long ago does not push further.
    - Local gradient clipping, before anything is gathered.
    - Warm-up: the share sent shrinks over the first rounds.

    Who receives the mean of these makes a plain step with it: momentum is already inside. Without
    momentum and clipping it is ``Feedback`` around ``TopK``.

    Attributes:
        round: Of the next payload, from 0. A site that joins later sets it to the others' round.
        velocity: fp32 ``[n]``.
        residual: Velocities gathered and not sent yet, fp32 ``[n]``.
    """

    def __init__(
        self,
        numbers: int,
        policy: DeepPolicy = _DEFAULT,
        values: Codec = _FP32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Start with nothing gathered.

        Args:
            numbers: Of the gradient.
            policy: How much is sent when.
            values: Codec of the values sent.
            device: Where the gradient lies.

        Raises:
            ValueError: A share that ``TopK`` refuses.
        """
        self._policy = policy
        self._codecs = [TopK(share, values) for share in policy.shares]
        self.round = 0
        self.velocity = torch.zeros(numbers, device=device)
        self.residual = torch.zeros(numbers, device=device)
        self._stopped = torch.zeros(0, dtype=torch.int64), torch.zeros(0)

    def codec(self, round_: int) -> TopK:
        """Return what the payload of a round is sent with; all of them read each other's."""
        return self._codecs[min(round_ // self._policy.rounds_a_share, len(self._codecs) - 1)]

    def size_bytes(self, round_: int) -> int:
        """Return the length of the payload of a round."""
        return self.codec(round_).size_bytes(len(self.residual))

    def encode(self, values: Tensor) -> Tensor:
        """Return the payload of this round's gradient ``[n]`` and of what was gathered before.

        Raises:
            NotFiniteError: A number is not finite; nothing has changed.
        """
        require_finite(values)
        self.velocity.mul_(self._policy.momentum)
        add_within_range(self.velocity, self._clipped(values))
        add_within_range(self.residual, self.velocity)
        codec = self.codec(self.round)
        places = codec.choose(self.residual)
        payload = codec.take_places(self.residual, places)
        self._stopped = places, self.velocity[places]
        self.velocity[places] = 0
        self.round += 1
        return payload

    def withdraw(self, payload: Tensor, values: Tensor) -> None:
        """Undo the last ``encode``, of these values, but for fp32 rounding."""
        places, velocities = self._stopped
        self.velocity[places] = velocities
        self.take_back(payload)
        self.residual -= self.velocity
        self.velocity -= self._clipped(values)
        if self._policy.momentum:
            self.velocity /= self._policy.momentum
        else:
            self.velocity.zero_()
        self.round -= 1

    def take_back(self, payload: Tensor) -> None:
        """Gather again what was in a payload that never arrived."""
        add_within_range(self.residual, self.codec(0).decode(payload, len(self.residual)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of all that it remembers."""
        state = {"velocity": self.velocity.clone(), "residual": self.residual.clone()}
        return state | {"round": torch.tensor(self.round)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self.velocity.copy_(state["velocity"])
        self.residual.copy_(state["residual"])
        self.round = int(state["round"])

    def _clipped(self, values: Tensor) -> Tensor:
        norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
        most = self._policy.clip_norm_of_a_site()
        return values * (most / norm) if norm > most else values
