"""What reports and silence do to one job, seen through the door."""

import random
from typing import Any

import pytest
from tests.unit.core.bench import (
    CANCEL,
    GRID,
    STOP,
    A,
    B,
    Bench,
    asks,
    closed,
    renewed,
    stops,
)

from gridloom.base.codec import encode
from gridloom.core.machine import Machine
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    StepReported,
    StopRequested,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.life import JobState, Outcome, TaskState
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import RetryPolicy

# --- running and leases


def test_a_job_runs_when_all_its_tasks_do() -> None:
    bench = Bench()
    bench.step(*bench.runs(A))
    assert bench.job.state is JobState.STARTING
    assert bench.job.attempts[0].tasks[A].state is TaskState.RUNNING
    bench.step(*bench.runs(B))
    assert bench.job.state.value == "running"


def test_every_heartbeat_renews_the_lease_of_its_task_alone() -> None:
    bench = Bench()
    assert renewed(bench.step(*bench.runs(A), after=3.0)) == [(A, 109.0)]
    assert [t.lease_until_s for t in bench.job.attempts[0].tasks.values()] == [109.0, 106.0]
    assert bench.machine.next_timer_s() == 110.0


def test_timers_that_are_of_no_interest_are_not_told() -> None:
    bench = Bench()
    assert bench.machine.next_timer_s(109.9) is None
    assert bench.machine.next_timer_s(110.0) == 110.0
    bench.step(*bench.runs(A, B), after=3.0)
    assert bench.machine.next_timer_s(112.9) is None
    assert bench.machine.next_timer_s(113.0) == bench.machine.next_timer_s() == 113.0


def test_timers_of_jobs_that_have_ended_are_forgotten_whatever_is_of_interest() -> None:
    bench = Bench()
    due = bench.machine.index.due()
    assert bench.machine.next_timer_s(0.0) is None
    assert due
    bench.step(*bench.ends(Why.COMPLETED, A, B))
    assert bench.machine.next_timer_s(0.0) is None
    assert due == []


def test_a_silent_task_is_dead_only_when_its_holder_is_surely_gone() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B), after=1.0)
    bench.step(*bench.runs(A), after=5.0)
    assert bench.step(after=4.9) == []
    assert bench.machine.next_timer_s() == 111.0
    actions = bench.step(after=0.2)
    assert stops(actions) == [(A, 0.0, Why.PEER_LOST)]
    outcome = bench.job.attempts[0].tasks[B].outcome
    assert outcome is not None
    assert outcome.code is Why.LEASE_LAPSED
    assert bench.job.state is JobState.STOPPING


def test_a_lease_that_lapsed_is_late_but_not_dead_within_the_margin() -> None:
    bench = Bench()
    assert renewed(bench.step(*bench.runs(A, B), after=9.9)) == [(A, 115.9), (B, 115.9)]


def test_a_heartbeat_does_not_revive_the_dead() -> None:
    bench = Bench()
    actions = bench.step(*bench.runs(A, B), after=10.0)
    assert renewed(actions) == []
    assert bench.job.attempts[0].outcome is not None
    assert bench.job.attempts[0].outcome.code is Why.LEASE_LAPSED


def test_an_end_that_is_reported_late_is_still_the_end() -> None:
    bench = Bench()
    bench.step(*bench.ends(Why.KILLED, A, B), after=30.0)
    assert bench.job.attempts[0].outcome is not None
    assert bench.job.attempts[0].outcome.code is Why.KILLED


def test_terms_can_be_chosen() -> None:
    machine = Machine(terms=LeaseTerms(lease_s=60.0, kill_margin_s=1.0))
    machine.step([GRID, asks()], 0.0, random.Random(0))
    assert machine.next_timer_s() == 61.0


def test_time_never_runs_backwards() -> None:
    bench = Bench()
    bench.step(after=5.0)
    assert renewed(bench.step(*bench.runs(A), after=-50.0)) == [(A, 111.0)]


def test_nothing_is_due_when_nothing_is_wanted() -> None:
    assert Machine().next_timer_s() is None


# --- stale facts


@pytest.mark.parametrize(
    "change",
    [{"epoch": 0}, {"epoch": 3}, {"attempt": 1}, {"domain": "c/n0"}, {"job_id": "y"}],
)
def test_late_reports_change_nothing(change: dict[str, Any]) -> None:
    bench = Bench()
    bench.fails(Why.KILLED)
    bench.step(after=2.0)
    bench.step(*bench.runs(A, B))
    assert bench.job.attempts[-1].epoch == 2
    about = bench.about(A) | change
    before = encode(bench.machine.state)
    late: list[AnyEvent] = [
        TaskRunning(**about),
        TaskEnded(**about, outcome=Outcome(code=Why.EXITED, sentence="")),
        TaskRefused(**about, reason=Reason(code=Why.REFUSED, sentence="")),
        StepReported(**about, step=9),
        CheckpointSaved(**about, step=9),
    ]
    assert bench.step(*late) == []
    assert encode(bench.machine.state) == before


