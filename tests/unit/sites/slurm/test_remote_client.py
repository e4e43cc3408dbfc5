"""Slurm's commands at a login host: what of its ends is whose, and that a job is handed in once."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.unit.sites.slurm.orders import order

from gridloom.base.errors import SiteError
from gridloom.model.inventory import SlurmAccess, SlurmRest, SshAccess
from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteError
from gridloom.sites.remote.link import Done
from gridloom.sites.slurm import command
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.diagnose_answers import trouble_remedy
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.engines import Engines
from gridloom.sites.slurm.gang import submission
from gridloom.sites.slurm.once import once
from gridloom.sites.slurm.remote_client import RemoteClient, clients
from gridloom.sites.slurm.rest_engine import RestEngine

SSH = SshAccess(host="login", directory="/scratch/me")


class Login:
    """Plays a link; runs commands as a login host's shell does, with some that it has itself."""

    place = "login"

    def __init__(self, tools: Path) -> None:
        self.tools = tools
        self.lines: list[str] = []
        self.error: RemoteError | None = None

    def tool(self, name: str, body: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, argv: Sequence[str], stdin: str = "", *, timeout_s: float) -> Done:
        if self.error is not None:
            raise self.error
        line = shlex.join(argv)
        self.lines.append(line)
        done = subprocess.run(
            ["sh", "-c", line],
            input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False,
            env={"PATH": f"{self.tools}:/usr/bin:/bin"},
        )  # fmt: skip
        return Done(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture
def login(tmp_path: Path) -> Login:
    (tmp_path / "tools").mkdir()
    return Login(tmp_path / "tools")


def test_commands_have_the_sites_variables_there(login: Login) -> None:
    login.tool("squeue", 'echo "$SLURM_CONF $TZ $1"')
    variables = {"SLURM_CONF": "/nowhere here/b.conf"}
    said = RemoteClient(lambda: login).run(("squeue", "a b"), variables)
    assert said == "/nowhere here/b.conf UTC0 a b\n"


def test_a_no_and_silence_are_told_apart_there_as_here(login: Login) -> None:
    login.tool("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    login.tool("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    client = RemoteClient(lambda: login)
    with pytest.raises(AwayError):
        client.run(("squeue",), {})
    with pytest.raises(SiteError, match="Invalid account") as raised:
        client.run(("sbatch",), {})
    assert not isinstance(raised.value, AwayError)


def test_a_command_that_is_not_there_is_named_and_what_helps(login: Login, tmp_path: Path) -> None:
    for argv in (("sbatch-of-nobody",), once(("sbatch-of-nobody",), str(tmp_path))):
        with pytest.raises(
            SiteError, match=r"^login has no command sbatch-of-nobody, where"
        ) as raised:
            RemoteClient(lambda: login).run(argv, {})
        assert "PATH" in trouble_remedy(str(raised.value))


def test_a_dead_link_is_a_slurm_that_is_away(login: Login) -> None:
    client = RemoteClient(lambda: login)
    login.error = LinkDownError("login is not reached", "wait")
    with pytest.raises(AwayError, match=r"^login is not reached; wait$"):
        client.run(("true",), {})
    login.error = LinkRefusedError("login is not known", "look")
    with pytest.raises(LinkRefusedError):
        client.run(("true",), {})


def test_each_way_to_a_slurm_has_an_engine_of_its_own(login: Login) -> None:
    asked = []

    def link(access: SshAccess) -> Login:
        asked.append(access)
        return login

    engines = Engines(clients(link), FakeClock())
    far = engines.of(SlurmAccess(ssh=SSH))
    assert engines.of(SlurmAccess(ssh=SSH, partition="other")) is far
    assert engines.of(SlurmAccess()) is not far
    assert asked == [], "not before there is something to ask"
    login.tool("scancel", "")
    far.cancel(7)
    assert asked == [SSH]
    rest = SlurmRest(url="http://here", user="me", token_file="/t")
    assert isinstance(engines.of(SlurmAccess(ssh=SSH, rest=rest)), RestEngine)
    assert type(clients(link)(None)) is SlurmClient


SBATCH = """
cat >>"$HOME_OF_TEST/scripts"
sleep "${SLOW:-0}"
echo x >>"$HOME_OF_TEST/calls"
echo "4$(wc -l <"$HOME_OF_TEST/calls");cluster"
"""


def test_a_job_whose_answer_was_lost_is_not_handed_in_twice(login: Login, tmp_path: Path) -> None:
    login.tool("sbatch", SBATCH)
    access = SlurmAccess(ssh=SSH, environment={"HOME_OF_TEST": str(tmp_path)})
    engine = Engines(lambda _: RemoteClient(lambda: login), FakeClock()).of(access)
    place = tmp_path / "gang"
    place.mkdir()
    asked = replace(submission([order(tmp_path)], tmp_path, access, "p"), directory=str(place))
    assert [engine.hand_in(asked, "script\n") for _ in range(3)] == [41] * 3
    assert (tmp_path / "scripts").read_text() == "script\n"
    other = tmp_path / "other"
    other.mkdir()
    assert engine.hand_in(replace(asked, directory=str(other)), "") == 42


def test_who_asks_while_the_first_is_at_work_waits_for_it(login: Login, tmp_path: Path) -> None:
    login.tool("sbatch", SBATCH)
    words = once(("sbatch",), str(tmp_path))
    variables = {"HOME_OF_TEST": str(tmp_path), "PATH": f"{login.tools}:/usr/bin:/bin"}
    first = subprocess.Popen(words, env=variables | {"SLOW": "0.5"}, stdin=subprocess.DEVNULL)
    while not (tmp_path / "scripts").exists():
        continue
    said = RemoteClient(lambda: login).run(words, variables)
    assert first.wait() == 0
    assert command.submitted(said) == 41
    assert (tmp_path / "calls").read_text() == "x\n"


def test_a_job_that_was_refused_may_be_handed_in_again(login: Login, tmp_path: Path) -> None:
    words, client = once(("sbatch",), str(tmp_path)), RemoteClient(lambda: login)
    login.tool("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(SiteError, match="Invalid account"):
        client.run(words, {})
    login.tool("sbatch", "echo 5")
    assert client.run(words, {}) == "5\n"
    with pytest.raises(SiteError):
        client.run(once(("sbatch",), f"{tmp_path}/nowhere"), {})
