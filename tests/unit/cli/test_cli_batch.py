"""Users' own batch scripts on the command line: as they are, or with the line that is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.conftest import Answer, Gridloom

from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.prepare import Prepared, prepare
from gridloom.cli.submit import notes_of, tell
from gridloom.model.spec import Batch, Dependency

Call = Callable[..., Answer]

NODES: dict[str, Any] = {"n[01-16]": {"accelerators": "a100:8", "resources": {"cpus": 64}}}
HPC: dict[str, Any] = {"kind": "slurm", "nodes": NODES, "slurm": {"partition": "gpu"}}
CORES: dict[str, Any] = {"kind": "slurm", "nodes": {"c[1-4]": {"accelerators": "cpu:16"}}}
LAB = {"accelerators": "a100:8"}


class Desk:
    """A user in a directory of their own, with a grid."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.grid: dict[str, Any] = {"sites": {"hpc": HPC}}

    def script(self, *options: str, body: str = "true\n", first: str = "#!/bin/bash\n") -> Path:
        (self.place / "grid.yaml").write_text(json.dumps(self.grid))
        path = self.place / "train.sbatch"
        path.write_text(first + "".join(f"#SBATCH {option}\n" for option in options) + body)
        return path

    def prepared(self, *options: str, **more: str) -> Prepared:
        path = self.script(*options, **more)
        return prepare(path, self.place / "grid.yaml", settings.read(), SystemIds())


@pytest.fixture
def desk(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    assert home.name == "home"
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def submit(call: Call, *words: str) -> Answer:
    return call("submit", "train.sbatch", "--grid", "grid.yaml", "--dry-run", *words)


def test_a_script_is_a_job_of_its_size(desk: Desk) -> None:
    spec = desk.prepared(
        "-J 'My run' -N 4 --gpus-per-node=8 -t 90 --signal=B:USR1@120 --requeue",
        first="#!/bin/bash -l\n",
    ).spec
    (option,) = spec.options
    assert (option.accelerator, option.plan.data, option.plan.tensor) == ("a100", 4, 8)
    assert (spec.name, spec.sites, spec.max_sites, spec.ranks_per_node_max) == (
        "my-run", ("hpc",), 1, 8,
    )  # fmt: skip
    assert spec.program.argv == ("/bin/bash", "-l")
    assert spec.program.workdir == str(desk.place)
    assert (spec.forecast.duration_s, spec.grace_s, spec.retry.max_restarts) == (5400.0, 120.0, 3)
    assert spec.batch == Batch(
        options=(
            ("job-name", "My run"), ("nodes", "4"), ("gpus-per-node", "8"), ("time", "90"),
            ("signal", "B:USR1@120"), ("requeue", ""),
        ),
        submitted_in=str(desk.place),
        warning="USR1",
    )  # fmt: skip


def test_what_a_script_leaves_out(desk: Desk) -> None:
    desk.grid["sites"] = {"hpc": CORES}
    spec = desk.prepared().spec
    (option,) = spec.options
    assert (spec.name, option.accelerator, option.plan.world_size) == ("train", "cpu", 1)
    assert (spec.retry.max_restarts, spec.preemptible, spec.grace_s) == (0, True, 30.0)
    assert not desk.prepared("--no-requeue").spec.preemptible
    (desk.place / "data").mkdir()
    assert desk.prepared("-D data").spec.program.workdir == str(desk.place / "data")


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("7", (7,), 0),
        ("1,3", (1, 3), 0),
        ("0-15:5%2", (0, 5, 10, 15), 2),
        ("0-1,4-8:4", (0, 1, 4, 8), 0),
    ],
)
def test_indices_of_an_array(desk: Desk, text: str, indices: tuple[int, ...], at_once: int) -> None:
    array = desk.prepared("--gres=gpu:1", f"--array={text}").file.document.array
    assert array is not None
    assert (array.indices, array.at_once) == (indices, at_once)


def test_it_waits_for_a_job_of_gridloom(desk: Desk) -> None:
    spec = desk.prepared("--gres=gpu:1", "-d afterany:other-x4k2pq,singleton").spec
    assert spec.after == (Dependency(job_id="other-x4k2pq", kind="afterany"),)
    assert spec.batch is not None
    assert ("dependency", "singleton") in spec.batch.options


