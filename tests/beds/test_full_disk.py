"""A disk that is really full while a checkpoint is written."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.conftest import JOB, Stage

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

SIZE_BYTES = 4 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_full_disk_fails_clearly_and_resume_goes_on(small_disk: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    checkpoint = {"interval": 10, "directory": str(small_disk / "checkpoints"), "keep": 1}
    ballast = small_disk / "ballast"
    one_site = {"resources": {"accelerators": "cpu:2"}}
    document = JOB | {"checkpoint": checkpoint, "steps": 400} | one_site
    process = stage.start("run", "-y", str(stage.write("job.yaml", document)), "--json")
    assert process.stdout is not None
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1].get("checkpoint_step") and not ballast.exists():
            fill(ballast)
    process.communicate()

    facts = events[-1]
    assert process.returncode == 1
    assert facts["state"] == "failed"
    assert facts["reason"]["code"] == "io"
    assert "No space left on device" in facts["reason"]["sentence"]
    assert str(small_disk) in facts["reason"]["sentence"]
    assert facts["reason"]["remedy"]
    assert len(facts["attempts"]) == 1
    logs = "".join(entry["line"] for entry in stage.call("logs", facts["job"]))
    assert "Traceback" not in logs
    (shelf,) = (small_disk / "checkpoints").iterdir()
    left = [path.name for path in shelf.iterdir()]
    assert sorted(left) == ["in-use.lock", f"step-{facts['checkpoint_step']:08d}"]

    ballast.unlink()
    resumed = stage.call("resume", facts["job"])[-1]
    assert resumed["state"] == "succeeded"
    assert resumed["attempts"][1]["first_step"] == facts["checkpoint_step"] + 1


def fill(path: Path) -> None:
    """Write until there is no room for another byte."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return
