"""``gridloom submit``."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, JobPath, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridloom.cli.prepare import Prepared
    from gridloom.cli.settings import Settings

_DryRun = Annotated[
    bool,
    Parameter(
        name="--dry-run",
        negative=(),
        help="Hand nothing in: print what each site's scheduler would be handed, and of a batch"
        " script what becomes of each option.",
    ),
]


def submit(
    job: JobPath, /, *, grid: Grid = None, dry_run: _DryRun = False, json: Json = False
) -> int:
    """Hand in a job, an array of jobs, or a batch script of Slurm, and return at once.

    A control plane in the background runs it.
    """
    from gridloom.base.system import SystemIds
    from gridloom.cli import settings
    from gridloom.cli.dependencies import with_known_dependencies
    from gridloom.cli.handin import hand_in
    from gridloom.cli.home import usable
    from gridloom.cli.prepare import prepare
    from gridloom.cli.wiring import Plane

    asked = settings.read()
    found = asked if dry_run else usable(asked)
    prepared = with_known_dependencies(prepare(job, grid, found, SystemIds()), found)
    notes = notes_of(prepared)
    if dry_run:
        return _would(prepared, found, notes, as_json=json)
    plane = Plane(found)
    job_ids = hand_in(plane, prepared)
    plane.start_background()
    tell(prepared, job_ids, notes, as_json=json)
    return 0


def tell(
    prepared: "Prepared", job_ids: "Sequence[str]", notes: "Sequence[str]", *, as_json: bool
) -> None:
    """Print what was handed in: one job or those of an array, and what must be known of it."""
    from gridloom.cli.output import emit, say

    is_array = prepared.file.document.array is not None
    if as_json:
        said = {"event": "submitted", "job": prepared.job_id, "name": prepared.spec.name}
        more = {"jobs": job_ids} if is_array else {}
        emit({**said, **more, **({"notes": notes} if notes else {})})
        return
    for note in notes:
        say(note, stderr=True)
    if is_array:
        for job_id in job_ids:
            say(job_id)
    what = f"array of {len(job_ids)}, {prepared.job_id}," if is_array else prepared.job_id
    say(f"{what} is handed in; `gridloom status {prepared.job_id}` tells")


def notes_of(prepared: "Prepared") -> list[str]:
    """Return what whoever hands a job in must know, a sentence each."""
    if prepared.script is None:
        return [*prepared.grid.notes]
    from gridloom.cli.batch_words import notes

    return [*prepared.grid.notes, *notes(prepared.script)]


def _would(
    prepared: "Prepared", found: "Settings", notes: "Sequence[str]", *, as_json: bool
) -> int:
    """Print what would be handed in; change nothing."""
    from gridloom.cli.batch_words import option_lines, options_json
    from gridloom.cli.dry_run import as_text, handouts
    from gridloom.cli.output import emit, say

    made, script = handouts(prepared, found), prepared.script
    if as_json:
        said = {"event": "dry_run", "name": prepared.spec.name, "job": prepared.spec}
        options = options_json(script) if script else []
        emit({**said, "sites": made, "options": options, "notes": notes})
        return 0
    lines = option_lines(script) if script else []
    for note in notes:
        if note not in lines:
            say(note, stderr=True)
    sys.stdout.write("".join(f"# {line}\n" for line in lines))
    sys.stdout.write("\n".join(map(as_text, made)))
    say("nothing is handed in: this was a dry run", stderr=True)
    return 0
