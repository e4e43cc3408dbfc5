"""What Slurm and supervisors say, and what is made of it."""

from typing import Any

import pytest

from gridloom.model.life import Outcome
from gridloom.model.reason import Why
from gridloom.sites.slurm.records import ExitCode, Job
from gridloom.sites.slurm.tell import Seen, end_of, wait_of, why_asked
from gridloom.wire.agent import Who

WHO = Who(job_id="j", attempt=1, epoch=1, domain="hpc/n1", life=1)


def seen(*states: str, **more: Any) -> Seen:
    return Seen(slurm_id=7, job=Job(job_id=7, states=states, **more))


@pytest.mark.parametrize(
    ("what", "sentence", "expected_s"),
    [
        (Seen(), "is being handed to Slurm", 0.0),
        (
            seen("PENDING", reason="Priority", started_s=900.0),
            "Slurm job 7: jobs of higher priority go first",
            900.0,
        ),
        (
            seen("PENDING", reason="Nonsense"),
            "Slurm job 7: Slurm says Nonsense",
            0.0,
        ),
        (
            seen("RUNNING", nodes=("a", "b", "c", "d", "e", "f")),
            "Slurm job 7 starts on a, b, c, d and 2 more",
            0.0,
        ),
        (Seen(slurm_id=7, trouble="it is away"), "Slurm does not answer: it is away", 0.0),
    ],
)
def test_what_a_task_waits_for(what: Seen, sentence: str, expected_s: float) -> None:
    fact = wait_of(what, WHO)
    assert (fact.sentence, fact.expected_s) == (sentence, expected_s)


def test_who_may_act_is_told_with_the_reason() -> None:
    assert "; " in wait_of(seen("PENDING", reason="JobHeldUser"), WHO).sentence


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("COMPLETED", Why.SUPERVISOR_LOST),
        ("FAILED", Why.SUPERVISOR_LOST),
        ("CANCELLED", Why.CANCELLED_AT_SITE),
        ("TIMEOUT", Why.TIME_LIMIT),
        ("DEADLINE", Why.TIME_LIMIT),
        ("NODE_FAIL", Why.NODE_LOST),
        ("PREEMPTED", Why.PREEMPTED),
        ("OUT_OF_MEMORY", Why.OUT_OF_MEMORY),
        ("BOOT_FAIL", Why.REFUSED),
    ],
)
@pytest.mark.parametrize("asked", ["", "cancelled by its user"])
def test_how_a_job_ended_that_said_nothing(state: str, code: Why, asked: str) -> None:
    outcome = end_of(seen(state, ended_s=90.0, exit=ExitCode(signal=9)), asked, 100.0)
    if asked and state in ("COMPLETED", "FAILED", "CANCELLED"):
        code = Why.STOP_REQUESTED
        assert outcome.sentence.startswith("cancelled by its user: Slurm job 7 ")
    assert (outcome.code, outcome.ended_s, outcome.exit_code) == (code, 90.0, -9)
    assert "Slurm job 7 " in outcome.sentence


@pytest.mark.parametrize("what", [Seen(slurm_id=7, is_gone=True), seen("RUNNING")])
def test_a_job_that_slurm_has_forgotten_is_lost(what: Seen) -> None:
    outcome = end_of(what, "", 100.0)
    assert (outcome.code, outcome.ended_s) == (Why.SUPERVISOR_LOST, 100.0)
    assert outcome.sentence == "Slurm does not know job 7 any more"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("PREEMPTED", Why.PREEMPTED),
        ("TIMEOUT", Why.TIME_LIMIT),
        ("CANCELLED", Why.CANCELLED_AT_SITE),
        ("NODE_FAIL", Why.NODE_LOST),
        ("COMPLETED", Why.STOP_REQUESTED),
        ("RUNNING", Why.STOP_REQUESTED),
    ],
)
def test_why_a_site_has_asked_a_task_to_stop(state: str, code: Why) -> None:
    said = Outcome(code=Why.STOP_REQUESTED, sentence="asked to stop: saved", ended_s=5.0)
    outcome = why_asked(said, seen(state))
    assert (outcome.code, outcome.ended_s) == (code, 5.0)
    assert outcome.sentence.endswith("asked to stop: saved")
    assert why_asked(said, Seen(slurm_id=7)) == said


@pytest.mark.parametrize(
    ("what", "is_over", "waits"),
    [
        (Seen(), False, True),
        (seen("PENDING"), False, True),
        (seen("CONFIGURING"), False, True),
        (seen("RUNNING"), False, False),
        (seen("COMPLETING"), False, False),
        (seen("PREEMPTED"), True, False),
        (Seen(slurm_id=7, is_gone=True), True, False),
    ],
)
def test_whether_a_job_waits_runs_or_is_over(what: Seen, *, is_over: bool, waits: bool) -> None:
    assert (what.is_over, what.waits) == (is_over, waits)
