"""``gridloom submit``."""

from gridloom.cli.flags import Grid, JobPath, Json


def submit(job: JobPath, /, *, grid: Grid = None, json: Json = False) -> int:
    """Hand in a job and return at once; a control plane in the background runs it."""
    from gridloom.base.system import SystemIds
    from gridloom.cli import settings
    from gridloom.cli.handin import hand_in
    from gridloom.cli.home import usable
    from gridloom.cli.output import emit, say
    from gridloom.cli.prepare import prepare
    from gridloom.cli.wiring import Plane

    found = usable(settings.read())
    prepared = prepare(job, grid, found, SystemIds())
    plane = Plane(found)
    hand_in(plane, prepared)
    plane.start_background()
    if json:
        emit({"event": "submitted", "job": prepared.job_id, "name": prepared.spec.name})
    else:
        say(f"{prepared.job_id} is handed in; `gridloom status {prepared.job_id}` tells")
    return 0
