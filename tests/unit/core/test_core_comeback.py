"""A lost site of a running attempt is started again alone, or the attempt ends as ever."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.core.bench import closed, renewed, stops
from tests.unit.core.grids import grid, shape, site, spec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError
from gridloom.core import laws
from gridloom.core.laws_step import StepLaws
from gridloom.core.machine import Machine
from gridloom.core.state import Mark, State
from gridloom.model.action import AnyAction, RestartSite, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    StopRequested,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import Absence, Arrival, Attempt, Job, JobState, Outcome, TaskState
from gridloom.model.policy import Policy
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import RetryPolicy

ONE_EACH = ("a/n0", "b/n0")
RETRY = RetryPolicy(max_restarts=2, backoff_s=2.0, backoff_s_max=60.0)
NORTH = grid(site("a", "2"), site("b", "2"), policy=Policy(slot_hold_s=0.0))


class Sites:
    """A job ``x`` over all sites of a grid; all laws are asked after every step."""

    def __init__(
        self, inventory: Inventory = NORTH, *, ready: bool = True, ranks: int = 4, **more: Any
    ) -> None:
        self.machine = Machine()
        self.laws = StepLaws(self.machine, reason_every=1)
        self.now, self.actions = 100.0, list[AnyAction]()
        count = len(inventory.sites)
        settings = {"min_sites": count, "max_sites": count, "grace_s": 3.0, "retry": RETRY} | more
        asked = spec(shape(ranks), **settings)
        self.step(
            InventoryChanged(inventory=inventory),
            JobSubmitted(job_id="x", spec=asked, submitted_s=1.0),
        )
        self.beats()
        if ready:
            self.ready(next(iter(self.attempt.tasks)))

    def step(self, *events: AnyEvent, after: float = 0.0) -> list[AnyAction]:
        self.now += after
        again = Machine(decode(encode(self.machine.state), State))
        self.actions = self.machine.step(events, self.now, random.Random(0))
        assert again.step(events, self.now, random.Random(0)) == self.actions
        assert again.next_timer_s() == self.machine.next_timer_s()
        laws.check(self.machine.state)
        self.laws.observe(self.machine, events, self.actions, self.now)
        return self.actions

    @property
    def job(self) -> Job:
        return self.machine.state.jobs["x"]

    @property
    def attempt(self) -> Attempt:
        return self.job.attempts[-1]

    def about(self, domain: str) -> dict[str, Any]:
        ids = {"job_id": "x", "attempt": self.attempt.number, "epoch": self.attempt.epoch}
        return ids | {"domain": domain, "life": self.attempt.tasks[domain].life}

    def beats(self, after: float = 0.0) -> list[AnyAction]:
        """Let all live tasks give a sign of life."""
        live = [name for name, task in self.attempt.tasks.items() if task.outcome is None]
        return self.step(*(TaskRunning(**self.about(name)) for name in live), after=after)

    def ready(self, domain: str, step: int = 0, notes: tuple[str, ...] = ()) -> None:
        about = self.about(domain)
        self.step(TaskReady(**about, resumed_step=step, notes=notes, independent_sites=True))

    def ends(self, *domains: str, why: Why = Why.KILLED) -> list[AnyAction]:
        outcome = Outcome(code=why, sentence=f"it {why.value}")
        return self.step(*(TaskEnded(**self.about(one), outcome=outcome) for one in domains))

    def returns(self, domain: str) -> None:
        """Let a lost site wait, start again, and train."""
        for _ in range(10):
            self.beats(after=1.0)
            if restarts(self.actions):
                break
        self.beats()
        self.ready(domain, 7)

    def goes_on(self) -> bool:
        return not self.attempt.stop_sent and len(self.job.attempts) == 1


def restarts(actions: Sequence[AnyAction]) -> list[RestartSite]:
    return [one for one in actions if isinstance(one, RestartSite)]


# --- the life of a site that comes back


def test_a_killed_site_comes_back_and_the_other_is_not_touched() -> None:
    sites = Sites()
    assert sites.ends("b/n0") == []
    assert sites.job.state is JobState.RUNNING
    due_s = sites.attempt.absent["b"].due_s or 0.0
    assert due_s == pytest.approx(102.0, abs=0.2)
    assert sites.machine.next_timer_s() == due_s
    assert sites.attempt.notes == ("site b restarts (1 of 2): it killed; site a trains on",)

    sites.beats(after=1.0)
    actions = sites.beats(after=due_s - sites.now)
    (restart,) = restarts(actions)
    assert (restart.site, restart.life, restart.restart_count) == ("b", 2, 1)
    assert (restart.attempt, restart.epoch) == (1, 1)
    assert restart.placement == sites.attempt.placement
    assert restart.lease_until_s == due_s + 6.0
    task = sites.attempt.tasks["b/n0"]
    assert (task.state, task.life, task.outcome) == (TaskState.STARTING, 2, None)
    assert stops(actions) == []

    assert renewed(sites.beats(after=1.0)) == [("a/n0", sites.now + 6), ("b/n0", sites.now + 6)]
    sites.ready("b/n0", 70, ("takes over",))
    assert sites.attempt.absent == {}
    assert list(sites.attempt.notes[1:]) == [
        "site b is back and goes on from training step 70",
        "takes over",
    ]
    assert sites.attempt.resumed_step == 0
    sites.ends("a/n0", "b/n0", why=Why.COMPLETED)
    assert (sites.job.state, len(sites.job.attempts)) == (JobState.SUCCEEDED, 1)
    assert sites.job.restarts == 1


def test_facts_of_an_earlier_life_change_nothing() -> None:
    sites = Sites()
    old = sites.about("b/n0")
    sites.ends("b/n0")
    for _ in range(3):
        sites.beats(after=1.0)
    assert sites.attempt.tasks["b/n0"].life == 2
    before = encode(sites.machine.state)
    outcome = Outcome(code=Why.CONFIG, sentence="late")
    late: list[AnyEvent] = [
        TaskRunning(**old),
        TaskReady(**old, resumed_step=1),
        TaskEnded(**old, outcome=outcome),
    ]
    assert sites.step(*late) == []
    assert encode(sites.machine.state) == before


def test_lives_count_against_the_retries_and_back_off() -> None:
    sites = Sites()
    sites.ends("b/n0")
    sites.returns("b/n0")
    sites.ends("b/n0")
    assert sites.attempt.absent["b"].due_s == pytest.approx(sites.now + 4.0, abs=0.5)
    sites.returns("b/n0")
    assert sites.attempt.tasks["b/n0"].life == 3
    actions = sites.ends("b/n0")
    assert stops(actions) == [("a/n0", 0.0, Why.PEER_LOST)]
    sites.ends("a/n0", why=Why.STOP_REQUESTED)
    assert sites.job.state is JobState.FAILED
    assert sites.job.reason is not None
    assert sites.job.reason.sentence == "gave up after 2 restarts; the last ended: it killed"


def test_a_site_that_dies_before_it_trains_again_is_lost_once_more() -> None:
    sites = Sites()
    sites.ends("b/n0")
    for _ in range(3):
        sites.beats(after=1.0)
    assert sites.attempt.absent["b"].due_s == 0
    assert sites.ends("b/n0") == []
    assert sites.attempt.absent["b"].due_s is not None
    assert sites.attempt.absent["b"].due_s > sites.now
    assert sites.job.restarts == 2


def test_a_silent_site_comes_back_too() -> None:
    sites = Sites()
    for _ in range(11):
        sites.step(TaskRunning(**sites.about("a/n0")), after=1.0)
    assert sites.attempt.absent["b"].outcome.code is Why.LEASE_LAPSED
    assert sites.goes_on()


def test_the_first_site_comes_back_as_any_other() -> None:
    sites = Sites()
    assert sites.ends("a/n0", why=Why.SUPERVISOR_LOST) == []
    sites.returns("a/n0")
    assert sites.attempt.tasks["a/n0"].life == 2
    assert sites.goes_on()


def test_of_three_sites_two_may_be_lost_and_each_comes_back_in_its_time() -> None:
    three = replace(NORTH, sites=(*NORTH.sites, site("c", "2")))
    sites = Sites(three, ranks=6)
    sites.ends("a/n0", "c/n0")
    assert list(sites.attempt.absent) == ["a", "c"]
    assert sites.attempt.notes[1] == "site c restarts (2 of 2): it killed; site b trains on"
    started = [restarts(sites.beats(after=1.0)) for _ in range(6)]
    assert [[one.site for one in some] for some in started if some] == [["a"], ["c"]]
    again = Sites(three, ranks=6)
    again.ends("b/n0")
    assert again.attempt.notes[0].endswith("sites a and c train on")
    assert stops(again.ends("a/n0", "c/n0")) == []  # nobody is left
    assert (again.job.state, len(again.job.attempts)) == (JobState.QUEUED, 1)
    assert again.job.restarts == 1, "that of b did not come about"


# --- what does not qualify


@pytest.mark.parametrize(
    ("why", "retry", "goes_on"),
    [
        (Why.KILLED, "lost", True),
        (Why.SUPERVISOR_LOST, "lost", True),
        (Why.LEASE_LAPSED, "lost", True),
        (Why.EXITED, "any", True),
        (Why.EXITED, "lost", False),
        (Why.POISONED, "any", False),
        (Why.PEER_LOST, "any", False),
        (Why.REFUSED, "any", False),
        (Why.CONFIG, "any", False),
        (Why.IO, "any", False),
        (Why.STOP_REQUESTED, "any", False),
    ],
)
def test_causes(why: Why, retry: Any, *, goes_on: bool) -> None:
    sites = Sites(retry=replace(RETRY, on=retry))
    actions = sites.ends("b/n0", why=why)
    assert sites.goes_on() is goes_on
    assert stops(actions) == ([] if goes_on else [("a/n0", 0.0, Why.PEER_LOST)])


def test_a_program_that_has_not_said_that_its_sites_are_independent_loses_all() -> None:
    sites = Sites(ready=False)
    assert stops(sites.ends("b/n0")) == [("a/n0", 0.0, Why.PEER_LOST)]


def test_no_retries_no_restarts() -> None:
    sites = Sites(retry=RetryPolicy(max_restarts=0))
    assert stops(sites.ends("b/n0")) == [("a/n0", 0.0, Why.PEER_LOST)]


def test_a_lost_node_has_no_place_to_come_back_to() -> None:
    sites = Sites()
    actions = sites.step(NodeMarked(domain="b", mark="lost", sentence="fire"))
    assert stops(actions) == [("a/n0", 0.0, Why.PEER_LOST)]


def test_a_node_that_failed_for_too_many_jobs_gets_no_more() -> None:
    sites = Sites(replace(NORTH, policy=Policy(failures_max=1)))
    actions = sites.ends("b/n0", why=Why.SUPERVISOR_LOST)
    assert sites.machine.state.marks["b/n0"].mark == "taint"
    assert stops(actions) == [("a/n0", 0.0, Why.PEER_LOST)]


def test_a_refused_start_ends_the_attempt() -> None:
    sites = Sites()
    sites.ends("b/n0")
    for _ in range(3):
        sites.beats(after=1.0)
    refusal = Reason(code=Why.IN_USE, sentence="no")
    actions = sites.step(TaskRefused(**sites.about("b/n0"), reason=refusal))
    assert stops(actions) == [("a/n0", 0.0, Why.PEER_LOST)]


# --- sites of several nodes


def wide(**more: Any) -> Sites:
    return Sites(grid(site("a", "2", "2"), site("b", "2", "2")), ranks=8, **more)


def test_what_is_left_of_a_site_dies_before_it_starts_again_as_a_whole() -> None:
    sites = wide()
    actions = sites.ends("b/n1")
    assert stops(actions) == [("b/n0", 0.0, Why.PEER_LOST)]
    assert sites.attempt.absent["b"].due_s is None
    assert [name for name, _ in renewed(sites.beats(after=1.0))] == ["a/n0", "a/n1"]
    sites.ends("b/n0", why=Why.STOP_REQUESTED)
    assert sites.attempt.absent["b"].outcome.code is Why.KILLED
    sites.returns("b/n1")
    assert [task.life for task in sites.attempt.tasks.values()] == [1, 1, 2, 2]
    sites.ready("b/n0", 9)
    assert len(sites.attempt.notes) == 2


def test_what_is_done_at_a_site_that_is_lost_is_lost_with_it() -> None:
    sites = wide()
    sites.ends("b/n1")
    assert stops(sites.ends("b/n0", why=Why.COMPLETED)) == []
    assert sites.attempt.absent["b"].outcome.code is Why.KILLED
    sites.returns("b/n1")
    assert [task.life for task in sites.attempt.tasks.values()] == [1, 1, 2, 2]


def test_what_is_done_at_a_site_that_cannot_come_back_ends_the_attempt() -> None:
    sites = wide()
    sites.ends("b/n1")
    sites.step(NodeMarked(domain="b/n1", mark="lost"))
    (stop, _) = [one for one in sites.ends("b/n0", why=Why.COMPLETED) if isinstance(one, StopTask)]
    assert stop.reason.sentence == "b/n0 ended, and the others with it: it killed"


def test_tasks_of_a_dying_site_that_end_one_by_one_are_told_once() -> None:
    sites = Sites(grid(site("a", "2", "2", "2"), site("b", "2", "2", "2")), ranks=12)
    assert len(stops(sites.ends("b/n1"))) == 2
    assert stops(sites.ends("b/n0", why=Why.STOP_REQUESTED)) == []
    assert sites.attempt.absent["b"].due_s is None


def test_victims_that_speak_before_the_culprit() -> None:
    sites = wide()
    assert stops(sites.ends("b/n1", why=Why.PEER_LOST)) == [("b/n0", 0.0, Why.PEER_LOST)]
    sites.ends("b/n0")
    assert sites.goes_on()
    assert sites.attempt.absent["b"].outcome.code is Why.KILLED


@pytest.mark.parametrize("why", [Why.CONFIG, Why.STOP_REQUESTED])
def test_a_cause_that_comes_out_late_ends_the_attempt(why: Why) -> None:
    sites = wide()
    sites.ends("b/n1", why=Why.PEER_LOST)
    assert stops(sites.ends("b/n0", why=why)) == [
        ("a/n0", 0.0, Why.PEER_LOST),
        ("a/n1", 0.0, Why.PEER_LOST),
    ]


# --- what happens meanwhile


def test_places_that_are_gone_by_then_end_the_attempt_with_a_grace() -> None:
    for change, said in (
        (NodeMarked(domain="b/n0", mark="cordon"), "as b/n0 is marked `cordon`"),
        (
            InventoryChanged(inventory=replace(NORTH, sites=(NORTH.sites[0], site("b", "1")))),
            "as b/n0 is not in the grid any more",
        ),
    ):
        sites = Sites()
        sites.ends("b/n0")
        assert stops(sites.step(change)) == []
        for _ in range(3):
            sites.beats(after=1.0)
            if stops(sites.actions):
                break
        assert stops(sites.actions) == [("a/n0", 3.0, Why.PEER_LOST)]
        (told,) = [one.reason for one in sites.actions if hasattr(one, "reason")]
        assert said in told.sentence
        sites.ends("a/n0", why=Why.STOP_REQUESTED)
        assert sites.job.state is JobState.QUEUED
        assert sites.attempt.outcome is not None
        assert sites.attempt.outcome.code is Why.KILLED


def test_a_drained_site_that_is_away_moves_with_its_job() -> None:
    sites = Sites()
    sites.ends("b/n0")
    actions = sites.step(NodeMarked(domain="b", mark="drain"))
    assert stops(actions) == [("a/n0", 3.0, Why.DRAINED)]
    assert sites.job.wanted == "evict"


@pytest.mark.parametrize(
    ("wish", "state"),
    [
        (StopRequested(job_id="x"), JobState.STOPPED),
        (CancelRequested(job_id="x"), JobState.CANCELLED),
        (EvictRequested(job_id="x"), JobState.RUNNING),
    ],
)
def test_who_is_to_stop_waits_for_nobody(wish: AnyEvent, state: JobState) -> None:
    sites = Sites()
    sites.ends("b/n0")
    assert [domain for domain, _, _ in stops(sites.step(wish))] == ["a/n0"]
    for _ in range(4):
        assert restarts(sites.beats(after=1.0)) == []
    sites.ends("a/n0", why=Why.STOP_REQUESTED)
    assert sites.job.restarts == 0
    if state is JobState.RUNNING:  # evicted: it starts anew
        sites.beats(after=1.0)
        assert len(sites.job.attempts) == 2
    assert sites.job.state in {state, JobState.STARTING}


def test_others_that_are_done_before_a_site_is_back_leave_it_to_another_attempt() -> None:
    away = Sites()
    away.ends("b/n0")
    away.ends("a/n0", why=Why.COMPLETED)
    starting = Sites()
    starting.ends("b/n0")
    for _ in range(3):
        starting.beats(after=1.0)
    assert stops(starting.ends("a/n0", why=Why.COMPLETED)) == [("b/n0", 0.0, Why.PEER_LOST)]
    starting.ends("b/n0", why=Why.STOP_REQUESTED)
    for sites in (away, starting):
        assert sites.job.state is JobState.QUEUED
        sites.step(after=9.0)
        assert [one.attempt for one in sites.actions if isinstance(one, StartAttempt)] == [2]


def test_a_site_that_is_back_may_finish_alone() -> None:
    sites = Sites()
    sites.ends("b/n0")
    sites.returns("b/n0")
    assert stops(sites.ends("a/n0", why=Why.COMPLETED)) == []
    assert closed(sites.ends("b/n0", why=Why.COMPLETED)) == [JobState.SUCCEEDED]


def test_a_site_that_had_nothing_left_to_say_is_no_loss() -> None:
    sites = Sites()
    sites.ends("b/n0")
    for _ in range(3):
        sites.beats(after=1.0)
    sites.ends("b/n0", why=Why.COMPLETED)
    assert closed(sites.ends("a/n0", why=Why.COMPLETED)) == [JobState.SUCCEEDED]


# --- laws


def test_laws_of_states() -> None:
    def fault(life: int, due_s: float | None, *, ended: bool) -> State:
        sites = wide()
        sites.ends("b/n0", "b/n1")
        attempt = sites.attempt
        if not ended:
            for name in ("b/n0", "b/n1"):
                task = attempt.tasks[name]
                task.state, task.outcome = TaskState.RUNNING, None
        attempt.tasks["b/n1"].life = life
        attempt.absent["b"] = replace(attempt.absent["b"], due_s=due_s)
        return sites.machine.state

    law = "a lost site comes back whole, to others that train"
    laws.check(fault(1, 105.0, ended=True))
    laws.check(fault(1, None, ended=False))
    for state, culprit in (
        (fault(2, 105.0, ended=True), "has tasks of lives"),
        (fault(1, None, ended=True), "waits until None for b"),
        (fault(1, 105.0, ended=False), "waits until 105.0 for b"),
    ):
        with pytest.raises(BrokenError, match=f"{law}: .* {culprit}"):
            laws.check(state)
    alone = fault(1, 0.0, ended=False)
    killed = Outcome(code=Why.KILLED, sentence="")
    alone.jobs["x"].attempts[-1].absent["a"] = Absence(outcome=killed)
    with pytest.raises(BrokenError, match="has no site that trains"):
        laws.check(alone)


def test_laws_of_steps() -> None:
    def scene() -> tuple[Sites, RestartSite]:
        sites = Sites()
        sites.ends("b/n0")
        sites.beats(after=1.0)
        sites.now += 1.5
        (restart,) = restarts(sites.machine.step([], sites.now, random.Random(0)))
        return sites, restart

    sites, restart = scene()
    for wrong, law in (
        (replace(restart, epoch=9), "starts in an attempt that is over"),
        (replace(restart, life=3), "has no life 3"),
        (replace(restart, lease_until_s=sites.now), "a right to run ends after now"),
    ):
        with pytest.raises(BrokenError, match=law):
            sites.laws.observe(sites.machine, [], [wrong], sites.now)
    sites.attempt.stop_sent = True
    with pytest.raises(BrokenError, match="starts and is to stop"):
        sites.laws.observe(sites.machine, [], [restart], sites.now)
    sites.attempt.stop_sent = False
    sites.machine.state.marks["b"] = Mark(mark="taint", sentence="", since_s=0.0)
    with pytest.raises(BrokenError, match="site b of x starts, and b is marked"):
        sites.laws.observe(sites.machine, [], [restart], sites.now)


# --- sites that choose their nodes


def test_a_site_that_chooses_its_nodes_comes_back_on_another_one() -> None:
    sites = Sites()
    sites.attempt.tasks["b/n0"].arrival = Arrival(node="b9", address="10.0.0.9")
    sites.step(NodeMarked(domain="b/n0", mark="cordon", by_site=True))
    assert sites.ends("b/n0", why=Why.NODE_LOST) == []
    sites.returns("b/n0")
    assert sites.goes_on()
    assert sites.attempt.tasks["b/n0"].life == 2
    assert sites.attempt.tasks["b/n0"].arrival is None, "where it is now it will say"


def test_a_node_that_a_person_has_marked_is_no_place_to_come_back_to() -> None:
    sites = Sites()
    sites.attempt.tasks["b/n0"].arrival = Arrival(node="b9", address="10.0.0.9")
    sites.step(NodeMarked(domain="b/n0", mark="cordon"))
    assert stops(sites.ends("b/n0", why=Why.NODE_LOST)) == [("a/n0", 0.0, Why.PEER_LOST)]


@pytest.mark.parametrize("why", [Why.PREEMPTED, Why.TIME_LIMIT])
def test_a_site_that_has_ended_its_part_lets_it_wait_for_its_turn_at_no_cost(why: Why) -> None:
    sites = Sites(retry=replace(RETRY, max_restarts=0))
    sites.attempt.tasks["b/n0"].arrival = Arrival(node="b9", address="10.0.0.9")
    (restart,) = sites.ends("b/n0", why=why)
    assert isinstance(restart, RestartSite)
    assert sites.attempt.notes[-1] == (
        f"site b waits for its turn again: it {why.value}; site a trains on"
    )
    assert (restart.site, restart.life, sites.job.restarts) == ("b", 2, 0)
    for _ in range(5):  # long in its queue
        about = sites.about("b/n0")
        sites.step(
            TaskRunning(**sites.about("a/n0")),
            TaskWaiting(**about, sentence="Priority"),
            after=5.0,
        )
    assert sites.attempt.held_s(sites.now) == sites.now - 100.0, "the other site is held"
    sites.beats()
    sites.ready("b/n0", 7)
    assert sites.goes_on()
    assert sites.attempt.absent == {}
    sites.ends("b/n0", why=why)
    sites.ends("a/n0", why=Why.KILLED)
    assert sites.job.restarts == 0, "there are none to take back"


def test_a_part_that_has_no_queue_to_wait_in_ends_the_attempt_when_it_is_preempted() -> None:
    sites = Sites()
    assert stops(sites.ends("b/n0", why=Why.PREEMPTED)) == [("a/n0", 0.0, Why.PEER_LOST)]
