"""A site that was killed comes back into the attempt that the other trains on in."""

import json
import signal
from pathlib import Path

import pytest
import torch
from tests.scenarios.conftest import JOB, Stage, read_until
from tests.scenarios.test_failures import assert_journal_replays
from tests.unit.runtime.test_entry import load_weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 1000
APART = JOB | {
    "steps": STEPS,
    "sequence_length": 64,
    "checkpoint": {"interval": 100},
    "sync": {"kind": "outer", "every": 8, "fragments": 2},
}


def weights(checkpoints: Path, site: str) -> dict[str, torch.Tensor]:
    return load_weights(checkpoints / site / f"step-{STEPS:08d}")


def test_a_killed_site_comes_back_and_the_other_never_stops(stage: Stage) -> None:
    process = stage.start("run", "-y", str(stage.write("job.yaml", APART)), "--json")
    job = read_until(process, lambda e: e["event"] == "step" and e["step"] >= 50)["job"]
    before = {rank: one.pid for rank, one in stage.ranks().items()}
    for rank, one in stage.ranks().items():
        if rank >= 2:
            one.send_signal(signal.SIGKILL)
    lost = read_until(process, lambda e: e["event"] == "note")["message"]
    assert lost.startswith("site south restarts (1 of 3): rank ")
    assert "was killed by SIGKILL" in lost
    assert lost.endswith("; site north trains on")
    back = read_until(process, lambda e: e["event"] == "note")["message"]
    assert back.startswith("site south is back and goes on from training step ")
    after = {rank: one.pid for rank, one in stage.ranks().items()}
    assert [after[rank] == before[rank] for rank in range(4)] == [True, True, False, False]

    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    facts = json.loads(out.splitlines()[-1])
    (attempt,) = facts["attempts"]
    assert (facts["state"], attempt["ended_because"]) == ("succeeded", "completed")
    assert attempt["site_restarts"] == {"south": 1}
    assert attempt["notes"][:2] == [lost, back]
    assert facts["bits_per_byte"] is not None
    assert (stage.run_dir(job) / "attempts" / "1" / "life-2" / "south.south").is_dir()

    north, south = (weights(stage.run_dir(job) / "checkpoints", s) for s in ("north", "south"))
    assert north.keys() == south.keys()
    assert all(torch.equal(north[name], south[name]) for name in north)
    assert_journal_replays(stage.home)
