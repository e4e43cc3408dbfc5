"""``gridloom stop``."""

from gridloom.cli.flags import JobToChange, Json


def stop(job: JobToChange, /, *, json: Json = False) -> int:
    """Stop a job with its state saved, and wait until it has stopped; `resume` continues it."""
    from gridloom.cli.ask import ask
    from gridloom.cli.lookup import all_jobs, find_job_to_change, open_plane
    from gridloom.cli.output import emit, say
    from gridloom.model.event import StopRequested
    from gridloom.model.life import OVER

    plane = open_plane()
    found = find_job_to_change(all_jobs(plane), job)
    wish = StopRequested(job_id=found.job_id)
    wait_s = found.spec.grace_s + 30.0
    now = ask(plane, wish, found.job_id, lambda job: job.state in OVER, wait_s)
    if json:
        emit({"job": now.job_id, "state": now.state.value, "checkpoint_step": now.checkpoint_step})
    else:
        saved = f"; checkpoint of step {now.checkpoint_step}" if now.checkpoint_step else ""
        say(f"{now.job_id} is {now.state.value}{saved}")
    return 0
