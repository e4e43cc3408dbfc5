"""The arithmetic of the outer step: how the training of several sites becomes one model.

Every site trains by itself from a common *anchor*. Now and then, a fragment of the parameters at a
time, the sites average how far they have come (the *pseudo-gradient*, anchor minus weights), and
an outer optimiser moves the anchor by it: DiLoCo (Douillard et al., 2023), in fragments as
Streaming DiLoCo has it (Douillard et al., 2025). Training goes on while the pseudo-gradients
travel; what it has learnt in the meantime is kept on top of the new anchor.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.compress import Codec, Losses, require_length
from gridloom.runtime.wan.fragments import Window, chunks

Parts = Sequence[tuple[float, Tensor]]
"""Payloads or what they hold, with the tokens behind each."""

_STRIDE = 64
"""Every so many numbers two sites' pseudo-gradients are compared."""

_TWO = 2
_TINY = 1e-30


@dataclass(frozen=True)
class OuterRule:
    """The outer optimiser: SGD with Nesterov's momentum.

    Attributes:
        learning_rate: Of the outer step; 1 with momentum 0 is plain averaging.
        momentum: Of the outer step.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9


@dataclass(frozen=True)
class Moved:
    """How far a round moved a fragment.

    Attributes:
        norm: Of the averaged pseudo-gradient.
        cosine: Between two sites' pseudo-gradients, by a sample; ``None`` if they did not come
            apart.
    """

    norm: float
    cosine: float | None


class Fragment:
    """A part of the parameters, as all sites agree on it.

    The work is done a chunk at a time, and payloads are those of the chunks, end to end.

    Attributes:
        anchor: The agreed values, fp32 ``[n]``.
        velocity: The outer optimiser's momentum, fp32 ``[n]``; empty where it has none.
        unshared: Tokens that this site has trained on and no round has counted yet.
        shield: Makes of a pseudo-gradient, fp32 ``[n]``, what may leave the site; ``None`` where
            all of it may. What it keeps back is not kept in the weights: it would pile up there.
    """

    shield: Callable[[Tensor], Tensor] | None = None

    def __init__(self, values: Tensor, rule: OuterRule, codec: Codec) -> None:
        """Begin at common ``values``, fp32 ``[n]``, on the CPU: equal beside chips of any maker."""
        self.anchor = values.clone()
        self.velocity = torch.zeros(values.numel() if rule.momentum else 0)
        self.unshared = 0.0
        self._rule, self._codec = rule, codec
        self._chunks = list(_chunks(len(values), codec))
        self._result_losses: Losses | None = None
        self._offer: _Offer | None = None

    @property
    def payload_bytes(self) -> int:
        """Size of the payload of a round."""
        return self._chunks[-1].payload.stop if self._chunks else 0

    def offer(self, weights: Window) -> Tensor:
        """Return the payload, uint8, for a round: how far ``weights`` are from the anchor.

        Raises:
            NotFiniteError: A weight is not finite.
        """
        payload = torch.empty(self.payload_bytes, dtype=torch.uint8)
        whole, shown = None, None
        if self.shield is not None:
            whole = self.anchor - weights.read()
            shown = self.shield(whole)
        for number, chunk in enumerate(self._chunks):
            if shown is None:
                apart = weights.read_chunk(number)
                torch.sub(self.anchor[chunk.span], apart, out=apart)
            else:
                apart = shown[chunk.span]
            payload[chunk.payload] = self._codec.encode(apart)
        self._offer = _Offer(payload, self.unshared, whole)
        return payload

    def combine(self, parts: Parts) -> Tensor:
        """Return one payload for the average of several sites' payloads, by weight.

        What this loses is made good in the next round that this site leads (Tang et al., 2019).
        """
        self._require_lengths(parts)
        if self._result_losses is None:
            self._result_losses = self._new_losses()
        payload = torch.empty(self.payload_bytes, dtype=torch.uint8)
        for number, chunk in enumerate(self._chunks):
            mean = average(self._decoded(parts, chunk))
            payload[chunk.payload] = self._result_losses[number].encode(mean)
        return payload

    def decoded(self, payload: Tensor) -> Tensor:
        """Return the pseudo-gradient, fp32 ``[n]``, in the payload of any site."""
        apart = [one for chunk in self._chunks for _, one in self._decoded([(1.0, payload)], chunk)]
        return torch.cat(apart) if apart else torch.zeros(0)

    def settle(self, parts: Parts, weights: Window, *, included: bool) -> Moved:
        """Take a round's result in, and move the weights by it.

        With the offer included, the weights move from what was offered to the new anchor; what was
        trained since the offer, and what the codec lost of it, is kept. Without it, they become
        the average of the new anchor and themselves, by the tokens behind each.

        Args:
            parts: Payloads whose average is the pseudo-gradient.
            weights: Of this site.
            included: This site's offer is part of the average.
        """
        self._require_lengths(parts)
        offer, self._offer = self._offer if included else None, None
        behind = sum(weight for weight, _ in parts)
        own_share = self.unshared / (self.unshared + behind) if self.unshared else 0.0
        compared = _Compared()
        for number, chunk in enumerate(self._chunks):
            apart = self._decoded(parts, chunk)
            compared.note(apart)
            own = None if offer is None else self._own(offer, parts, apart, chunk)
            mean = average(apart)
            compared.note_mean(mean)
            anchor, change = self._step(chunk.span, mean)
            if own is not None:
                weights.move_chunk(number, own, change)
            else:
                local = weights.read_chunk(number)
                weights.write_chunk(number, torch.lerp(anchor, local, own_share, out=local))
        if offer is not None:
            self.unshared -= offer.tokens
        elif self.unshared:
            self.unshared += behind
        return compared.moved()

    def level(self, weights: Window) -> None:
        """Make the weights the anchor, if all that was trained is in it."""
        if not self.unshared:
            weights.write(self.anchor)

    def state(self) -> dict[str, Tensor]:
        """Return what a site needs to take part, as views; what codecs lost stays at home."""
        return {"anchor": self.anchor, "velocity": self.velocity}

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        """Take another site's state over; offers and losses of the own past are void."""
        self.anchor.copy_(state["anchor"])
        self.velocity.copy_(state["velocity"])
        self._offer, self.unshared = None, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return all that this site needs to go on after a stop, for a checkpoint."""
        state: dict[str, Any] = {
            "anchor": self.anchor,
            "velocity": self.velocity,
            "unshared": self.unshared,
        }
        if self._result_losses is not None:
            state["result"] = self._result_losses.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; an offer whose round did not end before the stop is void."""
        self.anchor.copy_(state["anchor"])
        self.velocity.copy_(state["velocity"])
        self.unshared = float(state["unshared"])
        self._result_losses = None
        if "result" in state:
            self._result_losses = self._new_losses()
            self._result_losses.load_state_dict(state["result"])
        self._offer = None

    def _require_lengths(self, parts: Parts) -> None:
        for _, payload in parts:
            require_length(payload, self.payload_bytes, len(self.anchor))

    def _decoded(self, parts: Parts, chunk: "_Chunk") -> list[tuple[float, Tensor]]:
        """Return the pseudo-gradients of a chunk, with the tokens behind each."""
        numbers = chunk.span.stop - chunk.span.start
        decode = self._codec.decode
        return [(weight, decode(payload[chunk.payload], numbers)) for weight, payload in parts]

    def _own(self, offer: "_Offer", parts: Parts, apart: Parts, chunk: "_Chunk") -> Tensor:
        """Return what this site's offer decodes to; behind a shield, what it was made from."""
        if offer.whole is not None:
            return offer.whole[chunk.span]
        for (_, payload), (_, values) in zip(parts, apart, strict=True):
            if payload.data_ptr() == offer.payload.data_ptr():
                return values
        return self._decoded([(0.0, offer.payload)], chunk)[0][1]

    def _new_losses(self) -> Losses:
        return Losses(self._codec, [chunk.span.stop - chunk.span.start for chunk in self._chunks])

    def _step(self, span: slice, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Move the anchor; return it there, and what was taken from it; uses ``mean`` up.

        Nesterov, as in ``torch.optim.SGD``: v = m v + g, x -= lr (g + m v).
        """
        rule, anchor = self._rule, self.anchor[span]
        if rule.momentum:
            velocity = self.velocity[span].mul_(rule.momentum).add_(mean)
            mean.add_(velocity, alpha=rule.momentum)
        if rule.learning_rate != 1:
            mean.mul_(rule.learning_rate)
        return anchor.sub_(mean), mean


@dataclass(frozen=True)
class _Offer:
    """What was offered, the tokens it stood for, and what it was made from behind a shield."""

    payload: Tensor
    tokens: float
    whole: Tensor | None


@dataclass(frozen=True)
class _Chunk:
    """Which numbers of the fragment, and which bytes of its payload."""

    span: slice
    payload: slice


def _chunks(numbers: int, codec: Codec) -> Iterator[_Chunk]:
    """Yield the chunks of a fragment."""
    start = 0
    for span in chunks(numbers):
        stop = start + codec.size_bytes(span.stop - span.start)
        yield _Chunk(span, slice(start, stop))
        start = stop


class _Compared:
    """How far a round moves a fragment, gathered chunk by chunk."""

    def __init__(self) -> None:
        self._square = 0.0
        self._products: list[Tensor] | None = []

    def note(self, apart: Parts) -> None:
        """Compare two sites' pseudo-gradients, by a sample."""
        if len(apart) != _TWO:
            self._products = None
        if self._products is not None:
            one, two = (values[::_STRIDE] for _, values in apart)
            self._products.append(torch.stack([one @ two, one @ one, two @ two]))

    def note_mean(self, mean: Tensor) -> None:
        """Add to the norm of the average."""
        self._square += float(mean @ mean)

    def moved(self) -> Moved:
        """Return what has been found."""
        cosine = None
        if self._products is not None:
            none = [torch.zeros(3)]
            dot, first, second = torch.stack(self._products or none).sum(dim=0).tolist()
            cosine = dot / max(math.sqrt(first * second), _TINY)
        return Moved(math.sqrt(self._square), cosine)


def average(parts: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Return the mean of tensors of one shape, by weight; in the order given, bit by bit.

    If nobody has any weight, as in the last rounds of a training, all count alike.
    """
    total = sum(weight for weight, _ in parts)
    shares = [weight / total if total else 1 / len(parts) for weight, _ in parts]
    mean = parts[0][1] * shares[0]
    for share, (_, values) in zip(shares[1:], parts[1:], strict=True):
        mean.add_(values, alpha=share)
    return mean
