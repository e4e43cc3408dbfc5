"""Actions of the outbox to calls of drivers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.fakes.journal import MemoryJournal
from tests.unit.control.nouns import GRID, attempt, ended, job, reason, restart, start

from gridloom.base.errors import SiteError
from gridloom.control import rundir
from gridloom.control.dispatch import Dispatch
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, CloseJob, OpenRendezvous, RenewLease, StopTask
from gridloom.model.event import AnyEvent, NodeMarked, TaskRefused, TaskWaiting
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import Arrival, Job, JobState, Outcome, SiteUse, TaskState
from gridloom.model.reason import Reason, Why
from gridloom.ports.journal import Record
from gridloom.wire.agent import Rendezvous, TaskOrder, TaskRef


class NotingDriver:
    """Plays `Driver`: notes the calls, and refuses or fails where it is told to."""

    def __init__(self) -> None:
        self.orders: list[TaskOrder] = []
        self.observed: list[TaskRef] = []
        self.calls: list[tuple[object, ...]] = []
        self.refuse: dict[str, Reason] = {}
        self.fail: set[str] = set()
        self.chooses_nodes = False
        self.marks: list[NodeMarked] | None = []
        self.next_port = 4000

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        assert {order.task.site for order in orders} == {site.name}
        self.calls.append(("submit", *(order.task.domain for order in orders)))
        self.orders.extend(orders)
        tasks = [order.task for order in orders]
        return {task: self.refuse[task.domain] for task in tasks if task.domain in self.refuse}

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        self._maybe_fail(task)
        self.calls.append(("meet", task.domain, task.life, rendezvous.addresses, rendezvous.port))

    def renew(self, task: TaskRef, until_s: float) -> None:
        self._maybe_fail(task)
        self.calls.append(("renew", task.domain, until_s))

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        self._maybe_fail(task)
        self.calls.append(("stop", task.domain, grace_s, sentence))

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        self.calls.append(("observe", *(task.domain for task in tasks)))
        self.observed.extend(tasks)
        return []

    def standing(self, site: Site) -> list[NodeMarked] | None:
        return self.marks

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        self.calls.append(("free_port", address, ports, taken, count))
        if "ports" in self.fail:
            raise SiteError("every port is in use")
        self.next_port += 1
        return self.next_port

    def asked(self) -> list[tuple[object, ...]]:
        """Return the calls that asked for a port."""
        return [call for call in self.calls if call[0] == "free_port"]

    def _maybe_fail(self, task: TaskRef) -> None:
        if task.domain in self.fail:
            raise SiteError(f"{task.domain} cannot be written")


def nothing(_job: Job, _inventory: Inventory | None) -> None:
    """Close nothing."""


class Desk:
    """A dispatch with all that is around it."""

    def __init__(
        self, runs: Path, close: Callable[[Job, Inventory | None], None] = nothing
    ) -> None:
        self.journal = MemoryJournal()
        self.driver = NotingDriver()
        self.state = State(inventory=GRID, jobs={"job-1": job()})
        self.dispatch = Dispatch(
            self.journal, {"fake": self.driver}, runs, LeaseTerms(), close=close
        )

    def put(self, *actions: AnyAction) -> None:
        seq = self.journal.last_seq() + 1
        record = Record(seq=seq, now_s=1.0, seed=1, events=(), actions=actions)
        self.journal.append(record, [], None)

    def facts(self) -> list[AnyEvent]:
        return [letter.event for letter in self.journal.letters()]


class KeepingDriver(NotingDriver):
    """Plays `Keeping`, too."""

    says = "a checkpoint is on its way"

    def bring(self, job_id: str, attempt: int, sites: Sequence[str]) -> str:
        self.calls.append(("bring", job_id, attempt, *sites))
        return self.says


def test_an_attempt_waits_for_what_its_job_has_saved_elsewhere(tmp_path: Path) -> None:
    desk, driver = Desk(tmp_path), KeepingDriver()
    desk.dispatch = Dispatch(desk.journal, {"fake": driver}, tmp_path, LeaseTerms(), close=nothing)
    desk.put(start())
    for _ in range(2):
        desk.dispatch.run(desk.state)
        assert desk.dispatch.left
        assert driver.calls == [("bring", "job-1", 1, "north", "south")]
        driver.calls.clear()
        facts = desk.dispatch.observe(desk.state)
        assert driver.observed == [], "no driver knows of them yet"
        waiting = [fact for fact in facts if isinstance(fact, TaskWaiting)]
        assert [fact.domain for fact in waiting] == ["north/n1", "north/n2", "south/s1"]
        assert {fact.sentence for fact in waiting} == {driver.says}
        driver.calls.clear()
    driver.says = ""
    desk.dispatch.run(desk.state)
    assert not desk.dispatch.left
    assert [call[0] for call in driver.calls] == ["bring", "free_port", "submit", "submit"]
    assert not any(isinstance(fact, TaskWaiting) for fact in desk.dispatch.observe(desk.state))
    assert len(driver.observed) == 3


@pytest.mark.parametrize("change", ["stopped", "over", "another"])
def test_one_that_is_to_end_waits_for_nothing(tmp_path: Path, change: str) -> None:
    desk, driver = Desk(tmp_path), KeepingDriver()
    desk.dispatch = Dispatch(desk.journal, {"fake": driver}, tmp_path, LeaseTerms(), close=nothing)
    one = {
        "stopped": attempt(stop_sent=True),
        "over": ended(1, Why.KILLED, "killed"),
        "another": attempt(2, 8),
    }[change]
    desk.state.jobs["job-1"] = job(attempts=[one])
    desk.put(start())
    desk.dispatch.run(desk.state)
    assert len(driver.orders) == 3


def test_tasks_know_how_long_a_lease_lasts_at_their_site(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    north, *others = GRID.sites
    slow = msgspec.structs.replace(north, lease_s=60.0)
    desk.state.inventory = msgspec.structs.replace(GRID, sites=(slow, *others))
    desk.put(start())
    desk.dispatch.run(desk.state)
    assert [order.lease_s for order in desk.driver.orders] == [60.0, 60.0, 6.0]


def test_every_action_is_carried_out_in_order_and_once(tmp_path: Path) -> None:
    closed: list[str] = []
    desk = Desk(tmp_path, close=lambda job, _: closed.append(job.job_id))
    who = {"job_id": "job-1", "attempt": 1, "epoch": 7, "domain": "south/s1"}
    desk.put(
        start(),
        RenewLease(**who, lease_until_s=1012.0),  # type: ignore[arg-type]
        StopTask(**who, grace_s=3.0, reason=reason()),  # type: ignore[arg-type]
        CloseJob(job_id="job-1", state=JobState.FAILED),
    )
    desk.dispatch.run(desk.state)
    assert [order.task.domain for order in desk.driver.orders] == [
        "north/n1",
        "north/n2",
        "south/s1",
    ]
    assert desk.driver.calls[1:] == [
        ("submit", "north/n1", "north/n2"),
        ("submit", "south/s1"),
        ("renew", "south/s1", 1012.0),
        ("stop", "south/s1", 3.0, "rank 0 exited <1>"),
    ]
    assert closed == ["job-1"]
    desk.dispatch.run(desk.state)
    assert len(desk.driver.orders) == 3
    assert desk.journal.outbox() == []


def test_many_jobs_that_are_over_at_once_do_not_keep_a_lease_waiting(tmp_path: Path) -> None:
    closed: list[str] = []

    def close(one: Job, _inventory: Inventory | None) -> None:
        if one.job_id.startswith("bad"):
            raise OSError(13, "Permission denied", "/runs")
        closed.append(one.job_id)

    desk = Desk(tmp_path, close=close)
    bad, good = [f"bad-{n}" for n in range(20)], [f"good-{n}" for n in range(40)]
    for job_id in (*bad, *good):
        desk.state.jobs[job_id] = msgspec.structs.replace(job(), job_id=job_id)
    who = {"job_id": "job-1", "attempt": 1, "epoch": 7, "domain": "south/s1"}
    desk.put(
        *(CloseJob(job_id=job_id, state=JobState.FAILED) for job_id in (*bad, *good)),
        RenewLease(**who, lease_until_s=1012.0),  # type: ignore[arg-type]
    )
    found: list[int] = []
    while not found or desk.dispatch.left:
        desk.dispatch.run(desk.state)
        found.append(len(closed))
        assert desk.driver.calls == [("renew", "south/s1", 1012.0)], "at once, and once"
    assert found == [16, 32, 40]
    assert closed == good
    left = [action for _, action in desk.journal.outbox()]
    assert [one.job_id for one in left if isinstance(one, CloseJob)] == bad, "told, for the next"
    assert len(desk.dispatch.troubles) == 20


def test_the_port_is_asked_of_rank_0s_site_and_remembered_over_redelivery(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.put(start())
    desk.dispatch.run(desk.state)
    desk.put(start())  # as after a crash before it was noted as done
    desk.dispatch.run(desk.state)
    assert desk.driver.asked() == [("free_port", "10.0.0.1", (4000, 4009), frozenset(), 4)]
    assert {one.rank.master_port for order in desk.driver.orders for one in order.ranks} == {4001}


def test_ports_of_live_attempts_are_not_given_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.put(start())
    desk.dispatch.run(desk.state)
    other = Job(
        job_id="job-2",
        spec=desk.state.jobs["job-1"].spec,
        submitted_s=1.0,
        state=JobState.STARTING,
        attempts=[attempt()],
    )
    desk.state.jobs["job-2"] = other
    desk.put(msgspec.structs.replace(start(), job_id="job-2"))
    desk.dispatch.run(desk.state)
    taken = frozenset({4001, 4002, 4003, 4004})
    assert desk.driver.asked()[-1] == ("free_port", "10.0.0.1", (4000, 4009), taken, 4)


def test_no_free_port_refuses_every_task_with_a_remedy(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.driver.fail.add("ports")
    desk.put(start())
    desk.dispatch.run(desk.state)
    facts = desk.facts()
    assert [fact.domain for fact in facts if isinstance(fact, TaskRefused)] == [
        "north/n1",
        "north/n2",
        "south/s1",
    ]
    assert isinstance(facts[0], TaskRefused)
    assert facts[0].reason.sentence == "rank 0 cannot listen: every port is in use"
    assert "ports" in facts[0].reason.remedy
    assert desk.driver.orders == []


def test_a_run_directory_that_cannot_be_written_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "job-1").write_text("in the way")
    desk = Desk(tmp_path)
    desk.put(start())
    desk.dispatch.run(desk.state)
    assert {type(fact) for fact in desk.facts()} == {TaskRefused}


def test_a_refusal_of_a_site_is_handed_in_before_the_start_is_noted_as_done(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.driver.refuse["north/n2"] = reason(Why.IO)
    desk.put(start())
    desk.dispatch.run(desk.state)
    (fact,) = desk.facts()
    assert isinstance(fact, TaskRefused)
    assert (fact.domain, fact.epoch, fact.reason) == ("north/n2", 7, reason(Why.IO))
    assert desk.journal.outbox() == []


def test_what_fails_stays_for_the_next_time_and_holds_up_nothing_else(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.driver.fail.add("north/n1")
    ends = [
        StopTask(job_id="job-1", attempt=1, epoch=7, domain=domain, grace_s=0.0, reason=reason())
        for domain in ("north/n1", "south/s1")
    ]
    desk.put(*ends)
    desk.dispatch.run(desk.state)
    assert [call[1] for call in desk.driver.calls] == ["south/s1"]
    assert [action for _, action in desk.journal.outbox()] == [ends[0]]
    assert desk.dispatch.troubles == ["north/n1 cannot be written"]
    desk.driver.fail.clear()
    desk.dispatch.run(desk.state)
    assert [call[1] for call in desk.driver.calls] == ["south/s1", "north/n1"]
    assert desk.dispatch.troubles == []


def test_a_renewal_that_fails_is_not_kept_because_another_follows(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.driver.fail.add("north/n1")
    desk.put(
        RenewLease(job_id="job-1", attempt=1, epoch=7, domain="north/n1", lease_until_s=1012.0)
    )
    desk.dispatch.run(desk.state)
    assert desk.journal.outbox() == []
    assert desk.dispatch.troubles


def test_a_summary_that_cannot_be_written_is_told_with_its_file_and_tried_again(
    tmp_path: Path,
) -> None:
    def full(_job: Job, _inventory: Inventory | None) -> None:
        raise OSError(28, "No space left on device", "/runs/job-1/summary.json")

    desk = Desk(tmp_path, close=full)
    desk.put(CloseJob(job_id="job-1", state=JobState.FAILED))
    desk.dispatch.run(desk.state)
    (trouble,) = desk.dispatch.troubles
    assert trouble.startswith("/runs/job-1/summary.json: the summary cannot be written: No space")
    assert len(desk.journal.outbox()) == 1


class CountingDriver(NotingDriver):
    """Plays `Driver` and `Accounting`."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[SiteUse] | None = None

    def used(self, job_id: str) -> list[SiteUse] | None:
        assert job_id == "job-1"
        return self.told


