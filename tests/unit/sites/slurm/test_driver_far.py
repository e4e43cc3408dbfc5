"""The driver beside a Slurm whose nodes see nothing of ours: what goes up when, what comes down."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.fakes.remote_files import FakeFiles, fake_host
from tests.unit.sites.remote.test_checkpoints import save
from tests.unit.sites.slurm.orders import order, ref
from tests.unit.sites.slurm.test_driver import ENVIRONMENT, ScriptedSlurm, outcomes, sentences

from gridloom.base.codec import decode, encode
from gridloom.model.event import AnyEvent, TaskRefused, TaskRunning
from gridloom.model.inventory import Site, SlurmAccess, SshAccess
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Batch
from gridloom.sites.remote import workdir
from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteFileError
from gridloom.sites.remote.host import Host
from gridloom.sites.slurm.driver import SlurmDriver
from gridloom.sites.slurm.engines import Engines
from gridloom.wire.agent import (
    LEASE_FILE,
    ORDER_FILE,
    RENDEZVOUS_FILE,
    REPORTS_FILE,
    STOP_FILE,
    LeaseRenewal,
    Rendezvous,
    TaskOrder,
    TaskRef,
    task_directory,
)
from gridloom.wire.reports import Alive, Ended, Report


class Desk:
    """A driver over a directory, and supervisors that write into another."""

    def __init__(self, place: Path) -> None:
        self.runs, self.scratch, self.work = place / "runs", place / "scratch", place / "work"
        for path in (self.scratch, self.work):
            path.mkdir()
        (self.work / "train.py").touch()
        self.clock, self.executor, self.slurm = FakeClock(), Now(), ScriptedSlurm()
        self.files, self.bulk = FakeFiles(), FakeFiles()
        self.host = fake_host(self.files, self.bulk)
        self.error: LinkRefusedError | None = None
        ssh = SshAccess(host="login", directory=str(self.scratch))
        self.site = Site(
            name="hpc", kind="slurm", nodes=(), slurm=SlurmAccess(environment=ENVIRONMENT, ssh=ssh)
        )
        self.driver = self.again()
        self.orders = [order(self.runs, node, workdir=str(self.work)) for node in ("n1", "n2")]
        self.seq = 0

    def again(self) -> SlurmDriver:
        """Return a driver that remembers nothing."""
        engines = Engines(lambda _: self.slurm, self.clock)
        self.driver = SlurmDriver(self.runs, self.clock, engines.of, self.executor, self._host)
        return self.driver

    def _host(self, _: SshAccess) -> Host:
        if self.error is not None:
            raise self.error
        return self.host

    def submit(self) -> Mapping[TaskRef, Reason]:
        return self.driver.submit(self.site, self.orders)

    def look(self, times: int = 1) -> list[AnyEvent]:
        """Return what is seen at the last of so many looks."""
        facts: list[AnyEvent] = []
        for _ in range(times):
            self.clock.advance(2.0)
            facts = self.driver.observe([one.task for one in self.orders])
        return facts

    def starts(self) -> None:
        """Have the job run, and both supervisors be heard."""
        self.submit()
        self.look(3)
        self.slurm.jobs[7]["%T"] = "RUNNING"
        for node in ("n1", "n2"):
            self.says(Alive, node)
        assert [type(fact) for fact in self.look(2)] == []

    def says(self, kind: type[Report], node: str = "n1", **more: Any) -> None:
        self.seq += 1
        line = encode(kind(seq=self.seq, epoch=5, now_s=self.clock.now_s(), **more))
        with (self.there(node) / REPORTS_FILE).open("ab") as file:
            file.write(line + b"\n")

    def ends(self, code: Why, node: str = "n1") -> None:
        self.says(Ended, node, outcome=Outcome(code=code, sentence=f"it {code}", ended_s=5.0))

    def there(self, node: str = "n1") -> Path:
        return Path(task_directory(self.scratch / "runs", ref(node)))

    def here(self, node: str = "n1") -> Path:
        return Path(task_directory(self.runs, ref(node)))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def refusals(facts: Sequence[AnyEvent]) -> list[Reason]:
    return [fact.reason for fact in facts if isinstance(fact, TaskRefused)]


def test_files_go_first_and_then_the_job_is_handed_in(desk: Desk) -> None:
    assert desk.submit() == {}
    assert sentences(desk.look()) == ["its files are on their way"] * 2
    assert desk.slurm.calls == []
    assert sentences(desk.look(2)) == ["Slurm job 7: jobs of higher priority go first"] * 2
    assert desk.slurm.calls.count("sbatch") == 1
    told = decode((desk.there() / ORDER_FILE).read_bytes(), TaskOrder)
    assert told == decode((desk.here() / ORDER_FILE).read_bytes(), TaskOrder)
    assert Path(told.workdir, "train.py").exists()
    assert told.ranks[0].log_file.startswith(f"{desk.scratch}/runs/")
    assert told.ranks[0].devices == (), "those that Slurm gives it"
    script = (desk.runs / "train-abc/attempts/2/gang.hpc/batch.sh").read_text()
    assert f"#SBATCH --chdir={desk.scratch}/runs/train-abc/attempts/2/gang.hpc" in script
    assert f"command=(python3 -P -m gridloom.agent --gang {desk.scratch}/runs/" in script
    assert str(desk.runs) not in script


def test_what_is_handed_in_twice_is_sent_and_one_job(desk: Desk) -> None:
    desk.submit()
    desk.look(3)
    desk.again()
    assert desk.submit() == {}
    desk.bulk.calls.clear()
    desk.look(3)
    assert desk.slurm.calls.count("sbatch") == 1
    assert desk.bulk.calls == []


def test_a_dead_link_is_told_and_waited_for(desk: Desk) -> None:
    desk.files.error = LinkDownError("login is not reached")
    desk.submit()
    said = sentences(desk.look(3))
    assert said == ["its files cannot be sent: login is not reached"] * 2
    assert desk.slurm.calls == []
    desk.files.error = None
    assert sentences(desk.look(4)) == ["Slurm job 7: jobs of higher priority go first"] * 2


def test_whoever_is_not_let_in_is_refused_with_what_helps(desk: Desk) -> None:
    desk.error = LinkRefusedError("login is not among the known hosts", "look at its key")
    desk.submit()
    first, second = refusals(desk.look(2))
    assert first == second
    assert first.sentence == "the task cannot be started: login is not among the known hosts"
    assert first.remedy == "look at its key"


def test_a_full_directory_there_refuses(desk: Desk) -> None:
    desk.bulk.error = RemoteFileError("/scratch cannot be written: the disk is full", "free space")
    desk.submit()
    reason = refusals(desk.look(2))[0]
    assert "the disk is full" in reason.sentence
    assert reason.remedy == "free space"


def test_a_working_directory_that_is_too_large_refuses(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdir, "FILES_MAX", 0)
    desk.submit()
    reason = refusals(desk.look(2))[0]
    assert f"the task cannot be started: the working directory {desk.work}" in reason.sentence
    assert "`workdir:` under `ssh:`" in reason.remedy


def test_what_tasks_are_told_reaches_them(desk: Desk) -> None:
    desk.starts()
    desk.driver.renew(ref("n1"), desk.clock.now_s() + 6.0)
    desk.driver.meet(ref("n1"), Rendezvous(addresses=("a",), port=1))
    desk.driver.stop(ref("n2"), 5.0, "stop")
    lease = decode((desk.there() / LEASE_FILE).read_bytes(), LeaseRenewal)
    assert lease.until_s == desk.clock.now_s() + 6.0
    assert (desk.there() / RENDEZVOUS_FILE).exists()
    assert not (desk.there() / STOP_FILE).exists()
    assert (desk.there("n2") / STOP_FILE).exists()


def test_what_tasks_were_told_before_they_were_there_goes_with_them(desk: Desk) -> None:
    desk.submit()
    until_s = desk.clock.now_s() + 60.0
    desk.driver.renew(ref("n1"), until_s)
    desk.driver.meet(ref("n2"), Rendezvous(addresses=("a",), port=1))
    assert not desk.there().exists()
    desk.look(3)
    assert decode((desk.there() / LEASE_FILE).read_bytes(), LeaseRenewal).until_s == until_s
    assert (desk.there("n2") / RENDEZVOUS_FILE).exists()


def test_what_a_control_plane_that_died_could_not_send_the_next_one_sends(desk: Desk) -> None:
    desk.starts()
    desk.files.error = LinkDownError("down")
    desk.driver.stop(ref("n1"), 5.0, "stop")
    desk.files.error = None
    desk.again()
    desk.look()
    assert (desk.there() / STOP_FILE).exists()


def test_an_end_is_told_when_all_that_the_task_wrote_is_here(desk: Desk) -> None:
    desk.starts()
    log = desk.scratch / "runs/train-abc/logs/rank-0.log"
    log.write_bytes(b"x" * (300 << 10))
    desk.ends(Why.COMPLETED)
    desk.bulk.error = LinkDownError("down")
    assert [type(fact) for fact in desk.look(3)] == [TaskRunning]
    desk.bulk.error = None
    facts = desk.look(2)
    assert outcomes(facts) == [Why.COMPLETED]
    assert (desk.runs / "train-abc/logs/rank-0.log").stat().st_size == 300 << 10


def test_a_job_that_ends_without_a_word_is_looked_after_once_more(desk: Desk) -> None:
    desk.starts()
    desk.slurm.jobs[7]["%T"] = "CANCELLED"
    log = desk.scratch / "runs/train-abc/logs/rank-0.log"
    log.write_text("its last words")
    desk.look(2)
    assert outcomes(desk.look(2)) == [Why.CANCELLED_AT_SITE] * 2
    assert (desk.runs / "train-abc/logs/rank-0.log").read_text() == "its last words"


def test_while_the_link_is_down_nothing_is_said_of_a_job_that_is_gone(desk: Desk) -> None:
    desk.starts()
    desk.slurm.jobs[7]["%T"] = "FAILED"
    desk.files.error = LinkDownError("down")
    assert desk.look(5) == []
    desk.ends(Why.EXITED)
    desk.files.error = None
    desk.look(2)
    assert outcomes(desk.look()) == [Why.EXITED, Why.SUPERVISOR_LOST]


def test_what_was_never_sent_is_stopped_without_the_site(desk: Desk) -> None:
    desk.files.error = LinkDownError("down")
    desk.submit()
    desk.look()
    for node in ("n1", "n2"):
        desk.driver.stop(ref(node), 0.0, "cancelled")
    assert outcomes(desk.look()) == [Why.STOP_REQUESTED] * 2
    desk.files.error = None
    desk.look(3)
    assert desk.slurm.jobs == {}


def test_what_a_job_has_saved_there_is_fetched_when_it_goes_on_elsewhere(desk: Desk) -> None:
    assert desk.driver.bring("train-abc", 3, ["lab"]) == ""
    desk.starts()
    save(desk.scratch / "runs" / "train-abc" / "ckpt" / "hpc", 40)
    desk.again()
    assert desk.driver.bring("train-abc", 3, ["hpc", "lab"]) == ""
    assert "training step 40 is fetched from hpc" in desk.driver.bring("train-abc", 3, ["lab"])
    assert desk.driver.bring("train-abc", 3, ["lab"]) == ""
    assert (desk.runs / "train-abc" / "ckpt" / "lab" / "step-00000040").is_dir()


def test_a_batch_script_speaks_for_its_nodes(desk: Desk) -> None:
    batch = Batch(submitted_in=str(desk.work), options=(("output", f"{desk.work}/out"),))
    desk.orders = [replace(one, batch=batch) for one in desk.orders]
    (desk.runs / "train-abc").mkdir(parents=True)
    (desk.runs / "train-abc/job.sbatch").write_text("#!/bin/sh\n")
    desk.starts()
    assert (desk.scratch / "runs/train-abc/job.sbatch").exists()
    script = (desk.runs / "train-abc/attempts/2/gang.hpc/batch.sh").read_text()
    assert f"--output={desk.scratch}/work/work-" in script
    assert str(desk.runs) not in script
    desk.ends(Why.COMPLETED)
    desk.slurm.jobs[7]["%T"] = "COMPLETED"
    assert outcomes(desk.look(4)) == [Why.COMPLETED] * 2
