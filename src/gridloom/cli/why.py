"""``gridloom why``."""

from gridloom.cli.flags import JobName, Json


def why(job: JobName, /, *, json: Json = False) -> int:
    """Explain why a job waits, or why it ended: per site and node the first rule that failed."""
    from gridloom.cli.alone import warn_if_alone
    from gridloom.cli.lookup import all_jobs, find_job, open_plane
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.views import absences, reason_json, waits_json, where_and_since

    plane = open_plane()
    found = find_job(all_jobs(plane), job)
    if json:
        emit(
            {
                "job": found.job_id,
                "state": found.state.value,
                "reason": reason_json(found.reason),
                "absent": absences(found),
                "waits": waits_json(found),
            }
        )
        return 0
    now_s = plane.clock.now_s()
    warn_if_alone(plane, [found], now_s)
    say(where_and_since(found, now_s))
    for one in waits_json(found):
        say(f"waits at {one['site']}: {one['sentence']}")
    for sentence in absences(found):
        say(sentence)
    if found.reason is None:
        return 0
    say(found.reason.sentence)
    if found.reason.remedy:
        say(f"remedy: {found.reason.remedy}")
    rows = [
        (
            refusal.domain,
            refusal.code.value,
            f"{refusal.found} of {refusal.wanted}" if refusal.wanted else "-",
            refusal.sentence,
        )
        for refusal in found.reason.refusals
    ]
    if rows:
        columns = ("domain", "first rule that failed", "found of wanted", "because")
        console().print(table(columns, rows, spare=("found of wanted",)))
    return 0
