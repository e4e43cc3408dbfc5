"""What each fact changes; facts about what is over or was never so change nothing."""

from typing import assert_never

from gridloom.core import reconcile
from gridloom.core.fit import ever_fits
from gridloom.core.order import queued
from gridloom.core.turn import Turn
from gridloom.core.verdict import PERMANENT
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    CheckpointSaved,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StepReported,
    StopRequested,
    TaskEnded,
    TaskEvent,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.life import HOLDING, Attempt, Job, JobState, Outcome, Task, TaskState
from gridloom.model.reason import Reason, Why

_STOP = Reason(code=Why.STOP_REQUESTED, sentence="was asked to stop", remedy="resume it to go on")
_CANCEL = Reason(code=Why.CANCEL_REQUESTED, sentence="was cancelled")


def apply(turn: Turn, event: AnyEvent) -> None:
    """Change the state by one fact."""
    match event:
        case InventoryChanged():
            _inventory(turn, event)
        case JobSubmitted():
            _submitted(turn, event)
        case StopRequested() | CancelRequested() | ResumeRequested():
            if job := turn.state.jobs.get(event.job_id):
                _request(turn, job, event)
        case TaskEvent():
            _report(turn, event)
        case _:
            assert_never(event)


def _inventory(turn: Turn, event: InventoryChanged) -> None:
    """Take the grid as it is now.

    The first inventory decides over the jobs that waited for one. A later, smaller one fails
    nobody: what is missing may only be away for a moment.
    """
    first = turn.state.inventory is None
    turn.state.inventory = event.inventory
    if first:
        for job in queued(turn.state.jobs.values()):
            _admit(turn, job)


def _submitted(turn: Turn, event: JobSubmitted) -> None:
    if event.job_id not in turn.state.jobs:
        job = Job(job_id=event.job_id, spec=event.spec, submitted_s=event.submitted_s)
        turn.state.jobs[job.job_id] = job
        _admit(turn, job)


def _admit(turn: Turn, job: Job) -> None:
    """Fail a queued job that the grid could not run even if it were empty."""
    inventory = turn.state.inventory
    if inventory is not None and (never := ever_fits(job.spec, inventory)):
        reconcile.close_job(turn, job, JobState.FAILED, never)


def _request(
    turn: Turn, job: Job, event: StopRequested | CancelRequested | ResumeRequested
) -> None:
    match event:
        case StopRequested():
            _stop(turn, job)
        case CancelRequested():
            _cancel(turn, job)
        case ResumeRequested():
            _resume(turn, job)
        case _:
            assert_never(event)


def _stop(turn: Turn, job: Job) -> None:
    if job.state is JobState.QUEUED:
        reconcile.close_job(turn, job, JobState.STOPPED, _STOP)
    elif job.state in HOLDING and job.wanted not in {"stop", "cancel"}:
        job.wanted, job.wanted_reason = "stop", _STOP
        reconcile.stop(turn, job, _STOP, job.spec.grace_s)


def _cancel(turn: Turn, job: Job) -> None:
    if job.state in {JobState.QUEUED, JobState.STOPPED}:
        reconcile.close_job(turn, job, JobState.CANCELLED, _CANCEL)
    elif job.state in HOLDING:
        job.wanted, job.wanted_reason = "cancel", _CANCEL
        reconcile.stop(turn, job, _CANCEL, grace_s=0.0)


def _resume(turn: Turn, job: Job) -> None:
    if job.state in {JobState.STOPPED, JobState.FAILED}:
        job.restarts, job.not_before_s = 0, turn.now
        reconcile.close_job(turn, job, JobState.QUEUED, None)
        _admit(turn, job)
    elif job.wanted == "stop":  # the stop is under way: it ends, and then the job goes on
        job.wanted, job.wanted_reason = "resume", None


def _report(
    turn: Turn,
    event: TaskRefused | TaskRunning | TaskEnded | TaskReady | StepReported | CheckpointSaved,
) -> None:
    """Take in what a task's node says, unless it speaks of what is over."""
    found = _live(turn, event)
    if found is None:
        return
    job, attempt, task = found
    match event:
        case TaskRunning():
            reconcile.heard(turn, job, task)
        case TaskRefused():
            reconcile.end_tasks(turn, job, {event.domain: _refused(turn, event.reason)})
        case TaskEnded():
            reconcile.end_tasks(turn, job, {event.domain: event.outcome})
        case TaskReady():
            _ready(job, attempt, event)
        case StepReported():
            attempt.first_step = attempt.first_step or event.step
            attempt.last_step = max(attempt.last_step, event.step)
        case CheckpointSaved():
            if event.step > attempt.checkpoint_step:
                attempt.checkpoint_step = job.checkpoint_step = event.step
        case _:
            assert_never(event)


def _ready(job: Job, attempt: Attempt, event: TaskReady) -> None:
    """Note where the attempt starts; all its ranks start there, so the first to say so is enough.

    When that is before the newest checkpoint that was reported, somebody must be told.
    """
    attempt.resumed_step = event.resumed_step
    notes = dict.fromkeys((*attempt.notes, *event.notes))  # every site says the same
    if event.resumed_step < job.checkpoint_step:
        notes[
            f"goes on from training step {event.resumed_step}, although a checkpoint of step "
            f"{job.checkpoint_step} was reported"
        ] = None
        job.checkpoint_step = event.resumed_step
    attempt.notes = tuple(notes)


def _live(turn: Turn, event: TaskEvent) -> tuple[Job, Attempt, Task] | None:
    """Return what the fact is about, if that lives; a stale epoch or number speaks of the dead."""
    job = turn.state.jobs.get(event.job_id)
    attempt = job.attempt if job else None
    if job is None or attempt is None:
        return None
    if (attempt.number, attempt.epoch) != (event.attempt, event.epoch):
        return None
    task = attempt.tasks.get(event.domain)
    if task is None or task.state is TaskState.ENDED:
        return None
    return job, attempt, task


def _refused(turn: Turn, reason: Reason) -> Outcome:
    return Outcome(
        code=reason.code if reason.code in PERMANENT else Why.REFUSED,
        sentence=reason.sentence,
        remedy=reason.remedy,
        ended_s=turn.now,
    )
