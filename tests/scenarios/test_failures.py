"""Killed processes, killed control planes, and people who press Ctrl-C."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.conftest import JOB, Stage, read_until, wait_for

from gridloom.base.codec import encode
from gridloom.control.restore import replayed, restore
from gridloom.core import laws
from gridloom.store.journal import SqlJournal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LONG = JOB | {
    "resources": {"accelerators": "cpu:2", "min_sites": 2},
    "steps": 400,
    "checkpoint": {"interval": 40},
}


def assert_journal_replays(home: Path) -> None:
    journal = SqlJournal(home / "journal.sqlite")
    machine, _ = restore(journal)
    assert replayed(journal.records()) == encode(machine.state)
    laws.check(machine.state)


def damaged(shelf: Path) -> tuple[Path, Path]:
    """Cut the newest checkpoint of a site short; return it and the one before."""
    newest, older = sorted(shelf.glob("step-*"), reverse=True)
    shard = newest / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    return newest, older


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    stage = Stage(tmp_path_factory.mktemp("undisturbed") / "stage")
    return stage.losses(stage.run(LONG)["job"])


def test_killed_rank_is_a_repeated_interval_and_no_more(
    stage: Stage, undisturbed: dict[int, float]
) -> None:
    # both ranks at one site: of several, the one that is lost would come back alone
    one_site = LONG | {"resources": {"accelerators": "cpu:2"}}
    process = stage.start("run", "-y", str(stage.write("job.yaml", one_site)), "--json")
    job = read_until(process, lambda e: e["event"] == "step" and e["step"] >= 100)["job"]
    stage.ranks()[1].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    facts = json.loads(out.splitlines()[-1])

    assert facts["state"] == "succeeded"
    assert [attempt["ended_because"] for attempt in facts["attempts"]] == ["killed", "completed"]
    assert "rank 1 was killed by SIGKILL" in facts["attempts"][0]["sentence"]
    second = facts["attempts"][1]
    assert second["resumed"]
    assert (second["first_step"] - 1) % 40 == 0
    assert second["first_step"] > 40
    assert 0 < facts["steps_repeated"] <= 40
    assert stage.losses(job) == pytest.approx(undisturbed, abs=1e-6)
    assert_journal_replays(stage.home)


def test_killed_control_plane_leaves_nothing_and_resume_goes_on(
    stage: Stage, undisturbed: dict[int, float]
) -> None:
    process = stage.start("run", "-y", str(stage.write("job.yaml", LONG)), "--json")
    job = read_until(process, lambda e: e["event"] == "step" and e["step"] >= 60)["job"]
    assert sorted(stage.ranks()) == [0, 1]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    killed_s = time.monotonic()
    wait_for(lambda: not stage.ranks(), limit_s=10)
    wait_for(lambda: not stage.processes(), limit_s=max(0.1, killed_s + 10 - time.monotonic()))

    facts = stage.call("resume", job)[-1]
    assert facts["state"] == "succeeded"
    assert stage.losses(job) == pytest.approx(undisturbed, abs=1e-6)
    assert_journal_replays(stage.home)


def test_ctrl_c_saves_and_resume_goes_on_from_there_or_from_what_is_whole(
    stage: Stage, undisturbed: dict[int, float]
) -> None:
    process = stage.start("run", "-y", str(stage.write("job.yaml", LONG)), "--json")
    job, stopped = stopped_after(process, 50)
    wait_for(lambda: not stage.processes(), limit_s=20)
    _, again = stopped_after(stage.start("resume", job, "--json"), stopped["steps"] + 50)
    assert again["steps_repeated"] == 0
    assert again["attempts"][-1]["resumed_step"] == stopped["checkpoint_step"]

    # at both sites: else the one would take over what the other has
    shelves = [stage.run_dir(job) / "checkpoints" / site for site in ("north", "south")]
    (newest, older), _ = [damaged(shelf) for shelf in shelves]
    events = stage.call("resume", job)
    notes = [event["message"] for event in events if event["event"] == "note"]
    assert len(notes) == 2
    assert f"{newest.name}: __0_0.distcp has" in notes[0]
    assert "although a checkpoint of step" in notes[1]
    # On a machine whose disk stalls, a lease may lapse and yet another attempt be needed
    resumed = next(attempt for attempt in events[-1]["attempts"] if attempt["notes"])
    assert resumed["notes"] == notes
    assert resumed["resumed_step"] == int(older.name.removeprefix("step-"))
    assert events[-1]["state"] == "succeeded"
    assert stage.losses(job) == pytest.approx(undisturbed, abs=1e-6)
    assert_journal_replays(stage.home)


def stopped_after(process: subprocess.Popen[str], step: int) -> tuple[str, dict[str, Any]]:
    """Press Ctrl-C at a training step or soon after; return the job and its summary."""
    job = read_until(process, lambda e: e["event"] == "step" and e["step"] >= step)["job"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    facts = json.loads(out.splitlines()[-1])
    assert facts["state"] == "stopped"
    assert facts["checkpoint_step"] == facts["steps"] < LONG["steps"]
    return job, facts
