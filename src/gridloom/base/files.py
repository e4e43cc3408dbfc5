"""Files that other processes read while we write: replaced whole, or appended to by lines."""

import errno
import os
import shutil
import stat
from pathlib import Path

LINE_BYTES_MAX = 1 << 20
"""A longer line is read in pieces, so that no program can make a reader run out of memory."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when there is no room left."""

EXHAUSTED = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""What it says when it has no more processes, memory or open files to give just now."""

_FREE_BYTES_MIN = 1 << 20
"""With less than this a database cannot go on, whatever else it says."""

_CHUNK_BYTES = 2 * LINE_BYTES_MAX


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` so that a reader, or a crash at any moment, sees the old file or the new one.

    Args:
        path: The file.
        data: All of its content.
        durable: Wait until it would survive a power cut. What nobody needs after one, as a lease,
            should not wait for a disk that is busy with a checkpoint.

    Raises:
        OSError: It could not be written; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_directory(path.parent)


def cause_of(error: OSError) -> str:
    """Return why something could not be done with a file, in a few words."""
    return "the disk is full" if error.errno in FULL else error.strerror or str(error)


def disk_is_full(path: Path) -> bool:
    """Return whether next to nothing can be written where ``path`` is, or would be."""
    for place in (path, *path.parents):
        try:
            found = shutil.disk_usage(place)
        except OSError:
            continue
        return found.total > 0 and found.free < _FREE_BYTES_MIN
    return False


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LineTail:
    """Reads the complete lines that were appended to a file since the last look.

    A line without its end is left for the next look. A file that does not exist yet, or is none,
    has no lines; one that was replaced or cut short is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._file = (0, 0)

    def lines(self, most_bytes: int | None = None) -> list[bytes]:
        """Return new lines, without their ends.

        Args:
            most_bytes: Leave the rest for the next look after about as many.
        """
        try:
            # Not blocking: what the user's program put there may be a pipe that nobody writes to
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return []
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return []
            file = (status.st_dev, status.st_ino)
            if file != self._file or status.st_size < self._offset:
                self._file, self._offset = file, 0
            most_bytes = status.st_size if most_bytes is None else most_bytes
            return self._read(descriptor, min(status.st_size, self._offset + most_bytes))
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, until: int) -> list[bytes]:
        """Return lines up to ``until`` and not much further: the writer may be faster than we."""
        lines: list[bytes] = []
        while self._offset < until:
            data = os.pread(descriptor, _CHUNK_BYTES, self._offset)
            end = data.rfind(b"\n") + 1
            if not end and len(data) >= LINE_BYTES_MAX:
                end = len(data)
            if not end:
                break
            self._offset += end
            lines.extend(data[:end].splitlines())
        return lines
