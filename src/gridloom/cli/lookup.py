"""Finding the job that a person means, and the plane it lives on."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridloom.base.errors import InputError
from gridloom.cli import settings
from gridloom.cli.arrays import jobs_of_array
from gridloom.cli.home import usable
from gridloom.cli.wiring import Plane
from gridloom.core.state import State
from gridloom.model.event import JobSubmitted
from gridloom.model.life import OVER, Job

_NAMED_MAX = 6
"""Jobs that one sentence names; more are counted."""


def open_plane() -> Plane:
    """Return the plane of the state directory, which must exist.

    Raises:
        InputError: It cannot be used, or nothing was ever run there.
    """
    found = usable(settings.read())
    if not found.journal.exists():
        raise InputError(
            f"there are no jobs in {found.home}; `gridloom run JOB` makes the first, "
            "GRIDLOOM_HOME names another state directory"
        )
    return Plane(found)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What there was at one moment.

    Attributes:
        jobs: All jobs by id, with those that were handed in but not taken up yet.
        state: All that the scheduler knew.
        now_s: When.
    """

    jobs: Mapping[str, Job]
    state: State
    now_s: float


def all_jobs(plane: Plane) -> Mapping[str, Job]:
    """Return all jobs by id, with those that were handed in but not taken up yet."""
    return look(plane).jobs


def look(plane: Plane) -> Seen:
    """Return what there is now."""
    letters = plane.journal.letters()  # read first: a job is then in one of both, or in both
    state = plane.state()
    jobs = dict(state.jobs)
    for letter in letters:
        fact = letter.event
        if isinstance(fact, JobSubmitted) and fact.job_id not in jobs:
            job = Job(job_id=fact.job_id, spec=fact.spec, submitted_s=fact.submitted_s)
            jobs[fact.job_id] = job
    return Seen(jobs=jobs, state=state, now_s=plane.clock.now_s())


def find_job(jobs: Mapping[str, Job], wanted: str) -> Job:
    """Return the job with this id, the newest with this name, or the one whose id begins so.

    Raises:
        InputError: There is none, or the beginning is that of several.
    """
    if wanted in jobs:
        return jobs[wanted]
    named = [job for job in jobs.values() if job.spec.name == wanted]
    if named:
        return max(named, key=lambda job: (job.submitted_s, job.job_id))
    begun = sorted(job.job_id for job in jobs.values() if wanted and job.job_id.startswith(wanted))
    if len(begun) == 1:
        return jobs[begun[0]]
    if begun:
        raise InputError(f"{wanted!r} begins the ids of several jobs: {_few(begun)}")
    names = dict.fromkeys([*jobs, *(job.spec.name for job in jobs.values())])
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `gridloom ps --all` lists them"
    raise InputError(f"there is no job {wanted!r}{hint}")


def find_job_to_change(jobs: Mapping[str, Job], wanted: str) -> Job:
    """Return the job like ``find_job``, but of several with one name the one that is not over.

    Raises:
        InputError: There is none, or several are meant.
    """
    if wanted not in jobs:
        named = [job for job in jobs.values() if job.spec.name == wanted and job.state not in OVER]
        if len(named) == 1:
            return named[0]
        if named:
            listed = _few([f"{job.job_id} ({job.state.value})" for job in named])
            raise InputError(f"several jobs are named {wanted!r}: {listed}; give the id of one")
    return find_job(jobs, wanted)


def find_jobs_to_change(jobs: Mapping[str, Job], wanted: str) -> list[Job]:
    """Return the jobs of an array, or the one job that ``find_job_to_change`` returns.

    Raises:
        InputError: There is none, or several are meant.
    """
    return jobs_of_array(jobs, wanted) or [find_job_to_change(jobs, wanted)]


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else ""
    return ", ".join(texts[:_NAMED_MAX]) + more
