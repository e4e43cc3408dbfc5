"""``gridloom eta``."""

from typing import Annotated

from cyclopts import Parameter

from gridloom.cli.flags import JobName, Json, whole_number


def eta(
    job: JobName,
    /,
    *,
    runs: Annotated[
        int,
        Parameter(
            help="Futures to look at; else 40 where durations are uncertain.",
            converter=whole_number,
        ),
    ] = 0,
    json: Json = False,
) -> int:
    """Forecast when a job starts and ends, by letting copies of the live state go on.

    Every job gets a duration of its own in each future, drawn from what is predicted of it.
    """
    from gridloom.cli.eta_show import show_eta

    return show_eta(job, runs=runs, as_json=json)
