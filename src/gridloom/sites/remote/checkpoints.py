"""Checkpoints of a job, here and there: which is the newest that is whole, and how it is moved.

They lie in ``<root>/<site>/step-00000050``, with a manifest that names their files. Whoever moves
one gives it its name last, so that half of one is never taken for one.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import product
from pathlib import Path, PurePosixPath

import msgspec

from gridloom.base.codec import decode
from gridloom.model.recipe import GptRecipe
from gridloom.sites.remote.files import Progress, RemoteFiles, Status, Upload

RECIPE_FILE = "recipe.json"
MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{8,})")
_MANIFEST_BYTES_MAX = 64 << 20
_NO_ROOTS = frozenset(["attempts", "logs"])
_MODE = 0o644


class _File(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bytes: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    files: tuple[_File, ...]


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint that is whole, by the sizes of its files.

    Attributes:
        step: The last training step that it contains.
        root: Name of the directory of the checkpoints of all sites.
        site: Whose it is.
        directory: Where it is.
        files: Size of each file by its name, the manifest last.
    """

    step: int
    root: str
    site: str
    directory: str
    files: dict[str, int]

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(self.files.values())


def recipe_of(run_dir: Path) -> GptRecipe | None:
    """Return what gridloom's own training program is told; nothing where another one runs."""
    try:
        return decode((run_dir / RECIPE_FILE).read_bytes(), GptRecipe)
    except FileNotFoundError:
        return None


def directory_of(run_dir: Path) -> str:
    """Return where a job keeps checkpoints, here; empty where its own program decides that."""
    recipe = recipe_of(run_dir)
    return recipe.checkpoint.directory if recipe is not None else ""


def roots_here(run_dir: Path, directory: str) -> list[str]:
    """Return the directories in which a job may have checkpoints of several sites, here.

    Args:
        run_dir: Its run directory.
        directory: Which it is, if that is known; empty if not.
    """
    if directory:
        return [directory]
    try:
        found = sorted(path for path in run_dir.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    return [str(path) for path in found if path.name not in _NO_ROOTS]


def roots_there(files: RemoteFiles, run_dir: str, directory: str) -> list[str]:
    """Return the same at the other end."""
    if directory:
        return [directory]
    found = files.entries([run_dir])[0] or {}
    names = sorted(name for name, status in found.items() if status.kind == "directory")
    return [f"{run_dir}/{name}" for name in names if name not in _NO_ROOTS]


def newest_here(roots: Sequence[str], but: Collection[str] = ()) -> Saved | None:
    """Return the newest checkpoint here of all sites but some, which may be in ``roots``."""
    pairs = [(root, site) for root in roots for site in _directories(Path(root))]
    kept = [(root, site) for root, site in pairs if site not in but]
    names = {(root, site): _directories(Path(root, site)) for root, site in kept}
    return _newest(names, _read_here, _sizes_here)


def newest_there(files: RemoteFiles, roots: Sequence[str], sites: Iterable[str]) -> Saved | None:
    """Return the newest checkpoint of some sites at the other end."""
    pairs = [*product(roots, sites)]
    if not pairs:
        return None
    found = files.entries([f"{root}/{site}" for root, site in pairs])
    names = {pair: [*(one or {})] for pair, one in zip(pairs, found, strict=True)}

    def read(path: str) -> bytes:
        return files.read([(path, 0, _MANIFEST_BYTES_MAX)])[0]

    def sizes(directory: str) -> dict[str, int]:
        there = files.entries([directory])[0] or {}
        return {name: status.size for name, status in there.items() if status.kind == "file"}

    return _newest(names, read, sizes)


def fetch(files: RemoteFiles, saved: Saved, shelf: Path, progress: Progress) -> None:
    """Bring a checkpoint here; what has come of it already is not fetched again.

    Args:
        files: Of the other end.
        saved: What is there.
        shelf: Directory of the site that is to have it.
        progress: Is told how many bytes more are here.

    Raises:
        RemoteError: It cannot be read, or the link is down.
        OSError: It cannot be written here.
    """
    name = PurePosixPath(saved.directory).name
    part, final = shelf / f".{name}.part", shelf / name
    part.mkdir(parents=True, exist_ok=True)
    for file, size in saved.files.items():
        here = part / file
        if here.exists() and here.stat().st_size == size:
            progress(size)
        else:
            files.download(f"{saved.directory}/{file}", here, progress)
    if final.exists():  # and is not whole, or it would not be fetched
        shutil.rmtree(final)
    part.rename(final)


def push(files: RemoteFiles, saved: Saved, shelf: str, progress: Progress) -> None:
    """Bring a checkpoint of ours there, as ``fetch``.

    Raises:
        RemoteError: It cannot be written, or the link is down.
        OSError: It cannot be read here.
    """
    name = Path(saved.directory).name
    part = f"{shelf}/.{name}.part"
    files.make([part])
    there = files.entries([part])[0] or {}
    uploads = [_upload(Path(saved.directory, file), f"{part}/{file}") for file in saved.files]
    left = [one for one in uploads if there.get(PurePosixPath(one.there).name) != _status(one)]
    progress(saved.bytes - sum(one.size for one in left))
    files.upload(left, progress)
    if name in (files.entries([shelf])[0] or {}):  # and is not whole, or ours would stay here
        files.rename(f"{shelf}/{name}", f"{shelf}/.{name}.damaged")
    files.rename(part, f"{shelf}/{name}")


def _newest(
    names: dict[tuple[str, str], list[str]],
    read: Callable[[str], bytes],
    sizes: Callable[[str], dict[str, int]],
) -> Saved | None:
    """Return the newest that is whole among directories by their root and site."""
    found = [
        (int(match[1]), root, site, f"{root}/{site}/{match[0]}")
        for (root, site), listed in names.items()
        for match in map(_NAME.fullmatch, listed)
        if match is not None
    ]
    for step, root, site, directory in sorted(found, reverse=True):
        files = _files(read(f"{directory}/{MANIFEST}"), step)
        have = sizes(directory) if files else {}
        if files and all(have.get(name) == size for name, size in files.items()):
            whole = {**files, MANIFEST: have[MANIFEST]}
            return Saved(
                step=step, root=PurePosixPath(root).name, site=site, directory=directory,
                files=whole,
            )  # fmt: skip
    return None


def _files(manifest: bytes, step: int) -> dict[str, int]:
    try:
        told = decode(manifest, _Manifest)
    except msgspec.MsgspecError:
        return {}
    plain = all(PurePosixPath(file.name).name == file.name for file in told.files)
    return {file.name: file.bytes for file in told.files} if told.step == step and plain else {}


def _directories(path: Path) -> list[str]:
    try:
        return sorted(one.name for one in path.iterdir() if one.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read_here(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _sizes_here(directory: str) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in Path(directory).iterdir() if path.is_file()}


def _upload(here: Path, there: str) -> Upload:
    status = here.stat()
    return Upload(
        here=here, there=there, size=status.st_size, changed_s=int(status.st_mtime), mode=_MODE
    )


def _status(upload: Upload) -> Status:
    return Status(kind="file", size=upload.size, changed_s=upload.changed_s)
