"""What is needed of the files at the other end of a link."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One file, directory or symbolic link.

    Attributes:
        kind: What it is.
        size: Bytes.
        changed_s: When it was changed last, by the clock there, in whole seconds.
    """

    kind: Literal["file", "directory", "link", "other"]
    size: int = 0
    changed_s: int = 0


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be there as it is here.

    Attributes:
        here: Path here.
        there: Path there.
        size: Bytes.
        changed_s: When it was changed last; it is so there, too.
        mode: Permissions.
    """

    here: Path
    there: str
    size: int
    changed_s: int
    mode: int = 0o644


Progress = Callable[[int], None]
"""Is told how many more bytes have arrived; what it raises ends the transfer."""


class RemoteFiles(Protocol):
    """Files at one place. Paths are absolute.

    Every call raises ``LinkDownError`` or ``LinkRefusedError`` while the place is not reached, and
    ``RemoteFileError`` for what cannot be done there. Calls may be repeated and then do no harm.
    """

    def statuses(self, paths: Sequence[str]) -> list[Status | None]:
        """Return what files are, links followed; nothing for those that are not there."""
        ...

    def entries(self, directories: Sequence[str]) -> list[dict[str, Status] | None]:
        """Return what is in directories, by name; nothing for those that are not there."""
        ...

    def read(self, parts: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return parts of files: each a path, where it begins, and how many bytes at most.

        Of a file that is not there, or ends before that, there is nothing.
        """
        ...

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write files so that whoever reads one sees the old content or the new."""
        ...

    def make(self, directories: Iterable[str]) -> None:
        """Make directories, and those above them; it does not matter which are there."""
        ...

    def upload(self, files: Sequence[Upload], progress: Progress) -> None:
        """Write files as ``write``; a large one goes on where a broken link has stopped it."""
        ...

    def download(self, there: str, here: Path, progress: Progress) -> None:
        """Fetch a file; what of it is here already, as after a broken link, is not fetched again.

        Raises:
            OSError: It cannot be written here.
        """
        ...

    def link(self, targets: Mapping[str, str]) -> None:
        """Make symbolic links by path, in place of whatever file or link is there."""
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files and links; it does not matter which are there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file, or a directory whose new name is not taken, another name."""
        ...

    def free_bytes(self, path: str) -> int | None:
        """Return the room on a file system; nothing where that is not told."""
        ...
