"""The gradients of one rank's pieces: when they are sent, their norm over the site, their scale."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gridloom.base.clock import Clock
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.flights import Flights
from gridloom.runtime.inside.pieces import COPYING_AXES, Piece
from gridloom.runtime.inside.replicate import Replicated, copy_together, sum_together
from gridloom.runtime.inside.shard import set_phase, set_sync


class Gradients:
    """Sums gradients over the ranks that share a parameter, whatever the layout."""

    def __init__(
        self, modules: Sequence[nn.Module], pieces: Sequence[Piece], axes: Axes, *, mean: bool
    ) -> None:
        """Lay out the buckets of what is not sharded.

        Args:
            modules: This rank's, sharded already where they are to be.
            pieces: Of their parameters.
            axes: The site.
            mean: Gradients are averaged over the copies, not summed.
        """
        self._modules, self._pieces, self._axes = modules, pieces, axes
        self._flights: Flights | None = None
        self._replicated = []
        for kind, axis in (("dense", axes.replicate), ("expert", axes.expert_data)):
            plain = [
                piece.parameter
                for piece in pieces
                if piece.kind == kind and not isinstance(piece.parameter, DTensor)
            ]
            if plain and axis.size > 1:
                divide = float(axis.size) if mean else 1.0
                self._replicated.append(Replicated(plain, axis, divide=divide))

    def expect(self, *, last: bool, passes: int = 1) -> None:
        """Say whether the coming backward passes complete the step, and how many there are."""
        for module in self._modules:
            set_phase(module, self._axes.plan.zero, last=last)
        for replicated in self._replicated:
            replicated.sync, replicated.passes = last, passes

    def listen(self, final: Callable[[Sequence[nn.Parameter]], None]) -> None:
        """Have it told, during backward passes, of copied parameters whose sums are complete.

        The order, in that of the collectives too, is the same on all ranks; what a backward pass
        leaves out is told of by ``finish``.
        """
        for replicated in self._replicated:
            replicated.final = final

    def watch(self, clock: Clock) -> None:
        """Measure sums on their way behind backward passes, where all ranks have whole copies.

        Where weights, layers or sequences are cut, ranks exchange inside the passes, too; and an
        accelerator sums in a queue of its own, of whose times the host is not told.
        """
        axes = self._axes
        is_told = axes.device.type == "cpu" or axes.world == 1
        has_whole = axes.replicate.size == axes.world and axes.context.size == axes.expert.size == 1
        if is_told and has_whole:
            self._flights = Flights(clock.monotonic_s)
            for replicated in self._replicated:
                replicated.flights = self._flights

    def hidden_s(self) -> float | None:
        """Return the seconds of them so far; ``None`` where they are not measured."""
        return None if self._flights is None else self._flights.hidden_s()

    def rest(self) -> None:
        """Give gathered weights up after a forward pass that no backward follows.

        The next forward would else read them as they were before the weights moved.
        """
        for module in self._modules:
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()

    @contextmanager
    def unsent(self) -> Iterator[None]:
        """Let gradients only add up on this rank for a while."""
        self._set_sync(sync=False)
        try:
            yield
        finally:
            self._set_sync(sync=True)

    def finish(self) -> None:
        """Complete the sums after the last backward pass of a step."""
        for replicated in self._replicated:
            replicated.finish()
        addends = [g for p in self._pieces if p.addend and (g := p.gradient) is not None]
        sum_together(addends, self._axes.tensor)
        ends = [g for p in self._pieces if "ends" in p.copies and (g := p.gradient) is not None]
        sum_together(ends, self._axes.ends)

    def spread(self) -> None:
        """Give every copy of a gradient what its owner has; all ranks of the site must call it."""
        for name in COPYING_AXES:
            copied = [p.gradient for p in self._pieces if name in p.copies]
            copy_together([g for g in copied if g is not None], getattr(self._axes, name))

    def norm(self) -> Tensor:
        """Return the norm over all ranks of the site, on the device; every number counts once."""
        axes = self._axes
        # where every rank has all, each finds the same by itself
        is_whole = axes.replicate.size == axes.world and axes.expert.size == 1
        counted = [p.gradient for p in self._pieces if is_whole or p.owner]
        present = [gradient for gradient in counted if gradient is not None]
        total = torch.zeros((), device=axes.device)
        if present:
            norms = torch.stack(torch._foreach_norm(present, 2, dtype=torch.float32))
            total += norms.square().sum().to(axes.device)
        if not is_whole:
            dist.all_reduce(total)
        return total.sqrt()

    def scale(self, factor: float | Tensor) -> None:
        """Multiply all gradients by ``factor``."""
        present = self.present()
        if isinstance(factor, Tensor) and present:
            factor = factor.to(present[0].device)  # offloaded ones are on the host
        torch._foreach_mul_(present, factor)

    def present(self) -> list[Tensor]:
        """Return this rank's boxes of the gradients that are there."""
        return [g for p in self._pieces if (g := p.gradient) is not None]

    def zero(self) -> None:
        """Begin anew."""
        for piece in self._pieces:
            piece.parameter.grad = None
        for replicated in self._replicated:
            replicated.zero()

    def _set_sync(self, *, sync: bool) -> None:
        for module in self._modules:
            set_sync(module, sync=sync)
        for replicated in self._replicated:
            replicated.sync = sync
