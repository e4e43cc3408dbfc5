"""From what Slurm and a supervisor say of a task to what has happened to it (pure)."""

import msgspec
from msgspec.structs import replace

from gridloom.model.event import TaskWaiting
from gridloom.model.life import Outcome
from gridloom.model.reason import Reason, Why
from gridloom.sites.slurm.reasons import WillStart, waiting
from gridloom.sites.slurm.records import Job
from gridloom.sites.slurm.states import JobEnd, JobPhase, job_end, job_phase
from gridloom.wire.agent import Who

_ENDS: dict[JobEnd, tuple[Why, str, str]] = {
    JobEnd.DONE: (Why.SUPERVISOR_LOST, "ended, and its supervisor said nothing", ""),
    JobEnd.FAILED: (Why.SUPERVISOR_LOST, "failed, and its supervisor said nothing", ""),
    JobEnd.CANCELLED: (Why.CANCELLED_AT_SITE, "was cancelled at the site", ""),
    JobEnd.TIME_LIMIT: (
        Why.TIME_LIMIT,
        "has reached its time limit",
        "raise `time_limit` of the site in the grid file if the partition allows more",
    ),
    JobEnd.NODE_FAILED: (Why.NODE_LOST, "lost a node", ""),
    JobEnd.PREEMPTED: (Why.PREEMPTED, "was preempted by another job of the site", ""),
    JobEnd.OUT_OF_MEMORY: (
        Why.OUT_OF_MEMORY,
        "ran out of the memory it had asked for",
        "ask for more memory, or cut the model smaller",
    ),
    JobEnd.LAUNCH_FAILED: (Why.REFUSED, "could not be launched on its nodes", ""),
}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a gang's Slurm job now.

    Attributes:
        slurm_id: Its id; nothing as long as Slurm has not taken it.
        job: As Slurm told of it last; nothing if it has not, or knows it no more.
        is_gone: Slurm knows it no more.
        has_run: It has been seen after its start.
        is_put_back: After that it waited again: its site, or its own script, has requeued it.
        trouble: Why Slurm could not be asked; empty if it could.
        sending: What the gang's files wait for; empty once they are where its tasks see them.
    """

    slurm_id: int | None = None
    job: Job | None = None
    is_gone: bool = False
    has_run: bool = False
    is_put_back: bool = False
    trouble: str = ""
    sending: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the job is left at the site."""
        return self.is_gone or (self.job is not None and job_end(self.job) is not None)

    @property
    def waits(self) -> bool:
        """Whether the job has not started, as far as is known."""
        return not self.is_over and (self.job is None or _phase(self.job) in _BEFORE)

    def after(self, job: Job | None) -> "Seen":
        """Return what is known after the next look, which told of the job, or of none."""
        now = Seen(slurm_id=self.slurm_id, job=job or self.job, is_gone=job is None)
        return replace(
            now,
            has_run=self.has_run or not (now.waits or now.is_over),
            is_put_back=self.is_put_back or (self.has_run and now.waits),
        )


_BEFORE = (JobPhase.WAITING, JobPhase.HELD)


def wait_of(seen: Seen, who: Who) -> TaskWaiting:
    """Return what a task waits for that has not come up yet."""
    job = seen.job
    if seen.trouble:
        return TaskWaiting(**who, sentence=f"Slurm does not answer: {seen.trouble}")
    if job is None:
        return TaskWaiting(**who, sentence=seen.sending or "is being handed to Slurm")
    if _phase(job) not in _BEFORE:
        return TaskWaiting(**who, sentence=f"Slurm job {job.job_id} starts on {_nodes(job)}")
    why = waiting(job.reason)
    remedy = f"; {why.remedy}" if why.remedy else ""
    sentence = f"Slurm job {job.job_id}: {why.sentence}{remedy}"
    return TaskWaiting(**who, sentence=sentence, expected_s=job.started_s or 0.0)


def why_never(seen: Seen) -> Reason | None:
    """Return why a job that waits will never start as it was asked for; nothing if it may."""
    if seen.job is None or not seen.waits:
        return None
    why = waiting(seen.job.reason)
    if why.will_start is not WillStart.NEVER:
        return None
    sentence = f"Slurm job {seen.job.job_id} would never start: {why.sentence}"
    return Reason(code=Why.REFUSED, sentence=sentence, remedy=why.remedy)


def end_of(seen: Seen, asked: str, now_s: float) -> Outcome:
    """Return how a task ended of whose end its supervisor has said nothing.

    Args:
        seen: Its Slurm job, which is over.
        asked: The sentence with which it was asked to stop; empty if it was not.
        now_s: The time, if Slurm does not tell it.
    """
    job, end = seen.job, _end(seen)
    if job is None or end is None:
        sentence = f"Slurm does not know job {seen.slurm_id} any more"
        return Outcome(code=Why.SUPERVISOR_LOST, sentence=sentence, ended_s=now_s)
    code, sentence, remedy = _said(seen, end)
    exit_code = (job.exit.code or -job.exit.signal) if job.exit is not None else 0
    outcome = Outcome(
        code=code,
        sentence=f"Slurm job {job.job_id} {sentence}",
        remedy=remedy,
        exit_code=exit_code,
        ended_s=job.ended_s or now_s,
    )
    if asked and end in (JobEnd.CANCELLED, JobEnd.FAILED, JobEnd.DONE):
        return replace(outcome, code=Why.STOP_REQUESTED, sentence=f"{asked}: {outcome.sentence}")
    return outcome


def why_asked(outcome: Outcome, seen: Seen) -> Outcome:
    """Return the outcome of a task that its site has asked to stop, with the site's reason."""
    end = _end(seen)
    if end in (JobEnd.PREEMPTED, JobEnd.TIME_LIMIT, JobEnd.CANCELLED, JobEnd.NODE_FAILED):
        assert seen.job is not None
        code, sentence, remedy = _said(seen, end)
        told = f"Slurm job {seen.job.job_id} {sentence}: {outcome.sentence}"
        return replace(outcome, code=code, sentence=told, remedy=remedy)
    return outcome


def _said(seen: Seen, end: JobEnd) -> tuple[Why, str, str]:
    if seen.is_put_back and end is JobEnd.CANCELLED:  # by us: it is to go on as another attempt
        return Why.PREEMPTED, "was put back into its queue", ""
    return _ENDS[end]


def _end(seen: Seen) -> JobEnd | None:
    end = job_end(seen.job) if seen.job is not None else None
    # A job that was preempted may have ended well within its grace
    was_preempted = seen.job is not None and bool(seen.job.preempted_s)
    return JobEnd.PREEMPTED if end is not None and was_preempted else end


def _phase(job: Job) -> JobPhase:
    return job_phase(job.states, job.reason)


def _nodes(job: Job) -> str:
    return ", ".join(job.nodes[:4]) + (f" and {len(job.nodes) - 4} more" * (len(job.nodes) > 4))
