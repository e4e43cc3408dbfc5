"""`gridloom site check` and `site show` beside a real Slurm that is misconfigured in many ways."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gridloom.cli.main import main

pytestmark = [pytest.mark.bed, pytest.mark.timeout(240)]

SLURM = Path(__file__).parent / "slurm"
NODES = "{accelerators: 'a100:8'}"
SRC = Path(__file__).parents[2] / "src"


class Cluster:
    """A Slurm of our own, with accounts and with slurmrestd."""

    def __init__(self, place: Path) -> None:
        self.place = place
        up = [
            str(SLURM / "slurm_up.sh"), "--dir", str(place), "--name", "ckb",
            "--base-port", "27000", "--nodes", "2", "--accounting", "--enforce",
        ]  # fmt: skip
        subprocess.run(up, check=True, timeout=200, stdout=subprocess.DEVNULL)

    @property
    def conf(self) -> Path:
        return self.place / "etc" / "slurm.conf"

    def does(self, *argv: str) -> str:
        env = os.environ | {"SLURM_CONF": str(self.conf)}
        done = subprocess.run(argv, env=env, check=True, timeout=30, capture_output=True, text=True)
        return done.stdout

    def stop(self) -> None:
        down = [str(SLURM / "slurm_down.sh"), "--dir", str(self.place), "--purge"]
        subprocess.run(down, check=True, timeout=60, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # slurmrestd runs as nobody, who may not pass through the directories of a test run
    with tempfile.TemporaryDirectory(prefix="gridloom-site-") as place:
        Path(place).chmod(0o755)
        made = Cluster(Path(place) / "ckb")
        try:
            yield made
        finally:
            made.stop()


@dataclass
class Desk:
    """A user at a login host."""

    place: Path
    cluster: Cluster
    out: Callable[[], str]

    def grid(self, nodes: str = "", **slurm: Any) -> str:
        access = {"network": "127.0.0.0/8", "time_limit": "30min", **slurm}
        if "rest" not in access:
            access["environment"] = {"SLURM_CONF": str(self.cluster.conf)}
        lines = [f"    nodes: {nodes}"] if nodes else []
        text = ["sites:", "  hpc:", "    kind: slurm", *lines, f"    slurm: {json.dumps(access)}"]
        path = self.place / "grid.yaml"
        path.write_text("\n".join(text) + "\n")
        return str(path)

    def wrong(self, nodes: str = "", *flags: str, **slurm: Any) -> list[tuple[str, str, str]]:
        """Return state, check and what was found of all that is not well."""
        words = ["site", "check", "hpc", "--json", "--grid", self.grid(nodes, **slurm)]
        code = main([*words, *(flags or ("--no-probe",))])
        told = json.loads(self.out())
        found = [
            (one["state"], one["check"], f"{one['found']} -> {one['remedy']}")
            for one in told["sites"][0]["findings"]
            if one["state"] != "ok"
        ]
        assert code == (1 if any(one[0] == "fail" for one in found) else 0)
        return found

    def probed(self, **slurm: Any) -> list[tuple[str, str, str]]:
        return self.wrong("", "--probe-timeout", "30s", **slurm)


@pytest.fixture
def desk(
    tmp_path: Path,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    monkeypatch.setenv("GRIDLOOM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    return Desk(tmp_path, cluster, lambda: capsys.readouterr().out)


def test_a_site_that_is_well(desk: Desk) -> None:
    assert desk.probed() == []
    assert desk.cluster.does("squeue", "--noheader", "--states=PENDING") == ""
    assert main(["grid", "show", "--grid", desk.grid(), "--json"]) == 0
    (site,) = json.loads(desk.out())["grid"]["sites"]
    assert [(n["name"], n["accelerator"], n["count"]) for n in site["nodes"]] == [
        ("ckb-n0", "a100", 8),
        ("ckb-n1", "a100", 8),
    ]
    assert main(["site", "show", "hpc", "--grid", desk.grid(), "--json"]) == 0
    told = json.loads(desk.out())
    assert told["nodes"][0] | {"free": 0, "free_nodes": 0} == {
        "state": "in service", "kind": "a100", "nodes": 2, "devices": 16, "free": 0,
        "free_nodes": 0,
    }  # fmt: skip


IN_FILE: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "no such devices": (
        "{'ckb-n[0-1]': {accelerators: 'npu:8'}}",
        {"gres": {"npu": "npu"}},
        "devices",
        "no `npu` on these nodes",
        "Invalid generic resource",
    ),
    "another type": (
        "{'ckb-n[0-1]': {accelerators: 'h100:8'}}",
        {"gres": {"h100": "gpu:h100"}},
        "devices",
        "no node has gpu:h100; they have: gpu:a100",
        "node configuration is not available",
    ),
    "more nodes than there are": (
        "{'ckb-n[0-8]': {accelerators: 'a100:8'}}",
        {"gres": {"a100": "gpu:a100"}},
        "nodes",
        "9 nodes, its jobs may get 2",
        "node configuration is not available",
    ),
    "account": (
        "",
        {"account": "chem"},
        "account",
        "root may not charge chem",
        "Invalid account",
    ),
    "qos": ("", {"qos": "fast"}, "qos", "no quality of service fast", "Invalid qos"),
    "partition": ("", {"partition": "nowhere"}, "partition", "no partition nowhere", ""),
    "feature": ("", {"constraint": "a100&ib"}, "features", "has the feature ib", "feature"),
    "reservation": (
        "",
        {"reservation": "ours"},
        "reservation",
        "no reservation ours",
        "reservation is invalid",
    ),
    "reservation, and what it would hide": (
        "{'ckb-n[0-8]': {accelerators: 'a100:8'}}",
        {"gres": {"a100": "gpu:a100"}, "reservation": "ours"},
        "reservation",
        "no reservation ours",
        "node configuration is not available",
    ),
}


@pytest.mark.parametrize("name", IN_FILE)
def test_what_is_wrong_in_the_grid_file(desk: Desk, name: str) -> None:
    nodes, access, check, words, refusal = IN_FILE[name]
    found = desk.wrong(nodes, **access)
    first = found[0]
    assert first[:2] == ("fail", check)
    assert words in first[2]
    assert any(refusal in said for _, what, said in found if what == "trial") == bool(refusal)


def test_a_probe_goes_without_a_wrong_reservation(desk: Desk) -> None:
    found = desk.probed(reservation="ours")
    assert [one[:2] for one in found] == [("fail", "reservation"), ("fail", "trial")]


def test_what_slurm_lets_nobody_do(desk: Desk) -> None:
    does = desk.cluster.does
    try:
        does("scontrol", "update", "partitionname=low", "maxtime=60", "state=down")
        found = desk.wrong(time_limit="2h")
        assert [one[:2] for one in found] == [("fail", "partition"), ("fail", "time limit")]
        assert "low is down: it starts no jobs" in found[0][2]
        assert "2h 00m is beyond the 1h 00m" in found[1][2]
        does("scontrol", "update", "partitionname=low", "maxtime=infinite", "state=drain")
        found = desk.wrong()
        assert "low is drain: it takes no jobs" in found[0][2]
        assert found[1][1] == "trial"
    finally:
        does("scontrol", "update", "partitionname=low", "state=up", "maxtime=infinite")


def test_nodes_out_of_service(desk: Desk) -> None:
    does = desk.cluster.does
    try:
        does("scontrol", "update", "nodename=ckb-n0", "state=drain", "reason=fan broken")
        found = desk.wrong()
        assert found[0][:2] == ("warn", "nodes")
        assert "1 of 2 are out of service: ckb-n0: idle+drain: fan broken (root)" in found[0][2]
        does("scontrol", "update", "nodename=ckb-n1", "state=drain", "reason=fan broken")
        assert desk.wrong()[0][:2] == ("fail", "nodes")
    finally:
        does("scontrol", "update", "nodename=ckb-n[0-1]", "state=resume")
        until_s = time.monotonic() + 30.0  # for a moment they do not respond
        while {*does("sinfo", "--noheader", "--Node", "--format=%T").split()} != {"idle"}:
            assert time.monotonic() < until_s
            time.sleep(0.2)


def test_a_python_without_gridloom(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    bare = desk.place / "python"
    bare.write_text('#!/bin/sh\nexec /usr/bin/env -u PYTHONPATH /usr/bin/python3 -S "$@"\n')
    bare.chmod(0o755)
    ((state, check, said),) = desk.probed(python=str(bare))
    assert (state, check) == ("fail", "python"), said
    assert "No module named" in said
    ((state, check, said),) = desk.probed(python="/opt/nowhere/python")
    assert (state, check) == ("fail", "python")
    assert "/opt/nowhere/python" in said


def test_a_clock_ahead_and_a_network_that_is_none(desk: Desk) -> None:
    """The clock is shifted inside the node's Python: this machine has only one."""
    (desk.place / "late").mkdir()
    shift = "import time\nnow = time.time\ntime.time = lambda: now() + 300\n"
    (desk.place / "late" / "sitecustomize.py").write_text(shift)
    shifted = desk.place / "python"
    path = f"{desk.place / 'late'}:{SRC}"
    shifted.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    shifted.chmod(0o755)
    found = desk.probed(python=str(shifted), network="198.51.100.0/24")
    assert [one[:2] for one in found] == [("fail", "network"), ("fail", "clock")]
    assert "no address in 198.51.100.0/24 -> mend `network:`" in found[0][2]
    assert "5m 00s ahead of ours" in found[1][2] or "4m 59s ahead of ours" in found[1][2]


