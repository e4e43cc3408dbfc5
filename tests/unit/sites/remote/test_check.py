"""What keeps a login host from being used is told with what helps."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.fakes.login_host import LoginHost
from tests.fakes.remote_files import FakeFiles

from gridloom.base.errors import SiteError
from gridloom.base.system import SystemClock
from gridloom.model.inventory import SshAccess
from gridloom.sites.finding import Finding
from gridloom.sites.remote.check import check, check_python
from gridloom.sites.remote.errors import LinkDownError, RemoteFileError
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.link import Done
from gridloom.sites.remote.place import FarPlace
from gridloom.sites.ssh.hosts import SshHosts


class Desk:
    """A login host that is well, until something is changed."""

    def __init__(self, place: Path) -> None:
        self.clock, self.files = FakeClock(), FakeFiles()
        self.place = "login"
        self.done = Done(code=0, stdout=f"gridloom asks\nme\n{self.clock.now_s():.0f}\n", stderr="")
        self.command_s = 0.0
        self.error: SiteError | None = None
        self.access = SshAccess(host="login", directory=str(place / "scratch"))
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], stdin: str = "", *, timeout_s: float) -> Done:
        self.asked += argv
        self.clock.advance(self.command_s)
        if self.error is not None:
            raise self.error
        return self.done

    def host(self) -> Host:
        return Host(link=self, files=self.files, bulk=self.files)

    def check(self) -> list[Finding]:
        return check(self.host, self.access, self.clock)

    def takes(self, **more: str) -> None:
        self.access = replace(self.access, **more)

    def says(self, stdout: str, code: int = 0, stderr: str = "") -> None:
        self.done = Done(code=code, stdout=stdout, stderr=stderr)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def states(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.check, one.state) for one in found]


WELL = [("ssh", "ok"), ("clock", "ok"), ("directory", "ok")]


def test_all_is_well(desk: Desk) -> None:
    found = desk.check()
    assert states(found) == WELL
    assert found[0].found.startswith("login lets us in as me, in ")
    assert "can be written, with " in found[2].found
    assert [*Path(desk.access.directory).iterdir()] == []


def test_a_real_one_is_looked_at(tmp_path: Path) -> None:
    with LoginHost(tmp_path / "host") as login:
        hosts, access = SshHosts(SystemClock()), login.access()
        found = check(lambda: hosts.of(access), access, SystemClock())
        assert states(found) == WELL
        login.known_hosts.write_text("")
        strange = SshHosts(SystemClock())
        (one,) = check(lambda: strange.of(access), access, SystemClock())
        assert (one.check, one.state) == ("ssh", "fail")
        assert "is not among the known hosts" in one.found
        assert one.remedy.startswith("compare that with what the site publishes")
        place = FarPlace(hosts.of(access), f"{access.directory}/probe")
        place.make()
        assert place.read("seen") is None
        place.touch("seen")
        assert place.read("seen") == b""
        place.clear()
        assert not (tmp_path / "host" / "scratch" / "probe").exists()
        login.stop()
        assert place.read("seen") is None
        place.clear()
        hosts.close()
        strange.close()


CHANGES: dict[str, tuple[Callable[[Desk], None], tuple[str, str], str]] = {
    "no link": (
        lambda desk: setattr(desk, "error", LinkDownError("login is not reached")),
        ("ssh", "fail"),
        "login is not reached",
    ),
    "no library": (
        lambda desk: setattr(desk, "error", SiteError("No module; sites over SSH need `pip`")),
        ("ssh", "fail"),
        "No module",
    ),
    "no shell": (
        lambda desk: desk.says("This account is not available.\n", 1),
        ("ssh", "fail"),
        "runs no commands: This account is not available.",
    ),
    "a noisy shell": (
        lambda desk: desk.says("Welcome!\ngridloom asks\nme\n1000000\n"),
        ("ssh", "fail"),
        "prints 'Welcome!' before",
    ),
    "a slow shell": (
        lambda desk: setattr(desk, "command_s", 3.0),
        ("ssh", "warn"),
        "a command that does nothing takes 3s at login",
    ),
    "another time": (
        lambda desk: desk.says("gridloom asks\nme\n1000100\n"),
        ("clock", "warn"),
        "the login host's clock is",
    ),
    "no right to write": (
        lambda desk: desk.files.denied.add(f"{desk.access.directory}/.gridloom-check"),
        ("directory", "fail"),
        "permission denied",
    ),
    "no such workdir": (
        lambda desk: desk.takes(workdir=f"{desk.access.directory}/no"),
        ("directory", "fail"),
        "there is no directory",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_thing_is_wrong(desk: Desk, name: str) -> None:
    change, expected, words = CHANGES[name]
    change(desk)
    (wrong,) = [one for one in desk.check() if one.state != "ok"]
    assert (wrong.check, wrong.state) == expected
    assert words in wrong.found
    assert wrong.remedy


def test_a_directory_that_is_full_or_slow_is_worth_knowing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.files, "free_bytes", lambda _: 5_000_000)
    found = desk.check()[-1]
    assert (found.state, "has 5 MB free" in found.found) == ("warn", True)
    monkeypatch.setattr(desk.files, "free_bytes", lambda _: None)
    assert desk.check()[-1].found.endswith("can be written")
    desk.files.before = lambda verb: desk.clock.advance(1.5 if verb == "write" else 0.0)
    found = desk.check()[-1]
    assert (found.state, "took 2s" in found.found) == ("warn", True)


def test_a_directory_that_forgets_is_no_use(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.files, "read", lambda parts: [b""])
    found = desk.check()[-1]
    assert (found.state, "is not read there" in found.found) == ("fail", True)


def test_a_full_disk_there_is_told(desk: Desk) -> None:
    desk.files.error = RemoteFileError("x cannot be written: the disk is full", "free space there")
    found = desk.check()[-1]
    assert (found.found, found.remedy) == (
        "x cannot be written: the disk is full",
        "free space there",
    )


@pytest.mark.parametrize(
    ("done", "state", "words"),
    [
        (Done(code=0, stdout="1.0\n", stderr=""), "ok", "/py at login with gridloom 1.0"),
        (Done(code=0, stdout="0.9\n", stderr=""), "warn", "gridloom 0.9 at login, and here is 1.0"),
        (Done(code=1, stdout="", stderr="No module named x\n"), "warn", "No module named x"),
        (Done(code=127, stdout="", stderr=""), "warn", "exit status 127"),
    ],
)
def test_an_interpreter_there_is_tried(desk: Desk, done: Done, state: str, words: str) -> None:
    desk.done = done
    (found,) = check_python(desk.host().link, "/py", {"A": "b c"}, "1.0")
    assert (found.check, found.state) == ("python", state)
    assert words in found.found
    assert desk.asked[:3] == ["env", "A=b c", "/py"]
    desk.error = LinkDownError("login is not reached")
    (found,) = check_python(desk.host().link, "/py", {}, "1.0")
    assert found.state == "fail"
