"""Real Slurm clusters as sites: jobs across two, queues, preemption, controllers that die."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.bed, pytest.mark.timeout(240)]

SLURM = Path(__file__).parent / "slurm"
PATIENCE_S = 90.0

PROGRAM = """
import json, os, pathlib, signal, socket, sys, time

rank, home = int(os.environ["RANK"]), pathlib.Path(os.environ["GRIDLOOM_RUN_DIR"])
kept = home / f"kept-{rank}"
asked = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: asked.append(1))

def say(kind, **line):
    with open(os.environ["GRIDLOOM_REPORT_FILE"], "a") as file:
        file.write(json.dumps({"kind": kind, **line}) + "\\n")

step = int(kept.read_text()) if kept.exists() else 0
print("at", os.environ["GRIDLOOM_SITE"], os.environ.get("SLURMD_NODENAME"),
      os.environ["MASTER_ADDR"], os.environ["GRIDLOOM_NODE_ADDRESSES"], "from", step, flush=True)
if rank == 0:
    meet = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
say("ready", resumed_step=step)
while step < int(sys.argv[1]):
    if asked:
        kept.write_text(str(step))
        say("checkpoint", step=step, path=str(kept))
        sys.exit(75)
    time.sleep(0.2)
    step += 1
    say("step", step=step)
    if step % 10 == 0:
        kept.write_text(str(step))
        say("checkpoint", step=step, path=str(kept))
