"""Files that others read while they are written: replaced whole, and read by lines."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base import files
from gridloom.base.files import LINE_BYTES_MAX, LineTail, cause_of, disk_is_full, replace_file
from gridloom.base.system import SystemClock


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for data in (b"one", b"", b"x" * 100_000):
        replace_file(path, data)
        assert path.read_bytes() == data
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    replace_file(path, b"old")
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "no" / "f", b"new")
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "directory", b"new")
    assert path.read_bytes() == b"old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["directory", "f"]


WRITER = """
import itertools, sys
from pathlib import Path
from gridloom.base.files import replace_file
for number in itertools.count():
    replace_file(Path(sys.argv[1]), f"{number:09d};".encode() * 5000)
"""


def test_a_reader_sees_a_whole_file_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    path, clock = tmp_path / "f", SystemClock()
    for round_ in range(3):
        path.unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
            while not path.exists():
                clock.sleep(0.005)
            for _ in range(30 * round_):
                assert_whole(path.read_bytes())
            writer.send_signal(signal.SIGKILL)
        assert_whole(path.read_bytes())


def assert_whole(data: bytes) -> None:
    assert len(data) == 50_000
    assert data == data[:10] * 5000


# ----- tails


def test_lines_are_told_once_and_a_cut_line_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tail = LineTail(path)
    assert tail.lines() == []
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        assert tail.lines() == [b"one"]
        assert tail.lines() == []
        file.write(b"o\n\nthree\r\n")
        assert tail.lines() == [b"two", b"", b"three"]
    assert tail.lines() == []


@pytest.mark.parametrize("new", [b"", b"n", b"new\n", b"new and longer\n"])
@pytest.mark.parametrize("how", ["cut short", "replaced"])
def test_a_file_that_was_changed_behind_us_is_read_from_its_beginning(
    tmp_path: Path, new: bytes, how: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old one\nold two\n")
    tail = LineTail(path)
    assert len(tail.lines()) == 2
    if how == "replaced":
        replace_file(path, new + b"more\n")
    else:
        path.write_bytes(new[:10])
        assert tail.lines() == new[:10].splitlines()[: new[:10].count(b"\n")]
        path.write_bytes(b"")
        assert tail.lines() == []
        path.write_bytes(new + b"more\n")
    assert tail.lines() == (new + b"more\n").splitlines()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_has_no_lines_and_blocks_nobody(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "f")
    assert LineTail(tmp_path / "f").lines() == []


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to("f")
    with pytest.raises(OSError, match="symbolic"):
        LineTail(tmp_path / "f").lines()


def test_a_line_without_end_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "f"
    endless = b"x" * (5 * LINE_BYTES_MAX + 17)
    path.write_bytes(b"before\n" + endless)
    tail = LineTail(path)
    pieces = tail.lines()
    assert pieces[0] == b"before"
    assert len(pieces) > 2
    with path.open("ab") as file:
        file.write(b"\nafter\n")
    pieces += tail.lines()
    assert pieces[-1] == b"after"
    assert b"".join(pieces[1:-1]) == endless


def test_a_look_takes_about_as_much_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    line = b"y" * 1023 + b"\n"
    path.write_bytes(line * 10_000)
    tail = LineTail(path)
    looks = []
    while lines := tail.lines(most_bytes=1):
        looks.append(len(lines))
    assert sum(looks) == 10_000
    assert max(looks) * len(line) <= 2 * LINE_BYTES_MAX


def test_descriptors_do_not_pile_up(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x\n")
    tails = [LineTail(tmp_path / name) for name in ("f", "none")] + [LineTail(tmp_path)]
    before = len(os.listdir("/proc/self/fd"))
    for tail in tails * 5:
        tail.lines()
    assert len(os.listdir("/proc/self/fd")) == before


@given(lines=st.lists(st.binary(max_size=20)), cuts=st.lists(st.integers(0, 400)))
def test_lines_arrive_whole_and_in_order_however_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    lines = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines)
    path = tmp_path_factory.mktemp("tail") / "f"
    tail, seen, places = LineTail(path), [], sorted({min(cut, len(data)) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        with path.open("ab") as file:
            file.write(data[start:end])
        seen += tail.lines()
    assert seen == lines


def test_the_limits_let_every_look_make_progress() -> None:
    assert files._CHUNK_BYTES > LINE_BYTES_MAX


def test_the_cause_of_a_fault_in_a_few_words() -> None:
    assert cause_of(OSError(errno.ENOSPC, "No space left on device")) == "the disk is full"
    assert cause_of(OSError(errno.EACCES, "Permission denied")) == "Permission denied"
    assert cause_of(OSError("odd")) == "odd"


def test_a_place_that_is_not_there_has_the_room_of_what_is_above(tmp_path: Path) -> None:
    assert not disk_is_full(tmp_path / "none" / "none")
    assert not disk_is_full(Path("/proc/none"))  # has no size, and so no end