def test_reports_of_an_ended_task_change_nothing() -> None:
    bench = Bench()
    bench.step(*bench.ends(Why.COMPLETED, A))
    before = encode(bench.machine.state)
    assert bench.step(*bench.ends(Why.KILLED, A), *bench.runs(A)) == []
    assert encode(bench.machine.state) == before


def test_reports_of_a_job_that_holds_nothing_change_nothing() -> None:
    bench = Bench()
    bench.fails(Why.CONFIG)
    before = encode(bench.machine.state)
    assert bench.step(*bench.runs(A), STOP, CANCEL, StopRequested(job_id="nobody")) == []
    assert encode(bench.machine.state) == before


def test_a_job_is_submitted_once() -> None:
    bench = Bench()
    before = encode(bench.machine.state)
    assert bench.step(asks(ranks=2)) == []
    assert encode(bench.machine.state) == before


def test_a_job_that_never_fits_fails_at_once() -> None:
    machine = Machine()
    actions = machine.step([GRID, asks(ranks=5)], 0.0, random.Random(0))
    assert closed(actions) == [JobState.FAILED]
    reason = machine.state.jobs["x"].reason
    assert reason is not None
    assert "have 2 + 2" in reason.sentence


# --- progress


def test_progress_only_grows_within_an_attempt() -> None:
    bench = Bench()
    about = bench.about(A)
    for step in (3, 7, 5):
        bench.step(StepReported(**about, step=step), CheckpointSaved(**about, step=step))
    attempt = bench.job.attempts[0]
    assert (attempt.first_step, attempt.last_step, attempt.checkpoint_step) == (3, 7, 7)
    assert bench.job.checkpoint_step == 7


def test_the_newest_checkpoint_counts_even_if_an_attempt_went_back() -> None:
    bench = Bench()
    bench.step(CheckpointSaved(**bench.about(A), step=50))
    bench.fails(Why.KILLED)
    bench.step(after=2.0)
    bench.step(CheckpointSaved(**bench.about(A), step=20))
    assert bench.job.checkpoint_step == 20


# --- endings


def test_a_job_succeeds_when_all_tasks_completed() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B))
    assert bench.step(*bench.ends(Why.COMPLETED, A), after=4.0) == []
    assert bench.job.state is JobState.RUNNING
    assert closed(bench.step(*bench.ends(Why.COMPLETED, B), after=4.0)) == [JobState.SUCCEEDED]
    attempt = bench.job.attempts[0]
    assert attempt.ended_s == 108.0
    assert bench.job.run_s == 8.0
    assert bench.job.cost == 8.0  # four devices, a quarter a second each
    assert bench.why is Why.COMPLETED
    assert bench.machine.next_timer_s() is None


def test_a_task_that_fails_takes_the_others_with_it() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B))
    actions = bench.step(*bench.ends(Why.EXITED, B))
    assert stops(actions) == [(A, 0.0, Why.PEER_LOST)]
    assert bench.job.state is JobState.STOPPING
    assert bench.job.attempts[0].killed
    assert renewed(bench.step(*bench.runs(A), after=1.0)) == []  # told to die: no longer kept
    bench.step(*bench.ends(Why.PEER_LOST, A))
    assert bench.job.attempts[0].outcome is not None
    assert bench.job.attempts[0].outcome.code is Why.EXITED


def test_tasks_that_lapse_together_have_no_others_to_stop() -> None:
    bench = Bench()
    assert bench.step(after=10.0) == []
    assert bench.job.state is JobState.QUEUED
    assert bench.job.attempts[0].outcome is not None
    assert bench.job.attempts[0].outcome.code is Why.LEASE_LAPSED


def test_a_refusal_is_a_failure_outside_the_program() -> None:
    bench = Bench()
    reason = Reason(code=Why.SITE_REFUSED, sentence="full", remedy="wait")
    actions = bench.step(TaskRefused(**bench.about(A), reason=reason))
    assert stops(actions) == [(B, 0.0, Why.PEER_LOST)]
    bench.step(*bench.ends(Why.PEER_LOST, B))
    outcome = bench.job.attempts[0].outcome
    assert outcome is not None
    assert (outcome.code, outcome.sentence, outcome.remedy) == (Why.REFUSED, "full", "wait")
    assert bench.job.state is JobState.QUEUED


@pytest.mark.parametrize("code", [Why.CONFIG, Why.IO])
def test_a_refusal_for_what_cannot_change_is_final(code: Why) -> None:
    bench = Bench()
    reason = Reason(code=code, sentence="no such directory")
    bench.step(*(TaskRefused(**bench.about(domain), reason=reason) for domain in (A, B)))
    assert bench.job.state is JobState.FAILED
    assert bench.why is code


# --- retries


def test_a_lost_attempt_is_followed_by_another_after_a_wait() -> None:
    bench = Bench()
    assert closed(bench.fails(Why.KILLED, after=3.0)) == []
    assert bench.job.state is JobState.QUEUED
    assert bench.job.restarts == 1
    assert bench.why is Why.BACKING_OFF
    wait_s = bench.job.not_before_s - bench.now
    assert 0.9 <= wait_s <= 1.1
    assert bench.machine.next_timer_s() == bench.job.not_before_s
    (start,) = bench.step(after=wait_s)
    assert isinstance(start, StartAttempt)
    assert (start.attempt, start.epoch, start.restart_count) == (2, 2, 1)
    assert bench.job.attempts[1].resumed


