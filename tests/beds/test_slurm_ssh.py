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
            "lab": {"accelerators": "cpu:2", "price_per_accelerator_hour": 1.0},
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

    def trains(self, *sites: str, steps: int, **more: int) -> str:
        """Hand in a small model over sites."""
        where = {"accelerators": "cpu:2", "sites": sites, "min_sites": len(sites)} | more
        return self.submit(
            JOB | {"steps": steps, "resources": where, "checkpoint": {"interval": 10}}
        )

    def check(self) -> dict[str, str]:
        """Return what `site check` says of each thing that it has looked at, the worst last."""
        words = ["site", "check", "hpc", "--grid", "grid.yaml", "--json"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gridloom.cli.main", *words],
            env=self.env, cwd=self.place, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        (site,) = json.loads(done.stdout)["sites"]
        findings = sorted(site["findings"], key=lambda one: one["state"] != "ok")
        return {one["check"]: one["state"] for one in findings}

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
            assert time.monotonic() < until_s, json.dumps(job)
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


def goes_on(job: dict[str, Any], attempt: int) -> bool:
    """Return whether an attempt has begun to train, from a checkpoint."""
    return job["attempt"] == attempt and bool(job["summary"]["attempts"][-1]["resumed_step"])


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


def looks_as_everywhere(desk: Desk, job_id: str) -> None:
    for rank in (0, 1):
        assert desk.log(job_id, 1, rank).startswith("at hpc hpc-n")
    assert desk.log(job_id, 1, 0).count("from") == 1, "its ranks were started once"
    assert "from 0" in desk.gridloom("logs", job_id)
    (task,) = (desk.site.scratch / "runs" / job_id / "attempts" / "1").glob("hpc.*")
    here = desk.run(job_id) / "attempts" / "1" / task.name
    assert (here / "reports.jsonl").read_bytes() == (task / "reports.jsonl").read_bytes()
    assert (desk.run(job_id) / "report.html").exists()


def has_learnt(desk: Desk, job_id: str) -> None:
    lines = (desk.run(job_id) / "metrics.jsonl").read_text().splitlines()
    losses = {line["step"]: line["loss"] for line in map(json.loads, lines)}
    assert len(losses) == len(lines) == 20
    assert losses[20] < losses[1]
    assert desk.job(job_id)["summary"]["bits_per_byte"] > 0


def test_jobs_outlive_their_link_and_their_control_plane(desk: Desk) -> None:
    plain, long = desk.runs(60), desk.runs(1000)
    model = desk.trains("hpc", "lab", steps=20)
    desk.waits(plain, lambda job: job["step"] >= 5)
    desk.waits(long, lambda job: job["checkpoint_step"] >= 10)
    desk.site.leave()
    time.sleep(2.0)  # what had come is told by then
    step = desk.job(plain)["step"]
    time.sleep(6.0)  # longer than many polls, and than leases of other sites
    late = desk.runs(5)
    assert desk.job(plain)["step"] == step, "nothing is heard"
    desk.site.listen()
    desk.waits(plain, lambda job: job["step"] > step + 2)
    for process in control_planes(desk.home):
        os.kill(process, signal.SIGKILL)
    desk.gridloom("stop", long)

    job = desk.ends(plain)
    assert (job["state"], job["attempt"], job["summary"]["steps"]) == ("succeeded", 1, 60), job
    looks_as_everywhere(desk, plain)

    job = desk.ends(long)
    assert (job["state"], job["attempt"]) == ("stopped", 1), job
    kept = job["checkpoint_step"]
    desk.gridloom("resume", long, "--detach")
    desk.waits(long, lambda job: job["step"] > kept)
    desk.gridloom("cancel", long)
    assert f"from {kept}" in desk.log(long, 2, 0), "its checkpoint was there"

    job = desk.ends(model)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert {*job["summary"]["sites"]} == {"hpc", "lab"}
    has_learnt(desk, model)

    job = desk.ends(late)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), job
    assert desk.ends(long)["state"] == "cancelled"
    names = sorted(line.rpartition("-")[0] for line in desk.site.jobs())
    assert names == ["gridloom-tiny", *["gridloom-train"] * 4], "none was handed in twice"


def test_a_job_moves_with_its_checkpoint(desk: Desk) -> None:
    job_id = desk.trains("hpc", "lab", steps=10**5, min_sites=1, max_sites=1)
    desk.waits(job_id, lambda job: job["checkpoint_step"] >= 10)
    assert desk.job(job_id)["sites"] == {"hpc": 2}
    desk.site.mark("drain")
    job = desk.waits(job_id, lambda job: goes_on(job, 2))
    assert job["sites"] == {"lab": 2}
    (first, second) = job["summary"]["attempts"]
    assert second["resumed_step"] == first["checkpoint_step"]
    desk.waits(job_id, lambda job: job["checkpoint_step"] > second["resumed_step"])
    desk.site.mark("resume")
    desk.gridloom("node", "drain", "lab")
    job = desk.waits(job_id, lambda job: goes_on(job, 3))
    assert job["sites"] == {"hpc": 2}
    (_, second, third) = job["summary"]["attempts"]
    assert third["resumed_step"] == second["checkpoint_step"]
    desk.gridloom("cancel", job_id)
    desk.ends(job_id)


def test_what_is_wrong_with_a_site_is_found(desk: Desk) -> None:
    found = desk.check()
    assert [name for name, state in found.items() if state != "ok"] == []
    desk.write_grid(known_hosts="/dev/null")
    assert desk.check() == {"ssh": "fail"}


def test_a_batch_script_runs_as_it_is(desk: Desk) -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=2 --output=out-%j.txt\nsrun hostname\ncat program.py\n"
    (desk.place / "train.sbatch").write_text(script)
    words = ["submit", str(desk.place / "train.sbatch"), "--grid", "grid.yaml", "--json"]
    job_id = json.loads(desk.gridloom(*words))["job"]
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1), json.dumps(job)
    assert PROGRAM in desk.log(job_id, 1, 0)
