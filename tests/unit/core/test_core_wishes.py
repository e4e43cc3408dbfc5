"""What stops, cancels, resumes and budgets do to one job, seen through the door."""

import random

import pytest
from tests.unit.core.bench import (
    CANCEL,
    RESUME,
    STOP,
    A,
    B,
    Bench,
    asks,
    closed,
    renewed,
    stops,
)
from tests.unit.core.grids import site
from tests.unit.core.yard import Yard

from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.model.action import CloseJob, StartAttempt
from gridloom.model.event import (
    CancelRequested,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StopRequested,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import JobState
from gridloom.model.reason import Why
from gridloom.model.spec import Budget

# --- stop


def test_a_job_without_grace_is_killed_when_it_is_stopped() -> None:
    bench = Bench(grace_s=0.0)
    assert [grace_s for _, grace_s, _ in stops(bench.step(STOP))] == [0.0, 0.0]
    assert bench.job.attempts[0].killed
    assert stops(bench.step(CANCEL)) == []


def test_a_short_grace_is_no_kill() -> None:
    bench = Bench(grace_s=0.5)
    bench.step(STOP)
    assert not bench.job.attempts[0].killed
    assert len(stops(bench.step(CANCEL))) == 2


def test_a_queued_job_stops_at_once() -> None:
    machine = Machine()
    machine.step([asks()], 0.0, random.Random(0))
    assert closed(machine.step([STOP], 0.0, random.Random(0))) == [JobState.STOPPED]


def test_a_stop_gives_the_tasks_their_grace_and_lets_them_save() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B))
    want = [(A, 20.0, Why.STOP_REQUESTED), (B, 20.0, Why.STOP_REQUESTED)]
    assert stops(bench.step(STOP)) == want
    assert bench.job.state is JobState.STOPPING
    assert bench.step(STOP, after=1.0) == []
    assert len(renewed(bench.step(*bench.runs(A, B), after=7.0))) == 2
    assert stops(bench.step(*bench.ends(Why.STOP_REQUESTED, A))) == []
    actions = bench.step(*bench.ends(Why.STOP_REQUESTED, B), after=1.0)
    assert closed(actions) == [JobState.STOPPED]
    assert bench.why is Why.STOP_REQUESTED
    assert bench.job.wanted == ""


def test_every_stop_comes_to_an_end() -> None:
    """A task that runs on after its grace is no longer kept: its lease lapses."""
    bench = Bench()
    bench.step(STOP)
    while bench.now < 119.0:
        bench.step(*bench.runs(A, B), after=1.0)
    assert bench.job.attempts[0].tasks[A].lease_until_s == 125.0
    while bench.now < 129.0:
        assert bench.step(*bench.runs(A, B), after=1.0) == (
            [] if bench.now < 129.0 else [CloseJob(job_id="x", state=JobState.STOPPED)]
        )
    assert bench.job.state is JobState.STOPPED


def test_work_that_completes_while_it_is_stopped_is_done() -> None:
    bench = Bench()
    bench.step(STOP)
    bench.fails(Why.COMPLETED)
    assert bench.job.state is JobState.SUCCEEDED


def test_a_failure_while_it_is_stopped_leaves_it_stopped() -> None:
    bench = Bench()
    bench.step(STOP)
    bench.fails(Why.EXITED)
    assert bench.job.state is JobState.STOPPED
    assert bench.why is Why.STOP_REQUESTED


def test_a_stop_while_the_others_are_killed_keeps_it_from_being_tried_again() -> None:
    bench = Bench()
    bench.step(*bench.ends(Why.KILLED, A))
    assert stops(bench.step(STOP)) == []
    bench.step(*bench.ends(Why.PEER_LOST, B))
    assert bench.job.state is JobState.STOPPED


# --- cancel


def test_a_cancel_kills_at_once_also_after_a_stop_and_wins() -> None:
    bench = Bench()
    bench.step(STOP)
    want = [(A, 0.0, Why.CANCEL_REQUESTED), (B, 0.0, Why.CANCEL_REQUESTED)]
    assert stops(bench.step(CANCEL)) == want
    assert bench.step(STOP, CANCEL, RESUME) == []
    assert closed(bench.fails(Why.COMPLETED)) == [JobState.CANCELLED]
    assert bench.why is Why.CANCEL_REQUESTED


def test_a_job_that_rests_is_cancelled_at_once() -> None:
    machine = Machine()
    machine.step([asks(), STOP], 0.0, random.Random(0))
    assert closed(machine.step([CANCEL], 0.0, random.Random(0))) == [JobState.CANCELLED]
    assert machine.step([CANCEL, RESUME, STOP], 0.0, random.Random(0)) == []
    machine.step([JobSubmitted(job_id="y", spec=asks().spec, submitted_s=0)], 0.0, random.Random(0))
    actions = machine.step([CancelRequested(job_id="y")], 0.0, random.Random(0))
    assert closed(actions) == [JobState.CANCELLED]


# --- resume


