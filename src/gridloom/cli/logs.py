"""``gridloom logs``."""

from typing import Annotated

from cyclopts import Parameter

from gridloom.cli.flags import JobName, Json, whole_number

_LOOK_S = 0.25


def logs(
    job: JobName,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative=(), help="Go on until the job is over.")
    ] = False,
    rank: Annotated[
        int | None,
        Parameter(name=("--rank", "-r"), converter=whole_number, help="Only this rank."),
    ] = None,
    attempt: Annotated[
        int | None, Parameter(converter=whole_number, help="This attempt; else the newest.")
    ] = None,
    tail: Annotated[
        int | None,
        Parameter(
            name=("--tail", "-n"), converter=whole_number, help="Only the last lines of each rank."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Show what the ranks of a job print, each line under its rank."""
    from gridloom.base.errors import InputError
    from gridloom.cli.log_reader import LogReader
    from gridloom.cli.lookup import all_jobs, find_job, open_plane
    from gridloom.cli.output import say
    from gridloom.model.life import OVER

    plane = open_plane()
    found = find_job(all_jobs(plane), job)
    if attempt is not None and not 1 <= attempt <= max(1, len(found.attempts)):
        tries = "1 attempt" if len(found.attempts) == 1 else f"{len(found.attempts)} attempts"
        raise InputError(f"{found.job_id} has {tries}; there is no {attempt}")
    if tail is not None and tail < 0:
        raise InputError("--tail counts lines: give a number from 0")
    run_dir = plane.settings.runs / found.job_id
    reader = LogReader(run_dir, rank=rank, attempt=attempt, as_json=json)
    now = found
    while True:
        over = now.state in OVER
        reader.show(len(now.attempts), tail, over=over or not follow)
        if over or not follow:
            break
        plane.clock.sleep(_LOOK_S)
        now = plane.state().jobs.get(found.job_id, found)
    if rank is not None and not reader.has_rank():
        raise InputError(f"{found.job_id} has no output of rank {rank}; ranks count from 0")
    if not (reader.has_shown or json or tail == 0):
        yet = "" if over else " yet"
        more = f"it is {now.state.value}; `gridloom why {found.job_id}` tells more"
        say(f"{found.job_id} has printed nothing{yet}: {more}", stderr=True)
    return 0
