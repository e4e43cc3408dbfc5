"""A Slurm behind a WAN that is reached through its slurmrestd alone, beside one and a lab here.

Of a real distance two things are missing: the sites' clocks are one, and so is their file system.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.wan_bed import PATH, Bed
from tests.beds.test_slurm import PATIENCE_S, PROGRAM, SLURM, waits_for
from tests.scenarios.conftest import JOB

pytestmark = [
    pytest.mark.bed,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]

LINK = "* delay=20ms rate=100mbit"
PORT = 24000
OVER = ("succeeded", "failed", "cancelled")


class Cluster:
    """A Slurm in a namespace of its own."""

    def __init__(self, bed: Bed, place: Path, name: str, *options: str) -> None:
        self.bed, self.place, self.name = bed, place / name, name
        self._up = [
            str(SLURM / "slurm_up.sh"), "--dir", str(self.place), "--name", name,
            "--base-port", str(PORT), "--nodes", "2", "--gpus-per-node", "0",
            "--cpus-per-node", "4", "--grace", "10", *options,
        ]  # fmt: skip

    @property
    def conf(self) -> str:
        return str(self.place / "etc" / "slurm.conf")

    def start(self) -> subprocess.Popen[Any]:
        return self.bed.start(self.name, self._up, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        down = [str(SLURM / "slurm_down.sh"), "--dir", str(self.place), "--purge"]
        assert self.bed.start(self.name, down, stdout=subprocess.DEVNULL).wait(60) == 0

    def says(self, *argv: str) -> str:
        asked = self.bed.start(
            self.name,
            argv,
            environment={"SLURM_CONF": self.conf},
            stdout=subprocess.PIPE,
            text=True,
        )
        out: str = asked.communicate(timeout=60)[0]
        assert asked.returncode == 0, argv
        return out

    def jobs(self) -> list[str]:
        """Return name and state of all jobs that it remembers."""
        return self.says("squeue", "--noheader", "--states=all", "--format=%j %T").splitlines()

    def fill(self, partition: str) -> str:
        """Let a job of somebody else have all nodes; return its id."""
        wrap = "--nodes=2", "--exclusive", f"--partition={partition}", "--wrap=sleep 300"
        return self.says("sbatch", "--parsable", "--output=/dev/null", *wrap).strip()


class Desk:
    """A user at the login host of site a, which is a lab besides."""

    def __init__(self, place: Path, near: Cluster, far: Cluster) -> None:
        self.place, self.near, self.far = place, near, far
        self.bed = near.bed
        self.home = place / "home"
        self.token = place / "token"
        (place / "program.py").write_text(PROGRAM)
        (place / "text").mkdir()
        for number in range(12):
            words = [f"word{(number * 7 + i * i) % 31} = {i % 5}\n" for i in range(300)]
            (place / "text" / f"{number}.txt").write_text("".join(words))
        self.renew_token(3600)
        self._write_grid()

    def _write_grid(self) -> None:
        rest = {
            "url": f"http://{self.bed.address('b')}:{PORT + 3}",
            "user": "root",
            "token_file": str(self.token),
        }
        common = {"network": "10.77.0.0/16", "partition": "low"}
        there = {"PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"}
        sites = {
            "a": {
                "kind": "slurm",
                "nodes": {"a-n[0-1]": {"accelerators": "cpu:1"}},
                "slurm": {**common, "environment": {"SLURM_CONF": self.near.conf}},
            },
            "b": {
                "kind": "slurm",
                "nodes": {"b-n[0-1]": {"accelerators": "cpu:1"}},
                "slurm": {**common, "rest": rest, "environment": there},
            },
            "lab": {"nodes": {"desk": {"address": self.bed.address("a"), "accelerators": "cpu:1"}}},
        }
        (self.place / "grid.yaml").write_text(json.dumps({"sites": sites}))

    def renew_token(self, lifespan_s: int) -> None:
        self.token.write_text(self.far.says("scontrol", "token", f"lifespan={lifespan_s}"))

    def trains(self, *sites: str) -> str:
        """Hand in a small model over sites, one rank each; return the job."""
        where = {"accelerators": f"cpu:{len(sites)}", "sites": sites, "min_sites": len(sites)}
        return self._submit(JOB | {"steps": 20, "resources": where})

    def runs(self, steps: int) -> str:
        """Hand in a program at site b."""
        return self._submit({
            "name": "train",
            "grid": "grid.yaml",
            "run": f"{sys.executable} {self.place}/program.py {steps}",
            "resources": {"accelerators": "cpu:2", "sites": ["b"]},
            "grace": "5s",
            "retry": {"max_restarts": 3, "backoff": "1s"},
        })  # fmt: skip

    def _submit(self, job: dict[str, Any]) -> str:
        (self.place / "job.yaml").write_text(json.dumps(job))
        done = self.gridloom("submit", str(self.place / "job.yaml"), "--json")
        return str(json.loads(done)["job"])

    def gridloom(self, *argv: str) -> str:
        environment = {
            "GRIDLOOM_HOME": str(self.home), "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1",
            "COVERAGE_PROCESS_CONFIG": "",
        }  # fmt: skip
        asked = self.bed.start(
            "a", [sys.executable, "-P", "-m", "gridloom.cli.main", *argv],
            environment=environment, cwd=self.place, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = asked.communicate(timeout=60)
        assert asked.returncode == 0, out + err
        return str(out)

    def waits(self, job_id: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        until_s = time.monotonic() + PATIENCE_S
        while not reached(job := json.loads(self.gridloom("status", job_id, "--json"))):
            assert time.monotonic() < until_s, job
            time.sleep(0.5)
        return dict(job)

    def ends(self, job_id: str) -> dict[str, Any]:
        return self.waits(job_id, lambda job: job["state"] in OVER)

    def log(self, job_id: str, attempt: int, rank: int) -> list[str]:
        path = self.home / "runs" / job_id / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"
        return path.read_text().split()


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    with tempfile.TemporaryDirectory() as name, Bed(("a", "b"), [LINK]) as bed:
        place = Path(name)
        place.chmod(0o755)  # slurmrestd will not be root
        near = Cluster(bed, place, "a", "--accounting", "--no-rest")
        far = Cluster(bed, place, "b", "--rest-address", bed.address("b"))
        try:
            for start in [near.start(), far.start()]:
                assert start.wait(200) == 0
            yield near, far
        finally:
            near.stop()
            far.stop()


@pytest.fixture
def desk(tmp_path: Path, clusters: tuple[Cluster, Cluster]) -> Desk:
    for cluster in clusters:
        cluster.says("scancel", "--user=root")
    return Desk(tmp_path, *clusters)


def test_one_model_is_trained_over_the_wan(desk: Desk) -> None:
    pairs = [("a", "b"), ("b", "lab")]
    jobs = [desk.trains(*sites) for sites in pairs]
    for job_id, sites in zip(jobs, pairs, strict=True):
        job = desk.ends(job_id)
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
        assert {*job["summary"]["sites"]} == {*sites}
        lines = (desk.home / "runs" / job_id / "metrics.jsonl").read_text().splitlines()
        losses = {line["step"]: line["loss"] for line in map(json.loads, lines)}
        assert len(losses) == 20
        assert losses[20] < losses[1]
    desk.waits(jobs[0], lambda _: (desk.home / "runs" / jobs[0] / "summary.json").exists())
    (attempt,) = desk.ends(jobs[0])["summary"]["attempts"]
    (used,) = attempt["used"]
    assert used["site"] == "a", "the one that keeps accounts"
    assert used["elapsed_s"] > 0
    assert used["cpu_s"] > 0
    between = sum(desk.bed.carried_bytes().values())
    assert between > sum(
        json.loads((desk.home / "runs" / job_id / "summary.json").read_text())["bytes"][
            "between_sites"
        ]["measured"]
        for job_id in jobs
    )
    assert sum("gridloom-tiny" in line for line in desk.near.jobs()) == 1
    assert sum("gridloom-tiny" in line for line in desk.far.jobs()) == 2
    for path in desk.home.rglob("*"):
        if path.is_file():
            assert desk.token.read_bytes().strip() not in path.read_bytes()


def test_a_token_that_has_expired_only_costs_time(desk: Desk) -> None:
    other = desk.far.fill("high")
    job_id = desk.runs(5)
    desk.waits(job_id, lambda job: "Slurm job" in waits_for(job))
    desk.renew_token(1)
    job = desk.waits(job_id, lambda job: "has expired" in waits_for(job))
    assert waits_for(job).startswith(
        f"Slurm does not answer: the token of {desk.token} has expired"
    )
    desk.renew_token(3600)
    desk.far.says("scancel", other)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)


def test_what_waits_at_the_far_end_is_cancelled(desk: Desk) -> None:
    desk.far.fill("high")
    job_id = desk.runs(5)
    desk.waits(job_id, lambda job: "Slurm job" in waits_for(job))
    desk.gridloom("cancel", job_id)
    assert desk.ends(job_id)["state"] == "cancelled"
    assert [line for line in desk.far.jobs() if "gridloom-train PENDING" in line] == []


def test_a_job_that_is_preempted_at_the_far_end_goes_on(desk: Desk) -> None:
    job_id = desk.runs(40)
    desk.waits(job_id, lambda job: job["step"] >= 10)
    other = desk.far.fill("high")
    job = desk.waits(job_id, lambda job: job["attempt"] == 2 and bool(job["waits"]))
    assert job["summary"]["attempts"][0]["ended_because"] == "preempted"
    desk.far.says("scancel", other)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    first = desk.log(job_id, 2, 0)
    assert int(first[first.index("from") + 1]) >= 10


def test_a_no_of_the_far_end_is_told(desk: Desk) -> None:
    grid = json.loads((desk.place / "grid.yaml").read_text())
    grid["sites"]["b"]["slurm"]["partition"] = "nowhere"
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    job = desk.ends(desk.runs(5))
    assert job["state"] == "failed"
    assert "Slurm error 2000, Invalid partition name" in job["reason"]["sentence"]
