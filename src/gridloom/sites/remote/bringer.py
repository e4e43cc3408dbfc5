"""Brings here what a job has saved at sites that see nothing of ours, when it goes on elsewhere."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.base.files import cause_of
from gridloom.sites.remote.checkpoints import (
    Saved,
    directory_of,
    fetch,
    newest_here,
    newest_there,
    roots_here,
    roots_there,
)
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.places import Places
from gridloom.sites.remote.progress import Sending

_AGAIN_S = 5.0
PATIENCE_S = 600.0
"""How long a job waits for a checkpoint that cannot be fetched. Then it goes on from one here."""


@dataclass(frozen=True)
class FarShelf:
    """Where a job has been that sees nothing of ours.

    Attributes:
        site: Its name.
        host: Returns its login host.
        to: Where everything of the job is there.
        is_fetched: Whether its checkpoints are to come here.
    """

    site: str
    host: Callable[[], Host]
    to: Places
    is_fetched: bool


class _Job:
    def __init__(self) -> None:
        self.progress = Sending("")
        self.future: Future[None] | None = None
        self.tried_s = -_AGAIN_S
        self.trouble = ""
        self.failing_s: float | None = None


class Bringer:
    """Fetches checkpoints, each job's in a thread of its own."""

    def __init__(self, clock: Clock, executor: Executor) -> None:
        """Fetch nothing yet."""
        self._clock, self._executor = clock, executor
        self._jobs: dict[tuple[str, int], _Job] = {}

    def bring(
        self, run_dir: Path, attempt: int, sites: Sequence[str], shelves: Sequence[FarShelf]
    ) -> str:
        """Begin, or go on; return what an attempt waits for, nothing when it may begin.

        Args:
            run_dir: Of its job.
            attempt: Its number.
            sites: Where it is to run.
            shelves: Where the job has been.
        """
        if all(one.site in sites or not one.is_fetched for one in shelves):
            return ""
        key, now_s = (run_dir.name, attempt), self._clock.monotonic_s()
        one = self._jobs.setdefault(key, _Job())
        if one.future is not None and one.future.done():
            one.trouble, one.future = _trouble(one.future), None
            if one.failing_s is None or one.progress.has_begun:
                one.failing_s = now_s
            if not one.trouble or now_s - one.failing_s >= PATIENCE_S:
                del self._jobs[key]
                return ""
        if one.future is None and now_s - one.tried_s >= _AGAIN_S:
            one.tried_s, one.progress = now_s, Sending("what it has saved elsewhere is looked for")
            one.future = self._executor.submit(self._bring, run_dir, sites, shelves, one.progress)
        if one.trouble and not one.progress.has_begun:
            return f"what it has saved cannot be fetched: {one.trouble}"
        return one.progress.sentence()

    def _bring(
        self,
        run_dir: Path,
        sites: Sequence[str],
        shelves: Sequence[FarShelf],
        progress: Sending,
    ) -> None:
        kept = directory_of(run_dir)
        here = newest_here(roots_here(run_dir, kept))
        known = here.step if here is not None else 0
        best: tuple[Saved, FarShelf] | None = None
        for shelf in shelves:
            if shelf.site not in sites and not shelf.is_fetched:
                continue
            found = _newest(shelf, run_dir, kept)
            if found is not None and found.step > known:
                known, best = found.step, (found, shelf)
        if best is None or best[1].site in sites:
            return
        saved, shelf = best
        target = _target(saved, sites, [one.site for one in shelves])
        root = Path(kept) if kept else run_dir / saved.root
        what = f"its checkpoint of training step {saved.step} is fetched from {shelf.site}"
        progress.begin(saved.bytes, what)
        fetch(shelf.host().bulk, saved, root / target, progress)


def _trouble(future: Future[None]) -> str:
    """Return why something could not be fetched; empty if it could."""
    try:
        future.result()
    except SiteError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or 'a file here'}: {cause_of(error)}"
    return ""


def _newest(shelf: FarShelf, run_dir: Path, kept: str) -> Saved | None:
    files, to = shelf.host().files, shelf.to
    roots = roots_there(files, f"{to.runs_there}/{run_dir.name}", to.there(kept))
    return newest_there(files, roots, [shelf.site])


def _target(saved: Saved, sites: Sequence[str], far: Collection[str]) -> str:
    """Return which site's a checkpoint is to be: of one that looks here, if there is one.

    A site prefers what it has saved itself, however old that is.
    """
    return next((site for site in sites if site not in far), saved.site)
