"""A run of one rank from start to end: set up, resume, train, save, evaluate, tell."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptRecipe
from gridloom.planner.collective import bytes_per_step
from gridloom.runtime.collective import FLOAT_BYTES
from gridloom.runtime.corpus import Sampler, load_corpus
from gridloom.runtime.evaluate import bigram_bits_per_byte, bits_per_byte, held_out_windows, nats
from gridloom.runtime.flat import FlatModel
from gridloom.runtime.gpt import Gpt, check_shape
from gridloom.runtime.memory import peak_bytes, reset_peak, resident_bytes
from gridloom.runtime.mesh import Mesh
from gridloom.runtime.records import (
    METRICS_FILE,
    ByteCount,
    Result,
    ResultBytes,
    ResultMemory,
    StepMetrics,
    append_line,
    first_and_last_loss,
    write_result,
)
from gridloom.runtime.save import Saver
from gridloom.runtime.schedule import check_recipe
from gridloom.runtime.step import Parts, Stepper, autocast
from gridloom.runtime.tail import tail_length
from gridloom.wire.launch import (
    EXIT_DONE,
    EXIT_STOPPED,
    AnyLine,
    CheckpointDone,
    Rank,
    Ready,
    StepDone,
)


class _Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank adds to the result."""

    within_bytes: int | None
    between_bytes: int | None
    peak_bytes: int
    before_model_bytes: int
    nats: float
    stopped: bool


