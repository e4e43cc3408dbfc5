"""One training step of one rank: samples, passes, sums inside the site, exchange, update."""

import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from gridloom.model.recipe import GptRecipe
from gridloom.planner.flops import model_flops_use
from gridloom.planner.shape import step_flops
from gridloom.runtime import riders
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.corpus import Sampler
from gridloom.runtime.failure import PoisonedError, peers_guarded
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.phases import spent
from gridloom.runtime.records import LinkBytes, SiteMetrics, StepMetrics
from gridloom.runtime.riders import RankSeconds, Totals
from gridloom.runtime.run import Run
from gridloom.runtime.schedule import learning_rate
from gridloom.runtime.shares import Shares
from gridloom.runtime.sync_metrics import SyncMetrics, round_metrics
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
        peak_flops: Of this rank's device, in flop/s; NaN where nobody wants to know.
    """

    run: Run
    model: SiteModel
    optimizer: torch.optim.Optimizer
    sync: Sync
    sampler: Sampler
    shares: Shares
    peak_flops: float = math.nan


class Stepper:
    """Does training steps, and remembers of the last one what the next one passes on.

    Each part of a step costs one look at the clock, or one event in the device's stream; nothing
    here waits for the device.

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
        self._gathered: list[RankSeconds] = []
        self._within, self._within_bytes = within, 0.0
        self._sent_bytes = 0
        self._flops_per_token = step_flops(recipe.shape, 1, recipe.training.sequence_length)
        self._phases = parts.sync.meter.phases
        self._seen = self._phases.seconds()
        self._before = parts.sync.meter.start
        parts.model.tell(self._phases.end)
        parts.optimizer.register_step_pre_hook(self._before_update)

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
        self._phases.end("outside")
        loss_sum, tokens = self._passes(step, together)
        if update:
            self._parts.model.finish()
        summed = self._over_site(loss_sum, tokens, self._told(update=update))
        own, _ = self._read(summed)
        self._phases.end("within_site")
        norm = None
        if update:
            try:
                self._update(own.tokens * len(together), summed)
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
            within_sites_bytes=totals.whole_within_bytes,
            between_sites_bytes=round(totals.between_bytes),
            sites=self._site_metrics(sites),
            now_s=clock.now_s(),
            rounds=round_metrics(sync.rounds()),
            mfu=self._mfu(totals, step_s),
            **self._parts_of(step_s),
        )
        return metrics, update and totals.stop_wishes > 0

    def complete(self, last: StepMetrics) -> StepMetrics:
        """Return the last step's metrics with what followed it until the sites had parted."""
        after = self._measured()
        links = {
            site: last.links.get(site, LinkBytes()) + link for site, link in after.links.items()
        }
        rounds = last.rounds + round_metrics(self._parts.sync.rounds())
        return msgspec.structs.replace(last, rounds=rounds, links=links)

    def _passes(self, step: int, together: range) -> tuple[float, float]:
        """Add this rank's gradients up; return its addends of the loss and of the tokens."""
        model = self._parts.model
        own = self._parts.shares.own(model.axes.data_rank)
        first = (step - 1) * self._recipe.training.global_batch + own.start
        inputs, targets = self._parts.sampler.batch(first, len(own))
        self._phases.end("data")
        sequences = len(self._parts.shares.of_sites()[self._parts.run.place.number])
        totals = model.accumulate(
            inputs,
            targets,
            last=step == together[-1],
            complete=False,
            tokens=sequences * self._recipe.training.sequence_length * len(together),
        )
        return float(totals.loss_sum), float(totals.tokens)

    def _update(self, tokens: float, numbers: tuple[float, ...]) -> None:
        """Make an update with all sites."""
        model = self._parts.model
        if not model.unscale():
            tokens = 0.0  # too large for low precision: nobody takes part in the update with them
        self._parts.sync.step(tokens / model.axes.data_ranks, numbers)

    def _parts_of(self, step_s: float) -> dict[str, Any]:
        """Return where the time of a step went, and what travelled behind it.

        The next step passes it on.
        """
        measured, seconds = self._measured(), self._passed()
        own = self.seconds = RankSeconds(
            within_site=measured.within_site_s,
            between_site=measured.between_site_s,
            optimizer=measured.optimizer_s,
            # the mean over the site's ranks is to be what its first rank alone knows
            between_hidden=measured.between_site_hidden_s * self._parts.run.place.size,
            step=step_s,
        )
        compute_s = seconds.compute
        used_s = seconds.data + compute_s + own.within_site + own.between_site + own.optimizer
        is_told = math.isfinite(seconds.forward)
        self._seen = self._phases.seconds()
        return {
            "data_s": seconds.data,
            "compute_s": compute_s,
            "forward_s": seconds.forward if is_told else None,
            "backward_s": compute_s - seconds.forward if is_told else None,
            "within_site_s": own.within_site,
            "within_site_hidden_s": measured.within_site_hidden_s,
            "between_site_s": own.between_site,
            "between_site_hidden_s": measured.between_site_hidden_s,
            "optimizer_s": own.optimizer,
            "other_s": max(0.0, step_s - used_s),
            "links": dict(measured.links),
        }

    def _passed(self) -> RankSeconds:
        """Return the seconds of what comes before the exchange in a step."""
        now, before = self._phases.seconds(), self._seen
        mixed_s = spent(now, before, "passes")
        return RankSeconds(
            data=spent(now, before, "data"),
            compute=mixed_s + spent(now, before, "forward", "backward"),
            forward=math.nan if mixed_s else spent(now, before, "forward"),
        )

    def _measured(self) -> SyncMetrics:
        """Return what the update took, and what travelled, since the last call."""
        before, self._before = self._before, self._parts.sync.meter.total()
        return self._before.since(before)

    def _mfu(self, totals: Totals, step_s: float) -> float | None:
        """Return the share of the devices' peak rate; ``None`` where some rank has no peak."""
        peak = totals.peak_flops
        if not 0 < peak < math.inf:
            return None
        return model_flops_use(totals.tokens / step_s, self._flops_per_token, 1, peak)

    def _told(self, *, update: bool) -> RankSeconds:
        """Return what is passed on of this rank's time: means over steps gathered for an update."""
        passed = self._passed()
        now = replace(
            self.seconds, data=passed.data, compute=passed.compute, forward=passed.forward
        )
        self._gathered.append(now)
        if not update:
            return now
        gathered, self._gathered = self._gathered, []
        columns = zip(*map(astuple, gathered), strict=True)
        return RankSeconds(*(sum(column) / len(gathered) for column in columns))

    def _over_site(self, loss_sum: float, tokens: float, seconds: RankSeconds) -> tuple[float, ...]:
        """Return this site's numbers out of those of its ranks."""
        place = self._parts.run.place
        own = Totals(
            loss_sum=loss_sum,
            tokens=tokens,
            stop_wishes=float(self._parts.run.is_asked_to_stop()),
            within_bytes=self._within.lap(),
            between_bytes=float(self._sent_lap()),
            peak_flops=self._parts.peak_flops,
        )
        numbers = riders.pack(own, place.number, len(place.sites), seconds)
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
                forward_s=mean.forward if math.isfinite(mean.forward) else None,
                optimizer_s=mean.optimizer,
                between_site_hidden_s=mean.between_hidden,
                step_s=mean.step,
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
        step = min(sync.steps + self._recipe.sync.stride, training.steps)
        for group in self._parts.optimizer.param_groups:
            group["lr"] = learning_rate(training, step)


def _poisoned(step: int, loss: float, norm: float) -> PoisonedError:
    return PoisonedError(
        f"the loss of step {step} is {loss:g} and the norm of its gradient {norm:g}",
        "lower optimizer.learning_rate or optimizer.clip_norm, and start again: no "
        "checkpoint was made of this state",
    )
