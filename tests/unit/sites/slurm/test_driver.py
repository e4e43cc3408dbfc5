"""The driver beside a Slurm whose answers are scripted; the real one stands in the beds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.unit.sites.slurm.orders import order, ref

from gridloom.base.codec import decode, encode
from gridloom.base.errors import SiteError
from gridloom.model.event import (
    AnyEvent,
    TaskArrived,
    TaskEnded,
    TaskRefused,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.inventory import Site, SlurmAccess
from gridloom.model.life import Arrival, Outcome
from gridloom.model.reason import Why
from gridloom.model.spec import Batch
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.driver import SlurmDriver
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.engines import Engines
from gridloom.sites.slurm.once import tool
from gridloom.sites.slurm.parse_queue import BEFORE, BETWEEN, SQUEUE_FORMAT
from gridloom.sites.ssh.hosts import SshHosts
from gridloom.wire.agent import (
    LEASE_FILE,
    ORDER_FILE,
    RENDEZVOUS_FILE,
    REPORTS_FILE,
    STOP_FILE,
    Rendezvous,
    TaskOrder,
    task_directory,
)
from gridloom.wire.reports import Alive, Arrived, Ended, Report

ENVIRONMENT = {"SLURM_CONF": "/etc/b.conf"}
HPC = Site(name="hpc", kind="slurm", nodes=(), slurm=SlurmAccess(environment=ENVIRONMENT))
HERE = Arrival(node="n7", address="10.0.0.7")


@dataclass
class ScriptedSlurm(SlurmClient):
    """Plays Slurm's commands: jobs are numbered from 7, and in the states they are given."""

    jobs: dict[int, dict[str, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    error: SiteError | None = None
    dies: bool = False
    accounts: dict[int, str] = field(default_factory=dict)
    parts: dict[int, list[int]] = field(default_factory=dict)
    looks: list[Callable[[], None]] = field(default_factory=list)

    def run(self, argv: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
        assert environment == ENVIRONMENT
        self.calls.append(tool(argv))
        if self.error is not None:
            raise self.error
        match tool(argv):
            case "sbatch":
                slurm_id = 7 + len(self.jobs)
                comment = next(
                    line.partition("=")[2]
                    for line in stdin.splitlines()
                    if line.startswith("#SBATCH --comment")
                )
                self.jobs[slurm_id] = {"%T": "PENDING", "%r": "Priority", "%k": comment}
                if self.dies:
                    raise RuntimeError("killed")
                return f"{slurm_id};b\n"
            case "scancel":
                job = self.jobs[int(argv[-1])]
                if job["%T"] == "PENDING" or "--state=PENDING" not in argv:
                    job["%T"] = "CANCELLED"
                return ""
            case "sacct":
                if not self.accounts:
                    raise SiteError("Slurm accounting storage is disabled")
                return "".join(
                    f"{one}|{self.accounts[one]}\n" for one in self.jobs if one in self.accounts
                )
            case other:
                assert other == "squeue"
        for look in self.looks:
            look()
        asked = [word.removeprefix("--jobs=") for word in argv if word.startswith("--jobs=")]
        ids = [int(one) for one in asked[0].split(",")] if asked else list(self.jobs)
        every = [part for one in ids for part in self.parts.get(one, [one])]
        known = [one for one in dict.fromkeys(every) if one in self.jobs]
        if not argv[-1].startswith("--format="):
            return "".join(f"{one} {self.jobs[one].get('preempted', 'N/A')}\n" for one in known)
        rows = [self._row(one) for one in known]
        return "".join(f"{BEFORE}{row}\n" for row in rows)

    def _row(self, slurm_id: int) -> str:
        said = {"%i": str(slurm_id), "%A": str(slurm_id), "%F": str(slurm_id), "%D": "1"}
        columns = SQUEUE_FORMAT.removeprefix(BEFORE).split(BETWEEN)
        return BETWEEN.join((said | self.jobs[slurm_id]).get(column, "N/A") for column in columns)


class Desk:
    """A driver over a directory, and the supervisors that write there."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.clock = FakeClock()
        self.slurm = ScriptedSlurm()
        self.executor = Now()
        self.driver = self.again()
        self.orders = [order(runs, "n1"), order(runs, "n2")]
        self.seq = 0

    def again(self) -> SlurmDriver:
        """Return a driver that remembers nothing."""
        self.driver = SlurmDriver(
            self.runs,
            self.clock,
            Engines(lambda _: self.slurm, self.clock).of,
            self.executor,
            SshHosts(self.clock).of,
        )
        return self.driver

    def submit(self) -> Mapping[Any, Any]:
        return self.driver.submit(HPC, self.orders)

    def look(self) -> list[AnyEvent]:
        self.clock.advance(1.0)
        return self.driver.observe([one.task for one in self.orders])

    def says(self, kind: type[Report], node: str = "n1", **more: Any) -> None:
        self.seq += 1
        line = encode(kind(seq=self.seq, epoch=5, now_s=self.clock.now_s(), **more))
        with (self.place(node) / REPORTS_FILE).open("ab") as file:
            file.write(line + b"\n")

    def place(self, node: str = "n1") -> Path:
        return Path(task_directory(self.runs, ref(node)))

    def ends(self, code: Why, node: str = "n1") -> None:
        self.says(Ended, node, outcome=Outcome(code=code, sentence=f"it {code}", ended_s=5.0))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "runs")


def sentences(facts: Sequence[AnyEvent]) -> list[str]:
    return [fact.sentence for fact in facts if isinstance(fact, TaskWaiting)]


def outcomes(facts: Sequence[AnyEvent]) -> list[Why]:
    return [fact.outcome.code for fact in facts if isinstance(fact, TaskEnded)]


def test_a_gang_waits_comes_up_runs_and_ends(desk: Desk) -> None:
    assert desk.submit() == {}
    assert sentences(desk.look()) == ["Slurm job 7: jobs of higher priority go first"] * 2
    desk.slurm.jobs[7] |= {"%T": "RUNNING", "%N": "b[1-2]"}
    assert sentences(desk.look()) == ["Slurm job 7 starts on b1, b2"] * 2
    desk.says(Arrived, arrival=HERE)
    first, second = desk.look()
    assert isinstance(first, TaskArrived)
    assert isinstance(second, TaskWaiting)
    desk.says(Arrived, "n2", arrival=HERE)
    desk.says(Alive)
    desk.says(Alive, "n2")
    kinds = [type(fact) for fact in desk.look()]
    assert kinds == [TaskRunning, TaskArrived, TaskRunning]
    desk.ends(Why.COMPLETED)
    desk.ends(Why.EXITED, "n2")
    assert outcomes(desk.look()) == [Why.COMPLETED, Why.EXITED]
    desk.slurm.jobs[7]["%T"] = "FAILED"
    for _ in range(3):
        assert outcomes(desk.look()) == [Why.COMPLETED, Why.EXITED], "told again, and no other way"
    assert desk.slurm.calls.count("sbatch") == 1


def test_one_command_a_look_tells_of_all_jobs(desk: Desk) -> None:
    many = [order(desk.runs, "n1", task=ref("n1", job_id=f"j{n}")) for n in range(50)]
    for one in many:
        assert desk.driver.submit(HPC, [one]) == {}
    desk.driver.observe([one.task for one in many])
    desk.slurm.calls.clear()
    desk.clock.advance(1.0)
    for _ in range(10):
        assert len(desk.driver.observe([one.task for one in many])) == 50
    assert desk.slurm.calls == ["squeue"]


def test_a_slurm_that_takes_long_is_asked_less_often(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.looks.append(lambda: desk.clock.advance(2.0))
    desk.look()
    desk.slurm.calls.clear()
    for _ in range(5):  # 3 s after it was asked, and a second later each time
        desk.look()
    assert desk.slurm.calls == []
    desk.look()
    assert desk.slurm.calls == ["squeue"], "after four times as long as the call had taken"


def test_what_is_handed_in_twice_is_one_job(desk: Desk) -> None:
    desk.submit()
    assert desk.submit() == {}
    desk.again()
    assert desk.submit() == {}
    assert sentences(desk.look()) == ["Slurm job 7: jobs of higher priority go first"] * 2
    assert desk.slurm.calls.count("sbatch") == 1


def test_a_job_that_was_taken_while_we_died_is_found_again(desk: Desk) -> None:
    desk.slurm.dies = True
    desk.submit()
    desk.look()
    with pytest.raises(RuntimeError):
        desk.look()
    desk.slurm.dies = False
    desk.again()
    assert desk.submit() == {}
    assert list(desk.slurm.jobs) == [7]
    assert len(sentences(desk.look())) == 2


def test_while_slurm_is_away_tasks_wait_to_be_handed_in(desk: Desk) -> None:
    desk.slurm.error = AwayError("Unable to contact slurm controller")
    assert desk.submit() == {}
    away = "Slurm does not answer: Unable to contact slurm controller"
    for _ in range(3):
        assert sentences(desk.look()) == [away] * 2
    desk.slurm.error = None
    desk.look()
    assert sentences(desk.look()) == ["Slurm job 7: jobs of higher priority go first"] * 2
    desk.slurm.error = AwayError("gone again")
    desk.says(Alive)
    first, second = desk.look()
    assert isinstance(first, TaskRunning), "supervisors are heard without Slurm"
    assert sentences([second]) == ["Slurm does not answer: gone again"]


def test_what_slurm_will_not_have_is_refused_with_its_words(desk: Desk) -> None:
    desk.slurm.error = SiteError("Invalid account or account/partition combination specified")
    assert desk.submit() == {}
    for _ in range(2):
        first, second = desk.look()
        assert isinstance(first, TaskRefused)
        assert isinstance(second, TaskRefused)
        assert (first.domain, first.reason.code) == ("hpc/n1", Why.REFUSED)
        assert "Slurm says: Invalid account" in first.reason.sentence
    assert desk.slurm.calls == ["sbatch"]


def test_a_directory_that_cannot_be_written_refuses(desk: Desk) -> None:
    desk.runs.write_text("a file where a directory should be")
    refused = desk.submit()
    assert {reason.code for reason in refused.values()} == {Why.IO}
    for verb in (
        lambda: desk.driver.renew(ref(), 1.0),
        lambda: desk.driver.stop(ref(), 1.0, ""),
        lambda: desk.driver.meet(ref(), Rendezvous(addresses=(), port=1)),
        lambda: desk.driver.free_port("a", (1, 2), frozenset()),
    ):
        with pytest.raises(SiteError):
            verb()


def test_what_waits_is_taken_out_of_the_queue(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    desk.driver.stop(ref("n2"), 0.0, "cancelled")
    desk.again()
    desk.look()
    desk.look()
    assert desk.slurm.jobs[7]["%T"] == "CANCELLED"
    desk.look()
    facts = desk.look()
    assert outcomes(facts) == [Why.STOP_REQUESTED] * 2
    assert desk.slurm.calls.count("scancel") == 1


def test_what_slurm_never_took_is_stopped_without_it(desk: Desk) -> None:
    desk.slurm.error = AwayError("away")
    desk.submit()
    desk.driver.stop(ref("n1"), 0.0, "cancelled")
    assert outcomes(desk.look()) == [Why.STOP_REQUESTED] * 2
    desk.slurm.error = None
    desk.look()
    assert desk.slurm.jobs == {}


def test_a_job_that_runs_is_stopped_by_its_supervisors(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7]["%T"] = "RUNNING"
    desk.says(Alive)
    desk.look()
    desk.driver.stop(ref("n1"), 5.0, "stop")
    desk.look()
    assert "scancel" not in desk.slurm.calls
    assert (desk.place() / STOP_FILE).exists()
    desk.ends(Why.STOP_REQUESTED)
    assert outcomes(desk.look()) == [Why.STOP_REQUESTED], "Slurm need not say why"


def test_nobody_waits_for_a_slurm_that_does_not_answer(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.executor.is_slow = True
    for _ in range(4):
        assert sentences(desk.look()) == ["Slurm job 7: jobs of higher priority go first"] * 2
    desk.clock.advance(5.0)
    assert sentences(desk.look()) == ["Slurm does not answer: it takes long"] * 2
    assert len(desk.executor.left) == 1, "it is asked once"
    desk.executor.is_slow = False
    desk.executor.answer()
    assert sentences(desk.look()) == ["Slurm job 7: jobs of higher priority go first"] * 2


def test_a_job_that_ends_within_the_grace_of_a_preemption_was_preempted(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7] |= {"%T": "RUNNING"}
    desk.says(Alive)
    desk.says(Alive, "n2")
    desk.look()
    desk.ends(Why.STOP_REQUESTED)
    desk.ends(Why.STOP_REQUESTED, "n2")
    desk.slurm.jobs[7] |= {"%T": "COMPLETED", "preempted": "2026-01-01T00:00:00"}
    before = len(desk.slurm.calls)
    assert outcomes(desk.look()) == [Why.PREEMPTED] * 2
    assert outcomes(desk.look()) == [Why.PREEMPTED] * 2
    assert desk.slurm.calls[before:] == ["squeue"] * 3, "once to ask whether it was preempted"


def test_a_job_in_parts_was_preempted_if_any_part_was(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.says(Alive)
    desk.says(Alive, "n2")
    first = {"%T": "COMPLETED", "%i": "7+0"}
    desk.slurm.jobs |= {7: desk.slurm.jobs[7] | first, 8: first | {"%i": "7+1"}}
    desk.slurm.jobs[8]["preempted"] = "2026-01-01T00:00:00"
    desk.slurm.parts = {7: [7, 8]}
    desk.look()
    desk.look()
    assert outcomes(desk.look()) == [Why.PREEMPTED] * 2


@pytest.mark.parametrize(
    ("end", "state", "code"),
    [
        (Why.STOP_REQUESTED, "PREEMPTED", Why.PREEMPTED),
        (Why.STOP_REQUESTED, "TIMEOUT", Why.TIME_LIMIT),
        (Why.STOP_REQUESTED, "COMPLETED", Why.STOP_REQUESTED),
        (Why.KILLED, "PREEMPTED", Why.PREEMPTED),
        (Why.KILLED, "CANCELLED", Why.CANCELLED_AT_SITE),
        (Why.KILLED, "COMPLETED", Why.KILLED),
    ],
)
def test_a_site_that_ends_a_task_says_why(desk: Desk, end: Why, state: str, code: Why) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7]["%T"] = "RUNNING"
    desk.says(Alive)
    desk.says(Alive, "n2")
    desk.look()
    desk.ends(end)
    for _ in range(3):
        kinds = [type(fact) for fact in desk.look()]
        assert kinds == [TaskRunning], "its end is told once it is known why"
    desk.slurm.jobs[7]["%T"] = state
    assert outcomes(desk.look()) == [code]


def test_who_fell_by_itself_is_told_of_soon_for_its_neighbours_wait(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7]["%T"] = "RUNNING"
    desk.says(Alive)
    desk.says(Alive, "n2")
    desk.ends(Why.KILLED)
    assert outcomes(desk.look()) == []
    desk.clock.advance(5.0)
    assert outcomes(desk.look()) == [Why.KILLED]


def test_a_site_that_never_says_why_is_not_waited_for(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7]["%T"] = "RUNNING"
    desk.says(Alive)
    desk.ends(Why.STOP_REQUESTED)
    desk.look()
    for _ in range(2):  # a neighbour may use its whole grace, which is 29.5 s
        desk.clock.advance(23.0)
        assert TaskRunning in map(type, desk.look())
    desk.clock.advance(1.0)
    assert outcomes(desk.look()) == [Why.STOP_REQUESTED]


@pytest.mark.parametrize(
    ("state", "code"),
    [("NODE_FAIL", Why.NODE_LOST), ("OUT_OF_MEMORY", Why.OUT_OF_MEMORY), ("", Why.SUPERVISOR_LOST)],
)
def test_an_end_that_no_supervisor_tells_is_slurms(desk: Desk, state: str, code: Why) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7]["%T"] = "RUNNING"
    desk.says(Alive)
    desk.look()
    if state:
        desk.slurm.jobs[7]["%T"] = state
    else:
        del desk.slurm.jobs[7]
    desk.look()
    assert outcomes(desk.look()) == [code] * 2
    assert outcomes(desk.look()) == [code] * 2


def test_what_is_told_lies_in_the_tasks_directory(desk: Desk) -> None:
    desk.submit()
    desk.driver.renew(ref(), 1012.0)
    desk.driver.meet(ref(), Rendezvous(addresses=("10.0.0.7",), port=4001))
    assert (desk.place() / LEASE_FILE).read_bytes() == b'{"until_s":1012.0}'
    assert b"4001" in (desk.place() / RENDEZVOUS_FILE).read_bytes()


def test_of_what_was_never_handed_in_there_is_no_news(desk: Desk) -> None:
    assert desk.look() == []


# ----- users' own batch scripts


@pytest.fixture
def scripted(tmp_path: Path) -> Desk:
    """A script on two nodes, of which only the first has a supervisor."""
    desk = Desk(tmp_path)
    batch = Batch(options=(("job-name", "x"), ("error", "e.txt")), submitted_in="/")
    desk.orders = [order(tmp_path, node, batch=batch) for node in ("n1", "n2")]
    desk.submit()
    desk.look()
    desk.slurm.jobs[7] |= {"%T": "RUNNING", "%r": "None"}
    return desk


def test_the_supervisor_of_a_script_speaks_for_all_its_nodes(scripted: Desk) -> None:
    scripted.says(Alive)
    facts = [fact for fact in scripted.look() if isinstance(fact, TaskRunning)]
    assert [fact.domain for fact in facts] == ["hpc/n1", "hpc/n2"]
    scripted.again()
    facts = [fact for fact in scripted.look() if isinstance(fact, TaskRunning)]
    assert [fact.domain for fact in facts] == ["hpc/n1", "hpc/n2"]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("COMPLETED", Why.COMPLETED),
        ("PREEMPTED", Why.PREEMPTED),
        ("TIMEOUT", Why.TIME_LIMIT),
        ("NODE_FAIL", Why.NODE_LOST),
    ],
)
def test_a_script_has_ended_when_nothing_of_its_job_is_left(
    scripted: Desk, state: str, code: Why
) -> None:
    scripted.ends(Why.COMPLETED)
    assert outcomes(scripted.look()) == []
    scripted.slurm.jobs[7] |= {"%T": state}
    scripted.look()
    assert outcomes(scripted.look()) == [code] * 2


def test_a_script_that_was_stopped_ends_as_such_whatever_slurm_says(scripted: Desk) -> None:
    scripted.driver.stop(ref("n1"), 5.0, "stop")
    scripted.driver.stop(ref("n2"), 5.0, "stop")
    scripted.ends(Why.STOP_REQUESTED)
    scripted.slurm.jobs[7] |= {"%T": "CANCELLED"}
    scripted.look()
    assert outcomes(scripted.look()) == [Why.STOP_REQUESTED] * 2


def test_while_slurm_says_nothing_a_script_ends_by_its_own_word(scripted: Desk) -> None:
    scripted.ends(Why.EXITED)
    scripted.look()
    scripted.clock.advance(50.0)  # its grace, and a while for Slurm
    assert outcomes(scripted.look()) == [Why.EXITED] * 2


@pytest.mark.parametrize("speaks", [True, False])
def test_a_script_that_is_put_back_into_the_queue_is_handed_in_again(
    scripted: Desk, speaks: bool
) -> None:
    scripted.says(Alive)
    scripted.look()
    scripted.slurm.jobs[7] |= {"%T": "PENDING", "%r": "BeginTime"}
    if speaks:
        scripted.ends(Why.COMPLETED)
    scripted.look()
    assert scripted.slurm.jobs[7]["%T"] == "CANCELLED", "not to be started there"
    ends: list[Why] = []
    for _ in range(4):
        ends = ends or outcomes(scripted.look())
    assert ends == [Why.PREEMPTED] * 2


def test_what_would_never_start_is_taken_back_and_refused(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.jobs[7] |= {"%r": "PartitionNodeLimit"}
    for _ in range(2):
        assert "its partition gives" in sentences(desk.look())[0], "it may be in passing"
    desk.slurm.jobs[7] |= {"%r": "Resources"}
    desk.look()
    desk.slurm.jobs[7] |= {"%r": "PartitionNodeLimit"}
    desk.look()
    desk.look()
    refused = [fact for fact in desk.look() if isinstance(fact, TaskRefused)]
    assert len(refused) == 2
    assert refused[0].reason.sentence.startswith("Slurm job 7 would never start: it asks for more")
    assert refused[0].reason.remedy.startswith("ask for another number of nodes")
    assert desk.slurm.jobs[7]["%T"] == "CANCELLED"


def test_what_nobody_asks_after_any_more_is_taken_out_of_the_queue(desk: Desk) -> None:
    desk.submit()
    desk.look()
    for _ in range(4):
        desk.clock.advance(1.0)
        desk.driver.observe([])
    assert desk.slurm.jobs[7]["%T"] == "CANCELLED"
    desk.slurm.calls.clear()
    for _ in range(3):
        desk.clock.advance(1.0)
        desk.driver.observe([])
    assert desk.slurm.calls == [], "it is over and forgotten"


def test_slurm_says_which_devices_of_a_node_a_task_has(desk: Desk) -> None:
    desk.submit()
    written = decode((desk.place() / ORDER_FILE).read_bytes(), TaskOrder)
    assert any(rank.devices for one in desk.orders for rank in one.ranks)
    assert all(not rank.devices for rank in written.ranks)