def test_a_run_directory_that_nodes_do_not_see(desk: Desk) -> None:
    """Here it is a file system of this process alone."""
    words = [
        *(sys.executable, "-P", "-m", "gridloom.cli.main", "site", "check", "--json"),
        *("--grid", desk.grid()),
    ]
    (desk.place / "home").mkdir()
    script = f'mount -t tmpfs none {desk.place / "home"} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *words],
        check=False, timeout=90, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    (finding,) = [
        one for one in json.loads(done.stdout)["sites"][0]["findings"] if one["state"] == "fail"
    ]
    assert finding["check"] == "run directory"
    assert "GRIDLOOM_HOME" in finding["remedy"]


def test_a_probe_that_waits(desk: Desk) -> None:
    does = desk.cluster.does
    does("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 60")
    try:
        found = desk.wrong("", "--probe-timeout", "3s")
        assert found[-1][:2] == ("warn", "probe")
        assert "was taken out of the queue" in found[-1][2]
        assert "gridloom-probe" not in does("squeue", "--noheader", "--format=%j")
    finally:
        does("scancel", "--user=root")


def test_a_token_that_has_expired(desk: Desk) -> None:
    token = desk.cluster.does("scontrol", "token", "username=nobody", "lifespan=1")
    file = desk.place / "token"
    file.write_text(token.strip().removeprefix("SLURM_JWT=") + "\n")
    file.chmod(0o600)
    rest = {"url": "http://127.0.0.1:27003", "user": "nobody", "token_file": str(file)}
    until_s = time.monotonic() + 20.0
    # It lasts for a second or two, and may run out in the middle of a look: then Slurm says less
    found = desk.wrong(rest=rest)
    while [one[:2] for one in found] != [("fail", "slurm")] or "token" not in found[0][2]:
        assert time.monotonic() < until_s, found
        found = desk.wrong(rest=rest)


def test_a_controller_that_is_away(desk: Desk) -> None:
    pid = int((desk.cluster.place / "run" / "slurmctld.pid").read_text())
    os.kill(pid, 9)
    ((state, check, said),) = desk.wrong()
    assert (state, check) == ("fail", "slurm")
    assert "slurmctld" in said
