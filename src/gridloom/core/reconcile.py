"""Wanted versus seen: leases, endings of tasks and attempts, stops, and what time alone does."""

import heapq
import math
from collections.abc import Mapping
from typing import Final

from gridloom.core import budget, comeback, verdict
from gridloom.core.blame import acquit, blame
from gridloom.core.index import Index
from gridloom.core.order import in_order
from gridloom.core.state import all_ended, live_tasks, tasks_of
from gridloom.core.turn import LeaseTerms, Turn, stop_tasks
from gridloom.model.action import CloseJob, RenewLease
from gridloom.model.life import (
    HOLDING,
    OVER,
    Attempt,
    Job,
    JobState,
    Outcome,
    Placement,
    Task,
    TaskState,
)
from gridloom.model.quota import Queue
from gridloom.model.reason import Reason, Why

_SLACK_S = 60.0
"""How long places are kept for a job once all must be gone who were told to leave for it."""

_PLACE_LOST = frozenset({Why.NODE_LOST, Why.LEASE_LAPSED})
"""Causes by which a gang loses a place that may come back."""

# Python 3.11 takes 0.2 us to look a member of an enum up, and these are on everybody's way
_QUEUED: Final = JobState.QUEUED
_STARTING: Final = JobState.STARTING
_STOPPING: Final = JobState.STOPPING
_AWAITED: Final = TaskState.STARTING
_HEARD: Final = TaskState.RUNNING
_ENDED: Final = TaskState.ENDED
_COMPLETED: Final = Why.COMPLETED


def heard(turn: Turn, job: Job, task: Task) -> None:
    """Take in that a live task runs, and let it run on, if it may; a task deemed dead is not."""
    if is_dead(turn, task):
        return
    task.state = _HEARD
    if task.waits:
        unqueue(turn, job, task)
    if job.state is _STARTING and not _is_awaited(job.attempts[-1]):
        turn.index.move(job, JobState.RUNNING)
    keep(turn, job, task)


def unqueue(turn: Turn, job: Job, task: Task) -> None:
    """Take in that a task has left its site's queue; the attempt has devices from the first on."""
    attempt = job.attempts[-1]
    is_first = attempt.is_queued
    task.waits, task.expected_s = "", 0.0
    if is_first:
        attempt.queued_until_s = turn.now
        _begin_to_hold(turn, job, attempt)
        turn.index.retime(job)
        turn.index.watch(job)


def is_dead(turn: Turn, task: Task) -> bool:
    """Return whether a live task was silent for so long that it is deemed dead."""
    return turn.now >= _dead_s(task, turn.terms)


def keep(turn: Turn, job: Job, task: Task) -> None:
    """Renew the lease of a task that has given a sign of life.

    One whose grace is over is not kept: its lease lapses, so that every stop comes to an end.
    """
    attempt = job.attempts[-1]
    if attempt.stop_sent and turn.now >= attempt.grace_until_s:
        return
    if attempt.absent and comeback.is_dying(attempt, task):
        return
    task.lease_until_s = turn.lease_until_s(task.placement.site)
    turn.actions.append(
        RenewLease(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            domain=task.placement.domain,
            lease_until_s=task.lease_until_s,
            life=task.life,
        )
    )


def _is_awaited(attempt: Attempt) -> bool:
    """Return whether a task has not been heard from yet."""
    return _AWAITED in [task.state for task in attempt.tasks.values()]


def stop(turn: Turn, job: Job, reason: Reason, grace_s: float) -> None:
    """Tell the live tasks to stop; a second time only to kill them after a gentler stop."""
    attempt = job.attempts[-1]
    kill = grace_s <= 0
    if attempt.killed or (attempt.stop_sent and not kill):
        return
    attempt.stop_sent, attempt.killed = True, kill
    attempt.grace_until_s = turn.now + grace_s
    turn.index.retime(job)
    stop_tasks(turn, job, live_tasks(attempt), grace_s, reason)
    if job.state is not _STOPPING:
        turn.index.move(job, _STOPPING)


def end_tasks(turn: Turn, job: Job, outcomes: Mapping[str, Outcome]) -> None:
    """Take in that live tasks ended, by domain; close the attempt when no task is left.

    A gang is whole or nothing: the first task that fails takes the others with it, unless they
    were told to stop already and are saving their state, or its site may come back to them alone.
    """
    attempt = job.attempts[-1]
    for domain, outcome in outcomes.items():
        attempt.tasks[domain].state = _ENDED
        attempt.tasks[domain].outcome = outcome
    if attempt.absent:
        comeback.settle(attempt)
    if all_ended(attempt):
        _close_attempt(turn, job)
        return
    if attempt.stop_sent:
        return
    lost = [domain for domain, outcome in outcomes.items() if _is_lost(attempt, domain, outcome)]
    sentence = ""
    if lost and not comeback.goes_on(turn, job, lost):
        why = comeback.cause_of(attempt, lost[0]).sentence
        sentence = f"{lost[0]} ended, and the others with it: {why}"
    elif attempt.absent and (sites := comeback.is_alone(attempt)):
        sentence = f"the other sites have trained to the end, and {sites} was not back"
    if sentence:
        stop(turn, job, Reason(code=Why.PEER_LOST, sentence=sentence), grace_s=0.0)


