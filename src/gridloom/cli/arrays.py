"""Arrays: one job file that stands for many jobs, and those jobs found again by what they share."""

from collections.abc import Mapping
from pathlib import PurePath

from msgspec.structs import replace

from gridloom.model.life import OVER, Job
from gridloom.model.spec import Dependency, JobSpec
from gridloom.wire.launch import ARRAY_INDEX_VARIABLE
from gridloom.wire.schedule_document import Array


def array_specs(
    array_id: str, spec: JobSpec, array: Array, checkpoints: PurePath | None
) -> dict[str, JobSpec]:
    """Return the jobs that an array stands for, by their ids, in order of their indices.

    Of ``at_once`` jobs that may run at once, each but the first so many waits until the one so many
    places before it is over.

    Args:
        array_id: What their ids begin with; ``-`` and the index follow.
        spec: What all have in common.
        array: Their indices.
        checkpoints: Directory in which each saves its state in one of its own, named by its index;
            nothing for the run directory of each.
    """
    ids = [f"{array_id}-{index}" for index in array.indices]
    specs = {}
    for place, (job_id, index) in enumerate(zip(ids, array.indices, strict=True)):
        own = replace(
            spec,
            program=replace(
                spec.program, env={**spec.program.env, ARRAY_INDEX_VARIABLE: str(index)}
            ),
        )
        if 0 < array.at_once <= place:
            before = Dependency(job_id=ids[place - array.at_once], kind="afterany")
            own = replace(own, after=(*spec.after, before))
        if spec.recipe is not None:
            policy = spec.recipe.checkpoint
            common = PurePath(policy.directory)
            directory = (
                checkpoints / str(index)
                if checkpoints is not None
                else common.parent.parent / job_id / common.name
            )
            policy = replace(policy, directory=str(directory))
            own = replace(own, recipe=replace(spec.recipe, checkpoint=policy))
        specs[job_id] = own
    return specs


def array_of(job: Job) -> str:
    """Return what the ids of all jobs of the job's array begin with; nothing if it is of none."""
    index = job.spec.program.env.get(ARRAY_INDEX_VARIABLE)
    if index is None or not job.job_id.endswith(f"-{index}"):
        return ""
    return job.job_id.removesuffix(f"-{index}")


def jobs_of_array(jobs: Mapping[str, Job], wanted: str) -> list[Job]:
    """Return the jobs of the array that is meant, by index; none if it is not one that is meant.

    It is meant by what its ids begin with, or by the beginning of that or its name where nothing
    else is called so; of one name, jobs that are not over go before others.
    """
    if not wanted or wanted in jobs:
        return []
    members: dict[str, list[Job]] = {}
    for job in jobs.values():
        members.setdefault(array_of(job), []).append(job)
    single = members.pop("", [])
    if wanted not in members:
        named = [job for job in jobs.values() if job.spec.name == wanted]
        meant = [job for job in named if job.state not in OVER] or named
        if not meant:
            meant = [job for job in jobs.values() if job.job_id.startswith(wanted)]
        arrays = {array_of(job) for job in meant}
        if len(arrays) != 1 or meant[0] in single:
            return []
        (wanted,) = arrays
    return sorted(members[wanted], key=_index)


def _index(job: Job) -> int:
    return int(job.spec.program.env[ARRAY_INDEX_VARIABLE])
