"""The checkpoints of a training loop of one's own: all its parts, in one piece, or not at all.

Tensors are in the format of ``torch.distributed.checkpoint``, each rank writing its share, and can
be read by another number of ranks; what else the parts have to say is in one small file a rank.
When both are on the disk the checkpoint takes its place on the site's ``Shelf``.
"""

import contextlib
import math
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageWriter

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import format_bytes
from gridloom.runtime.disk import Disk
from gridloom.runtime.failure import StorageError
from gridloom.runtime.parts import (
    RandomState,
    Stateful,
    as_parts,
    inherit,
    is_cut,
    of_each_rank,
    room_for,
    written,
)
from gridloom.runtime.run import Run
from gridloom.runtime.shelf import Contents, ShardFile, Shelf
from gridloom.runtime.states import (
    Taken,
    frame_tensors,
    pack_frames,
    put_together,
    take_apart,
    unpack_frames,
)
from gridloom.runtime.together import Together
from gridloom.wire.launch import CheckpointDone

_RANDOM = "random"
"""The part that every checkpoint has."""

_TIMEOUT_S = 1800.0
"""How long ranks wait for one another: some disks are slow."""

_MOST_TOLD = 3
"""Tensors that are named when some are not as they should be."""


@dataclass(frozen=True)
class About:
    """What a training says of itself in its checkpoints, and whether it goes on from one.

    Attributes:
        text: What it says.
        check: Is called with what a checkpoint says, and its path, before anything of it is read;
            raises ``InputError`` unless this training can go on from it.
    """

    text: str = ""
    check: Callable[[str, Path], None] = lambda said, path: None


@dataclass(frozen=True)
class KeepPolicy:
    """When checkpoints are made, how many stay, and what is said in them.

    Attributes:
        every: Training steps from one to the next; 0 for never by themselves.
        keep: How many of the newest stay.
        asynchronous: Training goes on while they are written, from a copy in the CPU's memory.
        writer: Makes what writes tensors into a directory.
        about: What the training says of itself.
    """

    every: int = 0
    keep: int = 2
    asynchronous: bool = False
    writer: Callable[[Path], StorageWriter] = FileSystemWriter
    about: About = field(default_factory=About)

    def check(self) -> None:
        """Raise ``InputError`` unless it can be."""
        problems = []
        if self.every < 0:
            text = f"is {self.every}, must be 0 (never by itself) or more training steps"
            problems.append(Problem(text, field="checkpoint.every"))
        if self.keep < 1:
            problems.append(Problem(f"is {self.keep}, must be at least 1", field="checkpoint.keep"))
        if problems:
            raise InputError(problems)


class PartsManifest(Contents, frozen=True, kw_only=True):
    """What a checkpoint of parts consists of.

    Attributes:
        site: Which site wrote it.
        ranks: Of the site, when it was written.
        parts: Their names.
        about: What the training says of itself.
    """

    site: str
    ranks: int
    parts: tuple[str, ...]
    about: str = ""


@dataclass(frozen=True)
class _Found:
    """The checkpoint to go on from, and what a person should know of it."""

    path: Path | None = None
    manifest: PartsManifest | None = None
    notes: tuple[str, ...] = ()