def _is_lost(attempt: Attempt, domain: str, outcome: Outcome) -> bool:
    """Return whether what a task has done is not done: of a lost site all is lost with it."""
    return outcome.code is not _COMPLETED or comeback.is_dying(attempt, attempt.tasks[domain])


def close_job(turn: Turn, job: Job, state: JobState, reason: Reason | None) -> None:
    """Let the job enter ``state``, over or queued anew, and say so when it is over."""
    index = turn.index
    followers = index.followers(job)
    index.move(job, state)
    job.wanted, job.wanted_reason, job.reason = "", None, reason
    if state in OVER:
        index.unreserve(job)
        index.spare(job, ())
        turn.actions.append(CloseJob(job_id=job.job_id, state=state))
        for follower in followers:
            if follower.state is _QUEUED and (never := doomed(turn, follower)):
                close_job(turn, follower, JobState.FAILED, never)
        if turn.terms.forget_over:
            del turn.state.jobs[job.job_id]


def doomed(turn: Turn, job: Job) -> Reason | None:
    """Return why a queued job can never start, if a job that it was to follow ended otherwise."""
    for need in job.spec.after:
        other = turn.state.jobs.get(need.job_id)
        if other is None:
            continue
        failed = other.state in {JobState.FAILED, JobState.CANCELLED}
        if (need.kind == "afterok" and failed) or (
            need.kind == "afternotok" and other.state is JobState.SUCCEEDED
        ):
            wanted = "to succeed" if need.kind == "afterok" else "to fail"
            return Reason(
                code=Why.DEPENDENCY_FAILED,
                sentence=f"was to start after {other.job_id}, which had {wanted} and {other.state}",
                remedy="submit it again without that condition",
            )
    return None


def evict(turn: Turn, job: Job, reason: Reason) -> None:
    """Let a job save its state and leave its devices, to go on when its turn comes again.

    It keeps its place in the queue and its restarts. One that is stopping anyway is left alone.
    """
    if job.state not in {_STARTING, JobState.RUNNING}:
        return
    job.wanted, job.wanted_reason = "evict", reason
    job.evictions += 1
    job.evicted_s = turn.now
    stop(turn, job, reason, job.spec.grace_s)


def reserve(turn: Turn, job: Job, places: Placement, grace_s: float) -> None:
    """Keep places for a job until those who were told to leave them must be gone, and a while more.

    Args:
        turn: Of this step.
        job: The job.
        places: Where it will start.
        grace_s: The longest grace of those who leave.
    """
    turn.index.reserve(job, places, turn.now + grace_s + turn.terms.kill_margin_s + _SLACK_S)


def fire_timers(turn: Turn) -> None:
    """Do what is due: tasks that were silent for too long, budgets that are spent, waits over."""
    index, due = turn.index, turn.index.due()
    index.next_again_s(turn.now)
    if not due or due[0][0] > turn.now:
        return
    looked: dict[str, Job] = {}
    while due and due[0][0] <= turn.now:
        job_id = heapq.heappop(due)[1]
        if (job := turn.state.jobs.get(job_id)) is not None:
            looked[job_id] = job
    jobs = in_order(looked.values())
    for job in jobs:
        if job.state in HOLDING and (lapsed := _lapsed(turn, job)):
            end_tasks(turn, job, lapsed)
    for job in jobs:
        _look_at(turn, job)
        at_s = _due_s(job, turn.terms, turn.now)
        if at_s < math.inf:
            index.watch(job, at_s)


def _look_at(turn: Turn, job: Job) -> None:
    """Do what time alone has brought about for one job."""
    if job.state is _QUEUED and budget.is_spent(job, turn.now):
        close_job(turn, job, JobState.STOPPED, _spent(turn, job))
    elif job.state in HOLDING and _may_spend_out(job) and budget.is_spent(job, turn.now):
        job.wanted, job.wanted_reason = "stop", _spent(turn, job)
        stop(turn, job, job.wanted_reason, job.spec.grace_s)
    if job.reservation is not None and job.reserved_until_s <= turn.now:
        turn.index.unreserve(job)
    if job.attempt is not None and comeback.due_s(job.attempt) <= turn.now:
        cannot = comeback.start_due(turn, job)
        if cannot is not None:  # the others save what they have, for the attempt that follows
            stop(turn, job, cannot, job.spec.grace_s)
    turn.index.requeue(job)


def next_timer_s(index: Index, terms: LeaseTerms, until_s: float = math.inf) -> float | None:
    """Return when something is due even if nothing happens; nothing when nothing will be.

    Args:
        index: What the core knows.
        terms: How long leases last.
        until_s: Something that is due later need not be told.
    """
    due, state = index.due(), index.state
    first_s = index.next_again_s(state.now_s)
    while due:
        at_s, job_id = due[0]
        if at_s > until_s and job_id in index.holdings:
            break  # no job is looked at before it is due; those that have ended are let go of
        job = state.jobs.get(job_id)
        true_s = _due_s(job, terms, state.now_s) if job is not None else math.inf
        if true_s == at_s:
            first_s = min(first_s, at_s)
            break
        heapq.heappop(due)
        if true_s < math.inf:
            heapq.heappush(due, (true_s, job_id))
    return first_s if first_s <= until_s and first_s < math.inf else None


