"""Which nodes failed job after job for no fault of theirs; in the end such a node is tainted."""

from collections.abc import Iterable

from gridloom.core.state import Mark, stands_on
from gridloom.core.turn import Turn
from gridloom.model.life import Job, Task
from gridloom.model.reason import Why

_NODES_FAULT = frozenset({Why.SUPERVISOR_LOST, Why.LEASE_LAPSED, Why.NODE_LOST, Why.REFUSED})
"""Causes that speak against the node, if job after job ends by them."""


def blame(turn: Turn, job: Job, tasks: Iterable[Task]) -> None:
    """Count the jobs in a row that failed on a node; taint it when there are too many.

    Args:
        turn: Of this step.
        job: Whose tasks have ended.
        tasks: Those tasks.
    """
    state, policy = turn.state, turn.index.policy
    tainted = False
    before = set(state.failures)
    for task in tasks:
        domain = stands_on(task)
        assert task.outcome is not None
        # What still waited in its site's own queue has been on no node
        if task.outcome.code not in _NODES_FAULT or task.waits:
            continue
        failed = state.failures.setdefault(domain, [])
        if job.job_id not in failed:
            failed.append(job.job_id)
        if 0 < policy.failures_max <= len(failed) and domain not in state.marks:
            sentence = (
                f"{len(failed)} jobs in a row failed there, the last: {task.outcome.sentence}"
            )
            state.marks[domain] = Mark(
                mark="taint", sentence=sentence, since_s=turn.now, by_core=True
            )
            del state.failures[domain]
            tainted = True
    if tainted:
        turn.index.reopen()
    if before != set(state.failures):
        turn.index.suspect()


def acquit(turn: Turn, tasks: Iterable[Task]) -> None:
    """Forget the failures of nodes on which a job has now ended well."""
    failures = turn.state.failures
    if not failures:
        return
    freed = [failures.pop(stands_on(task), None) for task in tasks]
    if any(failed is not None for failed in freed):
        turn.index.suspect()