class Keeper:
    """Saves and loads the parts of a training; all ranks of a site make the same calls.

    Every site has a directory of its own, with its name, for sites need not share a file system.
    """

    def __init__(
        self,
        run: Run,
        directory: Path,
        policy: KeepPolicy,
        parts: Mapping[str, object],
        disk: Disk | None = None,
    ) -> None:
        """Take the directory over.

        Args:
            run: This process's part of the training.
            directory: Of the checkpoints of all sites.
            policy: When, and how many.
            parts: What is kept, by name.
            disk: The file system.

        Raises:
            InputError: A part has no state, or another training uses the directory.
            StorageError: The directory cannot be used.
        """
        policy.check()
        if _RANDOM in parts:
            text = f"the name {_RANDOM} is taken, by the state of torch's random numbers"
            raise InputError([Problem(text, "call the part otherwise", field="checkpoint")])
        random: dict[str, Stateful] = {_RANDOM: RandomState(run.device)}
        self._parts = as_parts(parts) | random
        self._run, self._root, self._policy = run, directory, policy
        self._disk = disk or Disk()
        self._site = Together(run.place.rank, run.place.size, _TIMEOUT_S)
        self._shelf = Shelf(directory / run.place.site, policy.keep, self._disk)
        self._thread = ThreadPoolExecutor(1, "checkpoint") if policy.asynchronous else None
        self._writing: Future[None] | None = None
        self._claim = self._site.do(self._take_over, *self._failing("used"))
        if not all(self._site.gather(self._site.rank != 0 or self._claim is not None)):
            text = f"another training keeps its checkpoints in {self._shelf.directory}"
            raise InputError([Problem(text, "give each one of its own", field="checkpoint")])
        if self._claim is not None:
            weakref.finalize(self, self._claim.close)

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is to be made after training step ``step``, from 1."""
        return self._policy.every > 0 and step % self._policy.every == 0

    def load(self) -> int:
        """Go on from the newest checkpoint that is whole, and tell that training begins.

        Returns:
            Its training step; 0 if there is none.

        Raises:
            InputError: As ``restore``.
            StorageError: As ``restore``.
        """
        step, notes = self.restore()
        self._run.begin(step, notes)
        return step

    def restore(self) -> tuple[int, tuple[str, ...]]:
        """Go on from the newest checkpoint that is whole.

        Returns:
            Its training step, 0 if there is none; and what a person should know of it.

        Raises:
            InputError: It is of other parts, or there are checkpoints and none is whole.
            StorageError: It cannot be read.
        """
        self.wait()
        found = self._site.gather(self._site.do(self._choose, *self._failing("read")))[0]
        notes, step = list(found.notes), 0
        if found.path is None or found.manifest is None:
            if notes:
                text = f"none of the checkpoints in {self._shelf.directory} is whole"
                remedy = "restore one, or remove them to start over"
                raise InputError([Problem(f"{text}: {'; '.join(notes)}", remedy)])
        else:
            step = found.manifest.step
            notes += self._restore(found.path, found.manifest)
        return step, tuple(notes)

    def save(self, step: int) -> None:
        """Keep all parts as they are after training step ``step``, from 1.

        Raises:
            StorageError: Some rank could not write, now or the last time if checkpoints are
                written behind training; earlier ones are as they were.
        """
        self.wait()
        taken = {name: self._take(name) for name in self._parts}
        tensors: dict[str, Tensor] = {}
        for name, part in self._parts.items():
            tensors |= written(part, taken[name], name, self._site.rank)
        frames = pack_frames({name: one.frame for name, one in taken.items() if self._tells(name)})
        if self._thread is None:
            self._write(step, frames, tensors)
        else:
            copies = _copies(tensors)
            self._writing = self._thread.submit(self._write, step, frames, copies)

    def wait(self) -> None:
        """Return when the last checkpoint is on the disk.

        Raises:
            StorageError: As ``save``.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the last checkpoint, and leave the directory to others."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
            if self._claim is not None:
                self._claim.close()

    def _failing(self, verb: str) -> tuple[str, str]:
        directory = self._shelf.directory
        remedy = f"make {directory} readable and writable for every rank of the site"
        return f"the checkpoints in {directory} cannot be {verb}", remedy

    def _take_over(self) -> Any:
        if self._site.rank != 0:
            return None
        claim = self._shelf.claim()
        if claim is not None:
            self._shelf.clear_leftovers()
        return claim

    def _choose(self) -> _Found:
        """Return this site's newest; if it has none, and can see another site's, that one."""
        if self._site.rank != 0:
            return _Found()
        path, manifest, skipped = self._shelf.newest(PartsManifest)
        notes = tuple(f"passed over a checkpoint: {why}" for why in skipped)
        if manifest is None and not skipped:
            shelves = (Shelf(other, 1, self._disk) for other in sorted(self._root.iterdir()))
            others = [shelf.newest(PartsManifest) for shelf in shelves]
            whole = [(m.step, p, m) for p, m, _ in others if p is not None and m is not None]
            if whole:
                _, path, manifest = max(whole, key=lambda one: (one[0], str(one[1])))
                notes = (f"has no checkpoint of its own, and goes on from {manifest.site}'s",)
        if manifest is not None and manifest.job != self._run.place.job_id:
            whose = f"job {manifest.job}" if manifest.job else "a training outside of gridloom"
            notes += (f"goes on from training step {manifest.step} of {whose}",)
        return _Found(path, manifest, notes)

    def _prefix(self, name: str, rank: int) -> str:
        return f"{name}@{rank}" if of_each_rank(self._parts[name]) else name

    def _take(self, name: str) -> Taken:
        return take_apart(self._parts[name].state_dict(), self._prefix(name, self._site.rank))

    def _tells(self, name: str) -> bool:
        """Return whether this rank writes the frame of a part."""
        part = self._parts[name]
        return of_each_rank(part) or (self._site.rank == 0 and not is_cut(part))

    def _write(self, step: int, frames: bytes, tensors: Mapping[str, Tensor]) -> None:
        failing = f"the checkpoint of step {step} could not be written in {self._shelf.directory}"
        size = sum(math.prod(t.shape) * t.element_size() for t in tensors.values())
        remedy = (
            f"it needs about {format_bytes(size)} ({size} bytes) there: make room, or grant access"
        )
        temporary = self._shelf.temporary(step, 0)
        try:
            own = self._site.do(lambda: self._write_frames(temporary, frames), failing, remedy)
            with self._site.guarded(failing, remedy):
                save(
                    dict(tensors),
                    storage_writer=self._policy.writer(temporary),
                    process_group=self._site.group,
                    no_dist=self._site.group is None,
                )
            facts = self._site.do(lambda: self._facts(temporary, own), failing, remedy)
            files = tuple(fact for facts in self._site.gather(facts) for fact in facts)
            self._site.do(lambda: self._commit(temporary, step, files), failing, remedy)
        except StorageError:
            if self._site.rank == 0:
                with contextlib.suppress(OSError):  # the failure itself is what is told
                    self._shelf.discard(temporary)
            raise
        self._run.tell(CheckpointDone(step=step, path=str(self._shelf.final(step))))

    def _write_frames(self, temporary: Path, frames: bytes) -> Path:
        path = temporary / _frames_file(self._site.rank)
        self._disk.make_directory(temporary)
        self._disk.write(path, frames)
        return path

    def _facts(self, temporary: Path, own: Path) -> list[ShardFile]:
        """Return what there is to say of the files that this rank has written."""
        paths = [own, *sorted(temporary.glob(f"__{self._site.rank}_*"))]
        if self._site.rank == 0:
            paths.append(temporary / ".metadata")
        return [ShardFile.of(path) for path in paths]

    def _commit(self, temporary: Path, step: int, files: tuple[ShardFile, ...]) -> None:
        if self._site.rank != 0:
            return
        place = self._run.place
        manifest = PartsManifest(
            step=step,
            job=place.job_id,
            site=place.site,
            ranks=place.size,
            parts=tuple(sorted(self._parts)),
            about=self._policy.about.text,
            files=files,
        )
        self._shelf.place(temporary, manifest)

    def _restore(self, path: Path, manifest: PartsManifest) -> list[str]:
        """Give every part its state; return what a person should know of it."""
        self._policy.about.check(manifest.about, path)
        missing = [name for name in self._parts if name not in manifest.parts]
        if missing:
            text = f"the checkpoint {path} has no {', '.join(missing)}"
            remedy = f"it has {', '.join(manifest.parts)}: keep these, or name another directory"
            raise InputError([Problem(text, remedy, field="checkpoint")])
        notes = []
        parts, extra = self._parts, [n for n in manifest.parts if n not in self._parts]
        if extra:
            notes.append(f"the checkpoint's {', '.join(extra)} is of no use any more")
        if manifest.ranks != self._site.size:
            parts = {name: part for name, part in parts.items() if not of_each_rank(part)}
            fresh = ", ".join(sorted(self._parts.keys() - parts.keys()))
            notes.append(
                f"was saved by {manifest.ranks} ranks, not {self._site.size}: {fresh} anew"
            )
        frames, metadata = self._site.do(lambda: self._read(path, manifest), *self._failing("read"))
        states: dict[str, Any] = {}
        rooms: dict[str, Tensor] = {}
        for name, part in parts.items():
            now = self._take(name)
            states[name] = now.frame if is_cut(part) else frames[name]
            rooms.update(_rooms(part, states[name], now.tensors, metadata, path))
        with self._site.guarded(*self._failing("read")):
            load(
                rooms,
                storage_reader=FileSystemReader(path),
                process_group=self._site.group,
                no_dist=self._site.group is None,
            )
        for name, part in parts.items():
            part.load_state_dict(put_together(states[name], rooms))
        for name in sorted(self._parts.keys() - parts.keys()):
            inherit(self._parts[name], frames[name])
        return notes

    def _read(self, path: Path, manifest: PartsManifest) -> tuple[dict[str, Any], Metadata]:
        ranks = sorted({0, min(self._site.rank, manifest.ranks - 1)})
        frames: dict[str, Any] = {}
        for rank in ranks:
            frames |= unpack_frames((path / _frames_file(rank)).read_bytes())
        return frames, FileSystemReader(path).read_metadata()


