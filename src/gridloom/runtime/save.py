"""Saving and resuming together: every rank writes its share, and all succeed or all give up."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TypeVar

from torch import Tensor

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import format_bytes
from gridloom.model.recipe import GptRecipe
from gridloom.runtime.disk import Disk
from gridloom.runtime.failure import StorageError
from gridloom.runtime.flat import FlatModel
from gridloom.runtime.mesh import Mesh
from gridloom.runtime.shards import (
    Checkpoints,
    Choice,
    Manifest,
    check_continues,
    read_tensors,
    spread,
)
from gridloom.runtime.shelf import ShardFile
from gridloom.wire.launch import Rank

T = TypeVar("T")


class Saver:
    """One rank's hand in the checkpoints of a run; every method is called by all ranks."""

    def __init__(self, mesh: Mesh, recipe: GptRecipe, rank: Rank, data: str) -> None:
        self._mesh, self._recipe, self._data = mesh, recipe, data
        self._job, self._attempt = rank.job_id, rank.attempt
        self._claim: IO[bytes] | None = None
        self._checkpoints = Checkpoints(
            Path(recipe.checkpoint.directory), recipe.checkpoint.keep, Disk()
        )

    def resume(self, flat: FlatModel) -> tuple[int, tuple[str, ...]]:
        """Load the newest whole checkpoint; return its step, and what a person should know of it.

        Raises:
            InputError: The checkpoint is of another training, none is whole, or another job uses
                the directory.
            StorageError: The directory cannot be read or tidied.
        """
        directory = self._checkpoints.directory
        remedy = f"make {directory} readable and writable for every rank"
        failing = f"the checkpoints in {directory} cannot be used"
        if not all(self._mesh.gather(self._together(self._claim_directory, failing, remedy))):
            problem = Problem(
                f"another job keeps its checkpoints in {directory} at this moment",
                remedy="give each job a directory of its own",
                field="checkpoint.directory",
            )
            raise InputError([problem])
        choice = self._mesh.gather(self._together(self._choose, failing, remedy))[0]
        manifest = choice.manifest
        if manifest is None:
            if choice.skipped:
                problem = Problem(
                    f"none of the checkpoints in {directory} is whole: {'; '.join(choice.skipped)}",
                    remedy="restore one, or remove them to start over",
                    field="checkpoint.directory",
                )
                raise InputError([problem])
            return 0, ()
        check_continues(manifest, self._recipe, self._data, choice.path)
        path = Path(choice.path)
        tensors = self._together(
            lambda: read_tensors(path, manifest), f"the checkpoint {path} cannot be read", remedy
        )
        flat.load(tensors, manifest.step)
        notes = [f"passed over a checkpoint: {why}" for why in choice.skipped]
        if manifest.job != self._job:
            notes.append(f"goes on from training step {manifest.step} of job {manifest.job}")
        return manifest.step, tuple(notes)

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
                job=self._job,
                attempt=self._attempt,
                recipe=self._recipe,
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

    def _claim_directory(self) -> bool:
        """Return whether no other job uses the directory; the kernel gives it back at our end."""
        if self._mesh.rank != 0:
            return True
        self._claim = self._checkpoints.claim()
        return self._claim is not None

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
