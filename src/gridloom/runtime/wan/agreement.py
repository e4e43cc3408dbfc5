"""What a site agrees on with the others, fragment by fragment, as one rank holds it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.outer import Fragment, Moved, Parts
from gridloom.runtime.wan.state import (
    NO_STATE,
    InnerState,
    check_state,
    pack_state,
    unpack_state,
)


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

    def level(self) -> None:
        """Make this site's model that of all sites, to the bit, after the last round."""
        ...

    def pack(self) -> Buffer:
        """Return all that a newcomer needs."""
        ...

    def check(self, body: Buffer) -> None:
        """Raise ``MessageError`` if ``unpack`` could not take a state over; nothing changes."""
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


class OwnAgreement(Agreement, Protocol):
    """What one of several ranks of a site has of it."""

    def follow_up(self, body: Buffer) -> None:
        """Take over what goes with the weights in a state, on a rank that owns none of them."""
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
        self._counted = torch.zeros(len(self._agreed), dtype=torch.float64)  # tokens, in rounds

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
        return one.unshared, one.offer(self._fragments.windows[fragment])

    def combine(self, fragment: int, parts: Parts) -> Tensor:
        """As ``Agreement``."""
        return self._agreed[fragment].combine(parts)

    def settle(self, fragment: int, parts: Parts, *, included: bool) -> Moved:
        """As ``Agreement``."""
        window = self._fragments.windows[fragment]
        moved = self._agreed[fragment].settle(parts, window, included=included)
        self._counted[fragment] += sum(weight for weight, _ in parts)
        return moved

    def level(self) -> None:
        """As ``Agreement``."""
        for one, window in zip(self._agreed, self._fragments.windows, strict=True):
            one.level(window)

    def pack(self) -> Buffer:
        """As ``Agreement``."""
        local = {f"local.{n}": self._fragments.read(n) for n in range(len(self))}
        return pack_state(local | self._common(), self._inner)

    def check(self, body: Buffer) -> None:
        """As ``Agreement``."""
        numbers = {name: tensor.numel() for name, tensor in self._common().items()}
        local = {f"local.{n}": self._fragments.numbers(n) for n in range(len(self))}
        check_state(body, local | numbers, self._inner)

    def unpack(self, body: Buffer) -> None:
        """As ``Agreement``; the optimiser of a site whose training is kept goes on as it was."""
        state = unpack_state(body, NO_STATE if any(self._kept_tokens()) else self._inner)
        self._adopt(state, [state[f"local.{n}"] for n in range(len(self))])

    def follow_up(self, body: Buffer) -> None:
        """As ``OwnAgreement``."""
        unpack_state(body, NO_STATE if any(self._kept_tokens()) else self._inner)
        self._adopt(self._common(), [self._fragments.read(n) for n in range(len(self))])

    def restart(self) -> None:
        """Agree on the weights as they are, with nothing behind them."""
        for number, one in enumerate(self._agreed):
            nothing = {name: torch.zeros_like(tensor) for name, tensor in one.state().items()}
            one.adopt(nothing | {"anchor": self._fragments.read(number)})

    def state_dict(self) -> dict[str, Any]:
        """As ``Agreement``."""
        fragments = {str(number): one.state_dict() for number, one in enumerate(self._agreed)}
        return fragments | {"counted": self._counted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Agreement``."""
        for number, one in enumerate(self._agreed):
            one.load_state_dict(state[str(number)])
        self._counted.copy_(state["counted"])

    def _common(self) -> dict[str, Tensor]:
        """Return what is equal at all sites."""
        state = {"counted": self._counted}
        for number, one in enumerate(self._agreed):
            state.update({f"{name}.{number}": tensor for name, tensor in one.state().items()})
        return state

    def _adopt(self, state: Mapping[str, Tensor], weights: Sequence[Tensor]) -> None:
        """Take over what the sites agree on, and weights ``[n]`` for each fragment.

        What this site has trained and no round has counted is kept: its weights become the average
        of those and themselves, by the tokens behind each, as after a round that it missed.
        """
        missed = (state["counted"] - self._counted).clamp_(min=0.0).tolist()
        for number, kept in enumerate(self._kept_tokens()):
            one, others = self._agreed[number], weights[number]
            one.adopt({name: state[f"{name}.{number}"] for name in one.state()})
            if kept:
                own = self._fragments.read(number)
                others = torch.lerp(others, own, kept / (kept + missed[number]))
                one.unshared = kept + missed[number]
            self._fragments.write(number, others)
        self._counted.copy_(state["counted"])

    def _kept_tokens(self) -> list[float]:
        """Return for each fragment the tokens of training that a whole state must not undo.

        A site that was in no round yet keeps nothing: its weights and the others' have nothing in
        common but, perhaps, their beginning.
        """
        counted = self._counted.tolist()
        return [one.unshared * bool(counted[n]) for n, one in enumerate(self._agreed)]
