"""The end of a run: how well the model does on text that was held out, and what it all came to."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from gridloom.model.recipe import GptRecipe
from gridloom.planner.collective import bucket_bytes, bytes_per_step
from gridloom.planner.shape import parameter_count, step_flops
from gridloom.runtime.corpus import Corpus
from gridloom.runtime.evaluate import (
    bigram_bits_per_byte,
    bits_per_byte,
    held_out_windows,
    site_nats,
)
from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.records import (
    ByteCount,
    Result,
    ResultBytes,
    ResultMemory,
    first_and_last_loss,
    write_result,
)
from gridloom.runtime.run import Run
from gridloom.runtime.wan.methods import last_passes


@dataclass(frozen=True)
class Ended:
    """What one rank knows of the training that has ended.

    Attributes:
        resumed: Training step that it began after.
        exchange_bytes: Of all payloads with which a site once offers its whole model or gradient.
        within_bytes: Sent inside sites, as far as known; ``None`` where not measured.
        between_bytes: Between sites, as this site has sent and received them.
        peak_bytes: Most memory that this rank held.
        before_model_bytes: What it held before the model.
        train_s: Seconds of training, checkpoints included.
        device_flops: Peak rate of this rank's device, in flop/s; NaN where nobody wants to know.
    """

    resumed: int
    exchange_bytes: int
    within_bytes: int | None
    between_bytes: int
    peak_bytes: int
    before_model_bytes: int
    train_s: float
    device_flops: float


def conclude(
    run: Run, recipe: GptRecipe, attempt: int, trained: tuple[SiteModel, Corpus], ended: Ended
) -> bool:
    """Evaluate on all ranks of the site, and write the result.

    Args:
        run: This process's part.
        recipe: What was trained.
        attempt: Which try of the job this is.
        trained: The model and its text.
        ended: How the training ended.

    Returns:
        Whether it is all done: a stop on the way costs an evaluation, and no more.
    """
    model, corpus = trained
    start_s, training = run.clock.monotonic_s(), recipe.training
    windows = held_out_windows(corpus.held_out, training.sequence_length)
    copies = sum(size // recipe.plan.replica_ranks for size in run.place.site_sizes)
    # a pipeline takes batches as it was trained with
    batch = training.global_batch // copies if recipe.plan.pipeline > 1 else 0
    nats = site_nats(model, windows, batch, run.should_stop)
    memory = _most((ended.peak_bytes, ended.before_model_bytes), run)
    if run.should_stop():
        return False
    if run.place.is_first:
        losses = first_and_last_loss(Path(run.place.run_dir))
        result = Result(
            attempt=attempt,
            steps=training.steps,
            loss_first=losses[0] if losses else None,
            loss_last=losses[1] if losses else None,
            bits_per_byte=bits_per_byte(nats, corpus.held_out),
            bigram_bits_per_byte=bigram_bits_per_byte(corpus.train, corpus.held_out),
            held_out_files=len(corpus.held_out),
            held_out_bytes=sum(map(len, corpus.held_out)),
            parameters=parameter_count(recipe.shape),
            tokens=training.steps * training.global_batch * training.sequence_length,
            bytes=_traffic(run, recipe, ended),
            memory=ResultMemory(
                peak_bytes_per_rank=memory[0], before_model_bytes_per_rank=memory[1]
            ),
            train_s=ended.train_s,
            evaluate_s=run.clock.monotonic_s() - start_s,
            ranks=sum(run.place.site_sizes),
            sites=run.place.ranks_by_site,
            flops_per_token=step_flops(recipe.shape, 1, training.sequence_length),
            device_flops=ended.device_flops if math.isfinite(ended.device_flops) else None,
        )
        write_result(Path(run.place.run_dir), result)
    return True


def _traffic(run: Run, recipe: GptRecipe, ended: Ended) -> ResultBytes:
    """Return what was sent beside what follows from the shape, the cut and the sync alone."""
    sizes, sync, plan = run.place.site_sizes, recipe.sync, recipe.plan
    steps = recipe.training.steps - ended.resumed
    updates = -(-steps // sync.stride)
    within: int | None = None
    if sync.kind != "outer" and plan.replica_ranks == plan.expert == 1 and not plan.zero:
        bucket = bucket_bytes(parameter_count(recipe.shape), len(sizes))
        within = bytes_per_step(bucket, sizes).within_sites * updates
    exchanges: float | None = updates
    if sync.kind == "outer":  # the last passes bring all sites to one model
        exchanges = steps / sync.every + last_passes(sync) if sync.every else None
    between = None
    if exchanges is not None:
        between = round(2 * (len(sizes) - 1) * ended.exchange_bytes * exchanges)
    return ResultBytes(
        steps=steps,
        within_sites=ByteCount(predicted=within, measured=ended.within_bytes),
        between_sites=ByteCount(predicted=between, measured=ended.between_bytes),
    )


def _most(numbers: tuple[int, ...], run: Run) -> tuple[int, ...]:
    """Return the largest of each number over the ranks of the site."""
    if run.place.size == 1:
        return numbers
    largest = torch.tensor(numbers)
    with peers_guarded():
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return tuple(largest.tolist())