"""


class Cluster:
    """A Slurm of our own."""

    def __init__(self, place: Path, name: str, port: int, *options: str) -> None:
        self.place, self.name = place / name, name
        self.up = [
            str(SLURM / "slurm_up.sh"), "--dir", str(self.place), "--name", name,
            "--base-port", str(port), "--nodes", "2", "--gpus-per-node", "0",
            "--cpus-per-node", "4", "--grace", "10", *(options or ("--no-rest",)),
        ]  # fmt: skip
        self.start()

    @property
    def conf(self) -> str:
        return str(self.place / "etc" / "slurm.conf")

    def start(self) -> None:
        """Start what does not run."""
        subprocess.run(self.up, check=True, timeout=200, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        down = [str(SLURM / "slurm_down.sh"), "--dir", str(self.place), "--purge"]
        subprocess.run(down, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def says(self, *argv: str) -> str:
        done = subprocess.run(
            argv, env=os.environ | {"SLURM_CONF": self.conf}, capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def queue(self) -> list[str]:
        """Return name, state and nodes of the jobs that wait or run."""
        return self.says("squeue", "--noheader", "--format=%j %T %N").split("\n")[:-1]

    def fill(self, partition: str = "high", nodes: int = 2) -> int:
        """Let a job of somebody else have all nodes, or so many; return its id."""
        wrap = f"--nodes={nodes}", "--exclusive", f"--partition={partition}", "--wrap=sleep 300"
        return int(self.says("sbatch", "--parsable", "--output=/dev/null", *wrap))

    def kill_controller(self) -> None:
        self._kill("slurmctld")

    def kill_node(self, node: str) -> None:
        self._kill(f"slurmd.{node}")

    def mark(self, node: str, state: str) -> None:
        self.says("scontrol", "update", f"nodename={node}", f"state={state}", "reason=fans")

    def _kill(self, daemon: str) -> None:
        pid = int((self.place / "run" / f"{daemon}.pid").read_text())
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    place = tmp_path_factory.mktemp("slurm")
    made: dict[str, Cluster] = {}
    try:
        for name, port in (("sita", 24000), ("sitb", 25000)):
            made[name] = Cluster(place, name, port)
        yield made
    finally:
        for cluster in made.values():
            cluster.stop()


class Desk:
    """A user at a login host."""

    def __init__(self, place: Path, clusters: dict[str, Cluster]) -> None:
        self.place = place
        self.home = place / "home"
        self.env = os.environ | {"GRIDLOOM_HOME": str(self.home)}
        (place / "program.py").write_text(PROGRAM)
        sites: dict[str, Any] = {
            name: {
                "kind": "slurm",
                "lease": "6s",  # as short as anywhere: what waits or runs must be heard of
                "nodes": {f"{name}-n[0-1]": {"accelerators": "cpu:2"}},
                "slurm": {
                    "network": "127.0.0.0/8",
                    "partition": "low",
                    "environment": {"SLURM_CONF": cluster.conf},
                },
            }
            for name, cluster in clusters.items()
        }
        sites["lab"] = {"accelerators": "cpu:2"}
        (place / "grid.yaml").write_text(json.dumps({"sites": sites}))

    def submit(self, steps: int, ranks: int, *sites: str) -> str:
        job = {
            "name": "train",
            "grid": "grid.yaml",
            "run": f"{sys.executable} {self.place}/program.py {steps}",
            "resources": {
                "accelerators": f"cpu:{ranks}", "sites": sites, "min_sites": len(sites)
            },
            "grace": "5s",
            "retry": {"max_restarts": 3, "backoff": "1s"},
        }  # fmt: skip
        (self.place / "job.yaml").write_text(json.dumps(job))
        done = self.gridloom("submit", str(self.place / "job.yaml"), "--json")
        return str(json.loads(done)["job"])

    def gridloom(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "gridloom.cli.main", *argv],
            env=self.env, capture_output=True, text=True, check=False, timeout=60,
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
            time.sleep(0.5)
        return job

    def ends(self, job_id: str) -> dict[str, Any]:
        return self.waits(job_id, lambda job: job["state"] in ("succeeded", "failed", "cancelled"))

    def log(self, job_id: str, attempt: int, rank: int) -> list[str]:
        path = self.home / "runs" / job_id / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"
        return path.read_text().split()


def waits_for(job: dict[str, Any]) -> str:
    """Return what the job waits for at its site; empty when it does not."""
    return str(job["waits"][0]["sentence"]) if job["waits"] else ""


@pytest.fixture
def desk(tmp_path: Path, clusters: dict[str, Cluster]) -> Desk:
    for cluster in clusters.values():
        cluster.start()
        cluster.says("scancel", "--user=root")
    return Desk(tmp_path, clusters)


def test_a_job_over_two_clusters_and_the_lab(desk: Desk, clusters: dict[str, Cluster]) -> None:
    job_id = desk.submit(5, 6, "sita", "sitb", "lab")
    assert desk.ends(job_id)["state"] == "succeeded"
    places = [desk.log(job_id, 1, rank)[1:3] for rank in range(6)]
    assert [place[0] for place in places] == ["sita", "sita", "sitb", "sitb", "lab", "lab"]
    assert {place[1].partition("-")[0] for place in places} == {"sita", "sitb", "None"}
    for cluster in clusters.values():
        assert cluster.queue() == []


def test_a_job_in_a_clusters_queue_says_why_and_can_be_cancelled(
    desk: Desk, clusters: dict[str, Cluster]
) -> None:
    clusters["sita"].fill()
    job_id = desk.submit(5, 2, "sita")
    job = desk.waits(job_id, lambda job: "Slurm job" in waits_for(job))
    assert job["state"] == "starting"
    assert job["waits"][0]["site"] == "sita"
    assert len(clusters["sita"].queue()) == 2
    time.sleep(12.0)  # longer than a lease and its margin: it is heard of
    assert desk.job(job_id)["attempt"] == 1
    desk.gridloom("cancel", job_id)
    assert desk.ends(job_id)["state"] == "cancelled"
    assert [line for line in clusters["sita"].queue() if "gridloom" in line] == []


def test_a_controller_that_dies_costs_nothing(desk: Desk, clusters: dict[str, Cluster]) -> None:
    cluster = clusters["sita"]
    other = cluster.fill()
    waiting = desk.submit(5, 2, "sita")
    running = desk.submit(600, 2, "sitb")
    desk.waits(waiting, lambda job: "Slurm job" in waits_for(job))
    # Not at once: a controller writes down only every few seconds what it has started
    desk.waits(running, lambda job: job["step"] > 60)
    for one in clusters.values():
        one.kill_controller()
    desk.waits(waiting, lambda job: "does not answer" in waits_for(job))
    time.sleep(12.0)
    step = desk.job(running)["step"]
    assert desk.waits(running, lambda job: job["step"] > step)["state"] == "running"
    for one in clusters.values():
        one.start()
    cluster.says("scancel", str(other))
    job = desk.ends(waiting)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    job = desk.job(running)
    assert (job["state"], job["attempt"]) == ("running", 1)
    desk.gridloom("stop", running)
    assert desk.waits(running, lambda job: job["state"] == "stopped")["checkpoint_step"] > step
    for job_id in (waiting, running):
        assert desk.log(job_id, 1, 0).count("from") == 1, "its ranks were started once"


def test_a_preempted_job_saves_and_goes_on_when_its_turn_comes(
    desk: Desk, clusters: dict[str, Cluster]
) -> None:
    cluster = clusters["sita"]
    job_id = desk.submit(80, 4, "sita")
    desk.waits(job_id, lambda job: job["step"] >= 10)
    other = cluster.fill("high")
    job = desk.waits(job_id, lambda job: job["attempt"] == 2 and bool(job["waits"]))
    assert job["summary"]["attempts"][0]["ended_because"] == "preempted"
    cluster.says("scancel", str(other))
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    first = desk.log(job_id, 2, 0)
    kept = int(first[first.index("from") + 1])
    assert kept > 10, "it went on from where it had saved"
    assert kept == job["summary"]["attempts"][0]["last_step"]


def drained(cluster: Cluster, node: str) -> None:
    cluster.mark(node, "drain")


def downed(cluster: Cluster, node: str) -> None:
    cluster.mark(node, "down")


def resumed(cluster: Cluster, node: str) -> None:
    cluster.mark(node, "resume")


def started(cluster: Cluster, _node: str) -> None:
    cluster.start()


@pytest.mark.parametrize(
    ("befalls", "mends", "cause", "steps"),
    [
        (drained, resumed, "stop_requested", 120),
        (downed, resumed, "node_lost", 120),
        # Slurm takes 20 s to miss a slurmd, and what runs there goes on until it does
        (Cluster.kill_node, started, "node_lost", 240),
    ],
    ids=["drained", "down", "slurmd killed"],
)
def test_a_job_leaves_a_node_that_its_site_takes_away(
    desk: Desk,
    clusters: dict[str, Cluster],
    befalls: Callable[[Cluster, str], None],
    mends: Callable[[Cluster, str], None],
    cause: str,
    steps: int,
) -> None:
    cluster = clusters["sita"]
    job_id = desk.submit(steps, 2, "sita")
    desk.waits(job_id, lambda job: job["step"] >= 12)
    node = desk.log(job_id, 1, 0)[2]
    befalls(cluster, node)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    first = job["summary"]["attempts"][0]
    assert first["ended_because"] == cause
    log = desk.log(job_id, 2, 0)
    assert log[2] != node
    assert int(log[log.index("from") + 1]) >= 10, "it went on from where it had saved"
    told = json.loads(desk.gridloom("ps", "--json"))["marks"]
    assert [(one["domain"], one["by_site"]) for one in told] == [(f"sita/{node}", True)]
    mends(cluster, node)
    assert desk.ends(desk.submit(5, 4, "sita"))["state"] == "succeeded", "it is well again"
    assert json.loads(desk.gridloom("ps", "--json"))["marks"] == []


def test_what_a_cluster_will_not_have_is_refused_with_its_words(
    desk: Desk, clusters: dict[str, Cluster]
) -> None:
    grid = json.loads((desk.place / "grid.yaml").read_text())
    grid["sites"]["sita"]["slurm"]["partition"] = "nowhere"
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    job = desk.ends(desk.submit(5, 2, "sita"))
    assert job["state"] == "failed"
    assert "invalid partition" in job["reason"]["sentence"].lower()
    assert clusters["sita"].queue() == []


def test_a_job_beyond_the_size_of_a_partition_is_refused(
    desk: Desk, clusters: dict[str, Cluster]
) -> None:
    grid = json.loads((desk.place / "grid.yaml").read_text())
    grid["sites"]["sita"]["nodes"] = {"sita-n[0-2]": {"accelerators": "cpu:2"}}
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    job = desk.ends(desk.submit(5, 6, "sita"))
    assert job["state"] == "failed"
    # 22.05 takes it in and lets it wait, newer ones will not have it
    words = "would never start: it asks for more", "Requested node configuration is not available"
    assert any(said in job["reason"]["sentence"] for said in words)
    assert clusters["sita"].queue() == []
