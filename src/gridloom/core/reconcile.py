"""Wanted versus seen: leases, endings of tasks and attempts, stops, and what time alone does."""

import math
from collections.abc import Mapping

from gridloom.core import budget, verdict
from gridloom.core.order import holding, queued
from gridloom.core.state import State, live_tasks, move, tasks_of
from gridloom.core.turn import LeaseTerms, Turn
from gridloom.model.action import CloseJob, RenewLease, StopTask
from gridloom.model.life import OVER, Job, JobState, Outcome, Task, TaskState
from gridloom.model.reason import Reason, Why


def heard(turn: Turn, job: Job, task: Task) -> None:
    """Take in that a live task runs, and let it run on, if it may.

    A task deemed dead is not revived, and one whose grace is over is not kept: its lease then
    lapses, so that every stop comes to an end.
    """
    if turn.now >= _dead_s(task, turn.terms):
        return
    attempt = job.attempts[-1]
    task.state = TaskState.RUNNING
    if job.state is JobState.STARTING and not any(
        other.state is TaskState.STARTING for other in tasks_of(attempt)
    ):
        move(job, JobState.RUNNING)
    if attempt.stop_sent and turn.now >= attempt.grace_until_s:
        return
    task.lease_until_s = turn.now + turn.terms.lease_s
    turn.actions.append(
        RenewLease(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            domain=task.placement.domain,
            lease_until_s=task.lease_until_s,
        )
    )


def stop(turn: Turn, job: Job, reason: Reason, grace_s: float) -> None:
    """Tell the live tasks to stop; a second time only to kill them after a gentler stop."""
    attempt = job.attempts[-1]
    kill = grace_s <= 0
    if attempt.killed or (attempt.stop_sent and not kill):
        return
    attempt.stop_sent, attempt.killed = True, kill
    attempt.grace_until_s = turn.now + grace_s
    turn.actions.extend(
        StopTask(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            domain=task.placement.domain,
            grace_s=grace_s,
            reason=reason,
        )
        for task in live_tasks(attempt)
    )
    if job.state is not JobState.STOPPING:
        move(job, JobState.STOPPING)


def end_tasks(turn: Turn, job: Job, outcomes: Mapping[str, Outcome]) -> None:
    """Take in that live tasks ended, by domain; close the attempt when no task is left.

    A gang is whole or nothing: the first task that fails takes the others with it, unless they
    were told to stop already and are saving their state.
    """
    attempt = job.attempts[-1]
    for domain, outcome in outcomes.items():
        attempt.tasks[domain].state = TaskState.ENDED
        attempt.tasks[domain].outcome = outcome
    if not live_tasks(attempt):
        _close_attempt(turn, job)
        return
    for domain, outcome in outcomes.items():
        if outcome.code is not Why.COMPLETED and not attempt.stop_sent:
            sentence = f"{domain} ended, and the others with it: {outcome.sentence}"
            stop(turn, job, Reason(code=Why.PEER_LOST, sentence=sentence), grace_s=0.0)


def close_job(turn: Turn, job: Job, state: JobState, reason: Reason | None) -> None:
    """Let the job enter ``state``, over or queued anew, and say so when it is over."""
    move(job, state)
    job.wanted, job.wanted_reason, job.reason = "", None, reason
    if state in OVER:
        turn.actions.append(CloseJob(job_id=job.job_id, state=state))


def fire_timers(turn: Turn) -> None:
    """Do what is due: tasks that were silent for too long, and budgets that are spent."""
    for job in holding(turn.state.jobs.values()):
        if lapsed := _lapsed(turn, job):
            end_tasks(turn, job, lapsed)
    for job in holding(turn.state.jobs.values()):
        if _may_spend_out(job) and budget.is_spent(job, turn.now):
            job.wanted, job.wanted_reason = "stop", _spent(turn, job)
            stop(turn, job, job.wanted_reason, job.spec.grace_s)
    for job in queued(turn.state.jobs.values()):
        if budget.is_spent(job, turn.now):
            close_job(turn, job, JobState.STOPPED, _spent(turn, job))


def next_timer_s(state: State, terms: LeaseTerms) -> float | None:
    """Return when something is due even if nothing happens; nothing when nothing will be."""
    due_s = [job.not_before_s for job in queued(state.jobs.values())]
    due_s = [at_s for at_s in due_s if at_s > state.now_s]
    for job in holding(state.jobs.values()):
        due_s.extend(_dead_s(task, terms) for task in live_tasks(job.attempts[-1]))
        if _may_spend_out(job):
            due_s.append(budget.due_s(job))
    first_s = min(due_s, default=math.inf)
    return first_s if first_s < math.inf else None


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
    if job.state is not JobState.STOPPING:
        move(job, JobState.STOPPING)
    job.run_s, job.cost = budget.used(job, turn.now)
    attempt.ended_s = turn.now
    attempt.outcome = verdict.cause(attempt)
    decided = verdict.judge(job, attempt.outcome)
    reason = decided.reason
    if decided.retry:
        job.restarts += 1
        wait_s = verdict.backoff_s(job, turn.rng)
        job.not_before_s = turn.now + wait_s
        reason = verdict.backing_off(job, attempt.outcome, wait_s)
    elif decided.state is JobState.QUEUED:
        job.restarts, job.not_before_s = 0, turn.now
    close_job(turn, job, decided.state, reason)
