"""What each fact changes; facts about what is over or was never so change nothing."""

from typing import Final, assert_never

from gridloom.core import comeback, explain, progress, reconcile, rendezvous
from gridloom.core.order import holding, queued
from gridloom.core.state import Mark, stands_on, tasks_of
from gridloom.core.turn import Turn
from gridloom.core.verdict import PERMANENT
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    CancelRequested,
    CheckpointSaved,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    ResumeRequested,
    SignalChanged,
    StepReported,
    StopRequested,
    TaskArrived,
    TaskEnded,
    TaskEvent,
    TaskReady,
    TaskRefused,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.life import HOLDING, Attempt, Job, JobState, Outcome, Task, TaskState
from gridloom.model.reason import Reason, Why

_STOP = Reason(code=Why.STOP_REQUESTED, sentence="was asked to stop", remedy="resume it to go on")
_EVICT = Reason(code=Why.PREEMPTED, sentence="was evicted by an operator")
_CANCEL = Reason(code=Why.CANCEL_REQUESTED, sentence="was cancelled")
_ENDED: Final = TaskState.ENDED  # Python 3.11 takes 0.2 us to look a member of an enum up

_TaskEvent = (
    TaskRefused
    | TaskWaiting
    | TaskArrived
    | TaskRunning
    | TaskEnded
    | TaskReady
    | StepReported
    | CheckpointSaved
)


def apply(turn: Turn, event: AnyEvent) -> None:
    """Change the state by one fact."""
    match event:
        case TaskEvent():
            _report(turn, event)
        case JobSubmitted():
            _submitted(turn, event)
        case InventoryChanged():
            _inventory(turn, event)
        case StopRequested() | CancelRequested() | ResumeRequested() | EvictRequested():
            if job := turn.state.jobs.get(event.job_id):
                _request(turn, job, event)
        case NodeMarked() | BookingMade() | BookingDropped() | SignalChanged():
            _grid_changed(turn, event)
        case _:
            assert_never(event)


def _inventory(turn: Turn, event: InventoryChanged) -> None:
    """Take the grid as it is now.

    The first inventory decides over the jobs that waited for one. A later, smaller one fails
    nobody: what is missing may only be away for a moment.
    """
    first = turn.state.inventory is None
    if event.inventory != turn.state.inventory:  # what was promised may not be there any more
        for job in turn.state.jobs.values():
            job.promised = None
    turn.state.inventory = event.inventory
    turn.index.rebuild()
    turn.index.dirty = True
    if first:
        for job in queued(turn.state.jobs.values()):
            if job.state is JobState.QUEUED:  # it may have been to follow one that has just failed
                _admit(turn, job)


def _submitted(turn: Turn, event: JobSubmitted) -> None:
    if event.job_id not in turn.state.jobs:
        job = Job(job_id=event.job_id, spec=event.spec, submitted_s=event.submitted_s)
        turn.state.jobs[job.job_id] = job
        turn.index.enqueue(job)
        _admit(turn, job)


def _admit(turn: Turn, job: Job) -> None:
    """Fail a queued job that could not start even if the grid were empty."""
    never = reconcile.doomed(turn, job)
    if turn.state.inventory is not None:
        never = never or explain.never(turn.index, job.spec)
    if never:
        reconcile.close_job(turn, job, JobState.FAILED, never)


def _request(
    turn: Turn,
    job: Job,
    event: StopRequested | CancelRequested | ResumeRequested | EvictRequested,
) -> None:
    match event:
        case EvictRequested():
            reconcile.evict(turn, job, _EVICT)
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
        turn.index.unmeet(job)  # those that were to start after its end wait for it again
        _admit(turn, job)
    elif job.wanted == "stop":  # the stop is under way: it ends, and then the job goes on
        job.wanted, job.wanted_reason = "resume", None
        turn.index.watch(job)  # what of its budget is left counts again


def _report(turn: Turn, event: _TaskEvent) -> None:
    """Take in what a task's node says, unless it speaks of what is over."""
    found = _live(turn, event)
    if found is None:
        return
    job, attempt, task = found
    match event:
        case TaskRunning():
            reconcile.heard(turn, job, task)
        case TaskWaiting() | TaskArrived():
            rendezvous.heard(turn, job, task, event)
        case TaskRefused():
            reconcile.end_tasks(turn, job, {event.domain: _refused(turn, event.reason)})
        case TaskEnded():
            reconcile.end_tasks(turn, job, {event.domain: event.outcome})
        case TaskReady():
            _ready(turn, job, task, event)
        case StepReported():
            attempt.first_step = attempt.first_step or event.step
            attempt.last_step = max(attempt.last_step, event.step)
        case CheckpointSaved():
            if event.step > attempt.checkpoint_step:
                attempt.checkpoint_step = job.checkpoint_step = event.step
            job.kept_s = progress.done_s(job, attempt, turn.now)
        case _:
            assert_never(event)


