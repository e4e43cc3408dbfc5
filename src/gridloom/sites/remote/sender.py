"""Brings there what the tasks of a gang need, before their site is asked to start them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path, PurePosixPath

from gridloom.base.clock import Clock
from gridloom.base.codec import decode, pretty
from gridloom.sites.remote import checkpoints
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.files import RemoteFiles, Status
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.places import Places, moved_recipe
from gridloom.sites.remote.progress import Sending
from gridloom.sites.remote.watched import Watched, relative, watched
from gridloom.sites.remote.workdir import copy, scan
from gridloom.wire.agent import (
    BATCH_FILE,
    GANG_FILE,
    LEASE_FILE,
    ORDER_FILE,
    RENDEZVOUS_FILE,
    STOP_FILE,
    Gang,
    TaskOrder,
)

SENT_FILE = "sent"
"""In a gang's directory here, as soon as all that its tasks need is there."""
_AGAIN_S = 2.0
_TAIL_BYTES = 64 << 10


class _Gang:
    def __init__(self, what: str) -> None:
        self.progress = Sending(what)
        self.future: Future[None] | None = None
        self.began_s = 0.0
        self.trouble = ""


class Sender:
    """Sends gangs, each in a thread of its own."""

    def __init__(
        self, here: Path, host: Callable[[], Host], clock: Clock, executor: Executor
    ) -> None:
        """Send nothing yet.

        Args:
            here: Directory of all run directories.
            host: Returns the login host.
            clock: For the pauses between tries.
            executor: Where gangs are sent.
        """
        self._here, self._host = here, host
        self._clock, self._executor = clock, executor
        self._gangs: dict[Path, _Gang] = {}
        self._copying: dict[str, threading.Lock] = {}

    def send(self, gang: Path, to: Places) -> str:
        """Begin to send a gang, or go on; return what it waits for, nothing when all is there.

        Args:
            gang: Its directory, in which ``gang.json`` and the orders of its tasks are named.
            to: Where everything is there.

        Raises:
            InputError: It is too much to send.
            SiteError: The other end will not have it.
            OSError: It cannot be read here.
        """
        if (gang / SENT_FILE).exists():
            self._gangs.pop(gang, None)
            return ""
        one = self._gangs.setdefault(gang, _Gang("its files are on their way"))
        if one.future is not None and one.future.done():
            future, one.future = one.future, None
            try:
                future.result()
            except LinkDownError as error:
                one.trouble = f"its files cannot be sent: {error}"
            else:
                return ""
        now_s = self._clock.monotonic_s()
        if one.future is None and (not one.trouble or now_s - one.began_s >= _AGAIN_S):
            one.began_s, one.progress = now_s, Sending("its files are on their way")
            one.future = self._executor.submit(self._send, gang, to, one.progress)
        return one.trouble or one.progress.sentence()

    def _send(self, gang: Path, to: Places, progress: Sending) -> None:
        host = self._host()
        names, orders = self._orders(gang, to)
        run_dir = str(PurePosixPath(names[0]).parts[0])
        host.files.make(self._directories(gang, names, orders, to))
        recipe = checkpoints.recipe_of(self._here / run_dir)
        if to.is_copied:
            self._copy_work(host.bulk, to, recipe.data.text if recipe else (), progress)
        contents = {
            f"{to.runs_there}/{name}/{ORDER_FILE}": self._here / name / ORDER_FILE for name in names
        }
        contents[self._there(gang / GANG_FILE, to)] = gang / GANG_FILE
        if orders[0].batch is not None:
            contents[f"{to.runs_there}/{run_dir}/{BATCH_FILE}"] = self._here / run_dir / BATCH_FILE
        for name in names:  # what they were told meanwhile
            paths = [self._here / name / file for file in (LEASE_FILE, STOP_FILE, RENDEZVOUS_FILE)]
            contents |= {self._there(path, to): path for path in paths if path.exists()}
        written = {there: path.read_bytes() for there, path in contents.items()}
        if recipe is not None:
            told = pretty(moved_recipe(recipe, to)).encode()
            written[f"{to.runs_there}/{run_dir}/{checkpoints.RECIPE_FILE}"] = told
        self._push(run_dir, orders[0], host, to, progress)
        host.files.write(written)
        self._continue(watched(orders[0], to.runs_there), host, to)
        (gang / SENT_FILE).touch()

    def _orders(self, gang: Path, to: Places) -> tuple[list[str], list[TaskOrder]]:
        """Return the directories of a gang's tasks, as names, and their orders."""
        told = decode((gang / GANG_FILE).read_bytes(), Gang)
        names = [relative(directory, to.runs_there) for directory in told.directories]
        files = [self._here / name / ORDER_FILE for name in names]
        return names, [decode(file.read_bytes(), TaskOrder) for file in files]

    def _directories(
        self, gang: Path, names: Sequence[str], orders: Sequence[TaskOrder], to: Places
    ) -> list[str]:
        written = [
            path
            for order in orders
            for rank in order.ranks
            for path in (rank.log_file, rank.rank.report_file)
        ]
        return [
            *(f"{to.runs_there}/{name}" for name in names),
            self._there(gang, to),
            *dict.fromkeys(str(PurePosixPath(path).parent) for path in written),
        ]

    def _push(
        self, run_dir: str, order: TaskOrder, host: Host, to: Places, progress: Sending
    ) -> None:
        """Bring there what the job has saved at sites that it leaves, if that is the newest."""
        rank, site = order.ranks[0].rank, order.task.site
        kept = checkpoints.directory_of(self._here / run_dir)
        roots = checkpoints.roots_here(self._here / run_dir, kept)
        saved = checkpoints.newest_here(roots, but=[one for one, _ in rank.site_ranks])
        if saved is None:
            return
        root = to.there(kept) if kept else f"{to.runs_there}/{run_dir}/{saved.root}"
        there = checkpoints.newest_there(host.files, [root], [site])
        if there is None or there.step < saved.step:
            what = f"its checkpoint of training step {saved.step} is on its way"
            progress.begin(saved.bytes, what)
            checkpoints.push(host.bulk, saved, f"{root}/{site}", progress)

    def _copy_work(
        self, files: RemoteFiles, to: Places, wanted: Sequence[str], progress: Sending
    ) -> None:
        with self._copying.setdefault(to.work_there, threading.Lock()):
            tree = scan(Path(to.work), [self._here.parent], wanted)
            progress.begin(sum(status.size for status in tree.files.values()))
            copy(files, Path(to.work), to.work_there, tree, progress)

    def _continue(self, names: Watched, host: Host, to: Places) -> None:
        """Let files that every attempt appends to begin there with what is in them here."""
        for name in names.growing:
            path = self._here / name
            have = path.stat().st_size if path.exists() else 0
            (status,) = host.files.statuses([f"{to.runs_there}/{name}"])
            if have and not self._continues(path, have, status, host, to):
                host.bulk.write({f"{to.runs_there}/{name}": path.read_bytes()})

    def _continues(
        self, path: Path, have: int, status: Status | None, host: Host, to: Places
    ) -> bool:
        """Return whether a file there begins with what is in it here, by the end of that."""
        if status is None or status.size < have:
            return False
        at = max(0, have - _TAIL_BYTES)
        with path.open("rb") as file:
            file.seek(at)
            ours = file.read(have - at)
        return host.files.read([(self._there(path, to), at, have - at)]) == [ours]

    def _there(self, path: Path, to: Places) -> str:
        return f"{to.runs_there}/{path.relative_to(self._here).as_posix()}"
