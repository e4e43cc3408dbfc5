"""``gridloom whatif``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Grid, Json, whole_number


def whatif(
    job: Annotated[Path | None, Parameter(help="Job file, in YAML, that is not handed in.")] = None,
    /,
    *,
    grid: Grid = None,
    drain: Annotated[
        tuple[str, ...], Parameter(help="As if this node, or site, were drained now.", negative=())
    ] = (),
    add: Annotated[
        tuple[str, ...],
        Parameter(help="As if a site had so many nodes more: north=2.", negative=()),
    ] = (),
    runs: Annotated[
        int,
        Parameter(
            help="Futures to look at for each change; else 20 where durations are uncertain.",
            converter=whole_number,
        ),
    ] = 0,
    json: Json = False,
) -> int:
    """Forecast when and where a job would start if it were handed in now, and what changes that.

    Other policies, queues, sizes and a higher priority are tried. Without a job: what --drain or
    --add would change for the jobs that there are.
    """
    from gridloom.cli.whatif_show import Changes, show_whatif

    return show_whatif(job, Changes(grid=grid, drain=drain, add=add, runs=runs), as_json=json)
