"""The beginning of a training loop of one's own, and what it says on its way."""

import os
import sys
from collections.abc import Callable
from types import TracebackType

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.runtime.place import place_in
from gridloom.runtime.run import Run, StopWish

_RUNS: list[Run] = []
_WRITERS: list[Callable[[int, float | None, float | None], None]] = []


def init(*, own_world: bool = False) -> Run:
    """Find out where this process stands, and join the other ranks of its site.

    Reads the launch contract (under gridloom), torchrun's variables, or nothing: one process. A
    second call returns what the first did.

    Args:
        own_world: Have torchrun's variables speak of this site from now on, not of the whole job:
            for libraries that build a process group of what they read there, as Accelerate and
            Lightning do. Comes before they start.
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
    if own_world:
        for name, value in _RUNS[0].place.torchrun().items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return _RUNS[0]


def report(step: int, loss: float | None = None, tokens_per_s: float | None = None) -> None:
    """Tell gridloom that a training step is over: its number from 1, its loss, the speed.

    The first rank of each site also writes a row of metrics to the job's run directory: what the
    update of the newest `gl.sync` took, what travelled between sites behind the training or was
    waited for, the bytes of each link. Without a `gl.sync` it does not.
    """
    current().report(step, loss, tokens_per_s)
    for write in _WRITERS:
        write(step, loss, tokens_per_s)


def on_report(write: Callable[[int, float | None, float | None], None]) -> None:
    """Have the row of a training step written by this, and by nobody who was told before."""
    _WRITERS[:] = [write]


def should_stop() -> bool:
    """Return whether this training was asked to save and end; all ranks of a site must ask."""
    return current().should_stop()


def _told_to(run: Run) -> Callable[..., None]:
    """Return what handles errors that nobody caught: they are told as the contract has it."""
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if not isinstance(error, KeyboardInterrupt):
            raise SystemExit(run.fail(error))

    return tell


def current() -> Run:
    """Return what ``init`` has found out about this process."""
    if not _RUNS:
        raise InputError("gl.init() comes first: it finds out where this process stands")
    return _RUNS[0]