@pytest.mark.parametrize(
    ("options", "sites"),
    [
        (("--gres=gpu:1",), ("hpc", "far")),
        (("--gres=gpu:1", "-p long"), ("far",)),
        (("--gres=gpu:1", "-p none"), ("hpc", "far")),
        (("--gres=gpu:1", "-M lab"), ("lab",)),
    ],
)
def test_sites_are_those_it_names_those_with_its_partition_or_all_with_slurm(
    desk: Desk, options: tuple[str, ...], sites: tuple[str, ...]
) -> None:
    desk.grid["sites"] = {"lab": LAB, "hpc": HPC, "far": HPC | {"slurm": {"partition": "long"}}}
    assert desk.prepared(*options).spec.sites == sites


def test_any_kind_of_device_that_it_asks_for_will_do(desk: Desk) -> None:
    both = NODES | {"h[1-4]": {"accelerators": "h100:8"}}
    desk.grid["sites"] = {"hpc": HPC | {"nodes": both}}
    kinds = [one.accelerator for one in desk.prepared("-N 2 --gres=gpu:8").spec.options]
    assert kinds == ["a100", "h100"]
    kinds = [one.accelerator for one in desk.prepared("-N 2 --gres=gpu:h100:8").spec.options]
    assert kinds == ["h100"]


def test_a_script_for_processors_alone_runs_beside_devices(desk: Desk, call: Call) -> None:
    spec = desk.prepared("-N 2", "-c 12").spec
    (option,) = spec.options
    assert (option.accelerator, option.plan.data, option.plan.tensor) == ("a100", 2, 2)
    assert spec.batch is not None
    assert ("cpus-per-task", "12") in spec.batch.options
    answer = submit(call)
    assert answer.code == 0
    assert "gridloom counts it as 2 a100 on each node" in answer.err
    assert "gres" not in answer.out
    desk.grid["sites"]["hpc"] = HPC | {"nodes": {**NODES, **CORES["nodes"]}}
    (option,) = desk.prepared("-N 2", "-c 12").spec.options
    assert (option.accelerator, option.plan.tensor) == ("cpu", 12)
    assert "counts it as" not in submit(call).err


def test_the_queue_of_the_grid_that_is_called_as_its_account(desk: Desk) -> None:
    desk.grid["queues"] = {"vision": {}, "speech": {}}
    assert desk.prepared("--gres=gpu:1", "-A x", "--qos=speech").spec.queue == "speech"


@pytest.mark.parametrize(
    ("options", "line", "said", "remedy"),
    [
        (("-N x",), 2, "at least 1", ""),
        (("-J x", "--gres=gpu:h100:1"), 3, "no such devices", "a100"),
        (("-c 99",), 2, "99 processors of one node, and hpc has none so large", "fewer"),
        (("--gres=gpu:8", "-N 99"), 2, "asks for 792 a100", "at most 128"),
        (("--gres=gpu:1", "-M hpd"), 3, "no site `hpd`", "`hpc`"),
        (("--gres=gpu:1", "-d afterok:no such"), 3, "no option", ""),
        (("--gres=gpu:1", "-o logs/%j.out"), 3, "no directory", "mkdir -p logs"),
        (("--gres=gpu:1", "-a 5-1"), 3, "found `5-1`", "how many jobs"),
        (("--gres=gpu:1", "-D nowhere"), 3, "no directory", "name a directory"),
        (("-G 0",), 2, "no such devices", "a100"),
        (("--gres=gpu:1 -J caf\xe9",), 2, "not in UTF-8", "UTF-8"),
    ],
)
def test_a_bad_script_is_told_by_its_line(
    desk: Desk, call: Call, options: tuple[str, ...], line: int, said: str, remedy: str
) -> None:
    path = desk.script(*options)
    path.write_bytes(path.read_text().encode("latin-1"))
    answer = submit(call, "--json")
    assert answer.code == 2
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["line"]) == ("train.sbatch", line)
    assert said in problem["message"]
    assert remedy in problem["remedy"]


def test_without_one_of_several_queues_it_is_refused(desk: Desk, call: Call) -> None:
    desk.grid["queues"] = {"vision": {}, "speech": {}}
    desk.script("--gres=gpu:1", "-A other")
    answer = submit(call)
    assert answer.code == 2
    assert "train.sbatch:3: --account: in which queue" in answer.err
    assert "vision, speech" in answer.err


