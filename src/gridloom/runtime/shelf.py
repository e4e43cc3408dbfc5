"""A directory of checkpoints, of which a crash at any moment leaves one that can be loaded.

A checkpoint is a directory ``step-00000050`` with files, and a ``manifest.json`` with size and
SHA-256 of each. It is written as ``step-00000050.tmp-2`` (by attempt 2): files first, the manifest
last, then the directory takes its name. Where the name is taken, the old directory steps aside as
``step-00000050.old`` first, and still counts.
"""

import errno
import fcntl
import hashlib
import re
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from gridloom.base.codec import decode, pretty
from gridloom.runtime.disk import Disk

MANIFEST = "manifest.json"
VERSION = 2
"""In 1 rows of the model's fused matrices lay in another order: queries, then keys, then values."""

_NAME = re.compile(r"step-(\d{8,})(\.old)?")
_TEMPORARY = re.compile(r"step-\d{8,}\.tmp-\d+")
_CLAIM_FILE = "in-use.lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system says that has no locks: then nobody can be kept from a directory in use."""


class ShardFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint.

    Attributes:
        name: Its name in the checkpoint's directory.
        bytes: Its size.
        sha256: Of its content, in hex.
    """

    name: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "ShardFile":
        """Return what there is to say of a file that has been written."""
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(name=path.name, bytes=path.stat().st_size, sha256=checksum)


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What every manifest says.

    Attributes:
        step: The last training step the checkpoint contains.
        job: The job that wrote it.
        files: Its files.
        version: Of the format.
    """

    step: int
    job: str
    files: tuple[ShardFile, ...]
    version: int = VERSION


M = TypeVar("M", bound=Contents)


class Shelf:
    """The checkpoints in one directory."""

    def __init__(self, directory: Path, keep: int, disk: Disk) -> None:
        self.directory, self._keep, self._disk = directory, keep, disk

    def claim(self) -> IO[bytes] | None:
        """Keep others from the directory until the file that is returned is closed.

        Returns:
            Nothing if somebody else has it.

        Raises:
            OSError: The directory cannot be written to.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        claim = (self.directory / _CLAIM_FILE).open("ab")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                claim.close()
                raise
        return claim

    def temporary(self, step: int, attempt: int) -> Path:
        """Return the directory that attempt ``attempt`` writes the checkpoint of ``step`` into."""
        return self.directory / f"step-{step:08d}.tmp-{attempt}"

    def final(self, step: int) -> Path:
        """Return the directory of the complete checkpoint of ``step``."""
        return self.directory / f"step-{step:08d}"

    def place(self, temporary: Path, manifest: Contents) -> Path:
        """Make the files in ``temporary`` a checkpoint, and remove those no longer kept.

        Raises:
            OSError: It could not be made; the checkpoints from before are as they were.
        """
        self._disk.write(temporary / MANIFEST, pretty(manifest).encode())
        self._disk.sync_directory(temporary)
        final = self.final(manifest.step)
        aside = final.with_name(f"{final.name}.old")
        if final.exists():
            self._remove_tree(aside)
            self._disk.rename(final, aside)
        self._disk.rename(temporary, final)
        self._disk.sync_directory(self.directory)
        self._prune(manifest.step)
        return final

    def discard(self, temporary: Path) -> None:
        """Remove a checkpoint that was not finished."""
        self._remove_tree(temporary)

    def clear_leftovers(self) -> None:
        """Remove what attempts left that died while saving; call it before any rank saves."""
        for path in self._entries(_TEMPORARY):
            self._remove_tree(path)
        for path in self._entries(_NAME):
            if path.suffix != ".old":
                continue
            final = path.with_suffix("")
            if final.exists():
                self._remove_tree(path)
            else:
                self._disk.rename(path, final)

    def newest(self, kind: type[M]) -> tuple[Path | None, M | None, tuple[str, ...]]:
        """Return the newest checkpoint that is complete and whole.

        Args:
            kind: Of its manifest.

        Returns:
            Its directory and its manifest, and why newer ones were passed over, a sentence each.
        """
        skipped: list[str] = []
        for path in reversed(self._entries(_NAME)):
            manifest = read_whole(path, kind)
            if not isinstance(manifest, str):
                return path, manifest, tuple(skipped)
            skipped.append(manifest)
        return None, None, tuple(skipped)

    def _prune(self, step: int) -> None:
        """Keep the newest few up to ``step``; later ones are of a line that was given up."""
        entries = self._entries(_NAME)
        line = [path for path in entries if _step(path) <= step and path.suffix != ".old"]
        for path in entries:
            if path not in line[-self._keep :]:
                self._remove_tree(path)

    def _remove_tree(self, path: Path) -> None:
        """Remove a checkpoint's directory, the manifest first: half of one never looks whole."""
        if not path.exists():
            return
        for file in sorted(path.iterdir(), key=lambda file: (file.name != MANIFEST, file.name)):
            self._disk.remove_file(file)
        self._disk.remove_directory(path)

    def _entries(self, pattern: re.Pattern[str]) -> list[Path]:
        """Return the directories whose names match, oldest step first, ``.old`` before its name."""
        if not self.directory.is_dir():
            return []
        found = [path for path in self.directory.iterdir() if pattern.fullmatch(path.name)]
        return sorted(found, key=lambda path: (_step(path), path.suffix != ".old", path.name))


def read_whole(path: Path, kind: type[M]) -> M | str:
    """Return the manifest of a checkpoint whose files are whole, or a sentence why it is not."""
    try:
        manifest = decode((path / MANIFEST).read_bytes(), kind)
        if manifest.version != VERSION:
            return f"{path.name} is of format {manifest.version}, this program reads {VERSION}"
        for file in manifest.files:
            size = (path / file.name).stat().st_size
            if size != file.bytes:
                return f"{path.name}: {file.name} has {size} bytes, not {file.bytes}"
            if ShardFile.of(path / file.name) != file:
                return f"{path.name}: the checksum of {file.name} does not match"
    except FileNotFoundError as error:
        return f"{path.name} is not complete: {Path(error.filename).name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    except msgspec.DecodeError as error:
        return f"{path.name}: {MANIFEST} is damaged: {error}"
    return manifest


def _step(path: Path) -> int:
    return int(path.name.partition(".")[0].removeprefix("step-"))
