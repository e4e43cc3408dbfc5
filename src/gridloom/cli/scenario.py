"""``gridloom scenario``: stories are played, and what differs from what they expect is shown."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gridloom.cli.flags import Json, whole_number


def scenario(
    *files: Annotated[
        Path, Parameter(help="Stories, in YAML; of a directory all `*.yaml` below it.")
    ],
    seed: Annotated[int, Parameter(help="Of the chance in it.", converter=whole_number)] = 0,
    trace: Annotated[
        bool, Parameter(help="Show what happens and what the scheduler does.", negative=())
    ] = False,
    laws: Annotated[
        Literal["full", "off"], Parameter(help="Check the scheduler's laws after every step.")
    ] = "full",
    json: Json = False,
) -> int:
    """Play stories against the scheduler and check that what they expect holds."""
    from gridloom.cli.scenario_play import Terms, show_stories

    return show_stories(files, Terms(seed=seed, trace=trace, laws=laws == "full", as_json=json))
