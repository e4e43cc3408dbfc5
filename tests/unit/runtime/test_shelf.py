"""A save that dies anywhere leaves the checkpoint before it or the new one, never a mixture."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.runtime.disks import Crash, DyingDisk

from gridloom.runtime.disk import Disk
from gridloom.runtime.shelf import MANIFEST, Contents, ShardFile, Shelf, read_whole

RANKS = 2


def save(
    directory: Path,
    step: int,
    value: float,
    *,
    attempt: int = 1,
    disk: Disk | None = None,
    keep: int = 2,
) -> None:
    disk = disk or Disk()
    shelf = Shelf(directory, keep, disk)
    temporary = shelf.temporary(step, attempt)
    disk.make_directory(temporary)
    paths = [temporary / f"shard-{rank}" for rank in range(RANKS)]
    for path in paths:
        disk.write(path, f"{value} of {path.name}".encode())
    files = tuple(ShardFile.of(path) for path in paths)
    shelf.place(temporary, Contents(step=step, job="j", files=files))


def loaded(directory: Path) -> tuple[int, float]:
    """Return step and value of what would be resumed from, after checking that it is of a piece."""
    path, contents, _ = Shelf(directory, 2, Disk()).newest(Contents)
    if path is None or contents is None:
        return 0, 0.0
    words = [(path / file.name).read_text().split() for file in contents.files]
    assert [word[2] for word in words] == [file.name for file in contents.files]
    values = {float(word[0]) for word in words}
    assert len(values) == 1
    return contents.step, values.pop()


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
        Shelf(directory, 2, Disk()).clear_leftovers()
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
        shelf = Shelf(tmp_path, 2, Disk())
        shelf.discard(shelf.temporary(20, 1))
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
        (lambda path: next(path.glob("shard*")).unlink(), "is missing"),
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
    _, _, skipped = Shelf(tmp_path, 2, Disk()).newest(Contents)
    assert loaded(tmp_path) == (10, 1.0)
    assert len(skipped) == 1
    assert skipped[0].startswith("step-00000020")
    assert why in skipped[0]


def test_without_a_directory_there_is_nothing_to_resume_from(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "none", 2, Disk())
    shelf.clear_leftovers()
    assert shelf.newest(Contents) == (None, None, ())


def test_the_manifest_says_what_the_checkpoint_is(tmp_path: Path) -> None:
    save(tmp_path, 10, 1.0)
    contents = read_whole(tmp_path / "step-00000010", Contents)
    assert isinstance(contents, Contents)
    assert (contents.step, contents.job) == (10, "j")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "step-00000010").glob("shard*")}
    assert {file.name: file.bytes for file in contents.files} == sizes


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
