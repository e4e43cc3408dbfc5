"""The door: time that never runs back, what a person is told, and a machine that is restored."""

import random

import pytest
from tests.unit.core.grids import site
from tests.unit.core.yard import START_S, TERMS, Yard

from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import CloseJob
from gridloom.model.event import CancelRequested, TaskEnded
from gridloom.model.life import JobState, Outcome
from gridloom.model.reason import Why
from gridloom.model.spec import Dependency, RetryPolicy


def test_a_time_before_one_already_seen_counts_as_that_one() -> None:
    yard = Yard(site("a", "1"))
    yard.step(at=50.0)
    yard.asks("x", 1)
    yard.now = START_S
    yard.machine.step([], START_S, random.Random(0))
    assert yard.machine.state.now_s == START_S + 50.0
    assert yard.attempt("x").started_s == START_S + 50.0


def test_what_a_person_is_told_has_the_reason_of_every_job_that_waits() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 2)
    yard.asks("y", 2)
    yard.asks("alike", 2)
    yard.asks("z", 1, after=(Dependency(job_id="x"),))
    yard.asks("gone", 1)
    yard.step(CancelRequested(job_id="gone"))
    told = yard.machine.told()
    reasons = {job_id: job.reason.code for job_id, job in told.jobs.items() if job.reason}
    assert reasons == {
        "y": Why.IN_USE,
        "alike": Why.IN_USE,
        "z": Why.DEPENDENCY,
        "gone": Why.CANCEL_REQUESTED,
    }
    assert {name: told.jobs[name].reason for name in ("y", "alike", "z")} == {
        name: yard.reason(name) for name in ("y", "alike", "z")
    }
    assert yard.job("y").reason is None  # the state itself is as it was
    assert told.jobs["x"].state is JobState.STARTING
    assert told.inventory == yard.grid


def test_before_the_first_report_all_are_told_to_wait_for_it() -> None:
    machine = Machine()
    yard = Yard(site("a", "2"))
    yard.machine = machine
    yard.asks("x", 1)
    yard.asks("y", 1, after=(Dependency(job_id="x"),))
    told = machine.told()
    for name in ("x", "y"):
        reason = told.jobs[name].reason
        assert reason is not None
        assert reason.sentence == "waits until the grid has reported what it has"
        assert machine.reason(name) == reason


def test_who_backs_off_is_told_for_how_long() -> None:
    yard = Yard(site("a", "2"), slot_hold_s=0.0)
    yard.asks("x", 2, retry=RetryPolicy(backoff_s=30.0))
    yard.ends("x", code=Why.KILLED)
    told = yard.machine.told().jobs["x"].reason
    assert told == yard.reason("x")
    assert told is not None
    assert told.code is Why.BACKING_OFF


def test_who_runs_has_no_reason_and_who_is_not_known_none_at_all() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 2)
    assert yard.machine.reason("x") is None
    with pytest.raises(KeyError):
        yard.machine.reason("nobody")


def test_a_restored_machine_goes_on_as_if_nothing_had_been() -> None:
    yard = Yard(site("a", "2", "2"), slot_hold_s=50.0)
    yard.asks("x", 2, spares=1)
    yard.asks("high", 4, priority=1)
    restored = Machine(decode(encode(yard.machine.state), State), TERMS)
    assert restored.told() == yard.machine.told()
    assert restored.next_timer_s() == yard.machine.next_timer_s()


def test_jobs_that_are_over_are_forgotten_where_that_is_wanted() -> None:
    """Also while a timer of theirs is still to come."""
    yard = Yard(site("a", "2"))
    yard.asks("x", 1)
    yard.asks("y", 1, after=(Dependency(job_id="x", kind="afterany"),))
    rng = random.Random(0)
    machine = Machine(yard.machine.state, LeaseTerms(lease_s=10.0, forget_over=True))
    attempt = machine.state.jobs["x"].attempts[-1]
    done = TaskEnded(
        job_id="x",
        attempt=1,
        epoch=attempt.epoch,
        domain="a/n0",
        outcome=Outcome(code=Why.COMPLETED, sentence="done"),
    )
    assert machine.index.due()
    actions = machine.step([done], START_S + 1.0, rng)
    assert actions[0] == CloseJob(job_id="x", state=JobState.SUCCEEDED)
    assert list(machine.state.jobs) == ["y"]
    assert machine.state.jobs["y"].state is JobState.STARTING
    machine.step([], START_S + 2e9, rng)
    assert "x" not in machine.state.jobs
