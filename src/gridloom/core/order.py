"""Who is next: a total order over jobs."""

import re
from collections.abc import Iterable
from typing import assert_never

from gridloom.core.progress import remaining_s
from gridloom.model.life import HOLDING, Job, JobState
from gridloom.model.policy import Policy

Key = tuple[float, float, float, str, str]
"""What jobs are sorted by; the id decides last."""

_HOUR_S = 3600.0
_DIGITS = re.compile(r"\d+")
_NEVER_S = float("inf")


def key(job: Job, policy: Policy, now: float) -> Key:
    """Return the place of a job among those of its queue; the least is first.

    Priority comes before all else. A job gains ``ageing_per_hour`` on those that are submitted an
    hour later; as all age alike, that is a bonus for an early submission which never changes.
    """
    early = policy.ageing_per_hour * job.submitted_s / _HOUR_S
    first = early - job.spec.priority
    return first, value(job, policy, now), job.submitted_s, _natural(job.job_id), job.job_id


def _natural(job_id: str) -> str:
    """Return what ids are compared by: numbers in them by size, as those of an array."""
    if job_id.isdecimal():
        return job_id.zfill(12)
    return _DIGITS.sub(lambda found: found.group().zfill(12), job_id)


def value(job: Job, policy: Policy, now: float) -> float:
    """Return by what the policy orders jobs of one priority; the least is first."""
    match policy.order:
        case "submit" | "share":
            return 0.0
        case "duration":
            return job.spec.forecast.duration_s or _NEVER_S
        case "remaining":
            return remaining_s(job)
        case "attained":
            return float(sum(job.device_s >= step_s for step_s in policy.attained_steps_s))
        case "deadline":
            return job.spec.deadline_s if keeps_deadline(job, now) else _NEVER_S
        case _:
            assert_never(policy.order)


def keeps_deadline(job: Job, now: float) -> bool:
    """Return whether a waiting job has a deadline that it could still keep."""
    return 0 < job.spec.deadline_s >= now + latest_start_margin_s(job)


def latest_start_margin_s(job: Job) -> float:
    """Return how long before its deadline the job must start; 0 when nobody knows."""
    left_s = remaining_s(job)
    return left_s if left_s < _NEVER_S else 0.0


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return ``jobs`` by priority, highest first, then by submission, then by id as in ``key``."""
    return sorted(
        jobs,
        key=lambda job: (-job.spec.priority, job.submitted_s, _natural(job.job_id), job.job_id),
    )


def holding(jobs: Iterable[Job]) -> list[Job]:
    """Return, in order, the jobs that hold devices."""
    return in_order(job for job in jobs if job.state in HOLDING)


def queued(jobs: Iterable[Job]) -> list[Job]:
    """Return, in order, the jobs that wait, for devices or for something else."""
    return in_order(job for job in jobs if job.state is JobState.QUEUED)
