"""What must hold after every step, whatever happened; checked in tests and in simulations."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from gridloom.base.errors import BrokenError
from gridloom.core.state import State, live_tasks, tasks_of
from gridloom.model.life import HOLDING, OVER, Attempt, Job, JobState, TaskState


def check(state: State) -> None:
    """Return if every law holds.

    Raises:
        BrokenError: One does not; the message names the law and the culprit.
    """
    for law, broken in _LAWS:
        for culprit in broken(state):
            raise BrokenError(f"law broken: {law}: {culprit}")


def _held_twice(state: State) -> Iterator[str]:
    held = Counter(
        (task.domain, device)
        for job in state.jobs.values()
        if job.state in HOLDING
        for task in job.attempts[-1].placement.tasks
        for device in task.devices
    )
    yield from (f"device {device} of {domain}" for (domain, device), n in held.items() if n > 1)


def _partial_gangs(state: State) -> Iterator[str]:
    for job, attempt in _attempts(state):
        devices = attempt.placement.option.devices
        placed = attempt.placement.tasks
        if sum(len(task.devices) for task in placed) != devices:
            yield f"{_name(job, attempt)} has not {devices} devices"
        if {task.domain for task in placed} != set(attempt.tasks):
            yield f"{_name(job, attempt)} has other tasks than were placed"


def _split_groups(state: State) -> Iterator[str]:
    for job, attempt in _attempts(state):
        option = attempt.placement.option
        plan, sites = option.plan, attempt.placement.site_ranks()
        group = plan.tensor * option.rank_devices
        if any(len(task.devices) % group for task in attempt.placement.tasks):
            yield f"{_name(job, attempt)} splits a tensor group"
        if any(ranks % plan.replica_ranks for _, ranks in sites):
            yield f"{_name(job, attempt)} splits a replica group"
        if not job.spec.min_sites <= len(sites) <= job.spec.max_sites:
            yield f"{_name(job, attempt)} is at {len(sites)} sites"


def _live_without_right(state: State) -> Iterator[str]:
    for job, attempt in _attempts(state):
        current = job.state in HOLDING and attempt is job.attempts[-1]
        if bool(live_tasks(attempt)) != current:
            yield f"{_name(job, attempt)} of a {job.state} job"


def _unordered_epochs(state: State) -> Iterator[str]:
    by_epoch = sorted(_attempts(state), key=lambda pair: pair[1].epoch)
    for (job, before), (_, after) in pairwise(by_epoch):
        if before.epoch == after.epoch or before.started_s > after.started_s:
            yield f"{_name(job, before)} and what came after"
    yield from (_name(*pair) for pair in by_epoch if not 0 < pair[1].epoch <= state.epoch)


def _misnumbered(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if [attempt.number for attempt in job.attempts] != list(range(1, len(job.attempts) + 1)):
            yield job.job_id


def _overlaps(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        for before, after in pairwise(job.attempts):
            ended = all(
                task.state is TaskState.ENDED and task.outcome is not None
                for task in tasks_of(before)
            )
            if not ended or not before.started_s <= before.ended_s <= after.started_s:
                yield _name(job, before)


def _idle_wishes(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if job.wanted and job.state not in HOLDING:
            yield f"{job.job_id} is {job.state} and {job.wanted} is wanted"


def _overspent_restarts(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if not 0 <= job.restarts <= job.spec.retry.max_restarts:
            yield f"{job.job_id} after {job.restarts}"


def _misreserved(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        if job.reservation is not None and job.state not in _AWAY:
            yield f"{job.job_id} is {job.state} and has a reservation"
        if job.spares and job.state in OVER:
            yield f"{job.job_id} is {job.state} and has spares"


def _out_of_time(state: State) -> Iterator[str]:
    for job, attempt in _attempts(state):
        if not attempt.started_s <= state.now_s:
            yield f"{_name(job, attempt)} starts at {attempt.started_s:g}"
        if any(task.lease_until_s < attempt.started_s for task in live_tasks(attempt)):
            yield f"{_name(job, attempt)} has a lease from before it"


def _misabsent(state: State) -> Iterator[str]:
    for job in state.jobs.values():
        attempt = job.attempt
        if attempt is None or attempt.stop_sent or not attempt.absent:
            continue
        name = _name(job, attempt)
        live = {task.placement.site for task in live_tasks(attempt)}
        if live <= attempt.absent.keys():
            yield f"{name} has no site that trains"
        for site, absence in sorted(attempt.absent.items()):
            lives = {t.life for t in tasks_of(attempt) if t.placement.site == site}
            if len(lives) != 1:
                yield f"{name} has tasks of lives {sorted(lives)} at {site}"
            if (site in live) is bool(absence.due_s):
                yield f"{name} waits until {absence.due_s} for {site}"


_AWAY = frozenset({JobState.QUEUED, JobState.STOPPING})
"""States in which a job may have a reservation: it waits, or is on its way to other places."""

_LAWS = (
    ("no device is held twice", _held_twice),
    ("a gang is whole or not there", _partial_gangs),
    ("groups are never split", _split_groups),
    ("exactly the current attempt of a job that holds devices has live tasks", _live_without_right),
    ("epochs only grow and never repeat", _unordered_epochs),
    ("attempts are numbered from 1 without gaps", _misnumbered),
    ("an attempt starts after the one before it has ended", _overlaps),
    ("wishes are for jobs that hold devices", _idle_wishes),
    ("no job is restarted more often than its policy allows", _overspent_restarts),
    ("places are kept for whoever waits or is leaving", _misreserved),
    ("nothing starts later than now, and leases begin with the attempt", _out_of_time),
    ("a lost site comes back whole, to others that train", _misabsent),
)


def _attempts(state: State) -> Iterator[tuple[Job, Attempt]]:
    for job in state.jobs.values():
        for attempt in job.attempts:
            yield job, attempt


def _name(job: Job, attempt: Attempt) -> str:
    return f"attempt {attempt.number} of {job.job_id} (epoch {attempt.epoch})"
