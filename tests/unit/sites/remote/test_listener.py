"""What tasks write is here as it is there, and their end is known last of all."""

from pathlib import Path

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.fakes.remote_files import FakeFiles, fake_host

from gridloom.base.codec import encode
from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.remote import listener as module
from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.listener import Listener
from gridloom.sites.remote.watched import Watched
from gridloom.wire.reports import Alive, Ended

ALIVE = encode(Alive(seq=1, epoch=5, now_s=1.0)) + b"\n"
END = (
    encode(
        Ended(
            seq=2,
            epoch=5,
            now_s=2.0,
            outcome=Outcome(code=Why.COMPLETED, sentence="done", ended_s=2.0),
        )
    )
    + b"\n"
)
ONE = Watched(reports="j/one/reports", growing=("j/log-0", "j/metrics"), replaced=("j/result",))
TWO = Watched(reports="j/two/reports", growing=("j/log-1", "j/metrics"))


class Desk:
    """Run directories here and there."""

    def __init__(self, place: Path) -> None:
        self.here, self.there = place / "here", place / "there"
        self.clock, self.executor = FakeClock(), Now()
        self.files, self.bulk = FakeFiles(), FakeFiles()
        host = fake_host(self.files, self.bulk)
        self.listener = Listener(
            Ends(self.here, str(self.there), lambda: host, self.clock, self.executor)
        )

    def writes(self, name: str, data: bytes) -> None:
        path = self.there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def look(self, *tasks: Watched, after_s: float = 1.0) -> None:
        self.clock.advance(after_s)
        self.listener.look(tasks or (ONE, TWO))

    def has(self, name: str) -> bytes:
        path = self.here / name
        return path.read_bytes() if path.exists() else b""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_files_grow_here_as_they_grow_there(desk: Desk) -> None:
    desk.look()
    desk.writes("j/one/reports", ALIVE)
    desk.writes("j/log-0", b"half a li")
    desk.look()
    assert (desk.has("j/one/reports"), desk.has("j/log-0")) == (ALIVE, b"half a li")
    desk.writes("j/log-0", b"ne\n")
    desk.writes("j/log-1", b"other\n")
    desk.writes("j/metrics", b"row\n")
    desk.look()
    assert desk.has("j/log-0") == b"half a line\n"
    assert (desk.has("j/log-1"), desk.has("j/metrics")) == (b"other\n", b"row\n")
    assert desk.bulk.calls == [], "a little goes the way of what is small"


def test_a_round_a_second_and_none_without_a_task(desk: Desk) -> None:
    desk.look()
    desk.files.calls.clear()
    desk.look(after_s=0.5)
    assert desk.files.calls == []
    desk.listener.look(())
    desk.clock.advance(5.0)
    desk.listener.look(())
    assert desk.files.calls == []
    desk.look()
    assert desk.files.calls


def test_a_report_is_brought_with_its_last_byte(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE + ALIVE[:10])
    desk.look()
    assert desk.has("j/one/reports") == ALIVE
    desk.writes("j/one/reports", ALIVE[10:])
    desk.look()
    assert desk.has("j/one/reports") == ALIVE * 2


def test_rounds_do_not_wait_for_each_other(desk: Desk) -> None:
    desk.executor.is_slow = True
    desk.look()
    desk.look()
    assert len(desk.executor.left) == 2, "one for reports, one for the rest"
    reports, rest = desk.executor.left
    desk.executor.left.clear()
    desk.writes("j/one/reports", ALIVE)
    desk.writes("j/log-0", b"x")
    reports()
    assert (desk.has("j/one/reports"), desk.has("j/log-0")) == (ALIVE, b"")
    desk.look()
    assert len(desk.executor.left) == 1, "the rest is still on its way"
    rest()
    assert desk.has("j/log-0") == b"x"


def test_an_end_is_known_when_all_the_rest_is_here(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE + END)
    desk.writes("j/log-0", b"x" * 5000)
    desk.writes("j/result", b"{}")
    desk.executor.is_slow = True
    desk.look()
    reports, rest = desk.executor.left
    desk.executor.left.clear()
    reports()
    assert desk.has("j/one/reports") == ALIVE
    assert desk.listener.is_bringing(ONE)
    assert not desk.listener.is_bringing(TWO)
    rest()
    assert desk.has("j/one/reports") == ALIVE + END
    assert (desk.has("j/log-0"), desk.has("j/result")) == (b"x" * 5000, b"{}")
    assert not desk.listener.is_bringing(ONE)
    desk.executor.is_slow = False
    desk.writes("j/log-0", b"of a later life")
    desk.look(TWO)
    assert desk.has("j/log-0") == b"x" * 5000