def test_a_stopped_job_goes_on_with_fresh_restarts_and_its_place() -> None:
    bench = Bench()
    bench.fails(Why.KILLED)
    bench.step(after=2.0)
    bench.step(STOP)
    bench.fails(Why.STOP_REQUESTED)
    (start,) = bench.step(RESUME)
    assert isinstance(start, StartAttempt)
    assert (start.attempt, start.restart_count) == (3, 2)
    assert bench.job.restarts == 0
    assert bench.job.submitted_s == 1.0
    assert bench.job.attempts[2].resumed


def test_a_failed_job_goes_on_but_not_where_it_never_fits() -> None:
    bench = Bench()
    bench.fails(Why.CONFIG)
    assert len(bench.step(RESUME)) == 1
    bench.fails(Why.CONFIG)
    bench.step(InventoryChanged(inventory=Inventory(sites=())))
    assert closed(bench.step(RESUME)) == [JobState.FAILED]
    assert bench.why is Why.NEVER_FITS


@pytest.mark.parametrize("code", [Why.STOP_REQUESTED, Why.KILLED, Why.EXITED])
def test_a_resume_during_a_stop_lets_the_job_go_on_after_it(code: Why) -> None:
    bench = Bench()
    bench.step(STOP)
    assert bench.step(RESUME) == []
    assert [type(action) for action in bench.fails(code)] == [StartAttempt]


def test_such_a_resume_counts_restarts_anew() -> None:
    bench = Bench()
    bench.fails(Why.KILLED)
    bench.step(after=2.0)
    assert bench.job.restarts == 1
    bench.step(STOP, RESUME)
    bench.fails(Why.STOP_REQUESTED)
    assert bench.job.restarts == 0


def test_a_stop_after_such_a_resume_stops_after_all() -> None:
    bench = Bench()
    bench.step(STOP, RESUME)
    assert bench.step(STOP) == []
    bench.fails(Why.STOP_REQUESTED)
    assert bench.job.state is JobState.STOPPED


def test_a_resume_of_a_job_that_runs_changes_nothing() -> None:
    bench = Bench()
    before = encode(bench.machine.state)
    assert bench.step(RESUME) == []
    assert encode(bench.machine.state) == before


# --- budget


def test_a_job_is_stopped_when_it_has_run_for_long_enough() -> None:
    bench = Bench(budget=Budget(run_s_max=8.0))
    assert bench.machine.next_timer_s() == 108.0
    assert stops(bench.step(*bench.runs(A, B), after=7.9)) == []
    actions = bench.step(after=0.1)
    assert stops(actions) == [(A, 20.0, Why.BUDGET_SPENT), (B, 20.0, Why.BUDGET_SPENT)]
    assert bench.machine.next_timer_s() == 117.9
    bench.fails(Why.STOP_REQUESTED)
    assert bench.job.state is JobState.STOPPED
    assert bench.job.reason is not None
    assert bench.job.reason.sentence == (
        "has used 8s of 8s of running time, and so spent its budget"
    )


def test_a_job_is_stopped_when_it_has_cost_enough() -> None:
    bench = Bench(budget=Budget(cost_max=5.0, run_s_max=60.0))
    bench.fails(Why.KILLED, after=2.0)
    bench.step(after=2.0)
    assert bench.machine.next_timer_s() == 107.0  # three of the five are left
    bench.step(after=3.0)
    assert bench.job.wanted_reason is not None
    assert bench.job.wanted_reason.sentence == (
        "has used 5s of 1m 00s of running time and 5.00 of 5.00 EUR, and so spent its budget"
    )


@pytest.mark.parametrize("budget", [Budget(cost_max=5.0), Budget(run_s_max=5.0)])
def test_a_job_that_has_spent_its_budget_does_not_start_again(budget: Budget) -> None:
    bench = Bench(budget=budget)
    bench.step(*bench.ends(Why.KILLED, A))
    bench.step(*bench.ends(Why.PEER_LOST, B), after=5.0)
    assert bench.job.state is JobState.STOPPED
    assert closed(bench.step(RESUME)) == [JobState.STOPPED]
    assert bench.why is Why.BUDGET_SPENT


def test_a_resume_does_not_outlive_the_budget() -> None:
    bench = Bench(budget=Budget(run_s_max=5.0))
    bench.step(STOP, RESUME)
    assert bench.step(after=5.0) == []
    bench.fails(Why.STOP_REQUESTED)
    assert bench.why is Why.BUDGET_SPENT


def test_without_an_inventory_costs_have_no_currency() -> None:
    """A machine may be given a state whose grid is not known any more."""
    bench = Bench(budget=Budget(cost_max=5.0))
    state = decode(encode(bench.machine.state), State)
    state.inventory = None
    machine = Machine(state)
    machine.step([], 106.0, bench.rng)
    reason = state.jobs["x"].wanted_reason
    assert reason is not None
    assert reason.code is Why.BUDGET_SPENT


def test_who_is_to_go_on_is_stopped_once_more_when_its_budget_is_spent() -> None:
    """As the yard sees to it, a machine that was restored in between does so, too."""
    yard = Yard(site("a", "2"))
    yard.asks("j", 2, grace_s=1000.0, budget=Budget(run_s_max=10.0))
    yard.runs("j")
    yard.step(StopRequested(job_id="j"), at=5.0)
    yard.step(at=20.0)
    yard.step(ResumeRequested(job_id="j"), at=21.0)
    assert yard.job("j").wanted == "stop"
