"""Checkpoints of gridloom's own program: on a ``Shelf``, with one safetensors file a rank."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import safetensors.numpy
import safetensors.torch
from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.shelf import Contents, ShardFile, Shelf, read_whole


class Manifest(Contents, frozen=True, kw_only=True):
    """What a complete checkpoint consists of.

    Attributes:
        attempt: The attempt that wrote it.
        recipe: What it was trained with.
        data: Fingerprint of the corpus it was trained on.
    """

    attempt: int
    recipe: GptRecipe
    data: str


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


class Checkpoints(Shelf):
    """The checkpoints of one job in one directory."""

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
        """As ``place``."""
        return self.place(temporary, manifest)

    def choose(self) -> Choice:
        """Return the newest checkpoint that is complete and whole."""
        path, manifest, skipped = self.newest(Manifest)
        return Choice(path=str(path or ""), manifest=manifest, skipped=skipped)


def read_manifest(path: Path) -> Manifest | str:
    """Return the manifest of a checkpoint whose files are whole, or a sentence why it is not."""
    return read_whole(path, Manifest)


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
