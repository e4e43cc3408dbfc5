"""Forward and backward of a batch through gridloom's own model, for every layout."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.gpt import IGNORED, Gpt, cross_entropy
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.check import check_length
from gridloom.runtime.inside.gradients import Gradients
from gridloom.runtime.inside.links import context_positions
from gridloom.runtime.inside.pipeline import Pipeline, micro_batches
from gridloom.runtime.inside.scaler import LossScaler


@dataclass(frozen=True)
class Totals:
    """What batches add up to, over tokens; scalars on the device.

    Attributes:
        loss_sum: Cross-entropy in nats.
        tokens: Tokens that count.
        router_loss: The loss that balances experts.
    """

    loss_sum: Tensor
    tokens: Tensor
    router_loss: Tensor

    def __add__(self, other: "Totals") -> "Totals":
        """Return the totals of both."""
        return Totals(
            self.loss_sum + other.loss_sum,
            self.tokens + other.tokens,
            self.router_loss + other.router_loss,
        )


class Passes:
    """Takes batches through this rank's part of the model.

    Attributes:
        ended: Told what is over: a ``forward``, a ``backward``, or, where stages of a pipeline have
            them take turns, all ``passes`` of a batch.
    """

    def __init__(
        self,
        stages: Sequence[Gpt],
        axes: Axes,
        gradients: Gradients,
        scaler: LossScaler,
        formats: tuple[torch.dtype, ...],
    ) -> None:
        """Remember who takes part.

        Args:
            stages: This rank's parts of the model.
            axes: The site.
            gradients: Of these parts.
            scaler: What losses are multiplied by.
            formats: Number formats of the residual stream and of the logits.
        """
        self._stages, self._axes = stages, axes
        self._gradients, self._scaler = gradients, scaler
        self.ended: Callable[[str], None] = _unheard
        self._links = stages[0].links
        self._totals, self._weight = self._nothing(), 1.0
        self._pipeline = (
            Pipeline(stages, axes, self._loss, formats) if axes.pipeline.size > 1 else None
        )

    def run(self, inputs: Tensor, targets: Tensor, *, last: bool, weight: float = 1.0) -> Totals:
        """Add a batch's gradients up; return its totals, this rank's addends.

        After the last one the sums are to be completed by ``Gradients.finish``.

        Args:
            inputs: Tokens ``[sequences, time]``, equal on all ranks of a copy of the model.
            targets: Likewise, ``IGNORED`` where none counts.
            last: Gradients are complete after it, and are summed over the site.
            weight: Of the gradients.

        Raises:
            InputError: The batch cannot be cut as the plan says.
        """
        self._totals, self._weight = self._nothing(), weight
        inputs, targets = self._own(inputs), self._own(targets)
        if self._pipeline is not None:
            at_once = self._axes.plan.micro_batch or 1
            passes = micro_batches(self._axes.plan, inputs.shape[0], at_once)
            self._gradients.expect(last=last, passes=passes)
            with self._kept():
                self._pipeline.run(inputs, targets, at_once)
            self.ended("passes")
        else:
            self._in_turn(inputs, targets, last=last)
        return self._totals

    def evaluate(self, inputs: Tensor, targets: Tensor) -> Totals:
        """As ``run``, forward alone."""
        self._totals = self._nothing()
        inputs, targets = self._own(inputs), self._own(targets)
        plan = self._axes.plan
        with torch.no_grad():
            if self._pipeline is not None:
                self._pipeline.evaluate(inputs, targets, plan.micro_batch or 1)
            else:
                at_once = plan.micro_batch or max(1, inputs.shape[0])
                for tokens, wanted in zip(
                    inputs.split(at_once), targets.split(at_once), strict=True
                ):
                    self._loss(self._stages[0](tokens), wanted)
        self._gradients.rest()
        return self._totals

    def _in_turn(self, inputs: Tensor, targets: Tensor, *, last: bool) -> None:
        at_once = self._axes.plan.micro_batch or max(1, inputs.shape[0])
        parts = list(zip(inputs.split(at_once), targets.split(at_once), strict=True))
        for number, (tokens, wanted) in enumerate(parts, 1):
            self._gradients.expect(last=last and number == len(parts))
            with self._kept():
                loss = self._loss(self._stages[0](tokens), wanted)
            self.ended("forward")
            torch.autograd.backward(loss)
            self.ended("backward")

    def _loss(self, given: Any, targets: Tensor) -> Tensor:
        """Return what the backward starts from, and note it in the totals."""
        own = self._links.share(targets)
        logits, router_loss = given if isinstance(given, tuple) else (given, given.new_zeros(()))
        entropy = cross_entropy(logits, own)
        self._totals += Totals(entropy.detach(), (own != IGNORED).sum(), router_loss.detach())
        whole: Tensor = (entropy + router_loss) * (self._scaler.scale * self._weight)
        return whole

    def _own(self, tokens: Tensor) -> Tensor:
        """Return the positions of whole sequences that this rank takes."""
        tokens = tokens.to(self._axes.device)
        time, context = tokens.shape[1], self._axes.context
        check_length(self._axes.plan, time)
        if context.size == 1:
            return tokens
        return tokens[:, context_positions(time, context).to(tokens.device)].contiguous()

    def _kept(self) -> AbstractContextManager[object]:
        """Return the context that decides where activations wait for the backward."""
        if "activations" not in self._axes.plan.offload:
            return nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(_to_host, _from_host)

    def _nothing(self) -> Totals:
        zero = torch.zeros((), device=self._axes.device)
        return Totals(zero, zero.long(), zero)


def _unheard(phase: str) -> None:
    """Nobody wants to know."""


def _to_host(kept: Tensor) -> Any:
    """Move an activation to the host; weights, which are there anyway, stay."""
    base = kept if kept._base is None else kept._base
    if isinstance(base, torch.nn.Parameter):
        return kept
    away = kept.device.type != "cpu"
    host = torch.empty_like(kept, device="cpu", pin_memory=away)
    host.copy_(kept, non_blocking=away)
    return kept.device, host


def _from_host(packed: Any) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    device, host = packed
    moved: Tensor = host.to(device, non_blocking=True)
    return moved
