"""What the core gets to see of what drivers saw, and when."""

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.journal import MemoryJournal
from tests.unit.control.nouns import attempt, job

from gridloom.control.intake import Intake
from gridloom.core.state import State
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    StepReported,
    StopRequested,
    TaskArrived,
    TaskEnded,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.life import Arrival, JobState, Outcome, TaskState
from gridloom.model.reason import Why

WHO = {"job_id": "job-1", "attempt": 1, "epoch": 7, "domain": "north/n1"}
ALIVE = TaskRunning(**WHO)  # type: ignore[arg-type]
ENDED = TaskEnded(**WHO, outcome=Outcome(code=Why.EXITED, sentence="x"))  # type: ignore[arg-type]


def step(number: int) -> StepReported:
    return StepReported(**WHO, step=number)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def intake(clock: FakeClock) -> Intake:
    return Intake(MemoryJournal(), clock, routine_s=2.0)


def training() -> State:
    """A job whose tasks all run and whose first step is known."""
    one = attempt(first_step=1)
    for task in one.tasks.values():
        task.state = TaskState.RUNNING
    return State(jobs={"job-1": job(JobState.RUNNING, [one])})


def starting() -> State:
    return State(jobs={"job-1": job()})


@pytest.mark.parametrize("fact", [ALIVE, step(1)], ids=["alive", "step"])
def test_the_first_sign_is_passed_on_at_once(intake: Intake, fact: AnyEvent) -> None:
    assert intake.sift(starting(), [fact]) == [fact]


def test_what_is_new_of_a_task_in_its_sites_queue_is_passed_on_at_once(intake: Intake) -> None:
    state = starting()
    task = state.jobs["job-1"].attempts[-1].tasks["north/n1"]
    waits = TaskWaiting(**WHO, sentence="Priority", expected_s=9.0)  # type: ignore[arg-type]
    comes = TaskArrived(**WHO, arrival=Arrival(node="n", address="a"))  # type: ignore[arg-type]
    assert intake.sift(state, [waits]) == [waits]
    task.waits, task.expected_s = "Priority", 9.0
    assert intake.sift(state, [waits]) == []
    assert intake.sift(state, [comes]) == [waits, comes]
    task.arrival = comes.arrival
    assert intake.sift(state, [comes]) == []


def test_heartbeats_and_steps_are_held_back_and_passed_on_together(
    intake: Intake, clock: FakeClock
) -> None:
    state = training()
    assert intake.sift(state, [ALIVE, step(2)]) == []
    clock.advance(1.0)
    assert intake.sift(state, [ALIVE, step(3)]) == []
    clock.advance(1.0)
    assert intake.sift(state, [step(4)]) == [ALIVE, step(4)]
    assert intake.sift(state, []) == []


def test_an_urgent_fact_takes_what_was_held_back_with_it_and_comes_last(intake: Intake) -> None:
    state = training()
    assert intake.sift(state, [step(2)]) == []
    assert intake.sift(state, [ENDED]) == [step(2), ENDED]


def test_checkpoints_are_urgent(intake: Intake) -> None:
    saved = CheckpointSaved(**WHO, step=2)  # type: ignore[arg-type]
    assert intake.sift(training(), [saved]) == [saved]


@pytest.mark.parametrize(
    "changed",
    [{"epoch": 6}, {"job_id": "other"}, {"domain": "west/w1"}, {"life": 2}],
    ids=lambda changed: next(iter(changed)),
)
def test_facts_about_what_is_over_or_never_was_are_dropped(
    intake: Intake, changed: dict[str, object]
) -> None:
    stale = TaskEnded(**{**WHO, **changed}, outcome=ENDED.outcome)  # type: ignore[arg-type]
    assert intake.sift(training(), [stale]) == []
    over = State(jobs={"job-1": job(JobState.STOPPED)})
    assert intake.sift(over, [ENDED]) == []


def test_what_became_stale_while_it_was_held_back_is_dropped(
    intake: Intake, clock: FakeClock
) -> None:
    assert intake.sift(training(), [step(2)]) == []
    clock.advance(5.0)
    next_attempt = State(jobs={"job-1": job(JobState.STARTING, [attempt(), attempt(2, 8)])})
    assert intake.sift(next_attempt, []) == []


def test_letters_are_those_of_the_journal_in_their_order() -> None:
    journal = MemoryJournal()
    facts = [StopRequested(job_id="a"), StopRequested(job_id="b")]
    journal.post(facts)
    intake = Intake(journal, FakeClock(), 2.0)
    assert [letter.event for letter in intake.letters()] == facts
