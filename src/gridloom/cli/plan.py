"""``gridloom plan``: how to cut a model over devices, what that needs, takes and costs."""

from pathlib import Path
from typing import Annotated, Literal

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


@app.command
def export(
    *,
    to: Annotated[
        Literal["megatron", "deepspeed", "torchtitan", "torchtitan-args", "accelerate"],
        Parameter(help="Whose settings to write."),
    ],
    asked: Asked | None = None,
    aims: Aims | None = None,
    terms: Terms | None = None,
    plan: Annotated[
        str, Parameter(help="In place of the best plan: tp=4,pp=2,dp=8,zero=1,micro_batch=2.")
    ] = "",
    out: Annotated[Path | None, Parameter(help="File to write; else it is printed.")] = None,
    json: Json = False,
) -> int:
    """Write the best plan, or a stated one, as settings of a framework."""
    from gridloom.cli.plan_export import show_export

    return show_export(
        asked or Asked(),
        aims or Aims(),
        terms or Terms(),
        to=to,
        plan=plan,
        out=out,
        as_json=json,
    )


@app.command
def evaluate(
    runs: Runs,
    /,
    *,
    leave_out: Annotated[
        str,
        Parameter(
            help="`group`: judge each group of runs by constants fitted to the others; or the name"
            " of one group to judge so."
        ),
    ] = "",
    constants: Annotated[
        Path | None, Parameter(help="Constants fitted before (JSON), or a CSV to fit them to.")
    ] = None,
    json: Json = False,
) -> int:
    """Hold predictions of step time and memory against measured runs."""
    from gridloom.cli.plan_evaluate import show_evaluation

    return show_evaluation(runs, leave_out=leave_out, constants=constants, as_json=json)


@app.command
def calibrate(
    runs: Runs,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="File to write; else it is printed.")] = None,
    near: Annotated[
        Path | None,
        Parameter(help="Constants fitted before, that few new runs shall only refine."),
    ] = None,
    json: Json = False,
) -> int:
    """Fit the constants of predictions to measured runs."""
    from gridloom.cli.plan_evaluate import show_calibration

    return show_calibration(runs, out=out, near=near, as_json=json)
