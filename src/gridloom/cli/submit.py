"""``gridloom submit``."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, JobPath, Json

if TYPE_CHECKING:
    from pathlib import Path


DryRun = Annotated[
    bool,
    Parameter(
        name="--dry-run", negative=(), help="Only print what each site's scheduler would be handed."
    ),
]


def submit(
    job: JobPath, /, *, grid: Grid = None, dry_run: DryRun = False, json: Json = False
) -> int:
    """Hand in a job, or an array of jobs, and return at once.

    A control plane in the background runs it.
    """
    return _would(job, grid, json=json) if dry_run else _submit(job, grid, json=json)


def _would(job: "Path", grid: "Path | None", *, json: bool) -> int:
    """Print what would be handed in; change nothing."""
    from gridloom.base.system import SystemIds
    from gridloom.cli import settings
    from gridloom.cli.dry_run import as_text, handouts
    from gridloom.cli.output import emit, say
    from gridloom.cli.prepare import prepare

    found = settings.read()
    prepared = prepare(job, grid, found, SystemIds())
    made = handouts(prepared, found)
    for note in prepared.grid.notes:
        say(note, stderr=True)
    if json:
        emit({"event": "dry_run", "name": prepared.spec.name, "sites": made})
    else:
        sys.stdout.write("\n".join(map(as_text, made)))
    return 0


def _submit(job: "Path", grid: "Path | None", *, json: bool) -> int:
    from gridloom.base.system import SystemIds
    from gridloom.cli import settings
    from gridloom.cli.dependencies import with_known_dependencies
    from gridloom.cli.handin import hand_in
    from gridloom.cli.home import usable
    from gridloom.cli.output import emit, say
    from gridloom.cli.prepare import prepare
    from gridloom.cli.wiring import Plane

    found = usable(settings.read())
    prepared = with_known_dependencies(prepare(job, grid, found, SystemIds()), found)
    for note in prepared.grid.notes:
        say(note, stderr=True)
    plane = Plane(found)
    job_ids = hand_in(plane, prepared)
    plane.start_background()
    is_array = prepared.file.document.array is not None
    if json:
        said = {"event": "submitted", "job": prepared.job_id, "name": prepared.spec.name}
        emit({**said, "jobs": job_ids} if is_array else said)
        return 0
    if is_array:
        for job_id in job_ids:
            say(job_id)
    what = f"array of {len(job_ids)}, {prepared.job_id}," if is_array else prepared.job_id
    say(f"{what} is handed in; `gridloom status {prepared.job_id}` tells")
    return 0
