"""Which cause is believed, and the arithmetic of waiting."""

import random

import pytest

from gridloom.core import verdict
from gridloom.model.life import (
    Attempt,
    Job,
    JobState,
    Outcome,
    Placement,
    Task,
    TaskPlacement,
    TaskState,
)
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import JobSpec, Option, Program, RetryPolicy


def out(code: Why, ended_s: float = 0.0, rank: int = 0) -> Outcome:
    return Outcome(code=code, sentence=code.value, ended_s=ended_s, rank=rank)


def attempt(*outcomes: Outcome) -> Attempt:
    placed = [
        TaskPlacement(site="s", node=f"n{9 - i}", address="", devices=(0,))
        for i in range(len(outcomes))
    ]
    return Attempt(
        number=1,
        epoch=1,
        placement=Placement(
            option=Option(accelerator="cpu", plan=ParallelPlan()), tasks=tuple(placed)
        ),
        tasks={
            place.domain: Task(placement=place, state=TaskState.ENDED, outcome=outcome)
            for place, outcome in zip(placed, outcomes, strict=True)
        },
        started_s=0.0,
    )


def job(wanted: str = "", restarts: int = 0, **retry: float) -> Job:
    spec = JobSpec(
        name="j",
        program=Program(argv=(), workdir="/"),
        options=(),
        retry=RetryPolicy(**retry),  # type: ignore[arg-type]
    )
    return Job(job_id="j", spec=spec, submitted_s=0.0, wanted=wanted, restarts=restarts)


@pytest.mark.parametrize(
    ("victim", "culprit"),
    [
        (out(Why.KILLED), out(Why.CONFIG, 9)),
        (out(Why.LEASE_LAPSED), out(Why.IO, 9)),
        (out(Why.EXITED), out(Why.KILLED, 9)),
        (out(Why.EXITED), out(Why.SUPERVISOR_LOST, 9)),
        (out(Why.EXITED), out(Why.LEASE_LAPSED, 9)),
        (out(Why.EXITED), out(Why.REFUSED, 9)),
        (out(Why.PEER_LOST), out(Why.EXITED, 9)),
        (out(Why.STOP_REQUESTED), out(Why.PEER_LOST, 9)),
        (out(Why.COMPLETED), out(Why.STOP_REQUESTED, 9)),
        (out(Why.EXITED, 5), out(Why.EXITED, 4, rank=7)),  # the first
        (out(Why.EXITED, 5, rank=3), out(Why.EXITED, 5, rank=2)),  # the lowest rank
    ],
)
def test_culprits_are_believed_before_victims(victim: Outcome, culprit: Outcome) -> None:
    assert verdict.cause(attempt(victim, culprit)) is culprit
    assert verdict.cause(attempt(culprit, victim)) is culprit


def test_the_first_domain_by_name_decides_between_equals() -> None:
    one, two = out(Why.KILLED), out(Why.KILLED)
    assert verdict.cause(attempt(one, two)) is two  # s/n8 before s/n9


@pytest.mark.parametrize(
    ("wanted", "code", "state"),
    [
        ("", Why.COMPLETED, JobState.SUCCEEDED),
        ("stop", Why.COMPLETED, JobState.SUCCEEDED),
        ("resume", Why.COMPLETED, JobState.SUCCEEDED),
        ("cancel", Why.COMPLETED, JobState.CANCELLED),
        ("cancel", Why.CONFIG, JobState.CANCELLED),
        ("stop", Why.CONFIG, JobState.STOPPED),
        ("resume", Why.CONFIG, JobState.QUEUED),
        ("", Why.CANCEL_REQUESTED, JobState.STOPPED),
        ("", Why.BUDGET_SPENT, JobState.STOPPED),
        ("", Why.NEVER_FITS, JobState.FAILED),  # a cause that no site should give
    ],
)
def test_what_was_wanted_decides_first(wanted: str, code: Why, state: JobState) -> None:
    decided = verdict.judge(job(wanted), out(code))
    assert decided.state is state
    assert not decided.retry


def test_restarts_run_out() -> None:
    assert verdict.judge(job(restarts=1, max_restarts=2), out(Why.KILLED)).retry
    decided = verdict.judge(job(restarts=2, max_restarts=2), out(Why.KILLED))
    assert decided.state is JobState.FAILED
    never = verdict.judge(job(max_restarts=0), out(Why.KILLED)).reason
    assert never is not None
    assert never.sentence == "gave up after 1 attempt; the last ended: killed"


def test_a_wait_doubles_with_a_tenth_of_chance_and_never_exceeds_the_longest() -> None:
    rng = random.Random(1)
    for restarts in range(1, 2000, 37):
        waits = [verdict.backoff_s(job(restarts=restarts), rng) for _ in range(20)]
        want = min(2.0 ** min(restarts - 1, 64), 60.0)
        assert all(0.9 * want <= wait_s <= min(1.1 * want, 60.0) for wait_s in waits)
        assert len(set(waits)) > 1


def test_the_reason_for_a_wait_names_the_attempts() -> None:
    waiting = job()
    waiting.attempts = [attempt(out(Why.KILLED))]
    assert verdict.backing_off(waiting, out(Why.KILLED), 2.0).sentence == (
        "waits 2s before attempt 2, as attempt 1 ended: killed"
    )
