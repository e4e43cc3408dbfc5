"""State directories that are empty, broken or in the way: a sentence, never a traceback."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer, Gridloom

from gridloom.base.errors import SiteError
from gridloom.cli import settings
from gridloom.cli.home import trouble_with
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import Plane
from gridloom.control.leader import Leadership
from gridloom.core.machine import RULES
from gridloom.store.journal import SqlJournal

Call = Callable[..., Answer]
NEED_A_JOB = ["status", "logs", "why", "stop", "resume", "cancel"]


@pytest.mark.parametrize("verb", NEED_A_JOB)
def test_an_empty_state_directory_has_no_job(call: Call, home: Path, verb: str) -> None:
    answer = call(verb, "job")
    assert (answer.code, answer.out) == (2, "")
    assert f"there are no jobs in {home}" in answer.err
    assert not home.exists()


def test_an_empty_state_directory_lists_nothing(call: Call, home: Path) -> None:
    assert call("ps", "--json").json() == {"jobs": [], "marks": []}
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


# ----- journals of other versions


def copied(over: Gridloom, directory: Path, *changes: str) -> Path:
    """Return a copy of a state directory whose journal these statements changed."""
    directory.mkdir()
    with sqlite3.connect(over.home / "journal.sqlite") as source:
        with sqlite3.connect(directory / "journal.sqlite") as target:
            source.backup(target)
        target.close()
    source.close()
    changed = sqlite3.connect(directory / "journal.sqlite")
    for change in changes:
        changed.execute(change)
    changed.commit()
    changed.close()
    return directory


OF_BEFORE = f"""update records set body = replace(body, '"rules":{RULES}', '"rules":1')"""


def test_who_stops_leaves_a_snapshot(over: Gridloom) -> None:
    journal = SqlJournal(over.home / "journal.sqlite")
    taken = journal.snapshot()
    assert taken is not None
    assert (taken.seq, taken.rules) == (journal.last_seq(), RULES)


def test_another_version_goes_on_from_the_snapshot_that_was_left(
    over: Gridloom, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied(over, tmp_path / "copy", OF_BEFORE, "update snapshot_rules set rules = 1")
    monkeypatch.setenv("GRIDLOOM_HOME", str(home))
    assert {job["state"] for job in call("ps", "-a", "--json").json()["jobs"]} == {
        "succeeded",
        "failed",
    }
    answer = call("doctor", "--json")
    journal = next(c for c in answer.json()["checks"] if c["check"] == "journal")
    count = SqlJournal(home / "journal.sqlite").last_seq()
    assert (answer.code, journal["state"]) == (0, "ok")
    assert f"{count} records, {count} of them by the rules of another version" in journal["found"]
    plane = Plane(settings.read())
    assert plane.try_to_lead()
    plane.end()
    taken = plane.journal.snapshot()
    assert taken is not None
    assert (taken.seq, taken.rules) == (count, RULES)


@pytest.mark.parametrize("verb", ["ps", "status good", "submit JOB", "run -y JOB", "control"])
def test_what_another_version_decided_after_its_snapshot_is_a_sentence(
    over: Gridloom, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    home = copied(over, tmp_path / "copy", OF_BEFORE, "delete from snapshots")
    monkeypatch.setenv("GRIDLOOM_HOME", str(home))
    words = verb.replace("JOB", Gridloom(home, tmp_path / "files").job("exit 0")).split()
    answer = call(*words)
    assert (answer.code, answer.out.count("\n") <= 12) == (1, True)
    assert answer.err.startswith(
        "error: record 1 of the journal was decided by an older version of gridloom"
    )
    assert "set GRIDLOOM_HOME to another directory" in answer.err
    assert SqlJournal(home / "journal.sqlite").letters() == []
    assert not Leadership(home / "control.lock").taken()
    assert not [*(home / "runs").glob("*")]


def test_a_snapshot_that_cannot_be_left_does_not_spoil_the_end(
    over: Gridloom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied(over, tmp_path / "copy", "delete from snapshots")
    monkeypatch.setenv("GRIDLOOM_HOME", str(home))
    plane = Plane(settings.read())
    assert plane.try_to_lead()

    def full(_: object) -> None:
        raise SiteError("the disk is full")

    monkeypatch.setattr(plane.journal, "leave", full)
    plane.end()
    assert not plane.leads
    assert not plane.led()
