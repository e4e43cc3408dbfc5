"""One training step of one rank: samples, passes, one exchange, one update."""

import math
from dataclasses import dataclass

import torch

from gridloom.base.clock import Clock
from gridloom.model.recipe import Training
from gridloom.runtime.collective import Exchange
from gridloom.runtime.corpus import Sampler, share_of
from gridloom.runtime.failure import PoisonedError
from gridloom.runtime.flat import FlatModel
from gridloom.runtime.gpt import Gpt
from gridloom.runtime.mesh import Mesh
from gridloom.runtime.records import SiteMetrics, StepMetrics
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.tail import RankSeconds, Totals, read_tail, whole_or_none, write_tail
from gridloom.runtime.traffic import Meter
from gridloom.wire.launch import Rank


@dataclass(frozen=True)
class Parts:
    """What a step works with.

    Attributes:
        mesh: The groups of ranks.
        clock: The time.
        model: The model.
        flat: The model's state, laid out flat.
        sampler: The data.
    """

    mesh: Mesh
    clock: Clock
    model: Gpt
    flat: FlatModel
    sampler: Sampler


class Stepper:
    """Does training steps, and remembers of the last one what the next one passes on.

    Attributes:
        within: Bytes sent inside the site.
        between: Bytes sent between sites.
        seconds: Where this rank's time went, for the next exchange to carry.
    """

    def __init__(self, rank: Rank, training: Training, parts: Parts) -> None:
        self._rank, self._training, self._parts = rank, training, parts
        self._exchange = Exchange(parts.mesh, parts.clock)
        self._share = share_of(rank.rank, rank.world_size, training.global_batch)
        self.within = Meter(parts.mesh.within_sockets)
        self.between = Meter(parts.mesh.between_sockets)
        self.seconds = RankSeconds()

    def run(self, step: int, *, stop_wished: bool) -> tuple[StepMetrics, bool]:
        """Do ``step``; return its metrics, and whether any rank was asked to stop.

        Raises:
            PeerLostError: Another rank went away.
            PoisonedError: The loss or the gradients are not finite.
        """
        flat, clock = self._parts.flat, self._parts.clock
        start_s = clock.monotonic_s()
        loss_sum = self._passes(step)
        own = Totals(
            loss_sum=loss_sum,
            tokens=len(self._share) * self._training.sequence_length,
            stop_wishes=float(stop_wished),
            within_bytes=self.within.lap(),
            between_bytes=self.between.lap(),
        )
        write_tail(flat.tail, own, self._parts.mesh.site, self.seconds)
        spent = self._exchange.sum(flat.bucket)
        totals, sites = read_tail(flat.tail, [ranks for _, ranks in self._rank.site_ranks])
        loss = totals.loss_sum / totals.tokens
        rate = learning_rate(self._training, step)
        norm = flat.update(totals.tokens, rate, self._training.clip_norm)
        _check_finite(step, loss, norm)
        step_s = clock.monotonic_s() - start_s
        metrics = StepMetrics(
            attempt=self._rank.attempt,
            step=step,
            loss=loss,
            learning_rate=rate,
            grad_norm=norm,
            tokens=round(totals.tokens),
            tokens_per_s=totals.tokens / step_s,
            step_s=step_s,
            compute_s=self.seconds.compute,
            within_site_s=spent.within_site,
            between_site_s=spent.between_sites,
            data_s=self.seconds.data,
            within_sites_bytes=whole_or_none(totals.within_bytes),
            between_sites_bytes=whole_or_none(totals.between_bytes),
            sites=self._site_metrics(sites),
            now_s=clock.now_s(),
        )
        self.seconds = RankSeconds(within_site=spent.within_site, between_site=spent.between_sites)
        return metrics, totals.stop_wishes > 0

    def _passes(self, step: int) -> float:
        """Add this rank's gradients up in the bucket; return its loss, summed over its tokens."""
        model, flat, clock = self._parts.model, self._parts.flat, self._parts.clock
        device = self._parts.mesh.device
        flat.bucket.zero_()
        loss_sum = torch.zeros((), device=device)
        at_once = self._training.micro_batch or max(1, len(self._share))
        first = (step - 1) * self._training.global_batch
        for start in range(self._share.start, self._share.stop, at_once):
            count = min(at_once, self._share.stop - start)
            began_s = clock.monotonic_s()
            inputs, targets = self._parts.sampler.batch(first + start, count)
            fetched_s = clock.monotonic_s()
            with autocast(device, self._training.precision):
                loss = model.loss_sum(inputs.to(device), targets.to(device))
            torch.autograd.backward(loss)
            loss_sum += loss.detach()
            self.seconds.data += fetched_s - began_s
            self.seconds.compute += clock.monotonic_s() - fetched_s
        return float(loss_sum)

    def _site_metrics(self, means: list[RankSeconds]) -> dict[str, SiteMetrics]:
        metrics = {}
        for (site, count), ranks, mean in zip(
            self._rank.site_ranks, self._parts.mesh.site_ranks, means, strict=True
        ):
            shares = (
                share_of(rank, self._rank.world_size, self._training.global_batch) for rank in ranks
            )
            metrics[site] = SiteMetrics(
                ranks=count,
                tokens=sum(map(len, shares)) * self._training.sequence_length,
                compute_s=mean.compute,
                data_s=mean.data,
                within_site_s=mean.within_site,
                between_site_s=mean.between_site,
                checkpoint_s=mean.checkpoint,
            )
        return metrics


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context for a forward pass: bf16 matrix products where the recipe wants them."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def _check_finite(step: int, loss: float, norm: float) -> None:
    """Raise ``PoisonedError`` unless both are finite; all ranks see the same two numbers."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise PoisonedError(
            f"the loss of step {step} is {loss:g} and the norm of its gradient {norm:g}",
            "lower optimizer.learning_rate or optimizer.clip_norm, and start again: no "
            "checkpoint was made of this state",
        )