def _frames_file(rank: int) -> str:
    return f"parts-{rank:05d}.pt"


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in the memory of the CPU that training does not touch."""
    options = StagingOptions(
        use_pinned_memory=False,
        use_shared_memory=False,
        use_async_staging=False,
        use_non_blocking_copy=False,
    )
    staged = DefaultStager(options).stage(dict(tensors))
    return dict(staged) if isinstance(staged, dict) else dict(staged.result())


def _rooms(
    part: Stateful,
    frame: object,
    now: Mapping[str, Tensor],
    metadata: Metadata,
    path: Path,
) -> dict[str, Tensor]:
    """Return where the tensors of a part are to be read into, those of a model in place.

    Raises:
        InputError: The part as it is has tensors of other names or shapes.
    """
    saved = metadata.state_dict_metadata
    wrong, rooms = [], {}
    names = frame_tensors(frame)
    if isinstance(part, nn.Module):
        known = set(names)
        wrong += [f"{name} is not in it" for name in now if name not in known]
        wrong += [f"{name} is in it alone" for name in names if name not in now]
    for name in names:
        facts = saved.get(name)
        if not isinstance(facts, TensorStorageMetadata):
            wrong.append(f"{name} is not in it")
        elif name not in now:
            rooms[name] = room_for(part, name, facts.size, facts.properties.dtype)
        elif now[name].shape == facts.size:
            rooms[name] = now[name]
        else:
            wrong.append(f"{name} is {list(facts.size)} in it, {list(now[name].shape)} here")
    if wrong:
        told = ", ".join(list(dict.fromkeys(wrong))[:_MOST_TOLD])
        more = len(wrong) - _MOST_TOLD
        text = f"the checkpoint {path} is not of this training: {told}"
        text += f", and {more} more" if more > 0 else ""
        remedy = "build the same parts, or name another directory"
        raise InputError([Problem(text, remedy, field="checkpoint")])
    return rooms
