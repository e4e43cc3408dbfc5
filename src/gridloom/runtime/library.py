"""What a training loop of one's own calls: the same on one process, one site or many."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Unpack

import torch
from torch import nn

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.runtime.inside import parallelize as inside
from gridloom.runtime.inside.axes import Axes
from gridloom.runtime.inside.site_model import SiteModel
from gridloom.runtime.keeper import Keeper, KeepPolicy
from gridloom.runtime.loader import DataOptions, Loader, Share
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.sync import Sync, SyncOptions

_RUNS: list[Run] = []


def init() -> Run:
    """Find out where this process stands, and join the other ranks of its site.

    Reads the launch contract (under gridloom), torchrun's variables, or nothing: one process. A
    second call returns what the first did.
    """
    if not _RUNS:
        stop = StopWish()
        place = place_in(os.environ)
        if place.job_id:
            stop.listen()
        run = Run(place, SystemClock(), stop)
        if place.job_id:
            sys.excepthook = _told_to(run)
        _RUNS.append(run)
    return _RUNS[0]


def parallelize(model: nn.Module, plan: ParallelPlan | None = None) -> SiteModel:
    """Spread a module over the ranks of the site, in place, on their devices.

    All ranks begin with the parameters of the first. After the last ``backward`` of a training
    step, and before gradients are read, comes the result's ``finish()``.

    Args:
        model: Any module; the optimizer is built afterwards, over its parameters.
        plan: How; by default every rank has a copy, and gradients are averaged.

    Raises:
        InputError: The plan does not go with the site, or not with a module of one's own.
    """
    run = _run()
    plan = plan or ParallelPlan(data=run.place.size, precision="fp32")
    return inside.parallelize(model, Axes(plan, run.device))


def data(dataset: object, *, batch_size: int, **options: Unpack[DataOptions]) -> Loader:
    """Return this rank's batches of a dataset that all ranks of all sites share.

    Every sample is read once a pass, in an order that follows from the seed. A loop over the
    batches goes on where the last one ended, and where ``gl.checkpoint`` says, to the sample.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``: a map-style ``Dataset`` or a sequence.
        batch_size: Samples a rank takes at a time.
        **options: As ``DataOptions``: seed, shuffle, passes, collate, workers, drop_last, local.

    Raises:
        InputError: The dataset cannot be shared out, or a number cannot be.
    """
    place = _run().place
    share = Share(place.number * place.size + place.rank, len(place.sites) * place.size)
    if options.get("local", False):
        share = Share(place.rank, place.size)
    return Loader(dataset, batch_size, share, options)


def checkpoint(
    directory: str | Path,
    *,
    every: int = 0,
    keep: int = 2,
    asynchronous: bool = False,
    **parts: object,
) -> Keeper:
    """Return what saves and loads the parts of a training; all ranks of a site must call it.

    Args:
        directory: Where; each site has a directory with its name in it. Under gridloom a relative
            one is in the job's run directory.
        every: Training steps from one checkpoint to the next; 0 if ``due`` is not asked.
        keep: How many of the newest stay.
        asynchronous: Training goes on while they are written.
        **parts: What is kept, each under its name: whatever has ``state_dict`` and
            ``load_state_dict``, as models, optimizers, schedulers, and what ``gl.parallelize``,
            ``gl.sync`` and ``gl.data`` return.

    Raises:
        InputError: A part has no state, or another training uses the directory.
        StorageError: The directory cannot be used.
    """
    run = _run()
    policy = KeepPolicy(every, keep, asynchronous)
    return Keeper(run, Path(run.place.run_dir) / directory, policy, parts)


def sync(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    how: SiteSync | None = None,
    options: SyncOptions | None = None,
) -> Sync:
    """Return what makes the updates, with the other sites where there are any.

    Args:
        model: Its trainable parameters are exchanged; equal at all sites.
        optimizer: Over those parameters.
        how: What is exchanged, and how often; every step, whole, by default.
        options: Clipping, patience, and the connections' settings.
    """
    return Sync(_run(), model, optimizer, how or SiteSync(), options or SyncOptions())


def report(step: int, loss: float | None = None, tokens_per_s: float | None = None) -> None:
    """Tell gridloom that a training step is over: its number from 1, its loss, the speed."""
    _run().report(step, loss, tokens_per_s)


def should_stop() -> bool:
    """Return whether this training was asked to save and end; all ranks of a site must ask."""
    return _run().should_stop()


def _told_to(run: Run) -> Callable[..., None]:
    """Return what handles errors that nobody caught: they are told as the contract has it."""
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if not isinstance(error, KeyboardInterrupt):
            raise SystemExit(run.fail(error))

    return tell


def _run() -> Run:
    if not _RUNS:
        raise InputError("gl.init() comes first: it finds out where this process stands")
    return _RUNS[0]
