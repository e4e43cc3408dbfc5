"""The files of a login host by SFTP, over the kept connection of a link."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import asyncssh

from gridloom.sites.remote.errors import RemoteFileError
from gridloom.sites.remote.files import Progress, Status, Upload
from gridloom.sites.ssh.link import SshLink

T = TypeVar("T")

_SMALL_S = 20.0
"""How long what is small may take; then the link counts as dead."""
_BULK_S = 120.0
"""The same of some mebibytes, over whatever link there is."""
_TOGETHER = 32
"""Files at a time: each needs several answers, one after another."""
_CHUNK_BYTES = 4 << 20
_FULL_BYTES = 1 << 20
_NOT_THERE = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory)
_NO_LINK = (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection)
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class SshFiles:
    """Plays `gridloom.sites.remote.files.RemoteFiles`."""

    def __init__(self, link: SshLink) -> None:
        """Work at the other end of ``link``."""
        self._link = link

    def statuses(self, paths: Sequence[str]) -> list[Status | None]:
        """As the port says."""

        async def one(sftp: asyncssh.SFTPClient, path: str) -> Status | None:
            try:
                return _status(await sftp.stat(path))
            except _NOT_THERE:
                return None

        return self._each(one, paths, "looked at")

    def entries(self, directories: Sequence[str]) -> list[dict[str, Status] | None]:
        """As the port says."""

        async def one(sftp: asyncssh.SFTPClient, path: str) -> dict[str, Status] | None:
            try:
                found = await sftp.readdir(path)
            except _NOT_THERE:
                return None
            named = ((os.fsdecode(name.filename), name.attrs) for name in found)
            return {name: _status(attrs) for name, attrs in named if name not in (".", "..")}

        return self._each(one, directories, "listed")

    def read(self, parts: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """As the port says."""
        wanted = {path: (offset, most) for path, offset, most in parts}

        async def one(sftp: asyncssh.SFTPClient, path: str) -> bytes:
            try:
                async with sftp.open(path, "rb") as file:
                    data: str | bytes = await file.read(wanted[path][1], wanted[path][0])
                    return data if isinstance(data, bytes) else data.encode()
            except _NOT_THERE:
                return b""

        limit_s = _SMALL_S if sum(most for _, _, most in parts) < _CHUNK_BYTES else _BULK_S
        return self._each(one, [path for path, _, _ in parts], "read", limit_s)

    def write(self, contents: Mapping[str, bytes]) -> None:
        """As the port says."""

        async def one(sftp: asyncssh.SFTPClient, path: str) -> None:
            temporary = _beside(path, f"{os.getpid()}.tmp")
            async with sftp.open(temporary, "wb") as file:
                await file.write(contents[path])
            await sftp.posix_rename(temporary, path)

        self._each(one, [*contents], "written")

    def make(self, directories: Iterable[str]) -> None:
        """As the port says."""
        wanted = sorted({str(PurePosixPath(one)) for one in directories})
        found = zip(wanted, self.statuses(wanted), strict=True)
        missing = [path for path, status in found if status is None]
        for together in _levels(missing):
            self._each(_try_to_make, together, "made")
        found = zip(missing, self.statuses(missing), strict=True)
        self._each(_make, [path for path, status in found if status is None], "made")

    def upload(self, files: Sequence[Upload], progress: Progress) -> None:
        """As the port says."""
        small = [file for file in files if file.size <= _CHUNK_BYTES]
        of_path = {file.there: file for file in small}

        async def one(sftp: asyncssh.SFTPClient, path: str) -> None:
            file, temporary = of_path[path], _beside(path, f"{os.getpid()}.tmp")
            async with sftp.open(temporary, "wb") as opened:
                await opened.write(file.here.read_bytes())
                await opened.setstat(_attributes(file))
            await sftp.posix_rename(temporary, path)

        for start in range(0, len(small), _TOGETHER):
            batch = small[start : start + _TOGETHER]
            self._each(one, [file.there for file in batch], "written", _BULK_S)
            progress(sum(file.size for file in batch))
        for file in files:
            if file.size > _CHUNK_BYTES:
                self._upload(file, progress)

    def download(self, there: str, here: Path, progress: Progress) -> None:
        """As the port says."""
        status = self.statuses([there])[0]
        if status is None:
            raise RemoteFileError(f"{self._link.place} has no {there} any more")
        part = here.with_name(f".{here.name}.{status.size}-{status.changed_s}.part")
        with part.open("ab") as file:
            offset = file.seek(0, os.SEEK_END)
            progress(offset)
            while offset < status.size:
                data = self.read([(there, offset, min(_CHUNK_BYTES, status.size - offset))])[0]
                if not data:
                    raise RemoteFileError(f"{there} at {self._link.place} was cut short meanwhile")
                file.write(data)
                offset += len(data)
                progress(len(data))
        part.replace(here)

    def link(self, targets: Mapping[str, str]) -> None:
        """As the port says."""

        async def one(sftp: asyncssh.SFTPClient, path: str) -> None:
            temporary = _beside(path, f"{os.getpid()}.tmp")
            await _gone(sftp, temporary)
            await sftp.symlink(targets[path], temporary)
            await sftp.posix_rename(temporary, path)

        self._each(one, [*targets], "linked")

    def remove(self, paths: Sequence[str]) -> None:
        """As the port says."""
        self._each(_gone, paths, "removed")

    def rename(self, old: str, new: str) -> None:
        """As the port says."""

        async def one(sftp: asyncssh.SFTPClient, path: str) -> None:
            await sftp.posix_rename(old, path)

        self._each(one, [new], "given its name")

    def free_bytes(self, path: str) -> int | None:
        """As the port says."""

        async def ask() -> int | None:
            return await _free_bytes(await self._link.sftp(), path)

        return self._link.call(ask, timeout_s=_SMALL_S)

    def _upload(self, file: Upload, progress: Progress) -> None:
        """Write a large file, in chunks one after another: of the last there may be holes."""
        temporary = _beside(file.there, f"{file.size}-{file.changed_s}.part")
        before = self.statuses([temporary])[0]
        have = min(before.size, file.size) if before is not None else 0
        start = max(0, have - 1) // _CHUNK_BYTES * _CHUNK_BYTES
        progress(start)
        self._each(_touch, [temporary], "written")
        with file.here.open("rb") as here:
            for offset in range(start, file.size, _CHUNK_BYTES):
                here.seek(offset)
                data = here.read(_CHUNK_BYTES)
                self._each(_Chunk(data, offset), [temporary], "written", _BULK_S)
                progress(len(data))

        async def place(sftp: asyncssh.SFTPClient, path: str) -> None:
            await sftp.setstat(path, _attributes(file))
            await sftp.posix_rename(path, file.there)

        self._each(place, [temporary], "written")

    def _each(
        self,
        one: Callable[[asyncssh.SFTPClient, str], Awaitable[T]],
        paths: Sequence[str],
        verb: str,
        limit_s: float = _SMALL_S,
    ) -> list[T]:
        """Do the same with several paths at once.

        Args:
            one: Does it with one.
            paths: All different.
            verb: What cannot be done with it, when it fails.
            limit_s: How long all of that may take.
        """

        async def tried(sftp: asyncssh.SFTPClient, path: str, turn: asyncio.Semaphore) -> T:
            async with turn:
                try:
                    return await one(sftp, path)
                except _NO_LINK:
                    raise
                except asyncssh.SFTPError as error:
                    raise await self._of_file(sftp, path, verb, error) from error

        async def all_() -> list[T]:
            if not paths:
                return []
            sftp, turn = await self._link.sftp(), asyncio.Semaphore(_TOGETHER)
            return await _gathered([tried(sftp, path, turn) for path in paths])

        return self._link.call(all_, timeout_s=limit_s)

    async def _of_file(
        self, sftp: asyncssh.SFTPClient, path: str, verb: str, error: asyncssh.SFTPError
    ) -> RemoteFileError:
        """Return what is wrong with a file; of a full disk the server says no more than Failure."""
        said = f"{path} at {self._link.place} cannot be {verb}"
        match error:
            case asyncssh.SFTPPermissionDenied():
                return RemoteFileError(f"{said}: permission denied", "name a directory of yours")
            case asyncssh.SFTPNoSuchFile() | asyncssh.SFTPNoSuchPath():
                return RemoteFileError(f"{said}: it is not there", "was it removed there?")
            case asyncssh.SFTPNoSpaceOnFilesystem() | asyncssh.SFTPQuotaExceeded():
                return RemoteFileError(f"{said}: {error.reason}", "free space there")
            case _:
                pass
        free = await _free_bytes(sftp, path)
        if free is not None and free < _FULL_BYTES:
            return RemoteFileError(f"{said}: the disk is full", "free space there")
        remedy = "look there: is a quota used up, or a file where a directory should be?"
        return RemoteFileError(f"{said}: {error.reason}", remedy)


class _Chunk:
    """Writes a part of a file."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data, self._offset = data, offset

    async def __call__(self, sftp: asyncssh.SFTPClient, path: str) -> None:
        async with sftp.open(path, "r+b") as file:
            await file.write(self._data, self._offset)