def test_a_job_is_closed_when_its_sites_have_told_what_it_used(tmp_path: Path) -> None:
    closed: list[str] = []
    desk = Desk(tmp_path, close=lambda job, _: closed.append(job.job_id))
    driver = CountingDriver()
    dispatch = Dispatch(
        desk.journal, {"plain": desk.driver, "fake": driver}, tmp_path, LeaseTerms(),
        close=lambda job, _: closed.append(job.job_id),
    )  # fmt: skip
    (tmp_path / "job-1").mkdir()
    who = {"job_id": "job-1", "attempt": 1, "epoch": 7, "domain": "south/s1"}
    desk.put(
        CloseJob(job_id="job-1", state=JobState.FAILED),
        RenewLease(**who, lease_until_s=1012.0),  # type: ignore[arg-type]
    )
    for _ in range(2):
        dispatch.run(desk.state)
        assert (dispatch.left, closed) == (True, [])
        assert driver.calls == [("renew", "south/s1", 1012.0)], "others do not wait"
    use = SiteUse(site="south", attempt=1, site_job="51", elapsed_s=9.0, cpu_s=3.5)
    driver.told = [use]
    dispatch.run(desk.state)
    assert (dispatch.left, closed) == (False, ["job-1"])
    assert rundir.use(tmp_path / "job-1") == [use]
    assert desk.journal.outbox() == []
    rundir.write_use(tmp_path / "gone", [use])
    assert rundir.use(tmp_path / "gone") == []


