"""``gridloom cancel``."""

from gridloom.cli.flags import JobToChange, Json


def cancel(job: JobToChange, /, *, json: Json = False) -> int:
    """End a job for good, at once; its run directory stays."""
    from gridloom.cli.ask import ask
    from gridloom.cli.lookup import all_jobs, find_job_to_change, open_plane
    from gridloom.cli.output import emit, say
    from gridloom.model.event import CancelRequested
    from gridloom.model.life import OVER

    plane = open_plane()
    found = find_job_to_change(all_jobs(plane), job)
    wish = CancelRequested(job_id=found.job_id)
    now = ask(plane, wish, found.job_id, lambda job: job.state in OVER, wait_s=30.0)
    if json:
        emit({"job": now.job_id, "state": now.state.value})
    else:
        say(f"{now.job_id} is {now.state.value}")
    return 0
