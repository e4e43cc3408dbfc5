"""What `ps`, `status` and `why` show of a job: as JSON, and as rows."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gridloom.base.files import LineTail
from gridloom.base.units import format_count, format_duration
from gridloom.cli.lookup import Seen, look
from gridloom.cli.wiring import Plane
from gridloom.control import rundir
from gridloom.control.progress import Progress, ProgressMeter
from gridloom.core.budget import used
from gridloom.model.life import HOLDING, Job, JobState
from gridloom.model.reason import Reason


def look_with_progress(
    plane: Plane, choose: Callable[[Mapping[str, Job]], Sequence[Job]]
) -> tuple[Seen, list[tuple[Job, Progress]]]:
    """Return what there is now, and of some jobs how far they are.

    Metrics may be long, and are read before the state: of what is shown, no job has moved on
    since.

    Args:
        plane: Where.
        choose: Which of all jobs.
    """
    read: dict[str, tuple[JobState, Progress]] = {}
    while True:
        seen = look(plane)
        chosen = choose(seen.jobs)
        stale = [job for job in chosen if read.get(job.job_id, ("",))[0] is not job.state]
        if not stale:
            return seen, [(job, read[job.job_id][1]) for job in chosen]
        for job in stale:
            read[job.job_id] = job.state, progress_of(plane, job)


def progress_of(plane: Plane, job: Job) -> Progress:
    """Return how far the job is by its metrics."""
    meter = ProgressMeter(total_steps(job))
    meter.feed(LineTail(plane.settings.runs / job.job_id / rundir.METRICS_FILE).lines())
    return meter.now()


def total_steps(job: Job) -> int:
    """Return how many training steps the job is to do; 0 when only its program knows."""
    return job.spec.recipe.training.steps if job.spec.recipe else 0


def waits_json(job: Job) -> list[dict[str, Any]]:
    """Return what tasks wait for in the queues of their sites, each site once."""
    tasks = job.attempt.tasks.values() if job.attempt else ()
    waits = {task.placement.site: task for task in tasks if task.waits and task.outcome is None}
    return [
        {"site": site, "sentence": task.waits, "expected_s": task.expected_s or None}
        for site, task in waits.items()
    ]


def job_json(job: Job, progress: Progress, now_s: float) -> dict[str, Any]:
    """Return the job as `ps --json` and `status --json` print it."""
    placement = job.attempts[-1].placement if job.attempts else None
    holding = job.state in HOLDING
    now = up_to_now(job, now_s)
    return {
        "job": job.job_id,
        "name": job.spec.name,
        "state": job.state.value,
        "reason": reason_json(job.reason),
        "priority": job.spec.priority,
        "queue": job.spec.queue,
        "user": job.spec.user,
        "submitted_s": job.submitted_s,
        "attempt": len(job.attempts),
        "sites": dict(placement.site_ranks()) if placement and holding else {},
        "waits": waits_json(job),
        "accelerator": (placement.option if placement else job.spec.options[0]).accelerator,
        "step": max(progress.step, job.attempts[-1].last_step if job.attempts else 0),
        "steps": progress.steps or None,
        "loss": progress.loss,
        "tokens_per_s": progress.tokens_per_s if holding else None,
        "eta_s": progress.eta_s if holding else None,
        "checkpoint_step": job.checkpoint_step,
        "run_s": now.run_s,
        "cost": now.cost,
    }


def up_to_now(job: Job, now_s: float) -> Job:
    """Return the job with the time and the cost of its present attempt added to its own."""
    if job.attempt is None:
        return job
    run_s, cost = used(job, max(now_s, job.attempt.started_s))  # our clock may lag behind
    return msgspec.structs.replace(job, run_s=run_s, cost=cost)


def reason_json(reason: Reason | None) -> dict[str, Any] | None:
    """Return a reason with what each domain lacked."""
    if reason is None:
        return None
    return {
        "code": reason.code.value,
        "sentence": reason.sentence,
        "remedy": reason.remedy,
        "domains": [
            {
                "domain": refusal.domain,
                "code": refusal.code.value,
                "sentence": refusal.sentence,
                "wanted": refusal.wanted,
                "found": refusal.found,
            }
            for refusal in reason.refusals
        ],
    }


def where_and_since(job: Job, now_s: float) -> str:
    """Return the job's state as a sentence; while it holds devices, with where and since when."""
    said = f"{job.job_id} is {job.state.value}"
    if job.attempt is None:
        return said
    where = ", ".join(
        f"{task.domain} ({len(task.devices)} {job.attempt.placement.option.accelerator})"
        for task in job.attempt.placement.tasks
    )
    since = datetime.fromtimestamp(job.attempt.started_s, UTC)
    ago = format_duration(max(0.0, now_s - job.attempt.started_s))
    return (
        f"{said} on {where}: attempt {job.attempt.number}, placed at "
        f"{since:%Y-%m-%d %H:%M:%S} UTC, {ago} ago"
    )


def absences(job: Job) -> list[str]:
    """Return a sentence for each site that the job has lost and that is to come back."""
    absent = job.attempt.absent if job.attempt else {}
    return [
        f"site {site} is away and is to come back: {absence.outcome.sentence}"
        for site, absence in sorted(absent.items())
    ]


def step_text(progress: Progress) -> str:
    """Return the training step, of how many."""
    if not progress.step:
        return "-"
    return f"{progress.step}/{progress.steps}" if progress.steps else str(progress.step)


def speed_text(progress: Progress) -> str:
    """Return the speed."""
    return format_count(progress.tokens_per_s) if progress.tokens_per_s else "-"


def left_text(progress: Progress) -> str:
    """Return the time to the last training step."""
    return format_duration(progress.eta_s) if progress.eta_s is not None else "-"
