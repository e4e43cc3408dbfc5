"""Bounded waits: as long as all goes as predicted, nobody starts later than was promised."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gridloom.core import order
from gridloom.core.bucket import Bucket
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.model.action import AnyAction, RenewLease, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    JobSubmitted,
    StepReported,
    TaskArrived,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.life import HOLDING, Job, JobState
from gridloom.model.policy import Policy
from gridloom.model.reason import Why

_CALM = (TaskArrived, TaskRunning, TaskReady, StepReported, CheckpointSaved)
"""Facts that change no prediction."""

_ROUNDING_S = 1e-6


class Promises:
    """The promised starts, as long as nothing has happened that nobody foresaw.

    The law is for one queue without quotas in the order of submission, without bookings or
    evictions: elsewhere a promise gives way to whoever has the better right.
    """

    def __init__(self) -> None:
        self._promised: dict[str, float] = {}
        self._first_end_s = math.inf

    def observe(
        self, machine: Machine, events: Sequence[AnyEvent], actions: Sequence[AnyAction]
    ) -> Iterator[str]:
        """Yield who was promised a start and starts later, or is to."""
        state, before = machine.state, self._promised
        if not _applies(machine):
            self._promised = {}
            return
        if all(isinstance(event, _CALM) for event in events) and all(
            isinstance(action, RenewLease) for action in actions
        ):
            return  # and no cycle has looked at anybody, or has changed its mind
        heads = [job for bucket in machine.index.buckets.values() for _, job in _head(bucket)]
        in_time = state.now_s <= self._first_end_s + _ROUNDING_S
        foreseen = in_time and _foreseen(machine, events, actions, before)
        if foreseen and not any(map(_comes_back, heads)):
            yield from _late(state, before, actions)
        self._first_end_s = min((end_s for end_s, _ in machine.index.ends), default=math.inf)
        self._promised = {
            job.job_id: job.promised_s for job in heads if job.promised_s >= state.now_s
        }


def _applies(machine: Machine) -> bool:
    state, policy = machine.state, machine.index.policy
    return (
        policy.blocked in {"easy", "conservative"}
        and policy.order == "submit"
        and not (machine.index.queues or state.bookings or state.marks)
        and not any(machine.index.capacity.keepers())
    )


def _foreseen(
    machine: Machine,
    events: Sequence[AnyEvent],
    actions: Sequence[AnyAction],
    promised: Mapping[str, float],
) -> bool:
    """Return whether nothing has happened that takes somebody's place."""
    state, policy = machine.state, machine.index.policy
    for event in events:
        if isinstance(event, TaskEnded):
            if event.outcome.code is not Why.COMPLETED:
                return False
        elif isinstance(event, JobSubmitted):
            if event.job_id in state.jobs and any(
                _first(state.jobs[event.job_id], state.jobs[other], policy)
                for other in promised
                if other in state.jobs
            ):
                return False
        elif not isinstance(event, _CALM):
            return False
    for action in actions:
        if isinstance(action, StopTask):
            return False
        if isinstance(action, StartAttempt) and _comes_back(state.jobs[action.job_id]):
            return False
    return not _overran(machine)


def _late(
    state: State, promised: Mapping[str, float], actions: Sequence[AnyAction]
) -> Iterator[str]:
    for job_id, start_s in promised.items():
        job = state.jobs.get(job_id)
        if job is not None and job.state is JobState.QUEUED:
            now_s = max(job.promised_s, state.now_s)
            if now_s > start_s + _ROUNDING_S:
                yield f"{job_id}, from {start_s:g} to {now_s:g}"
    for action in actions:
        start_s = promised.get(action.job_id, math.inf)
        if isinstance(action, StartAttempt) and state.now_s > start_s + _ROUNDING_S:
            yield f"{action.job_id}, at {state.now_s:g} and not at {start_s:g}"


def _head(bucket: Bucket) -> list[tuple[order.Key, Job]]:
    head = bucket.head()
    return [] if head is None else [head]


def _comes_back(job: Job) -> bool:
    """Return whether a job may come before others that were submitted later but waited before."""
    before = job.attempts[:-1] if job.state in HOLDING else job.attempts
    return bool(before or job.spec.after)


def _first(job: Job, other: Job, policy: Policy) -> bool:
    """Return whether a job comes before another one."""
    return order.key(job, policy, 0.0) < order.key(other, policy, 0.0)


def _overran(machine: Machine) -> bool:
    """Return whether somebody who runs has outlived the prediction, or nobody knows its end."""
    ends = machine.index.ends
    known = len(ends) == len(machine.index.holdings)
    return not known or (bool(ends) and ends[0][0] < machine.state.now_s)
