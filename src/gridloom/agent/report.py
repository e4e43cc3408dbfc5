"""What a supervisor says: numbered reports, appended to a file that the control plane reads."""

import os
from collections.abc import Callable
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.base.codec import encode
from gridloom.model.life import Arrival, Outcome
from gridloom.wire.launch import Ready
from gridloom.wire.reports import (
    Alive,
    AnyReport,
    Arrived,
    CheckpointSeen,
    Ended,
    ReadySeen,
    StepSeen,
)


class Reporter:
    """Appends reports of one task, so that a crash cuts at most the last.

    What a full disk will not take is kept and written before the next report, from the byte on at
    which it was cut.
    """

    def __init__(self, path: Path, epoch: int, clock: Clock) -> None:
        self._path = path
        self._epoch = epoch
        self._clock = clock
        self._seq = 0
        self._unwritten = b""

    def arrived(self, arrival: Arrival) -> None:
        """Say where the task has come up."""
        self._append(
            lambda seq, epoch, now_s: Arrived(seq=seq, epoch=epoch, now_s=now_s, arrival=arrival)
        )

    def alive(self) -> None:
        """Say that the processes run."""
        self._append(lambda seq, epoch, now_s: Alive(seq=seq, epoch=epoch, now_s=now_s))

    def ready(self, said: Ready) -> None:
        """Say that a rank is set up, and what it said of where it starts."""
        self._append(
            lambda seq, epoch, now_s: ReadySeen(
                seq=seq,
                epoch=epoch,
                now_s=now_s,
                resumed_step=said.resumed_step,
                notes=said.notes,
                independent_sites=said.independent_sites,
            )
        )

    def step(self, step: int) -> None:
        """Say that a rank has done this training step."""
        self._append(
            lambda seq, epoch, now_s: StepSeen(seq=seq, epoch=epoch, now_s=now_s, step=step)
        )

    def checkpoint(self, step: int) -> None:
        """Say that a rank has completed a checkpoint."""
        self._append(
            lambda seq, epoch, now_s: CheckpointSeen(seq=seq, epoch=epoch, now_s=now_s, step=step)
        )

    def ended(self, outcome: Outcome) -> None:
        """Say that no process of the task is left; `flush` tells whether that was written."""
        self._append(
            lambda seq, epoch, now_s: Ended(seq=seq, epoch=epoch, now_s=now_s, outcome=outcome)
        )

    def flush(self) -> bool:
        """Write what is not written yet; return whether every report is durable now."""
        return self._write(sync=True)

    def _append(self, make: Callable[[int, int, float], AnyReport]) -> None:
        self._seq += 1
        self._unwritten += encode(make(self._seq, self._epoch, self._clock.now_s())) + b"\n"
        self._write(sync=False)

    def _write(self, *, sync: bool) -> bool:
        try:
            with self._path.open("ab", buffering=0) as file:
                while self._unwritten:
                    self._unwritten = self._unwritten[file.write(self._unwritten) :]
                if sync:
                    os.fsync(file.fileno())
        except OSError:
            return False
        return True
