"""A lost site of a running attempt: started again where it was, while the other sites train on.

Only of a job whose sites go on without one another and give one that comes back their state.
"""

import math
from collections.abc import Iterable
from typing import Final

from gridloom.core import verdict
from gridloom.core.blame import blame
from gridloom.core.state import live_tasks, tasks_of
from gridloom.core.turn import Turn, stop_tasks
from gridloom.model.action import RestartSite
from gridloom.model.life import Absence, Attempt, Job, Outcome, Task, TaskPlacement, TaskState
from gridloom.model.reason import Reason, Why

_RETURNS = frozenset({Why.KILLED, Why.SUPERVISOR_LOST, Why.LEASE_LAPSED})
"""Causes at the site itself. A site that only lost a peer, that refused to start, or whose node is
gone, would fare no better there. One that chooses its nodes itself takes another for a lost one,
and one that has ended its part there, for others or as its time was over, lets it wait again."""

_COMPLETED: Final = Why.COMPLETED


def goes_on(turn: Turn, job: Job, lost: Iterable[str]) -> bool:
    """Return whether the attempt goes on without the sites of tasks that have just been lost.

    Then what is left of these sites is told to die, and once it has, they are to come back.

    Args:
        turn: Of this step.
        job: Whose attempt was not told to stop, and has a live task.
        lost: The tasks, as ``site/node``.
    """
    attempt = job.attempts[-1]
    sites = dict.fromkeys(attempt.tasks[domain].placement.site for domain in lost)
    return all(_lose(turn, job, site) for site in sites)


def start_due(turn: Turn, job: Job) -> Reason | None:
    """Start the lost sites of a running attempt whose time has come; return why one cannot be."""
    attempt = job.attempts[-1]
    for site, absence in sorted(attempt.absent.items()):
        if not absence.due_s or absence.due_s > turn.now:
            continue
        away = _away(turn, _tasks_at(attempt, site))
        if away:
            return Reason(
                code=Why.PEER_LOST,
                sentence=f"site {site} cannot start again where it was, as {away}; "
                f"it was lost as {absence.outcome.sentence}",
            )
        _start(turn, job, site)
    return None


def due_s(attempt: Attempt) -> float:
    """Return when the next lost site is to start again; infinity for never."""
    if attempt.stop_sent or not attempt.absent:
        return math.inf
    return min((one.due_s for one in attempt.absent.values() if one.due_s), default=math.inf)


def back(attempt: Attempt, task: Task, step: int) -> str:
    """Take in that a task of a site that was lost trains again; return a sentence that says so."""
    site = task.placement.site
    if site not in attempt.absent or is_dying(attempt, task):
        return ""
    del attempt.absent[site]
    return f"site {site} is back and goes on from training step {step}"


def settle(attempt: Attempt) -> None:
    """Take in that a site that was lost has done all there was to do, without a word before."""
    for site in sorted(attempt.absent):
        outcomes = [task.outcome for task in _tasks_at(attempt, site)]
        if all(outcome is not None and outcome.code is _COMPLETED for outcome in outcomes):
            del attempt.absent[site]


def forgo(job: Job) -> None:
    """Take back restarts that the attempt, which has ended, will not see any more."""
    for absence in job.attempts[-1].absent.values():
        job.restarts -= bool(absence.due_s) and absence.outcome.code not in verdict.BY_SITE


def is_alone(attempt: Attempt) -> str:
    """Return which lost sites, not back yet, are all that is left of an attempt; empty if not so.

    The others have trained to the end. What these would train by themselves would be another model.
    """
    sites = {task.placement.site for task in live_tasks(attempt)}
    return ", ".join(sorted(sites)) if sites <= attempt.absent.keys() else ""


def is_dying(attempt: Attempt, task: Task) -> bool:
    """Return whether a task was told to die because its site has lost another one."""
    absence = attempt.absent.get(task.placement.site)
    return absence is not None and absence.due_s is None


def cause_of(attempt: Attempt, domain: str) -> Outcome:
    """Return why a task of a running attempt is lost: as it ended, or as its site was lost."""
    task = attempt.tasks[domain]
    assert task.outcome is not None
    if task.outcome.code is _COMPLETED:
        return attempt.absent[task.placement.site].outcome
    return task.outcome