def test_a_job_of_one_slurm_is_waited_for_at_one_site(desk: Desk, call: Call) -> None:
    desk.grid["sites"] = {"hpc": HPC, "far": HPC}
    desk.script("--gres=gpu:1", "-d afterok:17")
    answer = submit(call)
    assert answer.code == 2
    assert "it waits for a job of one Slurm, and it could run at 2 sites" in answer.err
    assert desk.prepared("--gres=gpu:1", "-d afterok:17", "-M far").spec.sites == ("far",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-N 2 --gpus-per-node=8", "without Slurm a script runs on one node"),
        ("--gres=gpu:1 -a 1-2", "its number in an array"),
        ("--gres=gpu:1 -d afterok:17", "it waits for a job of one Slurm"),
    ],
)
def test_what_takes_slurm(desk: Desk, call: Call, options: str, said: str) -> None:
    desk.grid["sites"] = {"lab": LAB}
    desk.script(options)
    answer = submit(call)
    assert answer.code == 2
    assert said in answer.err


def test_a_script_that_is_too_large_or_none(desk: Desk, call: Call) -> None:
    desk.script(body="#" * 2**20)
    assert "larger than 1 MiB" in submit(call).err
    desk.script(first="echo\n")
    answer = submit(call)
    assert answer.code == 2
    assert "train.sbatch:1: this is no script; the first line says #!/bin/bash" in answer.err


def test_a_dry_run_tells_what_becomes_of_each_option(desk: Desk, call: Call, home: Path) -> None:
    desk.script("-J run --gres=gpu:8", "--comment=x --array=1-2")
    answer = submit(call)
    assert (answer.code, answer.err) == (0, "nothing is handed in: this was a dry run\n")
    lines = answer.out.splitlines()
    assert lines[:5] == [
        "# train.sbatch:2: -J run: it names the job here, too",
        "# train.sbatch:2: --gres=gpu:8: gridloom places it by this, and Slurm gets it as it is",
        "# train.sbatch:3: --comment=x: gridloom knows its jobs again by a comment of its own",
        "# train.sbatch:3: --array=1-2: each index is a job of gridloom",
        "# hpc (slurm), through sbatch",
    ]
    assert "#SBATCH --gres=gpu:8" in lines
    said = submit(call, "--json").json()
    assert [one["line"] for one in said["options"]] == [2, 2, 3, 3]
    assert said["notes"] == [
        "train.sbatch:3: --comment=x: gridloom knows its jobs again by a comment of its own"
    ]
    assert said["job"]["batch"]["options"][0] == ["job-name", "run"]
    assert not (home / "runs").exists()


def test_a_dry_run_of_a_job_file_shows_its_plan(desk: Desk, call: Call) -> None:
    (desk.place / "job.yaml").write_text(
        "name: j\nrun: sleep 1\nresources: {accelerators: 'cpu:1'}\n"
    )
    answer = call("submit", "job.yaml", "--dry-run")
    assert answer.code == 0
    assert answer.out.startswith("# local (local), through this machine\n")
    assert answer.err == "nothing is handed in: this was a dry run\n"
    said = call("submit", "job.yaml", "--dry-run", "--json").json()
    assert (said["event"], said["options"], said["notes"]) == ("dry_run", [], [])


def test_here_it_runs_as_any_script_does_and_that_is_told(
    gridloom: Gridloom, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = 'echo "args=$# rank=${RANK-none} slurm=${SLURM_JOB_ID-none} in=$PWD"\n'
    path = desk.script("-J here", body=body)
    monkeypatch.delenv("RANK", raising=False)
    answer = gridloom.call("run", str(path), "-y")
    assert answer.code == 0, answer.err
    assert "no site here has Slurm: the script runs as any other" in answer.err
    run = gridloom.home / "runs" / gridloom.job_id("here")
    log = run / "logs" / "attempt-1" / "rank-0.log"
    assert log.read_text() == f"args=0 rank=none slurm=none in={desk.place}\n"
    assert (run / "job.sbatch").read_bytes() == path.read_bytes()
    resolved = msgspec.json.decode((run / "job.resolved.json").read_bytes())
    assert resolved["batch"]["submitted_in"] == str(desk.place)


def test_a_hand_in_says_what_is_lost(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = desk.prepared("--gres=gpu:1 --comment=x", "-a 1-2")
    notes, ids = notes_of(prepared), [f"{prepared.job_id}-1", f"{prepared.job_id}-2"]
    tell(prepared, ids, notes, as_json=False)
    out, err = capsys.readouterr()
    assert f"{desk.place}/train.sbatch:2: --comment=x: gridloom knows" in err.replace("\n", "")
    assert out.splitlines()[:2] == ids
    tell(prepared, ids, notes, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["job"], said["jobs"], said["notes"]) == (prepared.job_id, ids, notes)