async def _gathered(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all return; raise the worst of what they raise once none is at work."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    errors = [one for one in done if isinstance(one, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, RemoteFileError)):
        raise error
    return [one for one in done if not isinstance(one, BaseException)]


async def _make(sftp: asyncssh.SFTPClient, path: str) -> None:
    await sftp.mkdir(path)


async def _try_to_make(sftp: asyncssh.SFTPClient, path: str) -> None:
    """Make a directory if it is ours to make: it may be there, or one above ours."""
    try:
        await sftp.mkdir(path)
    except _NO_LINK:
        raise
    except asyncssh.SFTPError:
        return


async def _touch(sftp: asyncssh.SFTPClient, path: str) -> None:
    async with sftp.open(path, "ab"):
        return


async def _gone(sftp: asyncssh.SFTPClient, path: str) -> None:
    try:
        await sftp.remove(path)
    except _NOT_THERE:
        return


async def _free_bytes(sftp: asyncssh.SFTPClient, path: str) -> int | None:
    """Return the room where a path is, or would be."""
    for place in (PurePosixPath(path), *PurePosixPath(path).parents):
        try:
            found = await sftp.statvfs(str(place))
        except _NOT_THERE:
            continue
        except _NO_LINK:
            raise
        except asyncssh.SFTPError:
            return None
        return int(found.bavail) * int(found.frsize or found.bsize)
    return None


def _status(attrs: asyncssh.SFTPAttrs) -> Status:
    kind: Any = _KINDS.get(stat.S_IFMT(attrs.permissions or 0), "other")
    return Status(kind=kind, size=attrs.size or 0, changed_s=int(attrs.mtime or 0))


def _attributes(file: Upload) -> asyncssh.SFTPAttrs:
    return asyncssh.SFTPAttrs(permissions=file.mode, atime=file.changed_s, mtime=file.changed_s)


def _beside(path: str, suffix: str) -> str:
    place = PurePosixPath(path)
    return str(place.with_name(f".{place.name}.{suffix}"))


def _levels(directories: Sequence[str]) -> list[list[str]]:
    """Return directories and those above them, the outermost first, those of one depth together."""
    places = {PurePosixPath(one) for one in directories}
    every = places.union(*(place.parents for place in places))
    by_depth = groupby(
        sorted(every, key=lambda one: (len(one.parts), one)), lambda one: len(one.parts)
    )
    return [[str(one) for one in together] for depth, together in by_depth if depth > 1]
