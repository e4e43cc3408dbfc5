"""What a job waits for: the jobs that its file names must exist where it is handed in."""

import difflib
from collections.abc import Mapping
from dataclasses import replace as replace_dataclass

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.cli.arrays import array_of, jobs_of_array
from gridloom.cli.lookup import all_jobs
from gridloom.cli.prepare import Prepared
from gridloom.cli.settings import Settings
from gridloom.cli.wiring import Plane
from gridloom.model.life import Job
from gridloom.model.spec import Dependency


def with_known_dependencies(prepared: Prepared, settings: Settings) -> Prepared:
    """Return the job with the id of an array that it waits for replaced by those of its jobs.

    Raises:
        InputError: It waits for jobs that do not exist.
    """
    if not prepared.spec.after:
        return prepared
    jobs = all_jobs(Plane(settings)) if settings.journal.exists() else {}
    needs: list[Dependency] = []
    problems: list[Problem] = []
    for place, need in enumerate(prepared.spec.after):
        members = jobs_of_array(jobs, need.job_id)
        if need.job_id in jobs:
            needs.append(need)
        elif members and array_of(members[0]) == need.job_id:  # not by its name
            needs += [replace(need, job_id=member.job_id) for member in members]
        else:
            problems.append(_unknown(prepared, place, need.job_id, jobs))
    if problems:
        raise InputError(problems)
    return replace_dataclass(prepared, spec=replace(prepared.spec, after=tuple(needs)))


def _unknown(prepared: Prepared, place: int, job_id: str, jobs: Mapping[str, Job]) -> Problem:
    arrays = dict.fromkeys(array_of(job) for job in jobs.values())
    known = [*(array for array in arrays if array), *jobs]
    near = difflib.get_close_matches(job_id, known, n=1)
    remedy = f"did you mean `{near[0]}`?" if near else "`gridloom ps --all` lists the jobs"
    if not known:
        remedy = "there are no jobs yet: hand in the other first"
    listed = isinstance(prepared.file.reading.raw("after"), list)
    path = ("after", place) if listed else ("after",)
    return prepared.file.problem(path, f"there is no job `{job_id}`", remedy)
