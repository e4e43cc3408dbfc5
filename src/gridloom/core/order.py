"""Who is next: a total order over jobs."""

from collections.abc import Iterable

from gridloom.model.life import HOLDING, Job, JobState


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return ``jobs`` by priority, highest first, then by submission, then by id."""
    return sorted(jobs, key=lambda job: (-job.spec.priority, job.submitted_s, job.job_id))


def holding(jobs: Iterable[Job]) -> list[Job]:
    """Return, in order, the jobs that hold devices."""
    return in_order(job for job in jobs if job.state in HOLDING)


def queued(jobs: Iterable[Job]) -> list[Job]:
    """Return, in order, the jobs that wait, for devices or for their back-off to end."""
    return in_order(job for job in jobs if job.state is JobState.QUEUED)


def ready(jobs: Iterable[Job], now: float) -> list[Job]:
    """Return, in order, the jobs that wait for devices.

    A job that is backing off is not among them, so it keeps no devices from later jobs: they would
    idle for up to a minute on a guess. It keeps its place, and is first again when it is ready.
    """
    return in_order(job for job in jobs if job.state is JobState.QUEUED and job.not_before_s <= now)
