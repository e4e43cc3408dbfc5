"""`gridloom site`, `submit --dry-run`, and nodes that a site tells, beside played commands."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kube_api.account import POD_ENVIRONMENT, kubeconfig
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.controllers.kubelet import Play
from tests.unit.cli.conftest import Answer
from tests.unit.sites.kube.test_site_look import Bed
from tests.unit.sites.slurm.samples import DATA

from gridloom.base.errors import InputError
from gridloom.base.system import SystemIds
from gridloom.cli import settings
from gridloom.cli.handin import hand_in
from gridloom.cli.prepare import prepare
from gridloom.cli.wiring import Plane
from gridloom.model.event import InventoryChanged

Call = Callable[..., Answer]

SCONTROL = f"""#!/bin/sh
here=$(dirname "$0")
if [ -e "$here/away" ]; then
    echo "Unable to contact slurm controller (connect failure)" >&2
    exit 1
fi
case "$*" in
*"show node"*) cat "$here/nodes" ;;
*"show partition"*) cat {DATA}/scontrol-partitions-22.05.txt ;;
*"show reservation"*) cat {DATA}/scontrol-reservations-22.05.txt ;;
*"show topology"*) cat {DATA}/scontrol-topology-22.05.txt ;;
*"show lic"*) echo "LicenseName=ansys Total=10 Used=4 Free=6 Reserved=0 Remote=no" ;;
*"show config"*)
    echo "SLURM_VERSION = 22.05.8"
    echo "ClusterName = siteb"
    echo "AccountingStorageType = accounting_storage/slurmdbd" ;;
