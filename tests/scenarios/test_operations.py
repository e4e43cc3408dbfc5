"""What an operator does while a model trains: the run moves, goes on, and nothing is done twice."""

from typing import Any

import pytest
from tests.scenarios.conftest import JOB, Stage, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NODE = {"address": "127.0.0.1", "accelerators": "cpu:2"}
GRID = {
    "sites": {"north": {"nodes": {"n1": NODE, "n2": NODE}}},
    "queues": {"vision": {"nominal": {"cpu": 2}}},
}
STEPS = 600


def test_the_training_on_a_drained_node_goes_on_elsewhere_from_where_it_was(stage: Stage) -> None:
    stage.write("grid.yaml", GRID)
    job = JOB | {"resources": {"accelerators": "cpu:2"}, "steps": STEPS, "deadline": "8h"}
    (submitted,) = stage.call("submit", str(stage.write("job.yaml", job)))
    job_id = submitted["job"]
    metrics = stage.run_dir(job_id) / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_bytes().splitlines()) >= 20)

    def status() -> dict[str, Any]:
        (found,) = stage.call("status", job_id)
        return found

    (before,) = status()["summary"]["sites"]["north"]["nodes"]
    (drained,) = stage.call("node", "drain", before, "--reason", "fan broken")
    assert drained["jobs"] == [job_id]
    wait_for((stage.run_dir(job_id) / "summary.json").exists)

    found = status()
    facts = found["summary"]
    assert found["state"] == "succeeded"
    assert facts["evictions"] == 1
    assert facts["steps_repeated"] == 0, "it saved its state before it moved"
    first, second = facts["attempts"]
    assert second["resumed_step"] == first["last_step"]
    assert 20 <= first["last_step"] < STEPS
    assert list(facts["sites"]["north"]["nodes"]) == [{"n1": "n2", "n2": "n1"}[before]]
    assert sorted(stage.losses(job_id)) == list(range(1, STEPS + 1))
    assert (found["queue"], bool(found["user"])) == ("vision", True)
