"""One training step of one rank: samples, passes, sums inside the site, exchange, update."""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gridloom.model.recipe import GptRecipe
from gridloom.runtime import riders
from gridloom.runtime.accelerator import synchronize
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.corpus import Sampler
from gridloom.runtime.failure import PoisonedError, peers_guarded
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.records import RoundMetrics, SiteMetrics, StepMetrics
from gridloom.runtime.riders import RankSeconds, Totals
from gridloom.runtime.run import Run
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.shares import Shares
from gridloom.runtime.traffic import Meter
from gridloom.runtime.updates import Sync


@dataclass(frozen=True)
class Parts:
    """What a step works with.

    Attributes:
        run: This process's part of the training.
        model: The site's.
        optimizer: Of the model.
        sync: Makes the updates.
        sampler: The data.
        shares: Who takes which samples.
    """

    run: Run
    model: SiteModel
    optimizer: torch.optim.Optimizer
    sync: Sync
    sampler: Sampler
    shares: Shares


class Stepper:
    """Does training steps, and remembers of the last one what the next one passes on.

    Attributes:
        seconds: Where this rank's time went, for the next exchange to carry.
    """

    def __init__(self, recipe: GptRecipe, attempt: int, parts: Parts, within: Meter) -> None:
        """Begin.

        Args:
            recipe: What is trained.
            attempt: Which try of the job this is.
            parts: What with.
            within: Counts bytes sent inside the site by this rank.
        """
        self._recipe, self._attempt, self._parts = recipe, attempt, parts
        self.seconds = RankSeconds()
        self._within, self._within_bytes = within, 0.0
        self._sent_bytes = 0
        self._stride = recipe.sync.every if recipe.sync.kind == "accumulated" else 1
        self._update_s = self._update_began_s = 0.0
        parts.optimizer.register_step_pre_hook(self._before_update)
        parts.optimizer.register_step_post_hook(self._after_update)

    def all_within_bytes(self) -> int | None:
        """Return the bytes sent inside sites in all steps; ``None`` where not measured.

        Those of other sites are known up to the last exchange of gradients. All ranks of the site
        must call it.
        """
        total = self._within_bytes + self._sum(self._within.lap())
        is_known = math.isfinite(total) and (
            self._recipe.sync.kind != "outer" or len(self._parts.run.place.sites) == 1
        )
        return round(total) if is_known else None

    def run(self, step: int, together: range) -> tuple[StepMetrics, bool]:
        """Do ``step``; return its metrics, and whether any rank they are of was asked to stop.

        Args:
            step: From 1.
            together: Steps whose gradients go into one update, which follows the last of them.

        Raises:
            PeerLostError: Another rank went away.
            PoisonedError: The loss or the gradients are not finite.
        """
        sync, clock = self._parts.sync, self._parts.run.clock
        start_s, update = clock.monotonic_s(), step == together[-1]
        loss_sum, tokens = self._passes(step, together)
        before_s = self._now_s()
        if update:
            self._parts.model.finish()
        summed = self._over_site(loss_sum, tokens)
        own, _ = self._read(summed)
        within_s = self._now_s() - before_s
        between_s, norm = 0.0, None
        if update:
            try:
                between_s = self._update(own.tokens * len(together), summed)
            except NotFiniteError as error:
                raise _poisoned(step, own.loss_sum / own.tokens, math.nan) from error
            summed, norm = sync.sums, sync.norm
        totals, sites = self._read(summed)
        self._within_bytes += totals.within_bytes
        loss = totals.loss_sum / totals.tokens
        self._check_finite(step, loss, norm or 0.0)
        step_s = clock.monotonic_s() - start_s
        metrics = StepMetrics(
            attempt=self._attempt,
            step=step,
            loss=loss,
            learning_rate=learning_rate(self._recipe.training, step),
            grad_norm=norm,
            tokens=round(totals.tokens),
            tokens_per_s=totals.tokens / step_s,
            step_s=step_s,
            compute_s=self.seconds.compute,
            within_site_s=within_s,
            between_site_s=between_s,
            data_s=self.seconds.data,
            within_sites_bytes=totals.whole_within_bytes,
            between_sites_bytes=round(totals.between_bytes),
            sites=self._site_metrics(sites),
            now_s=clock.now_s(),
            rounds=round_metrics(sync),
        )
        self.seconds = RankSeconds(within_site=within_s, between_site=between_s)
        return metrics, update and totals.stop_wishes > 0

    def _passes(self, step: int, together: range) -> tuple[float, float]:
        """Add this rank's gradients up; return its addends of the loss and of the tokens."""
        model, clock = self._parts.model, self._parts.run.clock
        began_s = clock.monotonic_s()
        own = self._parts.shares.own(model.axes.data_rank)
        first = (step - 1) * self._recipe.training.global_batch + own.start
        inputs, targets = self._parts.sampler.batch(first, len(own))
        fetched_s = clock.monotonic_s()
        sequences = len(self._parts.shares.of_sites()[self._parts.run.place.number])
        totals = model.accumulate(
            inputs,
            targets,
            last=step == together[-1],
            complete=False,
            tokens=sequences * self._recipe.training.sequence_length * len(together),
        )
        loss_sum, tokens = float(totals.loss_sum), float(totals.tokens)
        self.seconds.data = fetched_s - began_s
        self.seconds.compute = self._now_s() - fetched_s
        return loss_sum, tokens

    def _update(self, tokens: float, numbers: tuple[float, ...]) -> float:
        """Make an update with all sites; return the seconds that the exchange took."""
        model, start_s = self._parts.model, self._now_s()
        self._update_s = 0.0
        if not model.unscale():
            tokens = 0.0  # too large for low precision: nobody takes part in the update with them
        self._parts.sync.step(tokens / model.axes.data_ranks, numbers)
        if len(self._parts.run.place.sites) == 1:
            return 0.0
        return max(0.0, self._now_s() - start_s - self._update_s)

    def _over_site(self, loss_sum: float, tokens: float) -> tuple[float, ...]:
        """Return this site's numbers out of those of its ranks."""
        place = self._parts.run.place
        own = Totals(
            loss_sum=loss_sum,
            tokens=tokens,
            stop_wishes=float(self._parts.run.is_asked_to_stop()),
            within_bytes=self._within.lap(),
            between_bytes=float(self._sent_lap()),
        )
        numbers = riders.pack(own, place.number, len(place.sites), self.seconds)
        if place.size == 1:
            return tuple(numbers)
        summed = torch.tensor(numbers, dtype=torch.float64)
        with peers_guarded():
            dist.all_reduce(summed)
        return tuple(summed.tolist())

    def _sum(self, number: float) -> float:
        """Return the sum of a number over the ranks of the site."""
        if self._parts.run.place.size == 1:
            return number
        total = torch.tensor([number], dtype=torch.float64)
        with peers_guarded():
            dist.all_reduce(total)
        return float(total)

    def _read(self, numbers: tuple[float, ...]) -> tuple[Totals, list[RankSeconds]]:
        return riders.unpack(numbers, self._parts.run.place.site_sizes)

    def _site_metrics(self, means: list[RankSeconds]) -> dict[str, SiteMetrics]:
        place, training = self._parts.run.place, self._recipe.training
        return {
            site: SiteMetrics(
                ranks=count,
                tokens=len(share) * training.sequence_length,
                compute_s=mean.compute,
                data_s=mean.data,
                within_site_s=mean.within_site,
                between_site_s=mean.between_site,
                checkpoint_s=mean.checkpoint,
            )
            for site, count, share, mean in zip(
                place.sites, place.site_sizes, self._parts.shares.of_sites(), means, strict=True
            )
            if mean.compute > 0  # else it had no part in this update
        }

    def _sent_lap(self) -> int:
        """Return the bytes sent to other sites since the last call."""
        before = self._sent_bytes
        self._sent_bytes = sum(link.sent_bytes for link in self._parts.sync.links().values())
        return self._sent_bytes - before

    def _check_finite(self, step: int, loss: float, norm: float) -> None:
        """Raise ``PoisonedError`` unless both are finite; all ranks see the same two numbers."""
        scaler = self._parts.model.scaler
        if scaler is not None and scaler.skipped and not scaler.lost:
            return  # the step was left out, and a smaller scale is tried
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise _poisoned(step, loss, norm)

    def _before_update(self, *_: object) -> None:
        training, sync = self._recipe.training, self._parts.sync
        step = min(sync.steps + self._stride, training.steps)
        for group in self._parts.optimizer.param_groups:
            group["lr"] = learning_rate(training, step)
        self._update_began_s = self._now_s()

    def _after_update(self, *_: object) -> None:
        self._update_s += self._now_s() - self._update_began_s

    def _now_s(self) -> float:
        synchronize(self._parts.model.axes.device)
        return self._parts.run.clock.monotonic_s()


def round_metrics(sync: Sync) -> tuple[RoundMetrics, ...]:
    """Return the outer rounds that have ended since they were last asked for."""
    return tuple(
        RoundMetrics(
            round=one.round,
            fragment=one.fragment,
            sites=one.sites,
            norm=one.norm,
            cosine=one.cosine,
            stale_steps=one.stale_steps,
            epsilon=one.epsilon,
        )
        for one in sync.rounds()
    )


def _poisoned(step: int, loss: float, norm: float) -> PoisonedError:
    return PoisonedError(
        f"the loss of step {step} is {loss:g} and the norm of its gradient {norm:g}",
        "lower optimizer.learning_rate or optimizer.clip_norm, and start again: no "
        "checkpoint was made of this state",
    )