esac
"""
SBATCH = """#!/bin/sh
case "$*" in
*--test-only*) echo "sbatch: Job 1 to start at 2026-11-30T20:39:59 using 1 processors" >&2 ;;
*) echo "allocation failure: Invalid qos specification" >&2; exit 1 ;;
esac
"""
SACCTMGR = """#!/bin/sh
case "$*" in
*qos\\ format*) echo normal ;;
*) echo "physics||normal" ;;
esac
"""
GRID = "sites:\n  hpc: {kind: slurm}\n  lab: {accelerators: 'cpu:1'}\n"
JOB = "name: j\ngrid: grid.yaml\nrun: sleep 1\nresources: {accelerators: 'h100:16'}\n"


class Desk:
    """A user beside a Slurm whose commands are played by scripts."""

    def __init__(self, place: Path, call: Call) -> None:
        self.place, self._call = place, call
        self.bin = place / "bin"
        self.bin.mkdir()
        squeue = f"#!/bin/sh\ncat {DATA}/squeue-22.05.txt\n"
        commands = {"scontrol": SCONTROL, "sbatch": SBATCH, "sacctmgr": SACCTMGR}
        for name, text in (*commands.items(), ("squeue", squeue)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.nodes = (DATA / "scontrol-nodes-lines-22.05.txt").read_text()
        (self.bin / "nodes").write_text(self.nodes)
        (place / "grid.yaml").write_text(GRID)
        (place / "job.yaml").write_text(JOB)

    def __call__(self, *words: str) -> Answer:
        return self._call(*words, "--grid", str(self.place / "grid.yaml"))

    def goes_away(self) -> None:
        (self.bin / "away").touch()

    def hand_in(self, plane: Plane) -> list[Any]:
        """Hand the job in; nothing runs it. Return the new facts about the grid."""
        before = len(plane.journal.letters())
        hand_in(plane, prepare(self.place / "job.yaml", None, settings.read(), SystemIds()))
        facts = [letter.event for letter in plane.journal.letters()[before:]]
        return [fact for fact in facts if isinstance(fact, InventoryChanged)]


@pytest.fixture
def desk(home: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path, call)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


def test_a_site_that_is_well(desk: Desk) -> None:
    said = desk("site", "check", "hpc", "lab", "--no-probe", "--json")
    assert said.code == 0
    told = said.json()
    assert told["ok"] is True
    assert [(one["site"], one["kind"], one["ok"]) for one in told["sites"]] == [
        ("hpc", "slurm", True),
        ("lab", "local", True),
    ]
    first = told["sites"][0]["findings"][0]
    assert first["check"] == "slurm"
    assert first["state"] == "ok"
    assert first["found"].startswith("Slurm 22.05.8, cluster siteb, asked as ")
    trials = [one["found"] for one in told["sites"][0]["findings"] if one["check"] == "trial"]
    assert trials == [
        "1 node with 8 h100, 4 nodes with 8 h100: Slurm would start it at 2026-11-30T20:39:59 UTC"
    ]


def test_a_probe_that_is_refused(desk: Desk, home: Path) -> None:
    said = desk("site", "check", "hpc", "--probe-timeout", "1s")
    assert said.code == 1
    assert "Slurm did not take it" in " ".join(said.out.split())
    assert [*(home / "runs").iterdir()] == []


def test_a_wrong_reservation_hides_nothing(desk: Desk) -> None:
    slurm = "slurm: {reservation: gone, constraint: 'h100&nvl', account: chem, time_limit: 1h}"
    (desk.place / "grid.yaml").write_text(f"sites: {{hpc: {{kind: slurm, {slurm}}}}}\n")
    refuses = "/bin/cat >$0.in; ! grep -q -e --reservation -e --constraint $0.in || exit 1\n"
    (desk.bin / "sbatch").write_text(f'#!/bin/sh\n{refuses}exec $0.real "$@"\n')
    (desk.bin / "sbatch.real").write_text(SBATCH)
    (desk.bin / "sbatch.real").chmod(0o755)
    said = desk("site", "check", "--json", "--probe-timeout", "1s")
    assert said.code == 1
    found = said.json()["sites"][0]["findings"]
    assert [(one["state"], one["check"], one["of"]) for one in found[1:]] == [
        ("warn", "account", ""),
        ("ok", "partition", ""),
        ("fail", "reservation", ""),
        ("fail", "features", ""),
        ("ok", "devices", "h100"),
        ("warn", "nodes", "in service"),
        ("ok", "time limit", ""),
        ("fail", "trial", "1 node, 4 nodes"),
        ("ok", "trial", "1 node, 4 nodes, again"),
        ("fail", "probe", ""),
    ]
    handed = (desk.bin / "sbatch.in").read_text()
    assert "--account=chem" in handed
    assert found[-1]["found"].startswith(
        "Slurm did not take it without `reservation:`, `constraint:`: allocation failure"
    )
    shown = desk("site", "check", "--no-probe").out
    assert "trial: 1 node, 4 nodes, again" in shown


def test_a_probe_that_would_wait_is_not_run(desk: Desk) -> None:
    text = (desk.bin / "scontrol").read_text()
    down = text.replace("partitions-22.05.txt", "partitions-22.05.txt | sed s/State=UP/State=DOWN/")
    (desk.bin / "scontrol").write_text(down)
    said = desk("site", "check", "hpc", "--json")
    last = said.json()["sites"][0]["findings"][-1]
    assert (said.code, last["check"], last["state"]) == (1, "probe", "warn")
    assert last["found"].startswith("it was not run")


def test_a_run_directory_that_cannot_be_made(desk: Desk, home: Path) -> None:
    home.write_text("a file where a directory should be")
    said = desk("site", "check", "hpc", "--json")
    assert said.code == 1
    (last,) = [one for one in said.json()["sites"][0]["findings"] if one["state"] == "fail"]
    assert last["check"] == "run directory"
    assert "GRIDLOOM_HOME" in last["remedy"]


def test_a_slurm_that_is_away(desk: Desk) -> None:
    desk.goes_away()
    said = desk("site", "check", "hpc")
    assert said.code == 1
    assert "slurmctld" in said.out
    shown = desk("site", "show", "hpc")
    assert shown.code == 1
    assert "`gridloom site check hpc` tells more" in shown.err


def test_a_slurm_conf_that_is_not_there(desk: Desk) -> None:
    grid = "sites: {hpc: {kind: slurm, slurm: {environment: {SLURM_CONF: /nowhere}}}}\n"
    (desk.place / "grid.yaml").write_text(grid)
    said = desk("site", "check", "--json")
    (only,) = said.json()["sites"][0]["findings"]
    assert only["found"] == "SLURM_CONF is /nowhere, and there is no such file"


def test_devices_that_this_machine_has_not(desk: Desk) -> None:
    (desk.place / "grid.yaml").write_text("sites: {lab: {accelerators: 'b999:8'}}\n")
    said = desk("site", "check", "--json")
    assert said.code == 1
    (only,) = said.json()["sites"][0]["findings"]
    assert "8 b999, this machine has" in only["found"]


def test_a_cluster_that_cannot_be_reached(desk: Desk) -> None:
    grid = "sites: {c: {kind: kubernetes, accelerators: 'h100:8', kubernetes: {image: i, "
    (desk.place / "grid.yaml").write_text(f"{grid}kubeconfig: /nowhere}}}}}}\n")
    said = desk("site", "check", "--json")
    assert said.code == 1
    (only,) = said.json()["sites"][0]["findings"]
    assert (only["check"], only["state"]) == ("api", "fail")
    grid = f"{grid}kubeconfig: /nowhere}}}}}}\n".replace("accelerators: 'h100:8', ", "")
    (desk.place / "grid.yaml").write_text(grid)
    shown = desk("grid", "show")
    assert shown.code == 1
    assert "the nodes of site c cannot be told: /nowhere cannot be used" in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("site", "check", "hpcc"), "there is no site 'hpcc'; did you mean `hpc`?"),
        (("site", "check", "--probe-timeout", "soon"), "--probe-timeout"),
        (("site", "show", "lab"), "lab is a site of kind local"),
    ],
)
def test_bad_input(desk: Desk, words: tuple[str, ...], said: str) -> None:
    answer = desk(*words)
    assert answer.code == 2
    assert said in answer.err


def test_a_cluster_that_is_well(desk: Desk) -> None:
    with Cluster(plays=lambda _: Play(real=True), folder=desk.place / "pods") as cluster:
        cluster.kubelet.add_node("n1", {"cpu": "8"})
        config = kubeconfig(cluster.api, desk.place, namespace="team")
        access = {
            "kubeconfig": str(config),
            "namespace": "team",
            "image": "i",
            "python": sys.executable,
            "network": "127.0.0.0/8",
            "environment": POD_ENVIRONMENT,
        }
        grid = {"sites": {"cloud": {"kind": "kubernetes", "kubernetes": access}}}
        (desk.place / "grid.yaml").write_text(json.dumps(grid))
        said = desk("site", "check", "--json", "--probe-timeout", "20s")
        assert said.code == 0, said.out
        checks = [one["check"] for one in said.json()["sites"][0]["findings"]]
        assert checks[:4] == ["api", "clock", "rights", "devices"]
        assert checks[-5:] == ["probe", "python", "run directory", "network", "clock"]
        (node,) = desk("grid", "show", "--json").json()["grid"]["sites"][0]["nodes"]
        assert (node["name"], node["accelerator"], node["count"]) == ("n1", "cpu", 8)


def test_what_a_cluster_has(desk: Desk, tmp_path: Path) -> None:
    bed = Bed(tmp_path, "kueue-v0.13.1")
    bed.change("v1", "nodes", "n1", {"spec": {"unschedulable": True}})
    access = {"kubeconfig": str(bed.config), "namespace": "team", "image": "i", "queue": "ours"}
    grid = {"sites": {"cloud": {"kind": "kubernetes", "kubernetes": access}}}
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    try:
        shown = desk("site", "show", "cloud")
        told = desk("site", "show", "cloud", "--json").json()
    finally:
        bed.api.stop()
    assert shown.code == 0
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    for line in ("1 cordoned gpu 4", "1 usable gpu 4", "any nvidia.com/gpu 8 0"):
        assert line in lines
    assert "queue ours, of ClusterQueue all: 0 wait, 0 may run" in lines
    assert list(told["out_of_service"]) == ["n1"]
    assert told["quotas"][0]["nominal"] == 8
    away = desk("site", "show", "cloud")
    assert away.code == 1
    assert "`gridloom site check cloud` tells more" in away.err


def test_a_cluster_that_would_not_take_a_job_is_not_probed(desk: Desk, tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    try:
        config = kubeconfig(bed.api, desk.place, namespace="sets")
        access = {
            "kubeconfig": str(config),
            "namespace": "sets",
            "image": "i",
            "workload": "jobset",
        }
        grid = {"sites": {"cloud": {"kind": "kubernetes", "kubernetes": access}}}
        (desk.place / "grid.yaml").write_text(json.dumps(grid))
        said = desk("site", "check", "--json")
    finally:
        bed.api.stop()
    assert said.code == 1
    found = said.json()["sites"][0]["findings"]
    assert [(one["state"], one["check"]) for one in found[-2:]] == [
        ("fail", "workload"),
        ("warn", "probe"),
    ]


def test_accounts_that_may_not_be_read(desk: Desk) -> None:
    for name in ("sacctmgr", "sbatch"):
        (desk.bin / name).write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    no_wiring = SCONTROL.replace(f"cat {DATA}/scontrol-topology-22.05.txt", "echo SwitchName")
    (desk.bin / "scontrol").write_text(no_wiring)
    said = desk("site", "check", "hpc", "--no-probe", "--json")
    found = {one["check"]: one for one in said.json()["sites"][0]["findings"]}
    assert "account" not in found
    assert found["trial"]["state"] == "fail"
    assert found["trial"]["found"].endswith("Slurm would not take it: no")


def test_what_a_site_has(desk: Desk) -> None:
    said = desk("site", "show", "hpc")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 100
    for words in ("Slurm 22.05.8", "low (default)", "maint1", "ansys", "h100", "bad fan"):
        assert words in said.out
    told = desk("site", "show", "hpc", "--json").json()
    assert [part["name"] for part in told["partitions"]] == ["low", "high"]
    assert told["partitions"][0]["max_time_s"] is None
    assert told["licences"][0]["free"] == 6
    assert sum(row["nodes"] for row in told["nodes"]) == 4


def test_nodes_that_the_site_tells(desk: Desk, home: Path) -> None:
    said = desk("grid", "show", "--json")
    assert said.code == 0
    hpc = said.json()["grid"]["sites"][0]
    assert [node["name"] for node in hpc["nodes"]] == [f"siteb-n{i}" for i in range(4)]
    desk.goes_away()
    later = desk("grid", "show")
    assert later.code == 0
    assert "siteb-n3" in later.out
    assert "site hpc does not answer: its nodes are those of" in later.err
    (desk.place / "grid.yaml").write_text(GRID.replace("slurm}", "slurm, slurm: {account: a}}"))
    never = desk("grid", "show")
    assert never.code == 1
    assert "the nodes of site hpc cannot be told" in never.err
    (home / "sites" / "hpc.json").write_text("{")
    assert desk("grid", "show").code == 1


def test_a_state_directory_is_not_needed_to_look(desk: Desk, home: Path) -> None:
    home.write_text("a file where a directory should be")
    assert desk("grid", "show").code == 0


def test_a_partition_that_is_not_there(desk: Desk) -> None:
    (desk.place / "grid.yaml").write_text(GRID.replace("slurm}", "slurm, slurm: {partition: x}}"))
    said = desk("grid", "show", "--json")
    assert said.code == 2
    (problem,) = said.json()["problems"]
    assert problem["field"] == "sites.hpc.slurm"
    assert problem["message"] == "Slurm has no partition x, it has: high, low"


def test_nodes_that_come_or_go_while_jobs_are_under_way(desk: Desk) -> None:
    plane = Plane(settings.read())
    (first,) = desk.hand_in(plane)
    assert len(first.inventory.sites[0].nodes) == 4
    (desk.bin / "nodes").write_text(desk.nodes.partition("NodeName=siteb-n3")[0])
    assert desk.hand_in(plane) == [], "the grid stays as it is until no job is under way"
    other = GRID.replace("slurm}", "slurm, slurm: {account: physics}}")
    for text in (GRID.replace("cpu:1", "cpu:2"), other):
        (desk.place / "grid.yaml").write_text(text)
        with pytest.raises(InputError, match="under way on another grid"):
            desk.hand_in(plane)


def test_simulate_needs_the_nodes_in_the_file(desk: Desk, call: Call) -> None:
    said = call("simulate", "-w", "generate:seren,jobs=5", "--grid", str(desk.place / "grid.yaml"))
    assert said.code == 2
    assert "which nodes hpc has" in said.err


def test_a_dry_run_hands_nothing_in(desk: Desk, home: Path) -> None:
    said = desk("submit", str(desk.place / "job.yaml"), "--dry-run")
    assert said.code == 0
    lines = said.out.splitlines()
    start = lines.index("# hpc (slurm), through sbatch")
    assert lines[start : start + 3] == [
        "# hpc (slurm), through sbatch",
        "# nodes: siteb-n0, siteb-n1",
        "sbatch --parsable",
    ]
    assert "#SBATCH --gres=gpu:h100:8" in lines
    told = desk("submit", str(desk.place / "job.yaml"), "--dry-run", "--json").json()
    assert told["event"] == "dry_run"
    assert told["sites"][0]["commands"] == [["sbatch", "--parsable"]]
    assert {path.name for path in home.iterdir()} == {"sites"}
    assert json.loads((home / "sites" / "hpc.json").read_text())["asked"]["nodes"] == []
