"""``gridloom resume``."""

from typing import Annotated

from cyclopts import Parameter

from gridloom.cli.flags import JobToChange, Json


def resume(
    job: JobToChange,
    /,
    *,
    detach: Annotated[
        bool, Parameter(name=("--detach", "-d"), negative=(), help="Return at once.")
    ] = False,
    json: Json = False,
) -> int:
    """Let a stopped or failed job go on from its newest checkpoint, and follow it.

    A job that is under way is followed; when no control plane runs any more, this one takes over.
    It goes on as it was handed in: later changes to its job file mean nothing to it.
    """
    from gridloom.base.errors import InputError
    from gridloom.cli.finish import follow_to_the_end
    from gridloom.cli.follow import Interrupts
    from gridloom.cli.lookup import all_jobs, find_job_to_change, open_plane
    from gridloom.cli.output import emit, say
    from gridloom.cli.views import total_steps
    from gridloom.model.event import ResumeRequested
    from gridloom.model.life import JobState

    plane = open_plane()
    found = find_job_to_change(all_jobs(plane), job)
    if found.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        raise InputError(f"{found.job_id} is {found.state.value}: there is nothing to resume")
    plane.journal.post([ResumeRequested(job_id=found.job_id)])  # changes nothing while it runs
    if detach:
        plane.start_background()
        if json:
            emit({"event": "resumed", "job": found.job_id})
        else:
            say(f"{found.job_id} goes on; `gridloom status {found.job_id}` tells")
        return 0
    steps = total_steps(found)
    with Interrupts() as interrupts:
        return follow_to_the_end(plane, found.job_id, steps, interrupts, as_json=json)
