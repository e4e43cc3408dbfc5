"""Brings here what tasks there write: reports each second, the rest behind them, the end last."""

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from gridloom.base.errors import SiteError
from gridloom.base.files import replace_file
from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.errors import RemoteFileError
from gridloom.sites.remote.files import RemoteFiles, Status
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.watched import Watched, without_end

_EVERY_S = 1.0
"""Between two rounds, each for all tasks."""
_REPORTS_BYTES = 1 << 20
_LIVE_BYTES = 1 << 20
"""Of one file in one round while its task lives; when it has ended, all there is."""
_SMALL_BYTES = 256 << 10
"""What a round may bring over the connection by which leases go."""
_CHUNK_BYTES = 4 << 20
_PATIENCE_S = 60.0
"""How long an end waits for what its task wrote while the link is down."""


@dataclass
class _Task:
    names: Watched
    held: bytes = b""
    held_at: int = 0
    held_s: float = 0.0
    to_finish: bool = False
    is_done: bool = False

    @property
    def is_ending(self) -> bool:
        return not self.is_done and bool(self.held or self.to_finish)


class Listener:
    """Keeps files of tasks here as they are there."""

    def __init__(self, ends: Ends) -> None:
        """Bring nothing yet."""
        self._here, self._there, self._host = ends.here, ends.there, ends.host
        self._clock, self._executor = ends.clock, ends.executor
        self._tasks: dict[str, _Task] = {}
        self._owed: set[Watched] = set()
        self._whole: dict[str, Status] = {}
        self._hearing: Future[None] | None = None
        self._bringing: Future[None] | None = None
        self._began_s = -_EVERY_S
        self._turn = threading.Lock()

    def look(self, tasks: Collection[Watched]) -> None:
        """Begin the rounds that are due; never wait.

        Args:
            tasks: Whose files are wanted from now on.
        """
        self._tasks = {one.reports: self._tasks.get(one.reports) or _Task(one) for one in tasks}
        now_s = self._clock.monotonic_s()
        if (not self._tasks and not self._owed) or now_s - self._began_s < _EVERY_S:
            return
        self._began_s = now_s
        if _is_over(self._hearing):
            self._hearing = self._executor.submit(self._hear, [*self._tasks.values()])
        if _is_over(self._bringing):
            self._bringing = self._executor.submit(self._bring, [*self._tasks.values()])

    def is_bringing(self, names: Watched) -> bool:
        """Return whether the task has said that it has ended, and the rest is still on its way."""
        task = self._tasks.get(names.reports)
        return task is not None and bool(task.held)

    def finish(self, names: Watched) -> bool:
        """Return whether all is here of a task of which nothing is left there.

        What it has written is brought once more after the first such call.
        """
        task = self._tasks.setdefault(names.reports, _Task(names))
        task.to_finish = True
        return task.is_done

    # ----- what supervisors say

    def _hear(self, tasks: Iterable[_Task]) -> None:
        live = [task for task in tasks if not task.is_ending and not task.is_done]
        try:
            self._take_reports(live, self._host().files)
        except (SiteError, OSError):  # in a second it is tried again
            return

    def _take_reports(self, tasks: Iterable[_Task], files: RemoteFiles) -> bool:
        """Bring what supervisors have reported; return whether there is more of that."""
        more = False
        with self._turn:
            by_name = {task.names.reports: task for task in tasks if not task.held}
            grown = self._grown(by_name, files)
            if not grown:
                return False
            parts = [
                (self._path(name), have, min(size - have, _REPORTS_BYTES))
                for name, (have, size) in grown.items()
            ]
            for name, data in zip(grown, files.read(parts), strict=True):
                lines, end = without_end(data[: data.rfind(b"\n") + 1])
                have, size = grown[name]
                self._write(name, have, lines)
                more = more or bool(lines and not end and size - have > _REPORTS_BYTES)
                if end:
                    task = by_name[name]
                    task.held_s, task.held_at = self._clock.monotonic_s(), have + len(lines)
                    task.held = end
        return more

    # ----- what else they write

    def _bring(self, tasks: Iterable[_Task]) -> None:
        wanted = [task for task in tasks if not task.is_done]
        ending = [task for task in wanted if task.is_ending]
        try:
            host, owed = self._host(), [*self._owed]
            while self._take_reports(ending, host.files):
                continue
            self._bring_files([task.names for task in ending] + owed, host, whole=True)
            self._owed.difference_update(owed)
            for task in ending:
                self._end(task)
            live = [task.names for task in wanted if not task.is_ending and not task.is_done]
            self._bring_files(live, host, whole=False)
        except (SiteError, OSError):
            self._give_up(ending)

    def _give_up(self, tasks: Iterable[_Task]) -> None:
        """Let ends be known whose tasks' files do not come: others wait for them."""
        for task in tasks:
            if task.held and self._clock.monotonic_s() - task.held_s >= _PATIENCE_S:
                self._owed.add(task.names)
                self._end(task)

    def _end(self, task: _Task) -> None:
        with self._turn:
            name = task.names.reports
            self._write(name, task.held_at, task.held)
            task.held, task.is_done = b"", True

    def _bring_files(self, tasks: Iterable[Watched], host: Host, *, whole: bool) -> None:
        wanted = [*tasks]
        growing = dict.fromkeys(name for names in wanted for name in names.growing)
        grown = self._grown(growing, host.files)
        if not whole:
            grown = {name: (at, min(end, at + _LIVE_BYTES)) for name, (at, end) in grown.items()}
        is_small = sum(end - at for at, end in grown.values()) <= _SMALL_BYTES
        self._bring_growth(grown, host.files if is_small else host.bulk)
        for name in dict.fromkeys(name for names in wanted for name in names.replaced):
            self._bring_whole(name, host)

    def _bring_growth(self, grown: Mapping[str, tuple[int, int]], files: RemoteFiles) -> None:
        """Fetch parts of files, each from where it ends here; many small ones by one call."""
        left = dict(grown)
        while left:
            parts, total = dict[str, tuple[str, int, int]](), 0
            for name, (at, end) in left.items():
                if total < _CHUNK_BYTES:
                    size = min(end - at, _CHUNK_BYTES)
                    parts[name] = (self._path(name), at, size)
                    total += size
            for name, data in zip(parts, _read(files, [*parts.values()]), strict=True):
                at, end = left.pop(name)
                self._write(name, at, data)
                if data and at + len(data) < end:
                    left[name] = (at + len(data), end)

    def _bring_whole(self, name: str, host: Host) -> None:
        (status,) = host.files.statuses([self._path(name)])
        if status is None or status.kind != "file" or status == self._whole.get(name):
            return
        files = host.files if status.size <= _SMALL_BYTES else host.bulk
        (data,) = files.read([(self._path(name), 0, status.size)])
        replace_file(self._here / name, data)
        self._whole[name] = status

    def _grown(self, names: Iterable[str], files: RemoteFiles) -> dict[str, tuple[int, int]]:
        """Return of files that are longer there than here how long they are here and there."""
        listed = [*names]
        if not listed:
            return {}
        found = zip(listed, files.statuses([*map(self._path, listed)]), strict=True)
        sizes = {
            name: (self._size(name), status.size)
            for name, status in found
            if status is not None and status.kind == "file"
        }
        return {name: (here, there) for name, (here, there) in sizes.items() if there > here}

    def _size(self, name: str) -> int:
        try:
            return (self._here / name).stat().st_size
        except FileNotFoundError:
            return 0

    def _write(self, name: str, at: int, data: bytes) -> None:
        """Write where it stands there, so that whoever does it again does no harm."""
        if not data:
            return
        path = self._here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            while data:
                written = os.pwrite(descriptor, data, at)
                data, at = data[written:], at + written
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> str:
        return f"{self._there}/{name}"


def _read(files: RemoteFiles, parts: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """Return parts of files; of one that cannot be read, as by its permissions, nothing."""
    try:
        return files.read(parts)
    except RemoteFileError:
        if len(parts) == 1:
            return [b""]
        return [data for part in parts for data in _read(files, [part])]


def _is_over(round_: Future[None] | None) -> bool:
    """Return whether another round may begin; raise a fault of ours that ended the last one."""
    if round_ is None:
        return True
    if not round_.done():
        return False
    round_.result()
    return True
