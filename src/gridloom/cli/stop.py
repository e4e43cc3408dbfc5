"""``gridloom stop``."""

from gridloom.cli.flags import JobToChange, Json


def stop(job: JobToChange, /, *, json: Json = False) -> int:
    """Stop a job with its state saved, and wait until it has stopped; `resume` continues it.

    Of an array, all jobs that are not over are stopped.
    """
    from gridloom.cli.ask import ask_until_over
    from gridloom.cli.lookup import all_jobs, find_jobs_to_change, open_plane
    from gridloom.cli.output import emit, say
    from gridloom.model.event import StopRequested
    from gridloom.model.life import OVER

    plane = open_plane()
    found = find_jobs_to_change(all_jobs(plane), job)
    found = [one for one in found if one.state not in OVER] or found
    wait_s = max(one.spec.grace_s for one in found) + 30.0
    for now in ask_until_over(plane, found, lambda job_id: StopRequested(job_id=job_id), wait_s):
        if json:
            step = now.checkpoint_step
            emit({"job": now.job_id, "state": now.state.value, "checkpoint_step": step})
        else:
            saved = f"; checkpoint of step {now.checkpoint_step}" if now.checkpoint_step else ""
            say(f"{now.job_id} is {now.state.value}{saved}")
    return 0
