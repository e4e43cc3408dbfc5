"""The arithmetic of the outer step: how the training of several sites becomes one model.

Every site trains by itself from a common *anchor*. Now and then, a fragment of the parameters at a
time, the sites average how far they have come (the *pseudo-gradient*, anchor minus weights), and
an outer optimiser moves the anchor by it: DiLoCo (Douillard et al., 2023), in fragments as
Streaming DiLoCo has it (Douillard et al., 2025). Training goes on while the pseudo-gradients
travel; what it has learnt in the meantime is kept on top of the new anchor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.compress import Codec, Feedback


@dataclass(frozen=True)
class OuterRule:
    """The outer optimiser: SGD with Nesterov's momentum.

    Attributes:
        learning_rate: Of the outer step; 1 with momentum 0 is plain averaging.
        momentum: Of the outer step.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9


class Fragment:
    """A part of the parameters, as all sites agree on it.

    Attributes:
        anchor: The agreed values, fp32 ``[n]``.
        velocity: The outer optimiser's momentum, fp32 ``[n]``.
        unshared: Tokens that this site has trained on and no round has counted yet.
    """

    def __init__(self, values: Tensor, rule: OuterRule, codec: Codec) -> None:
        """Begin at common ``values``, fp32 ``[n]``, on the CPU: equal beside chips of any maker."""
        self.anchor = values.clone()
        self.velocity = torch.zeros_like(values)
        self.unshared = 0.0
        self._rule, self._codec = rule, codec
        self._feedback = Feedback(codec, len(values))
        self._result_feedback: Feedback | None = None
        self._offer: _Offer | None = None

    @property
    def payload_bytes(self) -> int:
        """Size of the payload of a round."""
        return self._codec.size_bytes(len(self.anchor))

    def offer(self, local: Tensor) -> Tensor:
        """Return the payload, uint8, for a round: how far ``local`` ``[n]`` is from the anchor.

        ``local`` is kept: it must be a copy that nobody else writes to.
        """
        payload = self._feedback.encode(self.anchor - local)
        self._offer = _Offer(local, payload, self.unshared)
        return payload

    def combine(self, parts: Sequence[tuple[float, Tensor]]) -> Tensor:
        """Return one payload for the average of several sites' payloads, by weight.

        What this loses is made good in the next round that this site leads (Tang et al., 2019).
        """
        if self._result_feedback is None:
            self._result_feedback = Feedback(self._codec, len(self.anchor))
        return self._result_feedback.encode(self.mean(parts))

    def mean(self, parts: Sequence[tuple[float, Tensor]]) -> Tensor:
        """Return the average pseudo-gradient, fp32 ``[n]``, of payloads by weight."""
        return average([(weight, self.decoded(payload)) for weight, payload in parts])

    def decoded(self, payload: Tensor) -> Tensor:
        """Return the pseudo-gradient, fp32 ``[n]``, in the payload of any site."""
        return self._codec.decode(payload, len(self.anchor))

    def settle(self, mean: Tensor, local: Tensor, *, included: bool, tokens: float) -> Tensor:
        """Take a round's result in; return what the local weights become.

        With the offer included, what was trained since the offer is put on top of the new anchor.
        Without it, the weights become the average of the new anchor and themselves, by the tokens
        behind each.

        Args:
            mean: Average pseudo-gradient, ``[n]``.
            local: The weights now, ``[n]``.
            included: This site's offer is part of the average.
            tokens: Behind the whole average.
        """
        offer, self._offer = self._offer, None
        if offer is not None and not included:
            self._withdraw(offer)
        self._step(mean)
        if offer is not None and included:
            self.unshared -= offer.tokens
            return self.anchor + (local - offer.local)
        if not self.unshared:
            return self.anchor.clone()
        share = self.unshared / (self.unshared + tokens)
        self.unshared += tokens
        return torch.lerp(self.anchor, local, share)

    def state(self) -> dict[str, Tensor]:
        """Return what a site needs to take part, as views; what codecs lost stays at home."""
        return {"anchor": self.anchor, "velocity": self.velocity}

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        """Take another site's state over; offers and losses of the own past are void."""
        self.anchor.copy_(state["anchor"])
        self.velocity.copy_(state["velocity"])
        self._feedback.residual.zero_()
        self._offer, self.unshared = None, 0.0

    def state_dict(self) -> dict[str, object]:
        """Return all that this site needs to go on after a stop, for a checkpoint."""
        state: dict[str, object] = {
            "anchor": self.anchor,
            "velocity": self.velocity,
            "unshared": self.unshared,
            "feedback": self._feedback.state_dict(),
        }
        if self._result_feedback is not None:
            state["result"] = self._result_feedback.state_dict()
        if self._offer is not None:
            offer = self._offer
            state["offer"] = {
                "local": offer.local, "payload": offer.payload, "tokens": offer.tokens,
            }  # fmt: skip
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; an offer whose round did not end before the stop is taken back."""
        self.anchor.copy_(state["anchor"])
        self.velocity.copy_(state["velocity"])
        self.unshared = float(state["unshared"])
        self._feedback.load_state_dict(state["feedback"])
        self._result_feedback = None
        if "result" in state:
            self._result_feedback = Feedback(self._codec, len(self.anchor))
            self._result_feedback.load_state_dict(state["result"])
        if "offer" in state:
            self._withdraw(_Offer(**state["offer"]))
        self._offer = None

    def _withdraw(self, offer: "_Offer") -> None:
        """Undo an offer that came too late: the weights still hold what was offered."""
        self._feedback.take_back(offer.payload)
        self._feedback.residual -= self.anchor - offer.local

    def _step(self, mean: Tensor) -> None:
        """Move the anchor (Nesterov, as in ``torch.optim.SGD``): v = m v + g, x -= lr (g + m v)."""
        rule = self._rule
        if rule.momentum:
            self.velocity.mul_(rule.momentum).add_(mean)
            mean = mean.add(self.velocity, alpha=rule.momentum)
        self.anchor.sub_(mean, alpha=rule.learning_rate)


@dataclass(frozen=True)
class _Offer:
    """What was offered, and the weights and tokens it stood for."""

    local: Tensor
    payload: Tensor
    tokens: float


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
