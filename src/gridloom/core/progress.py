"""How far a job is, and when it is predicted to end."""

import math

from gridloom.model.life import Attempt, Job
from gridloom.model.spec import Option

_CAUTION = 1.2816
"""Standard deviations to the 90th percentile of the normal distribution."""

_OVERRUN = 1.1
"""A job that runs beyond its prediction is taken to need a tenth more than it has run."""


def speed(job: Job, option: Option, step_s: float) -> float:
    """Return how fast a placement is against the forecast, which is made for the first option."""
    first = job.spec.options[0]
    usual_s = first.step_s
    if not usual_s and first.speeds:
        usual_s = min([speed.step_s for speed in first.speeds])
    if usual_s and step_s:
        return usual_s / step_s
    return option.plan.world_size / first.plan.world_size if job.spec.elastic else 1.0


def is_limited(job: Job) -> bool:
    """Return whether the job has a budget, which time may spend."""
    budget = job.spec.budget
    return budget.run_s_max > 0 or budget.cost_max > 0


def remaining_s(job: Job) -> float:
    """Return the seconds of training, at the forecast's speed, that its checkpoint leaves to do."""
    duration_s = job.spec.forecast.duration_s
    return max(duration_s - job.kept_s, 0.0) if duration_s else math.inf


def caution(job: Job) -> float:
    """Return by how much a prediction is stretched so that nine of ten jobs keep it."""
    spread = job.spec.forecast.spread
    return math.exp(_CAUTION * spread) if spread else 1.0


def run_s(job: Job, option: Option, step_s: float) -> float:
    """Return how long an attempt that starts now would run, with caution; infinity: unknown."""
    left_s = remaining_s(job) * caution(job) / speed(job, option, step_s)
    return left_s + (job.spec.forecast.restart_s if job.attempts else 0.0)


def end_s(job: Job, attempt: Attempt) -> float:
    """Return when a running attempt is predicted to end, with caution; infinity: unknown."""
    placement = attempt.placement
    left_s = remaining_s_at_start(job, attempt) * caution(job)
    left_s /= speed(job, placement.option, placement.step_s)
    restart_s = job.spec.forecast.restart_s if attempt.resumed else 0.0
    predicted_s = attempt.begun_s + restart_s + left_s
    return min(predicted_s, attempt.grace_until_s) if attempt.stop_sent else predicted_s


def overrun_end_s(attempt: Attempt, now: float) -> float:
    """Return when an attempt that has outlived its prediction is taken to end."""
    return attempt.started_s + _OVERRUN * (now - attempt.started_s)


def remaining_s_at_start(job: Job, attempt: Attempt) -> float:
    """Return what was left to do, at the forecast's speed, when the attempt started."""
    duration_s = job.spec.forecast.duration_s
    return max(duration_s - attempt.kept_s, 0.0) if duration_s else math.inf


def left_s(job: Job, now: float) -> float:
    """Return what the present attempt has still to do, at the forecast's speed, whatever is saved.

    It is counted from what the attempt began with: a checkpoint saved since is a part of what the
    attempt has done.
    """
    attempt = job.attempts[-1]
    done = done_s(job, attempt, now) - attempt.kept_s
    return max(remaining_s_at_start(job, attempt) - done, 0.0)


def done_s(job: Job, attempt: Attempt, now: float) -> float:
    """Return the seconds of training, at the forecast's speed, that the job has done by now."""
    began_s = attempt.ready_s or now
    restart_s = job.spec.forecast.restart_s if attempt.resumed and not attempt.ready_s else 0.0
    ran_s = max(now - began_s - restart_s, 0.0)
    placement = attempt.placement
    return attempt.kept_s + ran_s * speed(job, placement.option, placement.step_s)
