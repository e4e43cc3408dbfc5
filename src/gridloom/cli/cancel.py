"""``gridloom cancel``."""

from gridloom.cli.flags import JobToChange, Json

_WAIT_S = 30.0


def cancel(job: JobToChange, /, *, json: Json = False) -> int:
    """End a job, or all jobs of an array, for good, at once; its run directory stays."""
    from gridloom.cli.ask import ask_until_over
    from gridloom.cli.lookup import all_jobs, find_jobs_to_change, open_plane
    from gridloom.cli.output import emit, say
    from gridloom.model.event import CancelRequested
    from gridloom.model.life import OVER, JobState

    plane = open_plane()
    found = find_jobs_to_change(all_jobs(plane), job)
    ended = OVER - {JobState.STOPPED}
    found = [one for one in found if one.state not in ended] or found
    for now in ask_until_over(plane, found, lambda job_id: CancelRequested(job_id=job_id), _WAIT_S):
        if json:
            emit({"job": now.job_id, "state": now.state.value})
        else:
            say(f"{now.job_id} is {now.state.value}")
    return 0
