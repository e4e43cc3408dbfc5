"""State directories that are empty, broken or in the way: a sentence, never a traceback."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer, Gridloom

from gridloom.cli.home import trouble_with
from gridloom.cli.settings import Settings

Call = Callable[..., Answer]
NEED_A_JOB = ["status", "logs", "why", "stop", "resume", "cancel"]


@pytest.mark.parametrize("verb", NEED_A_JOB)
def test_an_empty_state_directory_has_no_job(call: Call, home: Path, verb: str) -> None:
    answer = call(verb, "job")
    assert (answer.code, answer.out) == (2, "")
    assert f"there are no jobs in {home}" in answer.err
    assert not home.exists()


def test_an_empty_state_directory_lists_nothing(call: Call, home: Path) -> None:
    assert call("ps", "--json").json() == {"jobs": []}
    answer = call("ps")
    assert (answer.code, answer.out) == (0, "")
    assert "no jobs" in answer.err
    assert call("doctor", "--json").json()["ok"]
    assert not home.exists()


def test_control_until_idle_over_nothing_ends(gridloom: Gridloom) -> None:
    assert gridloom.call("control", "--until-idle").code == 0


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory below a regular file."""
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "home"
    monkeypatch.setenv("GRIDLOOM_HOME", str(path))
    return path


@pytest.mark.parametrize("verb", ["run -y", "submit", "run --json"])
def test_a_state_directory_that_cannot_be_made_is_a_sentence(
    call: Call, tmp_path: Path, blocked: Path, verb: str
) -> None:
    job = Gridloom(blocked, tmp_path / "files").job("exit 0")
    name, *flags = verb.split()
    answer = call(name, job, *flags)
    assert answer.code in (1, 2)
    said = answer.lines()[-1]["message"] if "--json" in flags else answer.err
    assert str(tmp_path / "file") in said
    assert "Traceback" not in said


def places(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """State directories that cannot be, and what is said of them, whoever runs the tests."""
    (tmp_path / "file").write_text("in the way")
    return {
        "below a file": (f"{tmp_path}/file/home", "is not a directory"),
        "a file": (f"{tmp_path}/file", "is not a directory"),
        "a device": ("/dev/null", "is not a directory"),
        "a name too long": (f"{tmp_path}/{'x' * 300}", "File name too long"),
        "kernel": ("/proc/x", "/proc"),
        "not utf-8": (f"{tmp_path}/hom\udce9", "hom\\udce9': the path is not UTF-8"),
    }


@pytest.mark.parametrize(
    "place", ["below a file", "a file", "a device", "a name too long", "kernel", "not utf-8"]
)
@pytest.mark.parametrize("verb", ["ps", "run -y JOB", "submit JOB", "control", *NEED_A_JOB])
def test_no_verb_takes_a_state_directory_that_cannot_be(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, verb: str
) -> None:
    home, said = places(tmp_path)[place]
    monkeypatch.setenv("GRIDLOOM_HOME", home)
    words = verb.replace("JOB", Gridloom(tmp_path, tmp_path / "files").job("exit 0")).split()
    answer = call(*words, *(["x"] if verb in NEED_A_JOB else []))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.endswith("set GRIDLOOM_HOME to a directory that you can write\n")
    found = call("doctor", "--json")
    bad = [check for check in found.json()["checks"] if check["state"] == "bad"]
    assert (found.code, [check["check"] for check in bad]) == (1, ["state directory"])
    assert bad[0]["found"] in answer.err
    assert bad[0]["remedy"] == "set GRIDLOOM_HOME to a directory that you can write"


AS_NOBODY = """
import os, sys
from pathlib import Path
from gridloom.cli.home import trouble_with
from gridloom.cli.settings import Settings
if os.geteuid() == 0:  # who may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(trouble_with(Settings(Path(sys.argv[1]), None)))
"""


@pytest.mark.parametrize("home", ["/usr", "/usr/none/home"])
def test_the_owner_of_a_place_that_belongs_to_another_is_named(home: str) -> None:
    command = [sys.executable, "-c", AS_NOBODY, home]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "/usr cannot be written: it belongs to root\n", done.stderr


@pytest.mark.parametrize("path", ["home", "home/journal.sqlite"])
def test_own_files_without_the_right_to_write_are_told(tmp_path: Path, path: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "journal.sqlite").touch()
    (tmp_path / path).chmod(0o500)
    found = trouble_with(Settings(home, None))
    expected = f"{tmp_path / path} cannot be written: permission denied"
    assert found == ("" if os.geteuid() == 0 else expected)


@pytest.mark.parametrize("verb", ["ps", *NEED_A_JOB])
def test_a_file_that_is_no_journal_is_a_sentence(call: Call, home: Path, verb: str) -> None:
    home.mkdir()
    (home / "journal.sqlite").write_bytes(b"this is no database, whatever its name says" * 100)
    answer = call(verb, *(["job"] if verb != "ps" else []))
    assert answer.code == 1
    assert str(home / "journal.sqlite") in answer.err


def test_a_journal_with_a_broken_record_is_a_sentence(
    over: Gridloom, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with sqlite3.connect(over.home / "journal.sqlite") as source:
        with sqlite3.connect(copy / "journal.sqlite") as target:
            source.backup(target)
        target.close()
    source.close()
    broken = sqlite3.connect(copy / "journal.sqlite")
    broken.execute(
        """update records set body = replace(body, '"restart_count":0', '"restart_count":9')"""
    )
    broken.commit()
    broken.close()
    monkeypatch.setenv("GRIDLOOM_HOME", str(copy))
    answer = call("doctor", "--json")
    journal = next(c for c in answer.json()["checks"] if c["check"] == "journal")
    assert (answer.code, journal["state"]) == (1, "bad")
    assert "report this" in journal["remedy"]
    broken = sqlite3.connect(copy / "journal.sqlite")
    broken.execute("update records set body = '{' where seq >= 1")
    broken.execute("delete from snapshots")  # from which it would go on without reading them
    broken.commit()
    broken.close()
    answer = call("ps", "--all")
    assert answer.code == 1
    assert answer.err.startswith("error: ")
