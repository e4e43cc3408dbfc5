"""A run of one rank from start to end: set up, resume, train, save, evaluate, tell."""

import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from gridloom.base.codec import encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import GptRecipe
from gridloom.runtime import riders
from gridloom.runtime.conclude import Ended, conclude
from gridloom.runtime.corpus import Sampler, load_corpus
from gridloom.runtime.failure import PeerLostError, is_of_lost_peer, peers_guarded
from gridloom.runtime.gpt import check_shape
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.parallelize import parallelize_gpt
from gridloom.runtime.memory import peak_bytes, reset_peak, resident_bytes
from gridloom.runtime.peak import peak_flops
from gridloom.runtime.records import StepMetrics, append_line, metrics_file
from gridloom.runtime.run import Run
from gridloom.runtime.save import keeper
from gridloom.runtime.schedule import check_recipe
from gridloom.runtime.shares import Shares
from gridloom.runtime.step import Parts, Stepper
from gridloom.runtime.traffic import Meter, open_sockets
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.runtime.wan.rounds import RoundPolicy
from gridloom.wire.launch import EXIT_DONE, EXIT_STOPPED, Ready, StepDone

_PATIENCE_S = 240.0
"""How long sites that exchange gradients wait for one in contact. It must outlast the longest
honest wait: a site that starts late, or writes a checkpoint to a slow disk."""

_ABSENCE_S = 30.0
"""How long they wait for one that was lost, before they go on without it."""

_ROUND_PATIENCE_S = 60.0
"""How long a round of sites that exchange weights waits; nobody trains less for it."""

_BUCKET_BYTES = 25 * 2**20
"""Gradients that are sent together behind the backward (Li et al. 2020, section 5.3)."""

_LEAVE_S = 2.0
"""How long such a site, if it stops, stays in contact with those that go on."""