def test_live_tasks_are_looked_at_and_ended_ones_are_not(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = desk.state.jobs["job-1"].attempts[0]
    one.tasks["north/n2"].outcome = Outcome(code=Why.EXITED, sentence="x")
    desk.dispatch.observe(desk.state)
    assert desk.driver.calls == [("observe", "north/n1", "south/s1")]
    desk.state.jobs["job-1"].state = JobState.STOPPED
    desk.dispatch.observe(desk.state)
    assert desk.driver.calls[1:] == [("observe",)], (
        "and who asks after nobody lets go of what is left"
    )


def test_a_site_that_starts_again_listens_where_it_did(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.put(start())
    desk.dispatch.run(desk.state)
    desk.driver.orders.clear()
    desk.driver.refuse["south/s1"] = reason(Why.REFUSED)
    life = {"job_id": "job-1", "attempt": 1, "epoch": 7, "domain": "south/s1", "life": 2}
    desk.put(
        restart(),
        StopTask(**life, grace_s=3.0, reason=reason()),  # type: ignore[arg-type]
    )
    desk.dispatch.run(desk.state)
    (order,) = desk.driver.orders
    assert (order.task.domain, order.task.life) == ("south/s1", 2)
    assert {one.rank.master_port for one in order.ranks} == {4001}
    assert [call[:2] for call in desk.driver.calls[1:]] == [
        ("submit", "north/n1"),
        ("submit", "south/s1"),
        ("submit", "south/s1"),
        ("stop", "south/s1"),
    ], "no other port was asked for"
    (refused,) = desk.facts()
    assert isinstance(refused, TaskRefused)
    assert refused.life == 2


def test_the_present_lives_are_looked_at(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tasks = desk.state.jobs["job-1"].attempts[-1].tasks
    tasks["south/s1"].life = 2
    tasks["north/n1"].outcome = Outcome(code=Why.KILLED, sentence="")
    assert desk.dispatch.observe(desk.state) == []
    assert desk.driver.calls == [("observe", "north/n2", "south/s1")]
    assert [ref.life for ref in desk.driver.observed] == [1, 2]


# --- sites that choose their nodes themselves

MEET = OpenRendezvous(job_id="job-1", attempt=1, epoch=7)
FREE = ((4000, 4003), (4005, 4009))


def gathered(tmp_path: Path, free: tuple[tuple[int, int], ...] = FREE) -> Desk:
    """A desk whose three tasks have come up, two of them elsewhere than they were placed."""
    desk = Desk(tmp_path)
    desk.driver.chooses_nodes = True
    desk.put(start())
    desk.dispatch.run(desk.state)
    tasks = desk.state.jobs["job-1"].attempts[-1].tasks
    for number, domain in enumerate(("north/n1", "south/s1")):
        here = Arrival(node=f"m{number}", address=f"10.1.0.{number}", free_ports=free)
        tasks[domain].arrival = here
    return desk


def test_ranks_of_sites_that_choose_their_nodes_wait_for_a_rendezvous(tmp_path: Path) -> None:
    desk = gathered(tmp_path)
    assert desk.driver.asked() == []
    assert [order.meets for order in desk.driver.orders] == [(4000, 4009)] * 3
    desk.put(MEET)
    desk.dispatch.run(desk.state)
    told = (("10.1.0.0", "10.0.0.2", "10.1.0.1"), desk.driver.calls[-1][-1])
    assert desk.driver.calls[-3:] == [
        ("meet", "north/n1", 1, *told),
        ("meet", "north/n2", 1, *told),
        ("meet", "south/s1", 1, *told),
    ]
    assert told[1] in {4000, 4005, 4006}, "a row of four is free from there on"
    desk.put(MEET)
    tasks = desk.state.jobs["job-1"].attempts[-1].tasks
    tasks["south/s1"].life = 2
    desk.put(msgspec.structs.replace(MEET, site="south", life=2))
    desk.dispatch.run(desk.state)
    assert desk.driver.calls[-3:] == [
        ("meet", "north/n1", 1, *told),
        ("meet", "north/n2", 1, *told),
        ("meet", "south/s1", 2, *told),
    ], "the port is chosen once"


def test_who_runs_is_told_where_a_site_has_come_back(tmp_path: Path) -> None:
    desk = gathered(tmp_path)
    tasks = desk.state.jobs["job-1"].attempts[-1].tasks
    back = tasks["south/s1"]
    back.life, back.arrival = 2, Arrival(node="m7", address="10.1.0.7", free_ports=FREE)
    tasks["north/n1"].state = TaskState.RUNNING
    tasks["north/n2"].state = TaskState.ENDED
    desk.put(msgspec.structs.replace(MEET, site="south", life=2))
    desk.dispatch.run(desk.state)
    assert [call[:2] for call in desk.driver.calls if call[0] == "meet"] == [
        ("meet", "south/s1"),
        ("meet", "north/n1"),
    ]
    assert {call[3] for call in desk.driver.calls if call[0] == "meet"} == {
        ("10.1.0.0", "10.0.0.2", "10.1.0.7")
    }


def test_nodes_without_a_common_row_of_ports_are_let_go(tmp_path: Path) -> None:
    desk = gathered(tmp_path, ((4000, 4002), (4005, 4007)))
    desk.put(MEET)
    desk.dispatch.run(desk.state)
    sentence = "rank 0 cannot listen: no row of 4 ports is free on all of m0, m1"
    domains = ["north/n1", "north/n2", "south/s1"]
    assert desk.driver.calls[-3:] == [("stop", domain, 0.0, sentence) for domain in domains]
    assert [fact.reason.sentence for fact in desk.facts() if isinstance(fact, TaskRefused)] == [
        sentence
    ] * 3


def test_a_rendezvous_that_cannot_be_told_is_told_later(tmp_path: Path) -> None:
    desk = gathered(tmp_path)
    desk.driver.fail.add("south/s1")
    desk.put(MEET)
    desk.dispatch.run(desk.state)
    assert desk.dispatch.troubles == ["south/s1 cannot be written"]
    desk.driver.fail.clear()
    desk.dispatch.run(desk.state)
    assert [call[:2] for call in desk.driver.calls[-3:]] == [
        ("meet", "north/n1"),
        ("meet", "north/n2"),
        ("meet", "south/s1"),
    ]
    assert desk.journal.outbox() == []


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.QUEUED])
def test_nobody_is_told_of_an_attempt_that_is_over(tmp_path: Path, state: JobState) -> None:
    desk = gathered(tmp_path)
    count = len(desk.driver.calls)
    job_ = desk.state.jobs["job-1"]
    job_.state, job_.attempts[-1].epoch = state, 8
    desk.put(MEET)
    desk.dispatch.run(desk.state)
    assert len(desk.driver.calls) == count


def test_what_a_site_says_of_its_nodes_is_seen_with_its_tasks(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    drained = NodeMarked(domain="north/n1", mark="drain", sentence="fans", by_site=True)
    desk.driver.marks = [drained]
    assert desk.dispatch.observe(desk.state).count(drained) >= 1
    desk.driver.marks = None
    assert desk.dispatch.observe(desk.state) == []
