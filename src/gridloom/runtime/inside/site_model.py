"""The model of one site as one rank holds it: the same calls for every way it is cut."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gridloom.base.errors import InputError
from gridloom.model.recipe import Training
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.gradients import Gradients
from gridloom.runtime.inside.passes import Passes, Totals
from gridloom.runtime.inside.pieces import COPYING_AXES, Piece, as_distributed
from gridloom.runtime.inside.replicate import copy_together
from gridloom.runtime.inside.scaler import LossScaler
from gridloom.runtime.inside.update import Update, local_box

_WEIGHT = "weight."


@dataclass(frozen=True)
class Outcome:
    """How an update went.

    Attributes:
        norm: Of the mean gradient over all ranks, before clipping.
        skipped: It was not finite, and the weights are as they were.
    """

    norm: float
    skipped: bool


class SiteModel:
    """This rank's part of a site's model, with its gradients and its optimizer.

    Attributes:
        axes: The site.
        modules: What this rank holds: one module, or a stage for each of its virtual stages.
        parameters: The pieces of their parameters, in the same order on all ranks of equal place.
        gradients: Of these pieces.
        scaler: Of the loss; its scale is 1 unless products are in fp16.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        pieces: Sequence[Piece],
        axes: Axes,
        gradients: Gradients,
        passes: Passes | None = None,
        scaler: LossScaler | None = None,
    ) -> None:
        """Put the parts together; ``parallelize`` does so.

        Args:
            modules: This rank's.
            pieces: Of their parameters.
            axes: The site.
            gradients: Of the pieces.
            passes: Forward and backward of gridloom's own model; ``None`` for the user's.
            scaler: Of the loss, where it has one.
        """
        self.axes, self.modules, self.parameters = axes, list(modules), list(pieces)
        self.gradients = gradients
        self.scaler = scaler
        self._passes = passes
        self._update: Update | None = None
        self._is_open = passes is None

    @property
    def module(self) -> nn.Module:
        """The module of this rank; to be called as before it was cut."""
        return self.modules[0]

    def optimize(self, training: Training) -> torch.optim.Optimizer:
        """Give the model the recipe's AdamW, and return it."""
        self._update = Update(self.parameters, training, self.scaler or LossScaler(1.0))
        return self._update.optimizer

    def accumulate(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        last: bool = True,
        complete: bool = True,
        tokens: float = 1.0,
    ) -> Totals:
        """Take a batch forward and backward; its gradients add to those that are there.

        They are sums over tokens, or means over as many as are told. After the ``last`` batch of a
        step they are summed over the site; before it, as little as the plan allows is sent.

        Args:
            inputs: Tokens ``[sequences, time]``; ranks with equal ``axes.data_rank`` give equal
                ones, and where weights are sharded all give equally many.
            targets: Likewise; ``IGNORED`` where none counts.
            last: No more batches follow in this step.
            complete: Return when the sums are there; else ``finish`` waits for them.
            tokens: By which gradients are divided.

        Returns:
            This rank's addends; ``sum_totals`` makes them whole.

        Raises:
            InputError: The batch cannot be cut as the plan says, or the module is the user's.
        """
        if self._passes is None:
            raise InputError("a module of your own has its own forward and backward passes")
        totals = self._passes.run(inputs, targets, last=last, weight=1 / tokens)
        self._is_open = last
        if complete:
            self.finish()
        return totals

    def tell(self, ended: Callable[[str], None]) -> None:
        """Have it told what is over of each batch, as ``Passes.ended``; gridloom's own model."""
        if self._passes is not None:
            self._passes.ended = ended

    def evaluate(self, inputs: Tensor, targets: Tensor) -> Totals:
        """Take a batch forward alone; arguments, result and errors as of ``accumulate``."""
        if self._passes is None:
            raise InputError("a module of your own has its own forward pass")
        return self._passes.evaluate(inputs, targets)

    def sum_totals(self, totals: Totals) -> Totals:
        """Return totals over the site; all its ranks get the same."""
        numbers = (totals.loss_sum, totals.tokens, totals.router_loss)
        stacked = torch.stack([number.double() for number in numbers])
        if self.axes.world > 1:
            dist.all_reduce(stacked)
        return Totals(stacked[0].float(), stacked[1].round().long(), stacked[2].float())

    def step(self, tokens: float, learning_rate: float, clip_norm: float) -> Outcome:
        """Turn summed gradients into means, clip, move the weights, and begin anew.

        Gradients that are not finite are dropped, and the weights stay.

        Args:
            tokens: Tokens that the gradients were summed over.
            learning_rate: For this step.
            clip_norm: Global norm allowed; 0 for any.

        Raises:
            InputError: ``optimize`` was not called.
        """
        if self._update is None:
            raise InputError("call optimize before step")
        divisor = tokens * (self.scaler.scale if self.scaler is not None else 1.0)
        norm = float(self.gradients.norm()) / divisor
        finite = math.isfinite(norm)
        if finite:
            clip = min(1.0, clip_norm / (norm + 1e-6)) if clip_norm > 0 else 1.0
            self.gradients.scale(clip / divisor)
            self._update.step(learning_rate)
        if self.scaler is not None:
            self.scaler.update(finite=finite)
        self.gradients.zero()
        return Outcome(norm, skipped=not finite)

    def finish(self) -> None:
        """Complete the sums of gradients over the site, if they are not complete yet."""
        if self._is_open:
            self.gradients.finish()
        self._is_open = self._passes is None

    def unscale(self) -> bool:
        """Take the scale of the loss out of complete gradients; return whether they are finite.

        Those that are not become zero, and the next scale is smaller. Without a scale, nothing is
        done or looked at.
        """
        if self.scaler is None:
            return True
        finite = math.isfinite(self.gradients.norm())
        if finite:
            self.gradients.scale(1 / self.scaler.scale)
        else:
            self.gradients.zero()
        self.scaler.update(finite=finite)
        return finite

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which the user's backward passes send nothing."""
        return self.gradients.unsent()

    def clip(self, norm: float) -> Tensor:
        """Clip gradients to a global norm over all ranks; return it as it was before.

        Nothing waits for the device until somebody reads the result.
        """
        found = self.gradients.norm()
        self.gradients.scale((norm / (found + 1e-6)).clamp(max=1.0))
        return found

    def spread(self) -> None:
        """Give every copy of a number what its owner has; all ranks of the site must call it."""
        for name in COPYING_AXES:
            copied = [piece.tensor for piece in self.parameters if name in piece.copies]
            copy_together(copied, getattr(self.axes, name))
        self.gradients.rest()

    def state(self) -> dict[str, Tensor]:
        """Return all that outlives a step, for ``torch.distributed.checkpoint``.

        The tensors are parts of wholes and share memory with the model, so that a load into them
        is a load into it; call ``load_state`` after it with the same dictionary.
        """
        tensors = {f"{_WEIGHT}{p.name}": self._whole(p, p.tensor) for p in self.parameters}
        return tensors if self._update is None else tensors | self._update.state(self._whole)

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what ``state`` gave, on ranks cut in the same way."""
        with torch.no_grad():
            for piece in self.parameters:
                piece.tensor.copy_(local_box(tensors[f"{_WEIGHT}{piece.name}"]))
            self.gradients.rest()
            if self._update is not None:
                self._update.load(tensors)

    def _whole(self, piece: Piece, tensor: Tensor) -> Tensor:
        return as_distributed(piece, tensor, self.axes)
