"""A Slurm behind a login host that shares no directory with the desk, beside a lab at the desk."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.wan_bed import PATH
from tests.beds.far_site import FarSite
from tests.beds.test_slurm import PATIENCE_S, PROGRAM
from tests.scenarios.conftest import JOB

pytestmark = [
    pytest.mark.bed,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]

PORT = 28000
OVER = ("succeeded", "failed", "cancelled", "stopped")


class Desk:
    """A user at a workstation."""

    def __init__(self, place: Path, site: FarSite) -> None:
        self.place, self.site = place, site
        self.home = place / "home"
        self.env = os.environ | {
            "GRIDLOOM_HOME": str(self.home), "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1",
            "COVERAGE_PROCESS_CONFIG": "", "HOME": str(place),
        }  # fmt: skip
        (place / "program.py").write_text(PROGRAM)
        (place / "text").mkdir(exist_ok=True)
        for number in range(12):
            words = [f"word{(number * 7 + i * i) % 31} = {i % 5}\n" for i in range(300)]
            (place / "text" / f"{number}.txt").write_text("".join(words))
        self.write_grid()

    def write_grid(self, **more: Any) -> None:
        sites = {
            "hpc": self.site.document(sys.executable, **more),
            "lab": {"accelerators": "cpu:2"},
        }
        (self.place / "grid.yaml").write_text(json.dumps({"sites": sites}))

    def runs(self, steps: int, **more: Any) -> str:
        """Hand in a program at the far site."""
        return self.submit({
            "name": "train",
            "run": f"python program.py {steps}",
            "resources": {"accelerators": "cpu:2", "sites": ["hpc"]},
            "grace": "5s",
            "retry": {"max_restarts": 3, "backoff": "1s"},
        } | more)  # fmt: skip

    def submit(self, job: dict[str, Any]) -> str:
        (self.place / "job.yaml").write_text(json.dumps(job | {"grid": "grid.yaml"}))
        done = self.gridloom("submit", str(self.place / "job.yaml"), "--json")
        return str(json.loads(done)["job"])

    def gridloom(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gridloom.cli.main", *argv],
            env=self.env, cwd=self.place, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def job(self, job_id: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.gridloom("status", job_id, "--json"))
        return said

    def waits(self, job_id: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        until_s = time.monotonic() + PATIENCE_S
        while not reached(job := self.job(job_id)):
            assert time.monotonic() < until_s, job
            time.sleep(0.3)
        return job

    def ends(self, job_id: str) -> dict[str, Any]:
        return self.waits(
            job_id,
            lambda job: job["state"] in OVER and (self.run(job_id) / "summary.json").exists(),
        )

    def run(self, job_id: str) -> Path:
        return self.home / "runs" / job_id

    def log(self, job_id: str, attempt: int, rank: int) -> str:
        return (self.run(job_id) / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log").read_text()


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gridloom-far-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def site(place: Path) -> Iterator[FarSite]:
    (place / "desk").mkdir()
    made = FarSite(place, "hpc", PORT, place / "desk")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def desk(place: Path, site: FarSite) -> Iterator[Desk]:
    site.says("scancel", "--user=root")
    here = Path(tempfile.mkdtemp(dir=place / "desk"))
    made = Desk(here, site)
    yield made
    for process in control_planes(made.home):
        os.kill(process, signal.SIGKILL)


def control_planes(home: Path) -> list[int]:
    """Return the processes that may lead a state directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
            if f"GRIDLOOM_HOME={home}".encode() in path.read_bytes().split(b"\0"):
                found += [int(path.parent.name)] if b"gridloom.cli.main" in words else []
        except OSError:
            continue
    return found


def test_a_job_runs_where_nothing_of_the_desk_is_seen(desk: Desk) -> None:
    job_id = desk.runs(5)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    for rank in (0, 1):
        assert desk.log(job_id, 1, rank).startswith("at hpc hpc-n")
    there = desk.site.scratch / "runs" / job_id
    (task,) = (there / "attempts" / "1").glob("hpc.*")
    here = desk.run(job_id) / "attempts" / "1" / task.name
    assert (here / "reports.jsonl").read_bytes() == (task / "reports.jsonl").read_bytes()
    assert (desk.run(job_id) / "report.html").exists()
    assert "from 0" in desk.gridloom("logs", job_id)
    assert not (there / "job.yaml").exists()


def test_a_login_host_that_is_away_costs_nothing_but_time(desk: Desk) -> None:
    job_id = desk.runs(60)
    desk.waits(job_id, lambda job: job["step"] >= 5)
    desk.site.leave()
    step = desk.job(job_id)["step"]
    time.sleep(8.0)  # longer than many polls, and than leases of other sites
    later = desk.runs(5)
    assert desk.job(job_id)["step"] <= step + 1
    desk.site.listen()
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert desk.log(job_id, 1, 0).count("from") == 1
    assert job["summary"]["steps"] == 60
    job = desk.ends(later)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert len([line for line in desk.site.jobs() if "gridloom-train" in line]) >= 2


def test_a_job_is_stopped_and_goes_on_where_its_checkpoint_is(desk: Desk) -> None:
    job_id = desk.runs(200)
    desk.waits(job_id, lambda job: job["step"] >= 12)
    desk.gridloom("stop", job_id)
    job = desk.ends(job_id)
    assert job["state"] == "stopped", job
    kept = job["checkpoint_step"]
    assert kept >= 12
    desk.gridloom("resume", job_id, "--detach")
    desk.waits(job_id, lambda job: job["step"] > kept)
    desk.gridloom("stop", job_id)
    assert desk.ends(job_id)["state"] == "stopped"
    assert f"from {kept}" in desk.log(job_id, 2, 0)


def test_whoever_takes_over_from_a_control_plane_that_was_killed_adopts(desk: Desk) -> None:
    job_id = desk.runs(60)
    desk.waits(job_id, lambda job: job["step"] >= 5)
    for process in control_planes(desk.home):
        os.kill(process, signal.SIGKILL)
    later = desk.runs(5)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert desk.log(job_id, 1, 0).count("from") == 1
    assert desk.ends(later)["state"] == "succeeded"


def test_one_model_is_trained_here_and_there(desk: Desk) -> None:
    where = {"accelerators": "cpu:2", "sites": ["hpc", "lab"], "min_sites": 2}
    job_id = desk.submit(JOB | {"steps": 20, "resources": where})
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert {*job["summary"]["sites"]} == {"hpc", "lab"}
    lines = (desk.run(job_id) / "metrics.jsonl").read_text().splitlines()
    losses = {line["step"]: line["loss"] for line in map(json.loads, lines)}
    assert len(losses) == len(lines) == 20
    assert losses[20] < losses[1]
    assert job["summary"]["bits_per_byte"] > 0
