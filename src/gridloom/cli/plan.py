"""``gridloom plan``: how to cut a model over devices, what that needs, takes and costs."""

from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from gridloom.cli.flags import Json
from gridloom.cli.plan_flags import Aims, Asked, Degrees, Terms

app = cyclopts.App(
    name="plan",
    help="Find the best ways to train a model on given devices.",
    help_format="plaintext",
    result_action="return_value",
    version_flags=(),
)

Runs = Annotated[Path, Parameter(help="Table of measured runs, as CSV.")]


@app.default
def best(
    *,
    asked: Asked | None = None,
    aims: Aims | None = None,
    terms: Terms | None = None,
    explain: Annotated[bool, Parameter(help="Show the arithmetic.", negative=())] = False,
    why_not: Annotated[
        str, Parameter(help="Say why a plan with these values is not the best: tp=8,pp=1.")
    ] = "",
    pareto: Annotated[
        bool, Parameter(help="Show the plans that no other beats in time and price.", negative=())
    ] = False,
    json: Json = False,
) -> int:
    """Find the best plans of all that are possible: every one is looked at."""
    from gridloom.cli.plan_best import show_best

    return show_best(
        asked or Asked(),
        aims or Aims(),
        terms or Terms(),
        explain=explain,
        why_not=why_not,
        pareto=pareto,
        as_json=json,
    )


@app.command
def memory(
    *,
    asked: Asked | None = None,
    degrees: Degrees | None = None,
    params: Annotated[
        str, Parameter(help="In place of --model: a number of parameters, as 100B.")
    ] = "",
    bytes_per_parameter: Annotated[
        str,
        Parameter(
            help="To account by, beside the standard: of the optimizer, as 6, or of weights,"
            " gradients and optimizer, as 2+2+6."
        ),
    ] = "",
    json: Json = False,
) -> int:
    """Show what each stage of one plan holds, and which rank would run out first."""
    from gridloom.cli.plan_memory import show_memory

    return show_memory(
        asked or Asked(),
        degrees or Degrees(),
        params=params,
        bytes_per_parameter=bytes_per_parameter,
        as_json=json,
    )
