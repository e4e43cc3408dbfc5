"""Saving and resuming together: every rank writes its share, and all succeed or all give up."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from gridloom.base.codec import encode
from gridloom.base.units import format_bytes
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.checkpoint import (
    Checkpoints,
    Choice,
    Manifest,
    ShardFile,
    check_same_shape,
    read_tensors,
    spread,
)
from gridloom.runtime.disk import Disk
from gridloom.runtime.failure import StorageError
from gridloom.runtime.flat import FlatModel
from gridloom.runtime.mesh import Mesh

T = TypeVar("T")


class Saver:
    """One rank's hand in the checkpoints of a run; every method is called by all ranks."""

    def __init__(self, mesh: Mesh, recipe: GptRecipe, attempt: int, data: str) -> None:
        self._mesh, self._recipe, self._attempt, self._data = mesh, recipe, attempt, data
        self._checkpoints = Checkpoints(
            Path(recipe.checkpoint.directory), recipe.checkpoint.keep, Disk()
        )

    def resume(self, flat: FlatModel) -> tuple[int, tuple[str, ...]]:
        """Load the newest whole checkpoint; return its step, and why newer ones were skipped.

        Raises:
            InputError: The checkpoint is of another model.
            StorageError: The directory cannot be read or tidied.
        """
        remedy = f"make {self._checkpoints.directory} readable and writable for every rank"
        choice = self._mesh.gather(
            self._together(self._choose, "the checkpoints cannot be read", remedy)
        )[0]
        manifest = choice.manifest
        if manifest is None:
            return 0, choice.skipped
        check_same_shape(manifest.shape, self._recipe.shape, choice.path)
        path = Path(choice.path)
        tensors = self._together(
            lambda: read_tensors(path, manifest), f"the checkpoint {path} cannot be read", remedy
        )
        flat.load(tensors, manifest.step)
        return manifest.step, choice.skipped

    def save(self, flat: FlatModel, step: int) -> Path:
        """Write the state after ``step``; return the checkpoint's directory.

        Raises:
            StorageError: Some rank could not write; earlier checkpoints are as they were.
        """
        tensors = flat.tensors()
        size = sum(tensor.nbytes for tensor in tensors.values())
        directory = self._checkpoints.directory
        failing = f"the checkpoint of step {step} could not be written in {directory}"
        remedy = (
            f"it needs {format_bytes(size)} ({size} bytes) there: make room or grant access, or "
            "set checkpoint.directory to another place"
        )
        temporary = self._checkpoints.temporary(step, self._attempt)
        try:
            shard = self._together(lambda: self._write(temporary, tensors), failing, remedy)
            manifest = Manifest(
                step=step,
                attempt=self._attempt,
                shape=self._recipe.shape,
                recipe=hashlib.sha256(encode(self._recipe)).hexdigest(),
                data=self._data,
                files=tuple(self._mesh.gather(shard)),
            )
            self._together(lambda: self._commit(temporary, manifest), failing, remedy)
        except StorageError:
            if self._mesh.rank == 0:
                with contextlib.suppress(OSError):  # the failure itself is what is told
                    self._checkpoints.discard(temporary)
            raise
        return self._checkpoints.final(step)

    def _choose(self) -> Choice:
        if self._mesh.rank != 0:
            return Choice()
        self._checkpoints.clear_leftovers()
        return self._checkpoints.choose()

    def _write(self, temporary: Path, tensors: Mapping[str, Tensor]) -> ShardFile:
        rank = self._mesh.rank
        share = spread(tensors, self._mesh.world_size)[rank]
        return self._checkpoints.write_shard(temporary, rank, share)

    def _commit(self, temporary: Path, manifest: Manifest) -> None:
        if self._mesh.rank == 0:
            self._checkpoints.commit(temporary, manifest)

    def _together(self, action: Callable[[], T], failing: str, remedy: str) -> T:
        """Return what ``action`` returns here, once it has succeeded on every rank."""
        results: list[T] = []
        problem = ""
        try:
            results.append(action())
        except OSError as error:
            problem = f"rank {self._mesh.rank}: {error.strerror or error}"
        problems = [found for found in self._mesh.gather(problem) if found]
        if problems:
            raise StorageError(f"{failing}: {problems[0]}", remedy)
        return results[0]