class Trainer:
    """One rank of a run."""

    def __init__(self, run: Run, recipe: GptRecipe, attempt: int) -> None:
        """Build everything; all ranks of all sites do so.

        Args:
            run: This process's part.
            recipe: What to train.
            attempt: Which try of the job this is.

        Raises:
            GridloomError: As ``failure`` draws it, or ``InputError``.
        """
        check_recipe(recipe)
        check_shape(recipe.shape)
        if recipe.sync == SiteSync():  # the planner may have chosen, once the sites were known
            recipe = msgspec.structs.replace(recipe, sync=run.place.sync)
        if recipe.plan == ParallelPlan():  # it goes with the devices that the attempt has got
            recipe = msgspec.structs.replace(recipe, plan=run.place.plan)
        self._run, self._recipe, self._attempt = run, recipe, attempt
        training, place = recipe.training, run.place
        self._corpus = load_corpus(recipe.data)
        sampler = Sampler(self._corpus.train, training.sequence_length, training.seed)
        self._shares = Shares(recipe.plan, place.site_sizes, place.number, training.global_batch)
        self._peak_flops = peak_flops(
            run.device, training.precision, run.clock, recipe.device_flops
        )
        self._before_model_bytes = resident_bytes()
        plan = msgspec.structs.replace(
            recipe.plan,
            data=self._shares.copies,
            precision=training.precision,
            micro_batch=training.micro_batch or recipe.plan.micro_batch,
        )
        axes = Axes(plan, run.device, recipe.shape)
        self._model = model = parallelize_gpt(recipe.shape, training.seed, axes)
        optimizer = model.optimize(training)
        within = Meter(_site_sockets(axes))
        with _ports_guarded():
            self._sync = Sync(run, model, optimizer, *self._method())
        self._keeper = keeper(run, recipe, self._corpus.fingerprint, model, self._sync)
        parts = Parts(run, model, optimizer, self._sync, sampler, self._shares, self._peak_flops)
        self._stepper = Stepper(recipe, attempt, parts, within)

    def run(self) -> int:
        """Train from the newest checkpoint to the end and evaluate; return the exit code.

        Raises:
            GridloomError: As ``failure`` draws it, or ``InputError``.
            OSError: The run directory cannot be written.
        """
        try:
            return self._run_through()
        except RuntimeError as error:
            if is_of_lost_peer(error):
                first_line = str(error).partition("\n")[0]
                raise PeerLostError(f"another rank went away: {first_line}") from error
            raise
        finally:
            self._sync.leave(0.0)  # has left by now, but for failures
            self._keeper.close()

    def _run_through(self) -> int:
        sync, steps = self._sync, self._recipe.training.steps
        resumed, notes = self._keeper.restore()
        sync.steps = resumed
        sync.meet()
        if self._run.should_stop():  # nothing is lost: training has not begun
            return EXIT_STOPPED
        if sync.steps != resumed:
            notes += (f"takes over training step {sync.steps} from another site",)
            resumed = sync.steps
        several = len(self._run.place.sites) > 1
        self._run.tell(Ready(resumed_step=resumed, notes=notes, independent_sites=several))
        start_s = self._run.clock.monotonic_s()
        reset_peak()  # reading the corpus took more for a moment than training will
        last: StepMetrics | None = None
        while sync.steps < steps:
            last, stopping = self._update()
            if stopping:
                self._save(last)
                sync.leave(_LEAVE_S if self._recipe.sync.kind == "outer" else _PATIENCE_S)
                return EXIT_STOPPED
        exchange_bytes = sync.exchange_bytes()
        sync.finish()
        between_bytes = sync.traffic_bytes
        if last is not None:
            self._save(self._stepper.complete(last))
        ended = Ended(
            resumed=min(resumed, steps),
            exchange_bytes=exchange_bytes,
            within_bytes=self._stepper.all_within_bytes(),
            between_bytes=between_bytes,
            peak_bytes=peak_bytes(self._run.device),  # of training; evaluation follows
            before_model_bytes=self._before_model_bytes,
            train_s=self._run.clock.monotonic_s() - start_s,
            device_flops=self._peak_flops,
        )
        if self._run.place.number > 0:
            return EXIT_DONE  # the first site evaluates the one model, and writes the result
        done = conclude(self._run, self._recipe, self._attempt, (self._model, self._corpus), ended)
        return EXIT_DONE if done else EXIT_STOPPED

    def _method(self) -> tuple[SiteSync, SyncOptions]:
        """Return what the sites exchange, and how."""
        recipe, sync = self._recipe, self._recipe.sync
        identity = encode((recipe.shape, recipe.training, self._corpus.fingerprint))
        outer = sync.kind == "outer"
        options = SyncOptions(
            clip_norm=recipe.training.clip_norm or math.inf,  # the norm is wanted in any case
            patience_s=_ROUND_PATIENCE_S if outer else _PATIENCE_S,
            # with a scale, gradients are not what is sent until the backward is over
            bucket_bytes=0 if recipe.training.precision == "fp16" else _BUCKET_BYTES,
            rounds=RoundPolicy(absence_s=0.0 if outer else _ABSENCE_S),
            identity=hashlib.sha256(identity).hexdigest(),
            riders=0 if outer else riders.count(len(self._run.place.sites)),
            stride=sync.stride,
        )
        if sync.kind == "accumulated":  # the steps that are gathered are none of the sync's
            sync = msgspec.structs.replace(sync, kind="every_step", every=1)
        return sync, options

    def _update(self) -> tuple[StepMetrics, bool]:
        """Do the training steps up to an update, and what follows it.

        Returns:
            The metrics of the last one, not recorded yet if it is the last of all or the training
            is to stop after it; and whether it is to stop.
        """
        steps, every = self._recipe.training.steps, self._recipe.checkpoint.interval_steps
        first = self._sync.steps + 1
        last = min(self._sync.steps + self._recipe.sync.stride, steps)
        together = range(first, last + 1)
        for step in together[:-1]:
            metrics, _ = self._stepper.run(step, together)
            self._tell(metrics)
            self._record(metrics)
        metrics, stopping = self._stepper.run(last, together)
        if self._recipe.sync.kind == "outer":
            stopping = self._run.should_stop()
        self._tell(metrics)
        for event in self._sync.events():
            sys.stderr.write(f"training step {metrics.step}: {event}\n")
        done = min(self._sync.steps, steps)
        if not stopping and done < steps:
            if done // every > (first - 1) // every:
                self._save(metrics)
            else:
                self._record(metrics)
        return metrics, stopping

    def _save(self, metrics: StepMetrics) -> None:
        """Make a checkpoint after a step, and record the step."""
        start_s = self._run.clock.monotonic_s()
        self._keeper.save(min(self._sync.steps, self._recipe.training.steps))
        spent_s = self._run.clock.monotonic_s() - start_s
        self._stepper.seconds.checkpoint = spent_s
        self._record(msgspec.structs.replace(metrics, checkpoint_s=spent_s))

    def _tell(self, metrics: StepMetrics) -> None:
        self._run.tell(
            StepDone(step=metrics.step, loss=metrics.loss, tokens_per_s=metrics.tokens_per_s)
        )

    def _record(self, metrics: StepMetrics) -> None:
        place = self._run.place
        if not place.is_first:
            return
        if place.number > 0 and self._recipe.sync.kind != "outer":
            return  # the first site's rows have the numbers of all
        append_line(Path(place.run_dir) / metrics_file(place.site, place.number), metrics)


@contextmanager
def _ports_guarded() -> Iterator[None]:
    """Let a port that somebody has taken meanwhile be no fault of the job's: it gets another."""
    try:
        yield
    except InputError as error:
        if any(problem.field == "listen" for problem in error.problems):
            raise PeerLostError(str(error)) from error
        raise


def _site_sockets(axes: Axes) -> frozenset[str]:
    """Let all groups of the site connect; return the connections, by the kernel's names."""
    if axes.world == 1:
        return frozenset()
    inner = (axes.tensor, axes.context, axes.pipeline, axes.replicate, axes.shard)
    axes_of_all = (*inner, axes.expert, axes.expert_data, axes.ends)
    with peers_guarded():
        dist.all_reduce(torch.zeros(1, device=axes.device))
        for axis in axes_of_all:
            if axis.group is not None:
                dist.all_reduce(torch.zeros(1, device=axes.device), group=axis.group)
    return frozenset(open_sockets())
