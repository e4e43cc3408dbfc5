"""What tasks are told arrives as it is now, also after a while without a link."""

from pathlib import Path

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.fakes.remote_files import FakeFiles, fake_host

from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.teller import Teller


class Desk:
    """Run directories here and there."""

    def __init__(self, place: Path) -> None:
        self.here, self.there = place / "here", place / "there"
        for path in (self.here, self.there):
            (path / "j").mkdir(parents=True)
        self.clock, self.executor, self.files = FakeClock(), Now(), FakeFiles()
        host = fake_host(self.files)
        self.teller = Teller(
            Ends(self.here, str(self.there), lambda: host, self.clock, self.executor)
        )

    def says(self, name: str, text: str, **more: float) -> None:
        (self.here / name).write_text(text)
        self.teller.tell(name, **more)

    def look(self, after_s: float = 1.0) -> None:
        self.clock.advance(after_s)
        self.teller.look()

    def heard(self, name: str) -> str:
        path = self.there / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_it_is_sent_at_once_and_once(desk: Desk) -> None:
    desk.says("j/lease", "1")
    assert desk.heard("j/lease") == "1"
    desk.look()
    assert desk.files.calls == ["write"]


def test_the_newest_counts_when_the_link_is_back(desk: Desk) -> None:
    desk.files.error = LinkDownError("down")
    for text in "123":
        desk.says("j/lease", text)
        desk.look(0.1)
    desk.says("j/stop", "stop")
    desk.files.error = None
    desk.look(0.4)
    assert (desk.heard("j/lease"), desk.heard("j/stop")) == ("", ""), "not without a pause"
    desk.look(0.1)
    assert (desk.heard("j/lease"), desk.heard("j/stop")) == ("3", "stop")
    desk.files.calls.clear()
    desk.look()
    assert desk.files.calls == []


def test_a_lease_that_has_lapsed_is_not_sent(desk: Desk) -> None:
    desk.files.error = LinkDownError("down")
    desk.says("j/lease", "1", until_s=desk.clock.now_s() + 6.0)
    desk.says("j/stop", "stop")
    desk.files.error = None
    desk.clock.advance(6.0)
    desk.look()
    assert (desk.heard("j/lease"), desk.heard("j/stop")) == ("", "stop")


def test_what_is_told_while_it_is_sent_is_sent_again(desk: Desk) -> None:
    told = iter(["2"])

    def meanwhile(_: str) -> None:
        for text in told:
            desk.executor.is_slow = True
            desk.says("j/lease", text)

    desk.files.before = meanwhile
    desk.says("j/lease", "1")
    assert desk.heard("j/lease") == "2"


def test_only_one_call_is_made_at_a_time(desk: Desk) -> None:
    desk.executor.is_slow = True
    desk.says("j/lease", "1")
    desk.says("j/stop", "stop")
    desk.look()
    assert len(desk.executor.left) == 1
    desk.executor.answer()
    assert (desk.heard("j/lease"), desk.heard("j/stop")) == ("1", "stop")


def test_one_that_is_refused_does_not_stand_in_the_way(desk: Desk) -> None:
    desk.says("j/a", "a")
    desk.executor.is_slow = True
    (desk.here / "gone").mkdir()
    for name in ("j/a", "gone/lease", "j/b"):
        desk.says(name, "new")
    desk.executor.is_slow = False
    desk.executor.answer()
    assert (desk.heard("j/a"), desk.heard("j/b")) == ("new", "new")
    (desk.there / "gone").mkdir()
    desk.look()
    assert desk.heard("gone/lease") == "new"


def test_what_is_never_wanted_is_given_up(desk: Desk) -> None:
    (desk.here / "gone").mkdir()
    desk.says("gone/lease", "1")
    desk.look(599.0)
    desk.files.calls.clear()
    desk.look()
    desk.look()
    assert desk.files.calls == []


def test_a_run_directory_that_was_removed_is_nothing_to_send(desk: Desk) -> None:
    desk.files.error = LinkDownError("down")
    desk.says("j/lease", "1")
    (desk.here / "j" / "lease").unlink()
    desk.files.error = None
    desk.look()
    desk.look()
    assert desk.heard("j/lease") == ""
