"""Reader of gridloom's own journal: what was handed in, and how long it truly ran.

A line is a record of the journal as JSON: the facts and intentions of one call of the core.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from gridloom.base.codec import decode
from gridloom.model.action import AnyAction, CloseJob, StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    InventoryChanged,
    JobSubmitted,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import JobState
from gridloom.model.spec import Forecast, JobSpec, Option
from gridloom.sim.workload_nouns import Arrival, End, ReadOptions, Workload
from gridloom.sim.workload_rows import Collector, RowError, numbered

_ENDS: dict[JobState, End] = {
    JobState.SUCCEEDED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.STOPPED: "cancelled",
}


class _Record(msgspec.Struct):
    """What of a record matters here."""

    now_s: float
    events: tuple[AnyEvent, ...] = ()
    actions: tuple[AnyAction, ...] = ()


class _Attempt(msgspec.Struct):
    """One try of a job: when it began to run, saved for the last time, and was over."""

    option: Option
    began_s: float
    running: bool = False
    saved_s: float = 0.0
    ended_s: float = 0.0


class _Job(msgspec.Struct):
    """A job on the way through the journal."""

    row: int
    submitted: JobSubmitted
    attempts: dict[int, _Attempt] = msgspec.field(default_factory=dict)
    state: JobState | None = None


def read_journal(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a journal, with the specifications that were handed in.

    A job's true work is what its last attempt ran, plus what earlier ones had run up to their
    last checkpoint, at the speed of its first option. What it was predicted to run stays; without
    a prediction it is the true work.

    Raises:
        InputError: No job in it is usable.
    """
    out = Collector("journal", file, options)
    jobs: dict[str, _Job] = {}
    for row, record in _records(text, out):
        _note(row, record, jobs)
    for job_id, job in jobs.items():
        try:
            out.arrive(_arrival(job_id, job))
        except RowError as error:
            out.drop(job.row, error)
    return out.workload(rebase=True)


def journal_inventory(text: str) -> Inventory | None:
    """Return the grid that a journal begins with; nothing when it names none."""
    for _, record in _records(text, Collector("journal", "", ReadOptions())):
        for event in record.events:
            if isinstance(event, InventoryChanged):
                return event.inventory
    return None


def _records(text: str, out: Collector) -> Iterator[tuple[int, _Record]]:
    for row, line in numbered(text):
        try:
            yield row, decode(line, _Record)
        except (msgspec.DecodeError, RecursionError) as error:
            out.drop(row, RowError("malformed", f"not a record of a journal: {error}"))


def _note(row: int, record: _Record, jobs: dict[str, _Job]) -> None:
    """Take over what one record tells of jobs; facts come before the intentions they caused."""
    for event in record.events:
        if isinstance(event, JobSubmitted):
            jobs.setdefault(event.job_id, _Job(row, event))
        elif isinstance(event, TaskRunning | TaskReady | CheckpointSaved | TaskEnded):
            job = jobs.get(event.job_id)
            attempt = job.attempts.get(event.attempt) if job else None
            if attempt:
                _note_task(attempt, event, record.now_s)
    for action in record.actions:
        job = jobs.get(getattr(action, "job_id", ""))
        if job and isinstance(action, StartAttempt):
            job.attempts[action.attempt] = _Attempt(action.placement.option, record.now_s)
            job.state = None
        elif job and isinstance(action, CloseJob):
            job.state = action.state


def _note_task(
    attempt: _Attempt, event: TaskRunning | TaskReady | CheckpointSaved | TaskEnded, now_s: float
) -> None:
    if isinstance(event, TaskEnded):
        attempt.ended_s = max(attempt.ended_s, event.outcome.ended_s or now_s)
    elif isinstance(event, CheckpointSaved):
        attempt.saved_s = now_s
    elif (isinstance(event, TaskReady) and event.life == 1) or not attempt.running:
        attempt.began_s, attempt.running = now_s, True


def _arrival(job_id: str, job: _Job) -> Arrival:
    """Return a job that ended.

    Raises:
        RowError: It did not, or never ran.
    """
    spec = job.submitted.spec
    if job.state is None:
        raise RowError("unfinished", f"{job_id} has not ended in the journal")
    if not job.attempts:
        raise RowError("never_ran", f"{job_id} was closed before it started")
    if not spec.options or any(option.devices < 1 for option in spec.options):
        raise RowError("no_devices", f"{job_id} has no shape, or one without devices")
    *earlier, last = job.attempts.values()
    work_s = _work_s(spec, last, last.ended_s)
    work_s += sum(_work_s(spec, attempt, attempt.saved_s) for attempt in earlier)
    if work_s <= 0:
        raise RowError("zero_duration", f"{job_id} ran 0 s")
    state = _ENDS.get(job.state, "")
    return Arrival(
        job_id=job_id,
        submit_s=job.submitted.submitted_s,
        spec=_predicted(spec, work_s),
        work_s=work_s,
        state=state,
        fail_after_s=work_s if state == "failed" else 0.0,
        row=job.row,
    )


def _work_s(spec: JobSpec, attempt: _Attempt, until_s: float) -> float:
    """Return what an attempt did until then, in seconds of the first option.

    Speeds are compared by step times, or by numbers of devices where one is not known.
    """
    ran_s = max(0.0, until_s - attempt.began_s)
    first, taken = spec.options[0], attempt.option
    if first.step_s > 0 and taken.step_s > 0:
        return ran_s * first.step_s / taken.step_s
    return ran_s * taken.devices / first.devices


def _predicted(spec: JobSpec, work_s: float) -> JobSpec:
    if spec.forecast.duration_s > 0:
        return spec
    forecast: Forecast = replace(spec.forecast, duration_s=work_s)
    return replace(spec, forecast=forecast)
