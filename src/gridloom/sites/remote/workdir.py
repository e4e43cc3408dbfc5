"""The job's working directory at the other end: what is copied, and what has changed since."""

import glob
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import InputError, Problem
from gridloom.base.units import format_bytes
from gridloom.sites.remote.files import Progress, RemoteFiles, Status, Upload

BYTES_MAX = 1 << 30
FILES_MAX = 20_000
_SKIPPED = frozenset(
    [".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"]
)
"""Names of directories that no program there needs."""
_ENVIRONMENT_FILE = "pyvenv.cfg"
"""In a virtual environment, whose programs run nowhere but where it was made."""
_LISTED_TOGETHER = 256
_LARGEST = 3


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be copied, by paths relative to the working directory.

    Attributes:
        files: Files.
        links: Symbolic links, and where they lead; they are copied as they are.
        directories: Directories, without the outermost.
    """

    files: dict[str, Status] = {}
    links: dict[str, str] = {}
    directories: tuple[str, ...] = ()


def scan(work: Path, left_out: Collection[Path] = (), wanted: Sequence[str] = ()) -> Tree:
    """Return what of a working directory is to be copied.

    Args:
        work: The directory.
        left_out: Directories inside it that are not copied, besides those that never are.
        wanted: Only what these patterns name, and that whole; none for all.

    Raises:
        InputError: It is too much.
        OSError: It cannot be read.
    """
    skipped = {path.resolve() for path in left_out}
    files: dict[str, Status] = {}
    links: dict[str, str] = {}
    directories: list[str] = []
    total = 0
    for path in _wanted(work, wanted) if wanted else _walk(work, skipped):
        name, status = path.relative_to(work).as_posix(), path.lstat()
        if stat.S_ISLNK(status.st_mode):
            links[name] = str(path.readlink())
        elif stat.S_ISDIR(status.st_mode):
            directories.append(name)
        elif stat.S_ISREG(status.st_mode):
            files[name] = Status(kind="file", size=status.st_size, changed_s=int(status.st_mtime))
            total += status.st_size
        if total > BYTES_MAX or len(files) + len(links) > FILES_MAX:
            raise _too_much(work, files)
    return Tree(files=files, links=links, directories=tuple(directories))


def changed(here: Tree, there: Mapping[str, Status]) -> list[str]:
    """Return the files that are not there, or are otherwise there (pure).

    Args:
        here: What is to be there.
        there: What is there, by the same names.
    """
    return [name for name, status in here.files.items() if there.get(name) != status]


def copy(files: RemoteFiles, work: Path, there: str, tree: Tree, progress: Progress) -> None:
    """Make a directory there what a tree is here; what programs have written there stays.

    Args:
        files: Of the other end.
        work: Where the tree was found.
        there: Where it is to be.
        tree: What is to be copied.
        progress: Is told of every byte of the tree's files, also of those that are there already.

    Raises:
        RemoteError: It cannot be written, or the link is down: what has come over stays.
        OSError: It cannot be read here.
    """
    note = f"{there}.copied.json"
    files.make([there, *(f"{there}/{name}" for name in tree.directories)])
    copied, names = _noted(files, note), {*tree.files, *tree.links}
    # What is here and not in the tree may be in that of another job
    gone = {name for name in copied - names if not os.path.lexists(work / name)}
    uploads = changed(tree, dict(_listed(files, there, ["", *tree.directories])))
    if names - copied:  # before: what is cut off in the middle is known, too
        files.write({note: encode(sorted(names | copied))})
    left = sum(tree.files[name].size for name in uploads)
    progress(sum(status.size for status in tree.files.values()) - left)
    files.upload([_upload(work, there, name, tree) for name in uploads], progress)
    files.link({f"{there}/{name}": target for name, target in tree.links.items()})
    files.remove([f"{there}/{name}" for name in sorted(gone)])
    if gone:
        files.write({note: encode(sorted((names | copied) - gone))})


def _walk(work: Path, skipped: Collection[Path]) -> Iterator[Path]:
    for place, names, files in os.walk(work):
        root = Path(place)
        names[:] = sorted(name for name in names if _is_copied(root / name, skipped))
        yield from (root / name for name in (*names, *sorted(files)))


def _is_copied(path: Path, skipped: Collection[Path]) -> bool:
    if path.is_symlink():
        return True
    if path.name in _SKIPPED or (path / _ENVIRONMENT_FILE).exists():
        return False
    return path.resolve() not in skipped


def _wanted(work: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield what patterns name inside the directory, all below it, and the directories above it."""
    found: set[Path] = set()
    for pattern in patterns:
        path = Path(os.path.normpath(work / pattern))
        if path.exists():
            found |= {path, *path.rglob("*")}
        else:
            found.update(map(Path, glob.glob(str(path), recursive=True)))
    inside = {path for path in found if path.is_relative_to(work) and path != work}
    above = {parent for path in inside for parent in path.parents if parent.is_relative_to(work)}
    yield from sorted((inside | above) - {work})


def _listed(
    files: RemoteFiles, there: str, directories: Sequence[str]
) -> Iterator[tuple[str, Status]]:
    for start in range(0, len(directories), _LISTED_TOGETHER):
        some = directories[start : start + _LISTED_TOGETHER]
        found = files.entries([f"{there}/{name}".rstrip("/") for name in some])
        for directory, entries in zip(some, found, strict=True):
            for name, status in (entries or {}).items():
                yield f"{directory}/{name}".lstrip("/"), status


def _noted(files: RemoteFiles, note: str) -> set[str]:
    (status,) = files.statuses([note])
    if status is None:
        return set()
    try:
        return {*decode(files.read([(note, 0, status.size)])[0], list[str])}
    except msgspec.MsgspecError:
        return set()


def _upload(work: Path, there: str, name: str, tree: Tree) -> Upload:
    status = tree.files[name]
    mode = 0o755 if os.access(work / name, os.X_OK) else 0o644
    return Upload(
        here=work / name,
        there=f"{there}/{name}",
        size=status.size,
        changed_s=status.changed_s,
        mode=mode,
    )


def _too_much(work: Path, files: Mapping[str, Status]) -> InputError:
    """Return the error of a working directory that is too large, with what of it is largest."""

    def top(name: str) -> str:
        return name.partition("/")[0]

    sizes = {
        name: sum(files[one].size for one in group)
        for name, group in groupby(sorted(files, key=top), top)
    }
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST]
    told = ", ".join(f"{name} {format_bytes(sizes[name])}" for name in largest)
    return InputError(
        [
            Problem(
                f"the working directory {work} is more than {format_bytes(BYTES_MAX)}, or"
                f" {FILES_MAX} files, to copy: {told} and more",
                "keep data and results elsewhere, or let `workdir:` under `ssh:` of the site name"
                " where it is there",
            )
        ]
    )
