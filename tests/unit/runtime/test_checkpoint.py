"""A save that dies anywhere leaves the checkpoint before it or the new one, never a mixture."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from tests.unit.runtime.disks import Crash, DyingDisk

from gridloom.base.errors import InputError
from gridloom.model.recipe import CheckpointPolicy, GptRecipe, GptShape, TextData, Training
from gridloom.runtime.disk import Disk
from gridloom.runtime.shards import (
    Checkpoints,
    Manifest,
    check_continues,
    read_manifest,
    read_tensors,
    spread,
)
from gridloom.runtime.shelf import MANIFEST

SHAPE = GptShape(layers=1, hidden=8, heads=2, kv_heads=1, ffn=8)
RECIPE = GptRecipe(
    shape=SHAPE,
    data=TextData(),
    training=Training(steps=9, global_batch=4, sequence_length=8),
    checkpoint=CheckpointPolicy(directory="/c"),
)
RANKS = 2


def state(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((4, 3), value), "b": torch.full((5,), value), "c": torch.tensor(value)}


def save(
    directory: Path,
    step: int,
    value: float,
    *,
    attempt: int = 1,
    disk: Disk | None = None,
    keep: int = 2,
) -> None:
    checkpoints = Checkpoints(directory, keep, disk or Disk())
    temporary = checkpoints.temporary(step, attempt)
    files = [
        checkpoints.write_shard(temporary, rank, share)
        for rank, share in enumerate(spread(state(value), RANKS))
    ]
    manifest = Manifest(
        step=step, job="j", attempt=attempt, recipe=RECIPE, data="d", files=tuple(files)
    )
    checkpoints.commit(temporary, manifest)


def loaded(directory: Path) -> tuple[int, float]:
    """Return step and value of what would be resumed from, after checking that it is of a piece."""
    choice = Checkpoints(directory, 2, Disk()).choose()
    if choice.manifest is None:
        return 0, 0.0
    tensors = read_tensors(Path(choice.path), choice.manifest)
    values = {float(number) for tensor in tensors.values() for number in tensor.flatten()}
    assert set(tensors) == set(state(0))
    assert len(values) == 1
    return choice.manifest.step, values.pop()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("partial", [False, True], ids=["before", "halfway"])
@pytest.mark.parametrize("step", [30, 20], ids=["new step", "step saved again"])
def test_every_crash_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, step: int, partial: bool
) -> None:
    outcomes = []
    for last in range(100):
        directory = tmp_path / str(last)
        save(directory, 10, 1.0)
        save(directory, 20, 2.0)
        disk = DyingDisk(last, partial=partial)
        try:
            save(directory, step, 3.0, attempt=2, disk=disk)
        except Crash:
            pass
        else:
            break
        outcomes.append(loaded(directory))
        Checkpoints(directory, 2, Disk()).clear_leftovers()
        assert loaded(directory) == outcomes[-1]
        assert not [name for name in names(directory) if ".tmp" in name or ".old" in name]
        save(directory, 40, 4.0, attempt=3)
        assert loaded(directory) == (40, 4.0)
        assert len(names(directory)) == 2
    else:
        pytest.fail("the save never came to its end")
    old, new = (20, 2.0), (step, 3.0)
    assert set(outcomes) == {old, new}
    assert outcomes == sorted(outcomes, key=[old, new].index), "once new, never old again"
    assert loaded(directory) == new
    assert len(outcomes) >= 9


@pytest.mark.parametrize("partial", [False, True])
def test_a_disk_that_refuses_leaves_the_old_checkpoint(tmp_path: Path, partial: bool) -> None:
    save(tmp_path, 10, 1.0)
    for last in range(6):
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            save(tmp_path, 20, 2.0, disk=DyingDisk(last, partial=partial, error=full))
        checkpoints = Checkpoints(tmp_path, 2, Disk())
        checkpoints.discard(checkpoints.temporary(20, 1))
        assert names(tmp_path) == ["step-00000010"]
        assert loaded(tmp_path) == (10, 1.0)


def test_only_the_newest_are_kept_and_those_of_a_given_up_line_go(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step, float(step))
    assert names(tmp_path) == ["step-00000020", "step-00000030"]
    save(tmp_path, 25, 25.0, keep=1)
    assert names(tmp_path) == ["step-00000025"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: (path / MANIFEST).unlink(), "not complete: manifest.json is missing"),
        (lambda path: (path / MANIFEST).write_text("{"), "manifest.json is damaged"),
        (lambda path: next(path.glob("shard*")).unlink(), "safetensors is missing"),
        (lambda path: _change(next(path.glob("shard*")), cut=True), "bytes, not"),
        (lambda path: _change(next(path.glob("shard*"))), "the checksum of shard"),
        (lambda path: _replace(path / MANIFEST, '"version": 2', '"version": 9'), "is of format 9"),
        (lambda path: _unreadable(path / MANIFEST), "cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_a_reason(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    save(tmp_path, 10, 1.0)
    save(tmp_path, 20, 2.0)
    damage(tmp_path / "step-00000020")
    choice = Checkpoints(tmp_path, 2, Disk()).choose()
    assert loaded(tmp_path) == (10, 1.0)
    assert len(choice.skipped) == 1
    assert choice.skipped[0].startswith("step-00000020")
    assert why in choice.skipped[0]


def test_without_a_directory_there_is_nothing_to_resume_from(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "none", 2, Disk())
    checkpoints.clear_leftovers()
    assert checkpoints.choose().manifest is None


def test_the_manifest_says_what_the_checkpoint_is(tmp_path: Path) -> None:
    save(tmp_path, 10, 1.0)
    manifest = read_manifest(tmp_path / "step-00000010")
    assert isinstance(manifest, Manifest)
    assert (manifest.step, manifest.attempt, manifest.recipe.shape) == (10, 1, SHAPE)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "step-00000010").glob("shard*")}
    assert {file.name: file.bytes for file in manifest.files} == sizes


def test_another_training_is_refused_by_the_name_of_the_field() -> None:
    saved = Manifest(step=1, job="j", attempt=1, recipe=RECIPE, data="d", files=())
    longer = msgspec.structs.replace(RECIPE.training, steps=99, learning_rate=1.0)
    check_continues(saved, msgspec.structs.replace(RECIPE, training=longer), "d", "here")
    other = msgspec.structs.replace(
        RECIPE,
        shape=msgspec.structs.replace(SHAPE, hidden=16),
        training=msgspec.structs.replace(RECIPE.training, global_batch=8),
    )
    with pytest.raises(InputError) as caught:
        check_continues(saved, other, "e", "here")
    assert [problem.field for problem in caught.value.problems] == [
        "model.hidden",
        "global_batch",
        "data.text",
    ]
    assert "is 16, the checkpoint here has 8" in str(caught.value)


def test_tensors_are_spread_by_bytes() -> None:
    sizes = {"a": 90, "b": 50, "c": 40, "d": 20, "e": 10}
    tensors = {name: torch.zeros(size) for name, size in sizes.items()}
    shares = spread(tensors, 2)
    assert [sorted(share) for share in shares] == [["a", "d"], ["b", "c", "e"]]
    assert sorted(name for share in shares for name in share) == list("abcde")
    assert spread(tensors, 7)[5:] == [{}, {}]


def _change(path: Path, *, cut: bool = False) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data[:-1] if cut else data)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()