def _marked(turn: Turn, event: NodeMarked) -> None:
    """Take in that a node is away or well again; what runs on one that is not fit to work moves."""
    state = turn.state
    if event.by_site and not _may_say(state.marks.get(event.domain), event):
        return
    if not event.mark:
        if state.failures.pop(event.domain, None) is not None:
            turn.index.suspect()
        if state.marks.pop(event.domain, None) is not None:
            turn.index.reopen()
        return
    state.marks[event.domain] = Mark(
        mark=event.mark, sentence=event.sentence, since_s=turn.now, by_site=event.by_site
    )
    turn.index.reopen()
    if event.mark == "cordon":
        return
    for job in holding(state.jobs[job_id] for job_id in list(turn.index.holdings)):
        attempt, lost = job.attempts[-1], event.mark == "lost"
        domains = [
            task.placement.domain
            for task in tasks_of(attempt)
            if event.domain in (stands_on(task), task.placement.site)
            and (task.arrival is not None or not event.by_site)
            # who is to come back there has to move like who is there
            and (task.outcome is None or (task.placement.site in attempt.absent and not lost))
        ]
        if not domains:
            continue
        said = f": {event.sentence}" if event.sentence else ""
        if lost:
            sentence = f"{event.domain} is lost{said}"
            gone = Outcome(code=Why.NODE_LOST, sentence=sentence, ended_s=turn.now)
            reconcile.end_tasks(turn, job, dict.fromkeys(domains, gone))
        else:
            sentence = f"{event.domain} is drained{said}"
            reconcile.evict(turn, job, Reason(code=Why.DRAINED, sentence=sentence))


def _may_say(known: Mark | None, event: NodeMarked) -> bool:
    """Return whether a site may say that of a node of which this is known."""
    if not event.mark:
        return known is not None and known.by_site
    return known is None or known.by_site or known.by_core


def _grid_changed(
    turn: Turn, event: NodeMarked | BookingMade | BookingDropped | SignalChanged
) -> None:
    state, signals = turn.state, turn.state.signals
    match event:
        case NodeMarked():
            _marked(turn, event)
        case BookingMade():
            state.bookings[event.booking.name] = event.booking
            turn.index.dirty = True
        case BookingDropped():
            state.bookings.pop(event.name, None)
            turn.index.dirty = True
        case SignalChanged():
            if event.price_per_accelerator_hour is not None:
                signals.prices[event.site] = event.price_per_accelerator_hour
            if event.carbon_g_per_kwh is not None:
                signals.carbon[event.site] = event.carbon_g_per_kwh
            turn.index.reprice()
        case _:
            assert_never(event)


def _ready(turn: Turn, job: Job, task: Task, event: TaskReady) -> None:
    """Note where the attempt starts; all its ranks start there, so the first to say so is enough.

    When that is before the newest checkpoint that was reported, somebody must be told. A site that
    comes back to an attempt that has long begun changes nothing of that.
    """
    attempt = job.attempts[-1]
    if task.life > 1:
        said = comeback.back(attempt, task, event.resumed_step)
        attempt.notes = tuple(filter(None, dict.fromkeys((*attempt.notes, said, *event.notes))))
        return
    attempt.independent_sites = attempt.independent_sites or event.independent_sites
    attempt.resumed_step = event.resumed_step
    attempt.ready_s = attempt.ready_s or turn.now
    notes = (*attempt.notes, *event.notes)
    if event.resumed_step < job.checkpoint_step:
        lost = (
            f"goes on from training step {event.resumed_step}, although a checkpoint of step "
            f"{job.checkpoint_step} was reported"
        )
        notes = (*notes, lost)
        job.checkpoint_step = event.resumed_step
    if notes:
        attempt.notes = tuple(dict.fromkeys(notes))  # every site says the same


def _live(turn: Turn, event: TaskEvent) -> tuple[Job, Attempt, Task] | None:
    """Return what the fact is about, if that lives; a stale epoch or number speaks of the dead."""
    job = turn.state.jobs.get(event.job_id)
    attempt = job.attempt if job else None
    if job is None or attempt is None:
        return None
    if attempt.epoch != event.epoch or attempt.number != event.attempt:
        return None
    task = attempt.tasks.get(event.domain)
    if task is None or task.state is _ENDED or task.life != event.life:
        return None
    return job, attempt, task


def _refused(turn: Turn, reason: Reason) -> Outcome:
    return Outcome(
        code=reason.code if reason.code in PERMANENT else Why.REFUSED,
        sentence=reason.sentence,
        remedy=reason.remedy,
        ended_s=turn.now,
    )