def _due_s(job: Job, terms: LeaseTerms, now: float) -> float:
    """Return when the job must be looked at even if nothing happens to it; infinity for never."""
    due_s = job.reserved_until_s if job.reservation is not None else math.inf
    if job.state is _QUEUED:
        return min(due_s, job.not_before_s) if job.not_before_s > now else due_s
    if job.state in HOLDING:
        for task in job.attempts[-1].tasks.values():
            if task.state is not _ENDED and due_s > (dead_s := _dead_s(task, terms)):
                due_s = dead_s
        due_s = min(due_s, comeback.due_s(job.attempts[-1]))
        if _may_spend_out(job):
            due_s = min(due_s, budget.due_s(job))
    return due_s


def _dead_s(task: Task, terms: LeaseTerms) -> float:
    return task.lease_until_s + terms.kill_margin_s


def _lapsed(turn: Turn, job: Job) -> dict[str, Outcome]:
    return {
        task.placement.domain: Outcome(
            code=Why.LEASE_LAPSED,
            sentence=f"{task.placement.domain} was not heard from until its lease had lapsed"
            f" and {turn.terms.kill_margin_s:g} s more had passed",
            remedy="see whether the node, its agent and the network between are well",
            ended_s=turn.now,
        )
        for task in live_tasks(job.attempts[-1])
        if turn.now >= _dead_s(task, turn.terms)
    }


def _may_spend_out(job: Job) -> bool:
    return job.wanted not in {"stop", "cancel"}


def _spent(turn: Turn, job: Job) -> Reason:
    inventory = turn.state.inventory
    return budget.reason(job, turn.now, inventory.currency if inventory else "")


def _close_attempt(turn: Turn, job: Job) -> None:
    """Account for the attempt whose tasks have all ended, and decide what becomes of the job."""
    attempt = job.attempts[-1]
    if job.state is not _STOPPING:
        turn.index.move(job, _STOPPING)
    job.run_s, job.cost = budget.used(job, turn.now)
    job.device_s += attempt.placement.option.devices * attempt.held_s(turn.now)
    attempt.ended_s = turn.now
    attempt.outcome = verdict.cause(attempt)
    comeback.forgo(job)
    decided = verdict.judge(job, attempt.outcome)
    _settle(turn, job, attempt)
    _note_ends(turn, job, attempt)
    reason = decided.reason
    job.not_before_s = turn.now
    if decided.retry:
        job.restarts += 1
        wait_s = verdict.backoff_s(job, turn.rng)
        job.not_before_s = turn.now + wait_s
        reason = verdict.backing_off(job, attempt.outcome, wait_s)
    elif decided.anew:
        job.restarts = 0
    wanted = job.wanted_reason
    close_job(turn, job, decided.state, reason)
    if decided.state is _QUEUED:
        _hold_places(turn, job, attempt, wanted)


def _note_ends(turn: Turn, job: Job, attempt: Attempt) -> None:
    """Note what the end of an attempt says of its nodes."""
    assert attempt.outcome is not None
    if attempt.outcome.code is _COMPLETED:
        acquit(turn, tasks_of(attempt))
    else:
        blame(turn, job, tasks_of(attempt))


def _begin_to_hold(turn: Turn, job: Job, attempt: Attempt) -> None:
    """Let the job's queue be charged for what the attempt uses from now on only."""
    name, allowance = job.spec.queue, turn.state.allowance
    if name in allowance.accounts:
        allowance.delay(name, f"{job.job_id}/{attempt.number}", turn.now)


def _settle(turn: Turn, job: Job, attempt: Attempt) -> None:
    if attempt.is_queued:
        _begin_to_hold(turn, job, attempt)
    name, allowance = job.spec.queue, turn.state.allowance
    if name in allowance.accounts:
        queue = turn.index.queues.get(name) or Queue(name=name)
        allowance.settle(queue, f"{job.job_id}/{attempt.number}", turn.now)


def _hold_places(turn: Turn, job: Job, attempt: Attempt, wanted: Reason | None) -> None:
    """Keep the places of a gang that lost one of them, which may soon come back."""
    hold_s = turn.index.policy.slot_hold_s
    assert attempt.outcome is not None
    # who was told to go has left its places to others, but for who was to get off a sick node
    drained = wanted is not None and wanted.code is Why.DRAINED
    lost = drained or (wanted is None and attempt.outcome.code in _PLACE_LOST)
    if not lost:
        turn.index.spare(job, ())
    if not lost or not hold_s or job.reservation is not None:
        return
    capacity = turn.index.capacity
    if capacity.is_unkept(capacity.holding(attempt.placement), job.job_id):
        turn.index.reserve(job, attempt.placement, turn.now + hold_s)
