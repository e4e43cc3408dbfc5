"""State directories that are empty, broken or in the way: a sentence, never a traceback."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer, Gridloom

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


def test_views_and_doctor_bear_a_state_directory_that_cannot_be(call: Call, blocked: Path) -> None:
    assert call("ps", "--json").json() == {"jobs": []}
    assert call("status", "x").code == 2
    answer = call("doctor", "--json")
    assert answer.code == 1
    bad = [check for check in answer.json()["checks"] if check["state"] == "bad"]
    assert [check["check"] for check in bad] == ["state directory"]
    assert "GRIDLOOM_HOME" in bad[0]["remedy"]


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
    broken.commit()
    broken.close()
    answer = call("ps", "--all")
    assert answer.code == 1
    assert answer.err.startswith("error: ")
