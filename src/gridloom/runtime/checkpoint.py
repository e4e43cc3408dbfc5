"""Checkpoints on disk: written so that a crash at any moment leaves one that can be loaded.

A checkpoint is a directory ``step-00000050`` with one safetensors file a rank and a
``manifest.json`` with size and SHA-256 of each. It is written as ``step-00000050.tmp-2`` (by
attempt 2): shards first, the manifest last, then the directory takes its name. Where the name is
taken, the old directory steps aside as ``step-00000050.old`` first, and still counts.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import safetensors.numpy
import safetensors.torch
from torch import Tensor

from gridloom.base.codec import decode, pretty
from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.disk import Disk

MANIFEST = "manifest.json"
VERSION = 1

_NAME = re.compile(r"step-(\d{8,})(\.old)?")
_TEMPORARY = re.compile(r"step-\d{8,}\.tmp-\d+")


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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a complete checkpoint consists of.

    Attributes:
        step: The last training step it contains.
        job: The job that wrote it.
        attempt: And its attempt.
        recipe: What it was trained with.
        data: Fingerprint of the corpus it was trained on.
        files: Its shards, one a rank that wrote.
        version: Of this format.
    """

    step: int
    job: str
    attempt: int
    recipe: GptRecipe
    data: str
    files: tuple[ShardFile, ...]
    version: int = VERSION


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint to continue from.

    Attributes:
        path: Its directory; empty when there is none.
        manifest: Its manifest; ``None`` when there is none.
        skipped: Why newer ones were passed over, a sentence each.
    """

    path: str = ""
    manifest: Manifest | None = None
    skipped: tuple[str, ...] = ()


class Checkpoints:
    """The checkpoints of one job in one directory."""

    def __init__(self, directory: Path, keep: int, disk: Disk) -> None:
        self.directory, self._keep, self._disk = directory, keep, disk

    def temporary(self, step: int, attempt: int) -> Path:
        """Return the directory that attempt ``attempt`` writes the checkpoint of ``step`` into."""
        return self.directory / f"step-{step:08d}.tmp-{attempt}"

    def final(self, step: int) -> Path:
        """Return the directory of the complete checkpoint of ``step``."""
        return self.directory / f"step-{step:08d}"

    def write_shard(self, temporary: Path, number: int, tensors: Mapping[str, Tensor]) -> ShardFile:
        """Write one rank's share, and return what the manifest will say about it.

        Raises:
            OSError: It could not be written.
        """
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        data = safetensors.numpy.save(arrays)
        self._disk.make_directory(temporary)
        name = f"shard-{number:05d}.safetensors"
        self._disk.write(temporary / name, data)
        return ShardFile(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    def commit(self, temporary: Path, manifest: Manifest) -> Path:
        """Make the shards in ``temporary`` a checkpoint, and remove those no longer kept.

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

    def choose(self) -> Choice:
        """Return the newest checkpoint that is complete and whole."""
        skipped: list[str] = []
        for path in reversed(self._entries(_NAME)):
            manifest = read_manifest(path)
            if isinstance(manifest, Manifest):
                return Choice(path=str(path), manifest=manifest, skipped=tuple(skipped))
            skipped.append(manifest)
        return Choice(skipped=tuple(skipped))

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


def read_manifest(path: Path) -> Manifest | str:
    """Return the manifest of a checkpoint whose files are whole, or a sentence why it is not."""
    try:
        manifest = decode((path / MANIFEST).read_bytes(), Manifest)
        if manifest.version != VERSION:
            return f"{path.name} is of format {manifest.version}, this program reads {VERSION}"
        for file in manifest.files:
            size = (path / file.name).stat().st_size
            if size != file.bytes:
                return f"{path.name}: {file.name} has {size} bytes, not {file.bytes}"
            with (path / file.name).open("rb") as shard:
                checksum = hashlib.file_digest(shard, "sha256").hexdigest()
            if checksum != file.sha256:
                return f"{path.name}: the checksum of {file.name} does not match"
    except FileNotFoundError as error:
        return f"{path.name} is not complete: {Path(error.filename).name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    except msgspec.DecodeError as error:
        return f"{path.name}: {MANIFEST} is damaged: {error}"
    return manifest


def read_tensors(path: Path, manifest: Manifest) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint, whichever number of ranks wrote it."""
    tensors: dict[str, Tensor] = {}
    for file in manifest.files:
        tensors.update(safetensors.torch.load((path / file.name).read_bytes()))
    return tensors


def check_continues(saved: Manifest, recipe: GptRecipe, data: str, path: str) -> None:
    """Raise ``InputError`` naming everything for which a checkpoint is not one of this training.

    The model must have the saved shape, and the samples must come from the same text in the same
    order; the number of steps or the learning rate may have changed.
    """
    pairs = [
        (f"model.{field}", getattr(recipe.shape, field), getattr(saved.recipe.shape, field))
        for field in recipe.shape.__struct_fields__
    ]
    pairs += [
        (field, getattr(recipe.training, field), getattr(saved.recipe.training, field))
        for field in ("global_batch", "sequence_length", "seed")
    ]
    remedy = "restore it, or give the job a fresh checkpoint.directory"
    problems = [
        Problem(f"is {wanted}, the checkpoint {path} has {found}", remedy=remedy, field=field)
        for field, wanted, found in pairs
        if wanted != found
    ]
    if data != saved.data:
        text = f"the text is not what the checkpoint {path} was trained on"
        problems.append(Problem(text, remedy=remedy, field="data.text"))
    if problems:
        raise InputError(problems)


def spread(tensors: Mapping[str, Tensor], ranks: int) -> Sequence[dict[str, Tensor]]:
    """Return each rank's share: largest tensor first, always to the rank with the fewest bytes."""
    shares: list[dict[str, Tensor]] = [{} for _ in range(ranks)]
    loads = [0] * ranks
    for name in sorted(tensors, key=lambda name: (-tensors[name].nbytes, name)):
        least = loads.index(min(loads))
        shares[least][name] = tensors[name]
        loads[least] += tensors[name].nbytes
    return shares


def _step(path: Path) -> int:
    return int(path.name.partition(".")[0].removeprefix("step-"))
