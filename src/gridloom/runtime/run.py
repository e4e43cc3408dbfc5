"""One process of a training: where it stands, whom it reports to, and whether it should stop."""

import contextlib
import signal
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError
from gridloom.runtime.accelerator import backend_for, local_device
from gridloom.runtime.failure import (
    PeerLostError,
    PoisonedError,
    RuntimeFailureError,
    StorageError,
    peers_guarded,
)
from gridloom.runtime.place import Place
from gridloom.runtime.records import append_line
from gridloom.wire.launch import (
    EXIT_CONFIG,
    EXIT_IO,
    EXIT_PEER_LOST,
    EXIT_POISONED,
    AnyLine,
    Failure,
    Ready,
    StepDone,
)

TIMEOUT_S = 300.0
"""How long a collective inside the site waits for a silent rank."""


class StopWish:
    """Remembers that this process was asked to stop."""

    def __init__(self) -> None:
        self._wished = False

    def __call__(self) -> bool:
        """Return whether it was."""
        return self._wished

    def listen(self) -> None:
        """Take SIGTERM and SIGUSR1 as the request."""
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGUSR1, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._wished = True


class Run:
    """This process's part of a training.

    Attributes:
        place: Where it stands.
        device: Where it computes.
        clock: The time.
        independent_sites: The sites go on without one that is lost, and let it in again.
    """

    def __init__(self, place: Place, clock: Clock, stop: StopWish) -> None:
        """Join the process group of the own site, if it has more than one rank.

        Raises:
            PeerLostError: The other ranks of the site did not come.
        """
        self.place, self.clock = place, clock
        self.device = local_device(place.local_rank)
        self.independent_sites = False
        self._stop = stop
        self._is_reported = False
        self._has_met = False
        self._ready: Ready | None = None
        if place.size > 1 and not dist.is_initialized():
            self._join_site()

    def is_asked_to_stop(self) -> bool:
        """Return whether this very process was asked to stop."""
        return self._stop()

    def should_stop(self) -> bool:
        """Return whether any rank of the site was asked to stop; all ranks get the same answer.

        All ranks of the site must call it, as a collective.
        """
        if self.place.size == 1:
            return self._stop()
        wish = torch.tensor([float(self._stop())])
        with peers_guarded():
            dist.all_reduce(wish, dist.ReduceOp.MAX)
        return bool(wish.item())

    def begin(self, resumed_step: int, notes: tuple[str, ...]) -> None:
        """Tell the agent that training begins: where, and what a person should know of that.

        Where sites are independent it is told once they have ``met``.
        """
        independent = self.independent_sites
        self._ready = Ready(resumed_step=resumed_step, notes=notes, independent_sites=independent)
        if self._has_met or not independent:
            self._tell_ready()

    def met(self) -> None:
        """Note that the sites have met, and this one has what the others have."""
        self._has_met = True
        self._tell_ready()

    def report(self, step: int, loss: float | None, tokens_per_s: float | None) -> None:
        """Tell the agent that a training step is over; the first call says that training runs."""
        if not self._is_reported and self._ready is None:
            independent = self.independent_sites
            self._ready = Ready(resumed_step=step - 1, independent_sites=independent)
        self._tell_ready()
        self.tell(StepDone(step=step, loss=loss, tokens_per_s=tokens_per_s))

    def tell(self, line: AnyLine) -> None:
        """Write a report line, once a node; nowhere outside of gridloom."""
        self._is_reported = True
        if self.place.report_file and self.place.local_rank == 0:
            append_line(Path(self.place.report_file), line)

    def fail(self, error: BaseException) -> int:
        """Tell the agent why this process gives up, in its words; return the exit code for it."""
        message, remedy, code = str(error) or type(error).__name__, "see the rank's log", 1
        match error:
            case PeerLostError():
                return EXIT_PEER_LOST  # a victim: the cause speaks for itself
            case StorageError():
                remedy, code = error.remedy, EXIT_IO
            case PoisonedError():
                remedy, code = error.remedy, EXIT_POISONED
            case RuntimeFailureError():
                remedy = error.remedy
            case InputError():
                remedy, code = "", EXIT_CONFIG
            case OSError():
                remedy, code = "", EXIT_IO
            case _:
                message = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # the disk may be what is full
            self.tell(Failure(message=message, remedy=remedy))
        return code

    def close(self) -> None:
        """Leave the process group of the site."""
        if self.place.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def _tell_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            self.tell(ready)

    def _join_site(self) -> None:
        place, timeout = self.place, timedelta(seconds=TIMEOUT_S)
        with peers_guarded():
            host, port = place.store
            store = TCPStore(host, port, place.size, place.rank == 0, timeout)
            dist.init_process_group(
                backend_for(self.device),
                store=store,
                rank=place.rank,
                world_size=place.size,
                timeout=timeout,
            )