def test_waits_double_up_to_the_longest_and_restarts_run_out() -> None:
    retry = RetryPolicy(max_restarts=4, backoff_s=10.0, backoff_s_max=35.0)
    bench = Bench(retry=retry)
    waits = []
    for _ in range(4):
        bench.fails(Why.SUPERVISOR_LOST)
        waits.append(bench.job.not_before_s - bench.now)
        bench.step(after=40.0)
    for wait_s, want_s in zip(waits, (10.0, 20.0, 35.0, 35.0), strict=True):
        assert 0.9 * want_s <= wait_s <= min(1.1 * want_s, 35.0)
    assert closed(bench.fails(Why.SUPERVISOR_LOST)) == [JobState.FAILED]
    reason = bench.job.reason
    assert reason is not None
    assert reason.code is Why.SUPERVISOR_LOST
    assert reason.sentence == "gave up after 5 attempts; the last ended: it supervisor_lost"
    assert reason.remedy == "mend it"


def test_without_a_wait_the_next_attempt_starts_in_the_same_step() -> None:
    bench = Bench(retry=RetryPolicy(backoff_s=0.0))
    assert isinstance(bench.fails(Why.KILLED)[-1], StartAttempt)


@pytest.mark.parametrize(
    ("code", "on", "state"),
    [
        (Why.KILLED, "lost", JobState.QUEUED),
        (Why.PEER_LOST, "lost", JobState.QUEUED),
        (Why.TIME_LIMIT, "lost", JobState.QUEUED),
        (Why.CANCELLED_AT_SITE, "lost", JobState.QUEUED),
        (Why.OUT_OF_MEMORY, "lost", JobState.FAILED),
        (Why.EXITED, "lost", JobState.FAILED),
        (Why.EXITED, "any", JobState.QUEUED),
        (Why.CONFIG, "any", JobState.FAILED),
        (Why.IO, "any", JobState.FAILED),
        (Why.STOP_REQUESTED, "any", JobState.STOPPED),  # by a signal from outside
    ],
)
def test_what_follows_a_cause(code: Why, on: str, state: JobState) -> None:
    bench = Bench(retry=RetryPolicy(on=on))  # type: ignore[arg-type]
    bench.fails(code)
    assert bench.job.state is state


def test_who_was_preempted_by_its_site_is_handed_in_again_at_no_cost() -> None:
    bench = Bench(retry=RetryPolicy(max_restarts=0))
    actions = bench.step(*bench.ends(Why.PREEMPTED, A), *bench.ends(Why.PEER_LOST, B))
    assert [one.attempt for one in actions if isinstance(one, StartAttempt)] == [2]
    assert (bench.job.state, bench.job.restarts) == (JobState.STARTING, 0)
    assert bench.job.attempts[0].outcome is not None
    assert bench.job.attempts[0].outcome.code is Why.PREEMPTED, "it tells more than its victims"


# --- where an attempt starts


def test_an_attempt_says_where_it_starts() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B))
    bench.step(CheckpointSaved(**bench.about(A), step=40))
    bench.fails(Why.KILLED)
    bench.step(after=10.0)
    ready = [TaskReady(**bench.about(domain), resumed_step=40) for domain in (A, B)]
    bench.step(*bench.runs(A, B), *ready)
    assert (bench.job.attempts[-1].resumed_step, bench.job.attempts[-1].notes) == (40, ())
    assert bench.job.checkpoint_step == 40


def test_a_checkpoint_that_was_passed_over_is_told_once() -> None:
    bench = Bench()
    bench.step(*bench.runs(A, B))
    bench.step(CheckpointSaved(**bench.about(A), step=40))
    bench.fails(Why.KILLED)
    bench.step(after=10.0)
    for domain in (A, B):
        bench.step(TaskReady(**bench.about(domain), resumed_step=20, notes=("damaged",)))
    assert bench.job.attempts[-1].notes == (
        "damaged",
        "goes on from training step 20, although a checkpoint of step 40 was reported",
    )
    assert bench.job.checkpoint_step == 20


def test_as_many_time_limits_as_it_takes_may_pass_while_it_gets_any_further() -> None:
    bench = Bench(retry=RetryPolicy(max_restarts=1))
    for step in (10, 20, 30):
        bench.step(*bench.runs(A, B))
        bench.step(CheckpointSaved(**bench.about(A), step=step), after=5.0)
        bench.fails(Why.TIME_LIMIT)
        assert bench.job.restarts == 0
        bench.step(TaskReady(**bench.about(A), resumed_step=step, notes=()))
    bench.fails(Why.TIME_LIMIT)
    assert (bench.job.state, bench.job.restarts) == (JobState.QUEUED, 1)
    bench.step(after=600.0)
    bench.step(TaskReady(**bench.about(A), resumed_step=30, notes=()))
    bench.fails(Why.TIME_LIMIT)
    assert bench.job.state is JobState.FAILED
