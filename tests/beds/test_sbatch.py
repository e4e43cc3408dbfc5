"""Users' own batch scripts, unchanged, at a real Slurm: output, signals, arrays, preemption."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.beds.test_slurm import Cluster, Desk

pytestmark = [pytest.mark.bed, pytest.mark.timeout(120)]

PORT = 28100
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # slurmrestd runs as nobody, who may not pass through the directories of a test run
    with tempfile.TemporaryDirectory(prefix="gridloom-sbatch-") as place:
        Path(place).chmod(0o755)
        cluster = Cluster(Path(place), "sbatch", PORT, "--rest-address", "127.0.0.1")
        try:
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def desk(tmp_path: Path, cluster: Cluster) -> Desk:
    cluster.says("scancel", "--user=root")
    return Desk(tmp_path, {"hpc": cluster})


@pytest.fixture(params=["sbatch", "slurmrestd"])
def either(request: pytest.FixtureRequest, desk: Desk, cluster: Cluster) -> Desk:
    """A desk whose site is asked by commands, or through slurmrestd alone."""
    if request.param == "slurmrestd":
        token = desk.place / "token"
        token.write_text(cluster.says("scontrol", "token", "lifespan=3600"))
        grid = json.loads((desk.place / "grid.yaml").read_text())
        access = grid["sites"]["hpc"]["slurm"]
        url = f"http://127.0.0.1:{PORT + 3}"
        access["rest"] = {"url": url, "user": "root", "token_file": str(token)}
        access["environment"] = {"SLURM_CONF": cluster.conf, "PYTHONPATH": str(SRC)}
        (desk.place / "grid.yaml").write_text(json.dumps(grid))
    return desk


def submit(desk: Desk, script: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hand a script in where it lies; return the ids of its jobs."""
    (desk.place / "train.sbatch").write_text(script)
    nodes = {"sbatch-n[0-1]": {"accelerators": "cpu:4"}}
    grid = json.loads((desk.place / "grid.yaml").read_text())
    grid["sites"] = {"hpc": grid["sites"]["hpc"] | {"nodes": nodes}}
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    monkeypatch.chdir(desk.place)
    said = json.loads(desk.gridloom("submit", "train.sbatch", "--grid", "grid.yaml", "--json"))
    return [str(one) for one in said.get("jobs", [said["job"]])]


def test_a_script_runs_as_it_is(
    either: Desk, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = either
    script = """#!/bin/bash -e
#SBATCH -J two-nodes --nodes=2 --ntasks-per-node=2 -c 2 --mem-per-cpu=50M -m cyclic --nice=5
#SBATCH --output=out-%x.txt --error=err.txt --time=5
cd "$SLURM_SUBMIT_DIR"
echo "to its errors" >&2
echo "job=$SLURM_JOB_NAME tasks=$SLURM_NTASKS rank=${RANK-none} in=$PWD home=$HOME"
scontrol show job "$SLURM_JOB_ID" > job.txt
srun bash -c 'echo "proc=$SLURM_PROCID rank=${RANK-none} node=$SLURMD_NODENAME"'
"""
    (job_id,) = submit(desk, script, monkeypatch)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    lines = (desk.place / "out-two-nodes.txt").read_text().splitlines()
    home = os.environ["HOME"]
    assert lines[0] == f"job=two-nodes tasks=4 rank=none in={desk.place} home={home}"
    assert sorted(lines[1:]) == [
        f"proc={number} rank=none node=sbatch-n{number % 2}" for number in range(4)
    ]
    said = dict(word.split("=", 1) for word in (desk.place / "job.txt").read_text().split())
    assert (said["NumTasks"], said["CPUs/Task"], said["NumNodes"]) == ("4", "2", "2")
    assert (said["MinMemoryCPU"], said["Nice"], said["TimeLimit"]) == ("50M", "5", "00:05:00")
    assert (desk.place / "err.txt").read_text() == "to its errors\n"
    assert desk.log(job_id, 1, 0) == " ".join(lines).split(), "gridloom shows the same"
    assert cluster.queue() == []


def test_a_script_that_catches_its_warning_is_preempted_and_goes_on(
    desk: Desk, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --partition=low --signal=B:USR2@30 --output=out.txt
#SBATCH --open-mode=append
trap 'echo saved > kept; exit 0' USR2
echo "start ${SLURM_RESTART_COUNT-first}"
[ -e kept ] && exit 0
srun sleep 60 &
while :; do sleep 0.1; done
"""
    (job_id,) = submit(desk, script, monkeypatch)
    desk.waits(job_id, lambda job: job["state"] == "running")
    out = desk.place / "out.txt"
    desk.waits(job_id, lambda _: out.exists() and "start" in out.read_text())
    other = cluster.fill("high")
    job = desk.waits(job_id, lambda job: job["attempt"] == 2)
    assert job["summary"]["attempts"][0]["ended_because"] == "preempted"
    cluster.says("scancel", str(other))
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert out.read_text().split("\n")[:2] == ["start first", "start 1"]


def test_an_array_of_scripts_finds_its_numbers_and_one_is_stopped(
    desk: Desk, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """#!/bin/bash
#SBATCH --array=3,5 --signal=B:USR1@20 --output=out-%a.txt
trap 'echo asked; exit 0' USR1
echo "number $SLURM_ARRAY_TASK_ID"
[ "$SLURM_ARRAY_TASK_ID" = 5 ] || exit 0
while :; do sleep 0.1; done
"""
    three, five = submit(desk, script, monkeypatch)
    assert desk.ends(three)["state"] == "succeeded"
    assert (desk.place / "out-3.txt").read_text() == "number 3\n"
    out = desk.place / "out-5.txt"
    desk.waits(five, lambda _: out.exists() and bool(out.read_text()))
    desk.gridloom("stop", five)
    desk.waits(five, lambda job: job["state"] == "stopped")
    assert out.read_text() == "number 5\nasked\n"
    assert cluster.queue() == []


def test_what_an_old_slurmrestd_cannot_be_asked_for_is_told(
    either: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/bash\n#SBATCH --signal=B:USR1@20 --contiguous --output=o.txt\ntrue\n"
    (job_id,) = submit(either, script, monkeypatch)
    job = either.ends(job_id)
    if "rest" not in (either.place / "grid.yaml").read_text():
        assert job["state"] == "succeeded"
    else:
        assert job["state"] == "failed"
        for option in ("--signal", "--contiguous"):
            sentence = f"{option}: slurmrestd's v0.0.38 cannot be asked for this"
            assert sentence in job["reason"]["sentence"]


def test_a_script_that_puts_itself_back_goes_on_as_the_next_attempt(
    either: Desk, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = either
    script = """#!/bin/bash
#SBATCH --requeue --output=out.txt --open-mode=append
echo "start ${SLURM_RESTART_COUNT-first}"
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
sleep 3
scontrol requeue "$SLURM_JOB_ID"
sleep 60
"""
    (job_id,) = submit(desk, script, monkeypatch)
    job = desk.ends(job_id)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert job["summary"]["attempts"][0]["ended_because"] == "preempted"
    lines = (desk.place / "out.txt").read_text().splitlines()  # and one of Slurm's between them
    assert [line for line in lines if line.startswith("start")] == ["start first", "start 1"]
    assert cluster.queue() == []
