"""`gridloom site` where Slurm is behind a real SSH server, whose commands are played."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.login_host import LoginHost
from tests.unit.cli.conftest import Answer
from tests.unit.cli.test_cli_site import SACCTMGR, SBATCH, SCONTROL
from tests.unit.sites.slurm.samples import DATA

Call = Callable[..., Answer]

STARTS = """#!/bin/sh
case "$*" in
*--test-only*) echo "sbatch: Job 1 to start at 2026-11-30T20:39:59 using 1 processors" >&2; exit ;;
esac
eval "$(grep '^command=' | sed 's/^command=(/set -- /; s/)$//')"
"$@" >/dev/null 2>&1 &
echo 7
"""


class Desk:
    """A user whose only Slurm is behind a login host."""

    def __init__(self, place: Path, login: LoginHost, call: Call) -> None:
        self.place, self.login, self._call = place, login, call
        self.bin = place / "bin"
        self.bin.mkdir()
        squeue = f"#!/bin/sh\ncat {DATA}/squeue-22.05.txt\n"
        commands = {"scontrol": SCONTROL, "sbatch": SBATCH, "sacctmgr": SACCTMGR, "squeue": squeue}
        for name, text in commands.items():
            self.tool(name, text)
        nodes = (DATA / "scontrol-nodes-lines-22.05.txt").read_text()
        (self.bin / "nodes").write_text(nodes)
        self.write()

    def tool(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def write(self, **more: Any) -> None:
        access = self.login.access()
        ssh = {name: getattr(access, name) for name in access.__struct_fields__}
        ssh = {name: value for name, value in ssh.items() if value} | more
        slurm = {
            "ssh": ssh,
            "python": sys.executable,
            "network": "127.0.0.0/8",
            "environment": {"PATH": f"{self.bin}:/usr/bin:/bin"},
        }
        grid = {"sites": {"hpc": {"kind": "slurm", "slurm": slurm}}}
        (self.place / "grid.yaml").write_text(json.dumps(grid))

    def __call__(self, *words: str) -> Answer:
        return self._call(*words, "--grid", str(self.place / "grid.yaml"))

    def finds(self, *words: str) -> list[dict[str, str]]:
        (site,) = self("site", "check", *words, "--json").json()["sites"]
        found: list[dict[str, str]] = site["findings"]
        return found


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginHost]:
    with LoginHost(tmp_path_factory.mktemp("login")) as made:
        yield made


@pytest.fixture
def desk(
    home: Path, tmp_path: Path, login: LoginHost, call: Call, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/empty")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    login.introduce()
    return Desk(tmp_path, login, call)


def test_a_site_that_is_well(desk: Desk) -> None:
    found = desk.finds("--no-probe")
    states = {one["check"]: one["state"] for one in found}
    assert [*states][:5] == ["ssh", "clock", "directory", "python", "slurm"]
    assert {state for check, state in states.items() if check not in ("time limit", "nodes")} == {
        "ok"
    }
    assert "asked as me" in found[4]["found"]
    assert "trial" in states


def test_a_probe_comes_up_there(desk: Desk, home: Path) -> None:
    desk.tool("sbatch", STARTS)
    found = {one["check"]: one for one in desk.finds("--probe-timeout", "30s")}
    assert found["run directory"]["state"] == "ok", found
    assert str(desk.login.access().directory) in found["run directory"]["found"]
    assert not (home / "runs").exists()
    assert [*Path(desk.login.access().directory, "runs").iterdir()] == []


def test_a_probe_that_is_refused(desk: Desk) -> None:
    last = desk.finds("--probe-timeout", "1s")[-1]
    assert (last["check"], last["state"]) == ("probe", "fail")
    assert "Slurm did not take it" in last["found"]


def test_a_host_that_is_not_known_is_all_that_is_told(desk: Desk) -> None:
    desk.login.known_hosts.write_text("")
    (one,) = desk.finds()
    assert (one["check"], one["state"]) == ("ssh", "fail")
    assert "ssh-keyscan" in one["remedy"]


def test_a_login_host_without_slurm_says_so(desk: Desk) -> None:
    for name in ("scontrol", "squeue"):
        (desk.bin / name).write_text("#!/bin/sh\nexit 127\n")
    last = desk.finds()[-1]
    assert (last["check"], last["state"]) == ("slurm", "fail")
    assert "has no command scontrol" in last["found"]
    assert "PATH" in last["remedy"]


def test_an_interpreter_without_gridloom_is_told(desk: Desk) -> None:
    desk.tool("python3", '#!/bin/sh\necho "No module named gridloom" >&2; exit 1\n')
    grid = json.loads((desk.place / "grid.yaml").read_text())
    del grid["sites"]["hpc"]["slurm"]["python"]
    (desk.place / "grid.yaml").write_text(json.dumps(grid))
    (one,) = [one for one in desk.finds("--no-probe") if one["check"] == "python"]
    assert one["state"] == "warn"
    assert one["found"].startswith("python3 at 127.0.0.1")
    assert one["found"].endswith("No module named gridloom")


def test_its_nodes_are_told_over_ssh(desk: Desk) -> None:
    assert "h100" in desk("grid", "show").out
    assert "22.05.8" in desk("site", "show", "hpc").out


def test_without_the_library_it_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gridloom.sites.ssh.hosts", None)
    (one,) = desk.finds()
    assert (one["check"], one["state"]) == ("ssh", "fail")
    assert "sites over SSH need `pip install 'gridloom[ssh]'`" in one["remedy"]
    said = desk("site", "show", "hpc")
    assert said.code == 1
    assert "gridloom[ssh]" in said.err
