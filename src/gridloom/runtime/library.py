"""What a training loop of one's own calls: the same on one process, one site or many."""

import os

import torch
from torch import nn

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import SiteSync
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
        _RUNS.append(Run(place, SystemClock(), stop))
    return _RUNS[0]


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


def _run() -> Run:
    if not _RUNS:
        raise InputError("gl.init() comes first: it finds out where this process stands")
    return _RUNS[0]