def _lose(turn: Turn, job: Job, site: str) -> bool:
    """Take in that a site has lost tasks; return whether the attempt goes on without it."""
    attempt = job.attempts[-1]
    tasks = _tasks_at(attempt, site)
    why = verdict.most_telling([(t.outcome, t.placement.domain) for t in tasks if t.outcome])
    live = [task for task in tasks if task.outcome is None]
    others = _others(attempt, site)
    if not (others and _may_return(job, why, tasks)):
        return False
    if live:
        if not is_dying(attempt, live[0]):
            sentence = f"{site} is to start again as a whole: {why.sentence}"
            stop_tasks(turn, job, live, 0.0, Reason(code=Why.PEER_LOST, sentence=sentence))
            attempt.absent[site] = Absence(outcome=why)
        return True
    blame(turn, job, tasks)
    if _away(turn, tasks):
        return False
    if why.code in verdict.BY_SITE:
        due_s, how = turn.now, "waits for its turn again"
    else:
        job.restarts += 1
        due_s = turn.now + verdict.backoff_s(job, turn.rng)
        how = f"restarts ({job.restarts} of {job.spec.retry.max_restarts})"
    attempt.absent[site] = Absence(outcome=why, due_s=due_s)
    turn.index.watch(job, due_s)
    said = f"site {site} {how}: {why.sentence}; {_train_on(others)}"
    attempt.notes = (*attempt.notes, said)
    return True


def _may_return(job: Job, why: Outcome, tasks: Iterable[Task]) -> bool:
    """Return whether a site that was lost for ``why`` may come back, if its places are there.

    Args:
        job: The job.
        why: What is known of the cause: while tasks of the site still end, victims may speak first.
        tasks: All tasks of the site.
    """
    retry, code = job.spec.retry, why.code
    if not job.attempts[-1].independent_sites:
        return False
    if code in verdict.BY_SITE:  # as in `verdict`: that costs the job nothing
        return all(task.arrival for task in tasks)
    if job.restarts >= retry.max_restarts:
        return False
    if code is Why.PEER_LOST:
        return any(task.outcome is None for task in tasks)
    if code in _RETURNS or (code is Why.NODE_LOST and all(task.arrival for task in tasks)):
        return True
    return code is Why.EXITED and retry.on == "any"


def _start(turn: Turn, job: Job, site: str) -> None:
    attempt = job.attempts[-1]
    tasks = _tasks_at(attempt, site)
    life = tasks[0].life + 1
    for task in tasks:
        task.state, task.outcome = TaskState.STARTING, None
        task.life, task.lease_until_s = life, turn.lease_until_s(site)
        task.waits, task.expected_s, task.arrival = "", 0.0, None
    absence = attempt.absent[site]
    attempt.absent[site] = Absence(outcome=absence.outcome, due_s=0.0)
    turn.actions.append(
        RestartSite(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            placement=attempt.placement,
            site=site,
            life=life,
            restart_count=attempt.number + life - 2,
            lease_until_s=turn.now + turn.terms.lease_s,
        )
    )


def _away(turn: Turn, tasks: Iterable[Task]) -> str:
    """Return why tasks cannot be started again where they were; empty if they can."""
    state = turn.state
    for task in tasks:
        where = task.placement
        for domain in (where.domain, where.site):
            mark = state.marks.get(domain)
            if mark is not None and not (mark.by_site and task.arrival is not None):
                return f"{domain} is marked `{mark.mark}`"
        if not _is_there(turn, where):
            return f"{where.domain} is not in the grid any more"
    return ""


def _is_there(turn: Turn, where: TaskPlacement) -> bool:
    sites = turn.state.inventory.sites if turn.state.inventory is not None else ()
    return any(
        where.node == node.name and where.devices[-1] < node.count
        for site in sites
        if site.name == where.site
        for node in site.nodes
    )


def _tasks_at(attempt: Attempt, site: str) -> list[Task]:
    return [task for task in tasks_of(attempt) if task.placement.site == site]


def _others(attempt: Attempt, site: str) -> list[str]:
    """Return the other sites that run and are not absent themselves, in the order of ranks."""
    sites = dict.fromkeys(task.placement.site for task in live_tasks(attempt))
    return [name for name in sites if name != site and name not in attempt.absent]


def _train_on(sites: list[str]) -> str:
    if len(sites) == 1:
        return f"site {sites[0]} trains on"
    return f"sites {', '.join(sites[:-1])} and {sites[-1]} train on"
