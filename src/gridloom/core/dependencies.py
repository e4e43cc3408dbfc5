"""Which jobs must end, or start, before another may."""

from typing import assert_never

from gridloom.core.state import State
from gridloom.model.life import OVER, Job, JobState
from gridloom.model.spec import Dependency


def unmet_dependencies(state: State, job: Job) -> list[str]:
    """Return the jobs that must end, or start, before this one may.

    A job that is not known was over and is forgotten.
    """
    return [
        need.job_id
        for need in job.spec.after
        if (other := state.jobs.get(need.job_id)) is not None and not _met(need, other)
    ]


def _met(need: Dependency, other: Job) -> bool:
    match need.kind:
        case "after":
            return bool(other.attempts) or other.state in OVER
        case "afterany":
            return other.state in OVER
        case "afterok":
            return other.state is JobState.SUCCEEDED
        case "afternotok":
            return other.state in OVER and other.state is not JobState.SUCCEEDED
        case _:
            assert_never(need.kind)
