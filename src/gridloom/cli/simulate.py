"""``gridloom simulate``: a log of jobs, or a made one, through the scheduler in simulated time."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gridloom.cli.flags import Json
from gridloom.cli.simulate_flags import Asked, Jobs, World


def simulate(
    *,
    jobs: Jobs | None = None,
    world: World | None = None,
    asked: Asked | None = None,
    events: Annotated[
        Path | None,
        Parameter(help="Write facts and intentions there, one step a line, as a journal has them."),
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="Write a page with curves, and who was where, there.")
    ] = None,
    dropped: Annotated[
        bool, Parameter(help="List the rows of the log that were left out.", negative=())
    ] = False,
    laws: Annotated[
        Literal["full", "incremental", "off"],
        Parameter(
            help="Check the scheduler's laws after each step: of all jobs, or of those"
            " that the step touched."
        ),
    ] = "incremental",
    json: Json = False,
) -> int:
    """Run a workload through the scheduler in simulated time, under one policy or several."""
    from gridloom.cli.simulate_show import Outputs, show_simulation

    return show_simulation(
        jobs or Jobs(),
        world or World(),
        asked or Asked(),
        Outputs(events=events, report=report, dropped=dropped, laws=laws, as_json=json),
    )