class Trainer:
    """One rank of a run."""

    def __init__(
        self, rank: Rank, recipe: GptRecipe, mesh: Mesh, clock: Clock, stop: Callable[[], bool]
    ) -> None:
        self._rank, self._recipe, self._mesh, self._clock = rank, recipe, mesh, clock
        self._stop = stop
        check_recipe(recipe)
        check_shape(recipe.shape)
        training = recipe.training
        self._corpus = load_corpus(recipe.data)
        self._check_same_data()
        sampler = Sampler(self._corpus.train, training.sequence_length, training.seed)
        self._before_model_bytes = resident_bytes()
        model = Gpt(recipe.shape, training.seed).to(mesh.device)
        self._flat = FlatModel(model, training, tail_length(len(rank.site_ranks)))
        self._parts = Parts(mesh, clock, model, self._flat, sampler)
        self._stepper = Stepper(rank, training, self._parts)
        self._saver = Saver(mesh, recipe, rank, self._corpus.fingerprint)

    def run(self) -> int:
        """Train from the newest checkpoint to the end and evaluate; return the exit code.

        Raises:
            GridloomError: As ``failure`` draws it, or ``InputError``.
            OSError: The run directory cannot be written.
        """
        resumed, notes = self._saver.resume(self._flat)
        self._report(Ready(resumed_step=resumed, notes=notes))
        start_s = self._clock.monotonic_s()
        reset_peak()  # reading the corpus took more for a moment than training will
        for step in range(resumed + 1, self._recipe.training.steps + 1):
            if self._train_step(step):
                return EXIT_STOPPED
        return self._finish(resumed, self._clock.monotonic_s() - start_s)

    def _check_same_data(self) -> None:
        """Raise ``InputError`` if ranks at two sites would train on different texts."""
        fingerprints = self._mesh.gather(self._corpus.fingerprint)
        if len(set(fingerprints)) > 1:
            other = next(i for i, found in enumerate(fingerprints) if found != fingerprints[0])
            problem = Problem(
                f"rank {other} reads other text than rank 0",
                remedy="give every site the same files (for python-stdlib, the same Python)",
                field="data.text",
            )
            raise InputError([problem])

    def _train_step(self, step: int) -> bool:
        """Do one step and what follows it; return whether to stop after it."""
        metrics, stopping = self._stepper.run(step, stop_wished=self._stop())
        self._report(StepDone(step=step, loss=metrics.loss, tokens_per_s=metrics.tokens_per_s))
        last = step == self._recipe.training.steps
        if stopping or last or step % self._recipe.checkpoint.interval_steps == 0:
            start_s = self._clock.monotonic_s()
            path = self._saver.save(self._flat, step)
            spent_s = self._clock.monotonic_s() - start_s
            self._stepper.seconds.checkpoint = spent_s
            metrics = msgspec.structs.replace(metrics, checkpoint_s=spent_s)
            self._report(CheckpointDone(step=step, path=str(path)))
        self._record(metrics)
        return stopping

    def _finish(self, resumed: int, train_s: float) -> int:
        """Evaluate over all ranks; rank 0 writes the result."""
        start_s = self._clock.monotonic_s()
        peak = peak_bytes(self._mesh.device)  # of training; evaluation follows
        total = self._mesh.gather(self._measure(peak))
        if any(one.stopped for one in total):
            return EXIT_STOPPED  # the last checkpoint is there; what is lost is an evaluation
        if self._rank.rank == 0:
            write_result(
                Path(self._rank.run_dir),
                self._result(total, resumed, (train_s, self._clock.monotonic_s() - start_s)),
            )
        return EXIT_DONE

    def _measure(self, peak: int) -> _Measures:
        """Evaluate this rank's share of the held-out windows, and read its counters."""
        training, rank = self._recipe.training, self._rank
        windows = held_out_windows(self._corpus.held_out, training.sequence_length)
        count = len(windows.inputs)
        share = slice(
            rank.rank * count // rank.world_size, (rank.rank + 1) * count // rank.world_size
        )
        with autocast(self._mesh.device, training.precision):
            spent = nats(self._parts.model, windows, share, self._stop)
        return _Measures(
            within_bytes=self._stepper.within.total(),
            between_bytes=self._stepper.between.total(),
            peak_bytes=peak,
            before_model_bytes=self._before_model_bytes,
            nats=spent,
            stopped=self._stop(),
        )

    def _result(self, ranks: list[_Measures], resumed: int, seconds: tuple[float, float]) -> Result:
        training, corpus = self._recipe.training, self._corpus
        steps = training.steps - min(resumed, training.steps)
        predicted = bytes_per_step(
            self._flat.bucket.numel() * FLOAT_BYTES, [n for _, n in self._rank.site_ranks]
        )
        losses = first_and_last_loss(Path(self._rank.run_dir))
        return Result(
            attempt=self._rank.attempt,
            steps=training.steps,
            loss_first=losses[0] if losses else None,
            loss_last=losses[1] if losses else None,
            bits_per_byte=bits_per_byte(sum(one.nats for one in ranks), corpus.held_out),
            bigram_bits_per_byte=bigram_bits_per_byte(corpus.train, corpus.held_out),
            held_out_files=len(corpus.held_out),
            held_out_bytes=sum(map(len, corpus.held_out)),
            parameters=self._flat.parameters,
            tokens=training.steps * training.global_batch * training.sequence_length,
            bytes=ResultBytes(
                steps=steps,
                within_sites=ByteCount(
                    predicted=predicted.within_sites * steps,
                    measured=_sum([one.within_bytes for one in ranks]),
                ),
                between_sites=ByteCount(
                    predicted=predicted.between_sites * steps,
                    measured=_sum([one.between_bytes for one in ranks]),
                ),
            ),
            memory=ResultMemory(
                peak_bytes_per_rank=max(one.peak_bytes for one in ranks),
                before_model_bytes_per_rank=max(one.before_model_bytes for one in ranks),
            ),
            train_s=seconds[0],
            evaluate_s=seconds[1],
            ranks=self._rank.world_size,
            sites=dict(self._rank.site_ranks),
        )

    def _report(self, line: AnyLine) -> None:
        """Tell the agent, once a node."""
        if self._rank.local_rank == 0:
            append_line(Path(self._rank.report_file), line)

    def _record(self, metrics: StepMetrics) -> None:
        if self._rank.rank == 0:
            append_line(Path(self._rank.run_dir) / METRICS_FILE, metrics)


def _sum(counts: list[int | None]) -> int | None:
    """Return the sum, or ``None`` when some rank could not count."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
