"""``gridloom ps``."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gridloom.cli.flags import Json

if TYPE_CHECKING:
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
    from gridloom.cli.lookup import all_jobs
    from gridloom.cli.marks import mark_text, marks_json
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.views import job_json, progress_of
    from gridloom.cli.wiring import Plane
    from gridloom.model.life import OVER

    found = usable(settings.read())
    plane = Plane(found) if found.journal.exists() else None
    jobs = list(all_jobs(plane).values()) if plane else []
    jobs = [job for job in jobs if all_ or job.state not in OVER]
    jobs.sort(key=lambda job: (job.submitted_s, job.job_id))
    if plane is None or not jobs:
        if json:
            emit({"jobs": [], "marks": marks_json(plane.state().marks) if plane else []})
        else:
            say("no jobs" if all_ else "no jobs under way; --all lists more", stderr=True)
        return 0
    now_s = plane.clock.now_s()
    marks = plane.state().marks
    shown = [(job, progress_of(plane, job)) for job in jobs]
    if json:
        listed = [job_json(job, progress, now_s) for job, progress in shown]
        emit({"jobs": listed, "marks": marks_json(marks)})
        return 0
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
    warn_if_alone(plane, jobs, now_s)
    return 0


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
