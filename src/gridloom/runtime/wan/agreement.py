"""What a site agrees on with the others, fragment by fragment, as one rank holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.outer import Fragment, average
from gridloom.runtime.wan.state import InnerState, pack_state, unpack_state

Parts = Sequence[tuple[float, Tensor]]
"""Payloads, uint8, with the tokens behind each."""

_SAMPLE = 2**16
"""Numbers by which two sites' pseudo-gradients are compared: the cosine to about 0.4 %."""


@dataclass(frozen=True)
class Moved:
    """How far a round moved a fragment.

    Attributes:
        norm: Of the averaged pseudo-gradient.
        cosine: Between two sites' pseudo-gradients; ``None`` if they did not come apart.
    """

    norm: float
    cosine: float | None


class Agreement(Protocol):
    """The weights of a site, and what it agrees on; fragments are counted from 0."""

    def __len__(self) -> int:
        """Return the number of fragments."""
        ...

    def train(self, tokens: float) -> None:
        """Note that the weights have been trained on so many more tokens."""
        ...

    def payload_bytes(self, fragment: int) -> int:
        """Return the size of the payload of a fragment."""
        ...

    def offer(self, fragment: int) -> tuple[float, Tensor]:
        """Return the tokens behind a fragment's pseudo-gradient, and its payload, uint8."""
        ...

    def combine(self, fragment: int, parts: Parts) -> Tensor:
        """Return one payload for the average of several."""
        ...

    def settle(self, fragment: int, parts: Parts, *, included: bool) -> Moved:
        """Take a round's result in."""
        ...

    def pack(self) -> Buffer:
        """Return all that a newcomer needs."""
        ...

    def unpack(self, body: Buffer) -> None:
        """Take over what another site's ``pack`` gave."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank needs to go on after a stop."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


class LocalAgreement:
    """All fragments are this process's own."""

    def __init__(self, fragments: Fragments, agreed: Sequence[Fragment], inner: InnerState) -> None:
        """Join what belongs together.

        Args:
            fragments: The weights.
            agreed: What the sites agree on, for each fragment.
            inner: What a newcomer is given beside the weights.
        """
        self._fragments, self._agreed, self._inner = fragments, list(agreed), inner

    def __len__(self) -> int:
        """As ``Agreement``."""
        return len(self._agreed)

    def train(self, tokens: float) -> None:
        """As ``Agreement``."""
        for one in self._agreed:
            one.unshared += tokens

    def payload_bytes(self, fragment: int) -> int:
        """As ``Agreement``."""
        return self._agreed[fragment].payload_bytes

    def offer(self, fragment: int) -> tuple[float, Tensor]:
        """As ``Agreement``."""
        one = self._agreed[fragment]
        return one.unshared, one.offer(self._fragments.read(fragment))

    def combine(self, fragment: int, parts: Parts) -> Tensor:
        """As ``Agreement``."""
        return self._agreed[fragment].combine(parts)

    def settle(self, fragment: int, parts: Parts, *, included: bool) -> Moved:
        """As ``Agreement``."""
        one = self._agreed[fragment]
        apart = [one.decoded(payload) for _, payload in parts]
        weights = [weight for weight, _ in parts]
        mean = average(list(zip(weights, apart, strict=True)))
        moved = Moved(float(torch.linalg.vector_norm(mean)), _cosine(apart))
        local = self._fragments.read(fragment)
        local = one.settle(mean, local, included=included, tokens=sum(weights))
        self._fragments.write(fragment, local)
        return moved

    def pack(self) -> Buffer:
        """As ``Agreement``."""
        state = {f"local.{n}": self._fragments.read(n) for n in range(len(self))}
        for number, one in enumerate(self._agreed):
            state.update({f"{name}.{number}": tensor for name, tensor in one.state().items()})
        return pack_state(state, self._inner)

    def unpack(self, body: Buffer) -> None:
        """As ``Agreement``."""
        state = unpack_state(body, self._inner)
        for number, one in enumerate(self._agreed):
            one.adopt({name: state[f"{name}.{number}"] for name in one.state()})
            self._fragments.write(number, state[f"local.{number}"])

    def state_dict(self) -> dict[str, Any]:
        """As ``Agreement``."""
        return {str(number): one.state_dict() for number, one in enumerate(self._agreed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Agreement``."""
        for number, one in enumerate(self._agreed):
            one.load_state_dict(state[str(number)])


def _cosine(values: Sequence[Tensor]) -> float | None:
    """Return the cosine between two tensors, by a sample; nothing for another number of them."""
    if len(values) != 2:
        return None
    stride = max(1, len(values[0]) // _SAMPLE)
    one, two = (tensor[::stride] for tensor in values)
    return float(torch.nn.functional.cosine_similarity(one, two, dim=0))
