"""``gridloom ps``."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridloom.control.progress import Progress
    from gridloom.model.life import Job


def ps(
    *,
    all_: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="Also jobs that are over.")
    ] = False,
    json: Json = False,
) -> int:
    """List the jobs of the state directory; those that are over with --all."""
    from gridloom.cli import settings
    from gridloom.cli.alone import warn_if_alone
    from gridloom.cli.home import usable
    from gridloom.cli.marks import mark_text, marks_json
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.views import job_json, look_with_progress
    from gridloom.cli.wiring import Plane

    found = usable(settings.read())
    plane = Plane(found) if found.journal.exists() else None
    if plane is None:
        return _nothing(all_=all_, json=json)
    seen, shown = look_with_progress(plane, lambda jobs: _listed(jobs.values(), all_=all_))
    now_s, marks = seen.now_s, seen.state.marks
    if json:
        listed = [job_json(job, progress, now_s) for job, progress in shown]
        emit({"jobs": listed, "marks": marks_json(marks)})
        return 0
    if not shown:
        return _nothing(all_=all_, json=json)
    rows = [_row(job, progress, now_s) for job, progress in shown]
    columns = ("job", "state", "attempt", "ranks", "step", "tokens/s", "left", "run time")
    console().print(
        table(
            columns,
            rows,
            right=("attempt", "step", "tokens/s", "left", "run time"),
            whole=("job", "state"),
            spare=("tokens/s", "attempt", "run time", "ranks", "left"),
        )
    )
    for domain, mark in sorted(marks.items()):
        say(mark_text(domain, mark, now_s), stderr=True)
    warn_if_alone(plane, [job for job, _ in shown], now_s)
    return 0


def _nothing(*, all_: bool, json: bool) -> int:
    from gridloom.cli.output import emit, say

    if json:
        emit({"jobs": [], "marks": []})
    else:
        say("no jobs" if all_ else "no jobs under way; --all lists more", stderr=True)
    return 0


def _listed(jobs: "Iterable[Job]", *, all_: bool) -> "list[Job]":
    from gridloom.model.life import OVER

    listed = [job for job in jobs if all_ or job.state not in OVER]
    return sorted(listed, key=lambda job: (job.submitted_s, job.job_id))


def _row(job: "Job", progress: "Progress", now_s: float) -> tuple[str, ...]:
    from gridloom.base.units import format_duration
    from gridloom.cli.views import left_text, speed_text, step_text, up_to_now
    from gridloom.model.life import HOLDING

    under_way = job.state in HOLDING
    placement = job.attempts[-1].placement if job.attempts else None
    sites = ", ".join(f"{site}:{n}" for site, n in placement.site_ranks()) if placement else "-"
    return (
        job.job_id,
        job.state.value,
        str(len(job.attempts)),
        sites,
        step_text(progress),
        speed_text(progress) if under_way else "-",
        left_text(progress) if under_way else "-",
        format_duration(up_to_now(job, now_s).run_s),
    )
