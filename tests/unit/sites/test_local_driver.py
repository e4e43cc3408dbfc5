"""The local driver where the contract of all drivers cannot look: its files, locks and clock."""

import contextlib
import fcntl
import os
import resource
import sys
from pathlib import Path

import pytest
from tests.contract.harness import eventually
from tests.fakes.clock import FakeClock

from gridloom.base.codec import encode
from gridloom.model.event import TaskEnded, TaskRunning
from gridloom.model.inventory import CPU, Site
from gridloom.model.reason import Why
from gridloom.sites.local.client import LocalClient
from gridloom.sites.local.driver import LocalDriver
from gridloom.wire.agent import LOCK_FILE, ORDER_FILE, REPORTS_FILE, TaskOrder, TaskRef
from gridloom.wire.reports import Alive

TASK = TaskRef(job_id="j", attempt=1, epoch=1, site="s", node="n")
HERE = Site(name="here", kind="local", nodes=())
ORDER = TaskOrder(
    task=TASK,
    argv=("true",),
    workdir="/",
    env={},
    accelerator=CPU,
    ranks=(),
    lease_s=1.0,
    lease_until_s=0.0,
    lapse_grace_s=1.0,
    grace_s=1.0,
)


class Sweeper:
    """Plays the sweep: finds this many processes at each look."""

    def __init__(self, *found: int) -> None:
        self._found = list(found)
        self.looks = 0

    def __call__(self, token: str) -> int:
        assert token == TASK.token
        self.looks += 1
        return self._found.pop(0) if self._found else 0


def directory(runs: Path) -> Path:
    return runs / "j" / "attempts" / "1" / "s.n"


def started(runs: Path) -> Path:
    """Make the files of a task whose supervisor has started and is gone."""
    place = directory(runs)
    place.mkdir(parents=True)
    (place / LOCK_FILE).touch()
    (place / REPORTS_FILE).touch()
    return place


@pytest.mark.parametrize("python", ["/bin/true", "/bin/false"])
def test_a_supervisor_that_never_starts_is_lost_after_a_while_and_for_good(
    tmp_path: Path, python: str
) -> None:
    clock, sweeper = FakeClock(), Sweeper()
    driver = LocalDriver(tmp_path, python, clock, sweeper)
    assert not driver.submit(HERE, [ORDER])
    clock.advance(14.0)
    assert driver.observe([TASK]) == []
    clock.advance(1.0)
    (fact,) = driver.observe([TASK])
    assert isinstance(fact, TaskEnded)
    assert fact.outcome.code is Why.SUPERVISOR_LOST
    assert driver.observe([TASK]) == [fact]
    assert sweeper.looks == 1
    # One that was only late finds the mark, and starts nothing
    late = LocalClient()
    late.start((sys.executable, "-m", "gridloom.agent", str(directory(tmp_path))), tmp_path)
    eventually(lambda: not late.alive(directory(tmp_path)) and not late._supervisors)
    assert (directory(tmp_path) / REPORTS_FILE).read_bytes() == b""


