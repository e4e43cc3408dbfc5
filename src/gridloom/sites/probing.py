"""Follows a probe: by the files that it writes, and by what the engine says of its job."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.base.codec import decode
from gridloom.sites.probe import Probed
from gridloom.wire.probe import ANSWER_FILE, ANSWER_WAIT_S, SEEN_FILE, ProbeSeen

_LOOK_S = 0.1
_ASK_S = 1.0
"""Between two questions to the engine."""
_LATE_S = 3.0
"""How long what an ended probe wrote may take to be seen here."""


class ProbePlace(Protocol):
    """Where a probe writes, and is answered."""

    def make(self) -> None:
        """Make it."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return what is in a file; nothing when it is not there, or cannot be read now."""
        ...

    def touch(self, name: str) -> None:
        """Make an empty file."""
        ...

    def clear(self) -> None:
        """Remove it, as far as that is possible."""
        ...


class OwnPlace:
    """A directory of ours that the node should see, too (plays ``ProbePlace``)."""

    def __init__(self, directory: Path) -> None:
        """Take a directory that is not there yet."""
        self._directory = directory

    def make(self) -> None:
        """As the protocol says; raise ``OSError`` when it cannot be made."""
        self._directory.mkdir(parents=True)

    def read(self, name: str) -> bytes | None:
        """As the protocol says."""
        try:
            return (self._directory / name).read_bytes()
        except OSError:
            return None

    def touch(self, name: str) -> None:
        """As the protocol says."""
        (self._directory / name).touch()

    def clear(self) -> None:
        """As the protocol says."""
        shutil.rmtree(self._directory, ignore_errors=True)


class ProbeJob(Protocol):
    """The probe as its engine sees it."""

    def look(self) -> None:
        """Ask the engine; what it does not tell now stays as it was."""
        ...

    def is_over(self) -> bool:
        """Return whether, at the last look, it had ended or could never start."""
        ...

    def has_run(self) -> bool:
        """Return whether anything of it may have run."""
        ...

    def started_s(self) -> float | None:
        """Return when it started, as far as that is told."""
        ...

    def told(self, probed: Probed) -> Probed:
        """Return why it has said nothing."""
        ...


def follow(
    job: ProbeJob, place: ProbePlace, probed: Probed, *, timeout_s: float, clock: Clock
) -> Probed:
    """Wait for a probe's report, answer it, and wait until that is heard.

    Args:
        job: The probe, handed in.
        place: Where it writes.
        probed: What is known of it.
        timeout_s: How long to wait for the report.
        clock: Ours.
    """

    def seen() -> ProbeSeen | None:
        try:
            return decode(place.read(SEEN_FILE) or b"", ProbeSeen)
        except msgspec.MsgspecError:
            return None

    def has_heard() -> bool:
        said = seen()
        return said is not None and said.heard_s is not None

    def wait(met: Callable[[], bool], within_s: float) -> None:
        until_s = clock.monotonic_s() + within_s
        asked_s = clock.monotonic_s()
        while not met() and clock.monotonic_s() < until_s:
            clock.sleep(_LOOK_S)
            if clock.monotonic_s() - asked_s >= _ASK_S:
                asked_s = clock.monotonic_s()
                job.look()

    wait(lambda: seen() is not None or job.is_over(), timeout_s)
    if seen() is None and job.is_over() and job.has_run():
        wait(lambda: seen() is not None, _LATE_S)
    if seen() is None:
        job.look()
        return job.told(probed)
    spoke_s = clock.now_s()
    place.touch(ANSWER_FILE)
    answered_s = clock.now_s()
    wait(has_heard, ANSWER_WAIT_S)
    heard_s = clock.now_s() if has_heard() else None
    job.look()
    return replace(
        probed,
        started_s=job.started_s(),
        spoke_s=spoke_s,
        answered_s=answered_s,
        heard_s=heard_s,
        seen=seen(),
    )