def test_a_link_that_breaks_meanwhile_is_waited_for(desk: Desk) -> None:
    desk.look()
    desk.writes("j/one/reports", ALIVE + END)
    desk.writes("j/log-0", b"x" * (300 << 10))
    desk.bulk.error = LinkDownError("down")
    desk.look()
    assert desk.listener.is_bringing(ONE)
    desk.look()
    desk.bulk.error = None
    desk.look()
    assert desk.has("j/one/reports") == ALIVE + END
    assert len(desk.has("j/log-0")) == 300 << 10


def test_others_do_not_wait_for_ever(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE + END)
    desk.writes("j/log-0", b"x" * (300 << 10))
    desk.bulk.error = LinkDownError("down")
    for _ in range(60):
        desk.look()
        assert desk.listener.is_bringing(ONE)
    desk.look()
    assert not desk.listener.is_bringing(ONE)
    assert desk.has("j/one/reports") == ALIVE + END
    assert desk.has("j/log-0") == b""
    desk.look(TWO)
    desk.bulk.error = None
    desk.listener.look(())
    desk.clock.advance(1.0)
    desk.listener.look(())
    assert len(desk.has("j/log-0")) == 300 << 10, "what is owed is brought all the same"
    desk.files.calls.clear()
    desk.look(TWO)
    assert not desk.listener.is_bringing(ONE)


def test_a_task_that_ends_without_a_word_is_brought_once_more(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE)
    desk.look()
    desk.writes("j/log-0", b"its last")
    desk.writes("j/one/reports", ALIVE)
    assert not desk.listener.finish(ONE)
    desk.look()
    assert desk.listener.finish(ONE)
    assert desk.has("j/log-0") == b"its last"
    assert desk.has("j/one/reports") == ALIVE * 2


def test_a_last_word_that_comes_late_is_heard_all_the_same(desk: Desk) -> None:
    desk.look()
    desk.listener.finish(ONE)
    desk.writes("j/one/reports", ALIVE + END)
    desk.look()
    assert desk.listener.finish(ONE)
    assert desk.has("j/one/reports") == ALIVE + END


def test_much_is_brought_in_parts_over_a_connection_of_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALL_BYTES", 100)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 400)
    monkeypatch.setattr(module, "_LIVE_BYTES", 1000)
    monkeypatch.setattr(module, "_REPORTS_BYTES", 6 * len(ALIVE))
    desk.writes("j/log-0", bytes(range(200)) * 25)
    desk.writes("j/log-1", b"y" * 50)
    desk.writes("j/one/reports", ALIVE * 20)
    desk.look()
    assert len(desk.has("j/log-0")) == 1000
    assert desk.has("j/log-1") == b"y" * 50
    assert desk.has("j/one/reports") == ALIVE * 6
    assert desk.bulk.calls
    desk.writes("j/one/reports", END)
    desk.listener.finish(ONE)
    desk.look()
    assert desk.has("j/one/reports") == ALIVE * 20 + END
    assert desk.has("j/log-0") == bytes(range(200)) * 25


def test_a_result_is_brought_whenever_it_is_another(desk: Desk) -> None:
    (desk.there / "j").mkdir(parents=True)
    (desk.here / "j").mkdir(parents=True)
    for content in (b"first", b"second, longer"):
        (desk.there / "j" / "result").write_bytes(content)
        desk.look()
        assert desk.has("j/result") == content
    desk.files.calls.clear()
    desk.look()
    assert "read" not in desk.files.calls


def test_what_may_not_be_read_is_no_reason_to_wait(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE + END)
    desk.writes("j/log-0", b"secret")
    desk.writes("j/metrics", b"row\n")
    allowed = FakeFiles.statuses

    def statuses(paths: list[str]) -> object:
        desk.files.denied = set()
        found = allowed(desk.files, paths)
        desk.files.denied = {f"{desk.there}/j/log-0"}
        return found

    desk.files.statuses = statuses  # type: ignore[method-assign, assignment]
    desk.look()
    assert desk.has("j/one/reports") == ALIVE + END
    assert (desk.has("j/log-0"), desk.has("j/metrics")) == (b"", b"row\n")


def test_whoever_writes_the_same_again_does_no_harm(desk: Desk) -> None:
    desk.writes("j/one/reports", ALIVE)
    desk.executor.is_slow = True
    desk.look()
    reports = desk.executor.left.pop(0)
    other = Desk(desk.here.parent)
    other.executor.is_slow = True
    other.look()
    late = other.executor.left.pop(0)
    reports()
    late()
    assert desk.has("j/one/reports") == ALIVE


def test_a_fault_of_ours_is_no_silence(desk: Desk) -> None:
    def fault(_: str) -> None:
        raise RuntimeError("ours")

    desk.files.before = fault
    desk.look()
    with pytest.raises(RuntimeError, match="ours"):
        desk.look()
