"""What the end of an attempt means for its job: the cause that is believed, and what follows."""

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from gridloom.base.units import format_duration
from gridloom.model.life import Attempt, Job, JobState, Outcome
from gridloom.model.reason import INFRASTRUCTURE, Reason, Why

PERMANENT = frozenset({Why.CONFIG, Why.IO})
"""Causes that another attempt would only repeat."""

BY_SITE = frozenset({Why.PREEMPTED, Why.TIME_LIMIT})
"""Causes by which a site ends what is well there: it may wait for its turn again, at no cost."""

_ASKED = frozenset({Why.STOP_REQUESTED, Why.CANCEL_REQUESTED, Why.BUDGET_SPENT})
"""Causes that somebody wanted, be it a signal from outside gridloom."""

_TELLING: tuple[frozenset[Why], ...] = (
    PERMANENT,
    INFRASTRUCTURE - {Why.PEER_LOST},
    frozenset({Why.PREEMPTED, Why.OUT_OF_MEMORY}),
    frozenset({Why.EXITED, Why.POISONED}),
    frozenset({Why.PEER_LOST}),
    _ASKED,
)
"""Causes by how much they tell; those of victims come after those of culprits."""

_DOUBLINGS_MAX = 64  # far beyond any sensible back-off, and short of an overflow
_COMPLETED: Final = Why.COMPLETED  # Python 3.11 takes 0.2 us to look a member of an enum up


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a job.

    Attributes:
        state: What it enters.
        reason: Why.
        retry: Whether it is queued at the cost of a restart, to wait for its back-off.
        anew: Whether it is queued with all its restarts before it.
    """

    state: JobState
    reason: Reason | None
    retry: bool = False
    anew: bool = False


def cause(attempt: Attempt) -> Outcome:
    """Return the outcome that tells most about why the attempt ended.

    Among equals the earliest decides, then the lowest rank, then the first domain by name.
    """
    told = [(t.outcome, domain) for domain, t in attempt.tasks.items() if t.outcome is not None]
    # a site that was lost and is not back yet is lost, whatever became of its next life
    told += [(absence.outcome, site) for site, absence in attempt.absent.items()]
    return most_telling(told)


def most_telling(told: Sequence[tuple[Outcome, str]]) -> Outcome:
    """Return the outcome that tells most; each comes with its domain, which decides last."""
    if len(told) == 1:
        return told[0][0]
    return min(told, key=lambda o: (_telling(o[0].code), o[0].ended_s, o[0].rank, o[1]))[0]


def judge(job: Job, why: Outcome) -> Verdict:
    """Return what becomes of ``job`` after an attempt that ended for ``why``."""
    if job.wanted == "cancel":
        return Verdict(state=JobState.CANCELLED, reason=job.wanted_reason)
    if why.code is _COMPLETED:
        return Verdict(state=JobState.SUCCEEDED, reason=_because(why, why.sentence))
    if job.wanted == "stop":
        return Verdict(state=JobState.STOPPED, reason=job.wanted_reason)
    if job.wanted in {"resume", "evict"}:
        return Verdict(state=JobState.QUEUED, reason=None, anew=job.wanted == "resume")
    if why.code in BY_SITE and (why.code is Why.PREEMPTED or _has_saved(job.attempts[-1])):
        return Verdict(state=JobState.QUEUED, reason=None)
    if why.code in _ASKED:
        return Verdict(state=JobState.STOPPED, reason=_because(why, why.sentence))
    return _after_failure(job, why)


def backoff_s(job: Job, rng: random.Random) -> float:
    """Return how long to wait before the restart that ``job.restarts`` counts already.

    A tenth more or less keeps jobs that failed together from coming back together.
    """
    retry = job.spec.retry
    doubled_s = retry.backoff_s * 2.0 ** min(job.restarts - 1, _DOUBLINGS_MAX)
    return min(min(doubled_s, retry.backoff_s_max) * rng.uniform(0.9, 1.1), retry.backoff_s_max)


def backing_off(job: Job, why: Outcome, wait_s: float) -> Reason:
    """Return why a job waits that will be tried again."""
    following = len(job.attempts) + 1
    return Reason(
        code=Why.BACKING_OFF,
        sentence=f"waits {format_duration(wait_s)} before attempt {following},"
        f" as attempt {following - 1} ended: {why.sentence}",
    )


def _has_saved(attempt: Attempt) -> bool:
    """Return whether an attempt has got any further: as many time limits as it takes may pass."""
    return attempt.checkpoint_step > attempt.resumed_step


def _after_failure(job: Job, why: Outcome) -> Verdict:
    retry = job.spec.retry
    number = len(job.attempts)
    if why.code in INFRASTRUCTURE or (why.code not in PERMANENT and retry.on == "any"):
        if job.restarts < retry.max_restarts:
            return Verdict(state=JobState.QUEUED, reason=None, retry=True)
        tries = f"{job.restarts + 1} attempts" if job.restarts else "1 attempt"
        if any(task.life > 1 for one in job.attempts[-1:] for task in one.tasks.values()):
            tries = f"{job.restarts} restarts"
        return Verdict(
            state=JobState.FAILED,
            reason=_because(why, f"gave up after {tries}; the last ended: {why.sentence}"),
        )
    return Verdict(
        state=JobState.FAILED, reason=_because(why, f"attempt {number} ended: {why.sentence}")
    )


def _because(why: Outcome, sentence: str) -> Reason:
    return Reason(code=why.code, sentence=sentence, remedy=why.remedy)


def _telling(code: Why) -> int:
    """Return the position of ``code`` in the order of telling; what it does not list comes last."""
    for position, codes in enumerate(_TELLING):
        if code in codes:
            return position
    return len(_TELLING)
