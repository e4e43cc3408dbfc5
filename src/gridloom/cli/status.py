"""``gridloom status``."""

from gridloom.cli.flags import JobName, Json


def status(job: JobName, /, *, json: Json = False) -> int:
    """Show one job: its state, attempts, sites, speed and costs."""
    from gridloom.cli.lookup import all_jobs, find_job, open_plane
    from gridloom.cli.output import console, emit, pairs
    from gridloom.cli.views import job_json, progress_of, up_to_now
    from gridloom.control.close import summarised
    from gridloom.control.report import attempt_line, summary_rows

    plane = open_plane()
    found = find_job(all_jobs(plane), job)
    now_s = plane.clock.now_s()
    facts = summarised(plane.settings.runs, up_to_now(found, now_s), plane.state().inventory)
    if json:
        now = job_json(found, progress_of(plane, found), now_s)
        emit({**now, "summary": facts})
        return 0
    attempts = [(f"attempt {a['number']}", attempt_line(a)) for a in facts["attempts"]]
    rows = [("job", found.job_id), *summary_rows(facts), *attempts, ("files", facts["run_dir"])]
    console().print(pairs(rows))
    return 0
