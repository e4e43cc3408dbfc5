"""The other end of a link: files of this machine, reached by nothing but calls."""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gridloom.sites.remote.errors import LinkDownError, RemoteError, RemoteFileError
from gridloom.sites.remote.files import Progress, Status, Upload
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.link import Done


class FakeFiles:
    """Plays `gridloom.sites.remote.files.RemoteFiles` with files of this machine."""

    def __init__(self) -> None:
        self.error: RemoteError | None = None
        self.denied: set[str] = set()
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda verb: None
        """Is called with each verb, before it is done."""

    def statuses(self, paths: Sequence[str]) -> list[Status | None]:
        self._begin("statuses", paths)
        return [_status(Path(path)) for path in paths]

    def entries(self, directories: Sequence[str]) -> list[dict[str, Status] | None]:
        self._begin("entries", directories)
        return [_entries(Path(path)) for path in directories]

    def read(self, parts: Sequence[tuple[str, int, int]]) -> list[bytes]:
        self._begin("read", [path for path, _, _ in parts])
        return [
            Path(path).read_bytes()[at : at + most] if Path(path).is_file() else b""
            for path, at, most in parts
        ]

    def write(self, contents: Mapping[str, bytes]) -> None:
        self._begin("write", contents)
        missing = [path for path in contents if not Path(path).parent.is_dir()]
        for path in contents.keys() - missing:
            Path(path).write_bytes(contents[path])
        if missing:
            raise RemoteFileError(f"{missing[0]} cannot be written: it is not there")

    def make(self, directories: Iterable[str]) -> None:
        wanted = [*directories]
        self._begin("make", wanted)
        for path in wanted:
            Path(path).mkdir(parents=True, exist_ok=True)

    def upload(self, files: Sequence[Upload], progress: Progress) -> None:
        self._begin("upload", [file.there for file in files])
        for file in files:
            shutil.copyfile(file.here, file.there)
            Path(file.there).chmod(file.mode)
            os.utime(file.there, (file.changed_s, file.changed_s))
            progress(file.size)

    def download(self, there: str, here: Path, progress: Progress) -> None:
        self._begin("download", [there])
        shutil.copyfile(there, here)
        progress(here.stat().st_size)

    def link(self, targets: Mapping[str, str]) -> None:
        self._begin("link", targets)
        for path, target in targets.items():
            Path(path).unlink(missing_ok=True)
            Path(path).symlink_to(target)

    def remove(self, paths: Sequence[str]) -> None:
        self._begin("remove", paths)
        for path in paths:
            Path(path).unlink(missing_ok=True)

    def rename(self, old: str, new: str) -> None:
        self._begin("rename", [old, new])
        try:
            Path(old).rename(new)
        except OSError as error:
            raise RemoteFileError(f"{new} cannot be given its name: {error.strerror}") from error

    def free_bytes(self, path: str) -> int | None:
        self._begin("free_bytes", [path])
        return shutil.disk_usage("/").free

    def _begin(self, verb: str, paths: Iterable[str]) -> None:
        self.calls.append(verb)
        self.before(verb)
        if self.error is not None:
            raise self.error
        for path in paths:
            if path in self.denied:
                raise RemoteFileError(f"{path} cannot be used: permission denied")


class FakeLink:
    """Plays `gridloom.sites.remote.link.Link`; runs nothing."""

    place = "login"

    def run(self, argv: Sequence[str], stdin: str = "", *, timeout_s: float) -> Done:
        raise LinkDownError("nothing runs here")


def fake_host(files: FakeFiles, bulk: FakeFiles | None = None) -> Host:
    """Return a login host that has these files."""
    return Host(link=FakeLink(), files=files, bulk=bulk or files)


def _status(path: Path) -> Status | None:
    try:
        return _of(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entries(path: Path) -> dict[str, Status] | None:
    if not path.is_dir():
        return None
    return {one.name: _of(one.lstat()) for one in path.iterdir()}


def _of(found: os.stat_result) -> Status:
    kinds: dict[int, Any] = {
        stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Status(kind=kind, size=found.st_size, changed_s=int(found.st_mtime))