def test_a_supervisor_that_is_about_to_start_is_not_lost(tmp_path: Path) -> None:
    clock, sweeper = FakeClock(), Sweeper()
    driver = LocalDriver(tmp_path, "/bin/true", clock, sweeper)
    assert not driver.submit(HERE, [ORDER])
    with (directory(tmp_path) / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it has its lock, and has not made its mark yet
        clock.advance(100.0)
        assert driver.observe([TASK]) == []
        assert not LocalClient().forbid(directory(tmp_path))


class StartsMeanwhile(LocalClient):
    """A client just after whose look a supervisor takes its lock and makes its mark."""

    def alive(self, directory: Path) -> bool:
        seen = super().alive(directory)
        self.lock = (directory / LOCK_FILE).open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        (directory / REPORTS_FILE).touch()
        return seen


def test_a_supervisor_that_starts_while_we_look_is_not_lost(tmp_path: Path) -> None:
    directory(tmp_path).mkdir(parents=True)
    driver = LocalDriver(tmp_path, "", FakeClock(), Sweeper())
    driver._client = StartsMeanwhile()
    assert driver.observe([TASK]) == []
    driver._client.lock.close()


def test_a_new_driver_gives_a_supervisor_time_of_its_own(tmp_path: Path) -> None:
    clock = FakeClock()
    driver = LocalDriver(tmp_path, "/bin/true", clock, Sweeper())
    assert driver.observe([TASK]) == []
    clock.advance(15.0)
    assert [type(fact) for fact in driver.observe([TASK])] == [TaskEnded]


def test_a_task_is_lost_only_when_its_processes_are_gone(tmp_path: Path) -> None:
    started(tmp_path)
    driver = LocalDriver(tmp_path, "", FakeClock(), Sweeper(3, 1))
    assert driver.observe([TASK]) == []
    assert driver.observe([TASK]) == []
    (fact,) = driver.observe([TASK])
    assert isinstance(fact, TaskEnded)
    assert fact.outcome.sentence.endswith("without a word; 4 of its processes were killed")


def test_of_what_cannot_be_read_nothing_is_said_and_of_the_others_all(tmp_path: Path) -> None:
    place = started(tmp_path)
    (place / LOCK_FILE).unlink()
    (place / LOCK_FILE).mkdir()
    other = TaskRef(job_id="k", attempt=1, epoch=1, site="s", node="n")
    good = tmp_path / "k" / "attempts" / "1" / "s.n"
    good.mkdir(parents=True)
    (good / REPORTS_FILE).write_bytes(encode(Alive(seq=1, epoch=1, now_s=0.0)) + b"\n")
    with (good / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        facts = LocalDriver(tmp_path, "", FakeClock(), Sweeper()).observe([TASK, other])
    assert [type(fact) for fact in facts] == [TaskRunning]


def test_to_look_whether_a_supervisor_lives_does_not_keep_it_from_starting(
    tmp_path: Path,
) -> None:
    """The look takes the lock for a moment, and may take it when a supervisor wants it."""
    place = directory(tmp_path)
    place.mkdir(parents=True)
    client = LocalClient()
    (place / ORDER_FILE).write_bytes(encode(ORDER))
    with (place / LOCK_FILE).open("ab") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        client.start((sys.executable, "-m", "gridloom.agent", str(place)), place)
        (pid,) = client._supervisors
        eventually(lambda: lock_is_open(pid, place))
        assert not client.started(place)
    eventually(lambda: client.started(place))
    eventually(lambda: not client.alive(place))


def lock_is_open(pid: int, place: Path) -> bool:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.add(os.readlink(fd))
    return str(place / LOCK_FILE) in found


def test_a_relative_directory_of_runs_means_ours_and_not_the_supervisors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    driver = LocalDriver(Path("runs"), sys.executable, FakeClock(), Sweeper())
    assert not driver.submit(HERE, [ORDER])
    eventually(lambda: driver.observe([TASK]))
    assert (directory(tmp_path / "runs") / REPORTS_FILE).exists()


def test_a_machine_that_is_exhausted_for_now_refuses_in_a_way_that_may_be_tried_again(
    tmp_path: Path,
) -> None:
    driver = LocalDriver(tmp_path, "/bin/true", FakeClock(), Sweeper())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(2):  # enough for a file and its directory, too few for a process
            os.close(taken.pop())
        refused = driver.submit(HERE, [ORDER])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    assert refused[ORDER.task].code is Why.REFUSED
    assert not driver.submit(HERE, [ORDER])


def test_a_disk_that_is_no_place_for_a_task_refuses_for_good(tmp_path: Path) -> None:
    driver = LocalDriver(tmp_path, "/no/python", FakeClock(), Sweeper())
    reason = driver.submit(HERE, [ORDER])[ORDER.task]
    assert (reason.code, reason.sentence) == (
        Why.IO,
        "the task cannot be started: No such file or directory: /no/python",
    )


def test_a_supervisor_leaves_no_zombie_and_outlives_its_client(tmp_path: Path) -> None:
    place = directory(tmp_path)
    place.mkdir(parents=True)
    client = LocalClient()
    client.start(("/bin/true",), place)
    (pid,) = client._supervisors
    eventually(lambda: not client.alive(place) and not client._supervisors)
    assert not Path(f"/proc/{pid}").exists()
    LocalClient().start(("/bin/sleep", "0.2"), place)  # a ResourceWarning would fail this test


def test_the_supervisor_needs_no_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    driver = LocalDriver(tmp_path, sys.executable, FakeClock(), Sweeper())
    assert not driver.submit(HERE, [ORDER])
    eventually(lambda: driver.observe([TASK]))
    assert (directory(tmp_path) / "supervisor.log").read_text() == ""
