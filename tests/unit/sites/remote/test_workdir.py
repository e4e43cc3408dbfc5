"""A working directory is copied once, then only what has changed; what programs wrote stays."""

import os
from pathlib import Path

import pytest
from tests.fakes.remote_files import FakeFiles

from gridloom.base.errors import InputError
from gridloom.sites.remote import workdir
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.workdir import copy, scan


class Copy:
    """A working directory and its copy."""

    def __init__(self, place: Path) -> None:
        self.work, self.there = place / "work", place / "there" / "work"
        self.work.mkdir()
        self.files = FakeFiles()
        self.left_out: list[Path] = []
        self.wanted: list[str] = []
        self.steps: list[int] = []

    def write(self, name: str, text: str = "text") -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def go(self) -> None:
        self.files.calls.clear()
        self.steps.clear()
        tree = scan(self.work, self.left_out, self.wanted)
        copy(self.files, self.work, str(self.there), tree, self.steps.append)

    def names(self) -> list[str]:
        found = (path.relative_to(self.there).as_posix() for path in self.there.rglob("*"))
        return sorted(found)


@pytest.fixture
def one(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_what_a_program_needs_is_copied_as_it_is(one: Copy) -> None:
    script = one.write("run.sh")
    script.chmod(0o700)
    one.write("pkg/a.py")
    (one.work / "empty").mkdir()
    (one.work / "link").symlink_to("pkg/a.py")
    (one.work / "data").symlink_to("/nowhere/data")
    os.mkfifo(one.work / "pipe")
    one.go()
    assert one.names() == ["data", "empty", "link", "pkg", "pkg/a.py", "run.sh"]
    assert os.access(one.there / "run.sh", os.X_OK)
    assert not os.access(one.there / "pkg/a.py", os.X_OK)
    assert (one.there / "data").readlink() == Path("/nowhere/data")
    assert int((one.there / "pkg/a.py").stat().st_mtime) == int(
        (one.work / "pkg/a.py").stat().st_mtime
    )
    assert sum(one.steps) == 8


def test_what_no_program_there_needs_is_left_out(one: Copy) -> None:
    for name in (".git/config", "a/__pycache__/a.pyc", "venv/pyvenv.cfg", "venv/bin/python",
                 "state/runs/j/x", "keep/x", ".mypy_cache/x"):  # fmt: skip
        one.write(name)
    one.left_out = [one.work / "state"]
    one.go()
    assert one.names() == ["a", "keep", "keep/x"]


def test_only_what_has_changed_is_copied_again(one: Copy) -> None:
    for name in "abc":
        one.write(name)
    one.go()
    for name in "ab":
        (one.there / name).chmod(0o600)  # by which a file that was not written again is known
    (one.there / "c").unlink()
    os.utime(one.write("a"), (5, 99))
    one.go()
    assert (one.there / "a").stat().st_mtime == 99
    modes = [(one.there / name).stat().st_mode & 0o777 for name in "abc"]
    assert modes == [0o644, 0o600, 0o644]
    assert sum(one.steps) == 12, "what is there already counts as having arrived"


def test_what_is_no_more_here_goes_there_and_what_programs_wrote_stays(one: Copy) -> None:
    for name in ("a", "old/b", "c"):
        one.write(name)
    (one.work / "l").symlink_to("a")
    one.go()
    (one.there / "result").write_text("of a program")
    (one.there / "old" / "result").write_text("of a program")
    for name in ("a", "old/b", "l"):
        (one.work / name).unlink()
    (one.work / "old").rmdir()
    one.go()
    assert one.names() == ["c", "old", "old/result", "result"]


def test_what_was_cut_off_in_the_middle_is_known_all_the_same(one: Copy) -> None:
    one.write("a")
    one.write("b")

    def cut(verb: str) -> None:
        if verb == "link":
            raise LinkDownError("cut")

    one.files.before = cut
    with pytest.raises(LinkDownError):
        one.go()
    one.files.before = lambda verb: None
    (one.work / "a").unlink()
    one.go()
    assert one.names() == ["b"]


def test_a_note_that_is_rubbish_is_no_reason_to_remove_anything(one: Copy) -> None:
    one.write("a")
    one.go()
    note = one.there.with_name("work.copied.json")
    assert note.exists()
    note.write_text("{")
    (one.work / "a").unlink()
    one.go()
    assert one.names() == ["a"]


def test_a_recipe_needs_no_more_than_its_texts(one: Copy, tmp_path: Path) -> None:
    for name in ("text/a.txt", "text/.git/b", "other/c", "n1.txt", "n2.txt", "deep/er/d.txt"):
        one.write(name)
    (tmp_path / "outside.txt").touch()
    one.wanted = [
        "text",
        "n?.txt",
        "deep/**/*.txt",
        "../outside.txt",
        "/etc/hosts",
        "python-stdlib",
    ]
    one.go()
    assert one.names() == ["deep", "deep/er", "deep/er/d.txt", "n1.txt", "n2.txt", "text",
                           "text/.git", "text/.git/b", "text/a.txt"]  # fmt: skip
    one.wanted = ["."]
    assert {*scan(one.work, (), one.wanted).files} >= {"other/c", "text/.git/b"}


def test_a_copy_may_serve_several_jobs(one: Copy) -> None:
    for name in ("train.py", "text/a", "more/b"):
        one.write(name)
    one.go()
    for wanted in (["text"], ["more"]):
        one.wanted = wanted
        one.go()
    assert one.names() == ["more", "more/b", "text", "text/a", "train.py"]
    (one.work / "text" / "a").unlink()
    one.go()
    assert "text/a" not in one.names(), "it is no more here, whoever has copied it"


def test_what_is_too_much_says_what_is_large(one: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("big/a", "big/b", "small/a"):
        one.write(name, "x" * (1000 if name.startswith("big") else 1))
    monkeypatch.setattr(workdir, "BYTES_MAX", 1500)
    with pytest.raises(InputError) as raised:
        scan(one.work)
    (problem,) = raised.value.problems
    assert f"the working directory {one.work} is more than" in problem.message
    assert "big 2" in problem.message
    assert "`workdir:` under `ssh:`" in problem.remedy
    monkeypatch.setattr(workdir, "BYTES_MAX", 1 << 30)
    monkeypatch.setattr(workdir, "FILES_MAX", 2)
    with pytest.raises(InputError):
        scan(one.work)


def test_many_directories_are_listed_together(one: Copy) -> None:
    for number in range(600):
        one.write(f"{number}/a")
    one.go()
    one.go()
    assert one.files.calls.count("entries") == 3
