"""``gridloom status``."""

from typing import TYPE_CHECKING

from gridloom.cli.flags import JobName, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridloom.cli.lookup import Seen
    from gridloom.cli.wiring import Plane
    from gridloom.control.progress import Progress
    from gridloom.model.life import Job


def status(job: JobName, /, *, json: Json = False) -> int:
    """Show one job: its state, attempts, sites, speed and costs; or the jobs of an array."""
    from gridloom.cli.arrays import jobs_of_array
    from gridloom.cli.lookup import find_job, open_plane
    from gridloom.cli.views import look_with_progress

    plane = open_plane()
    seen, shown = look_with_progress(
        plane, lambda jobs: jobs_of_array(jobs, job) or [find_job(jobs, job)]
    )
    if jobs_of_array(seen.jobs, job):
        return _array(shown, seen, json=json)
    ((one, progress),) = shown
    return _one(plane, one, progress, seen, json=json)


def _one(plane: "Plane", found: "Job", progress: "Progress", seen: "Seen", *, json: bool) -> int:
    from gridloom.cli.alone import warn_if_alone
    from gridloom.cli.marks import mark_of, mark_text
    from gridloom.cli.output import console, emit, pairs
    from gridloom.cli.views import job_json, up_to_now, waits_json
    from gridloom.control.close import summarised
    from gridloom.control.report import attempt_line, summary_rows
    from gridloom.core.state import stands_on, tasks_of

    now_s, state = seen.now_s, seen.state
    facts = summarised(plane.settings.runs, up_to_now(found, now_s), state.inventory)
    if json:
        now = job_json(found, progress, now_s)
        emit({**now, "summary": facts})
        return 0
    attempts = [(f"attempt {a['number']}", attempt_line(a)) for a in facts["attempts"]]
    nodes = [stands_on(task) for task in tasks_of(found.attempt)] if found.attempt else ()
    marks = [
        ("node", mark_text(node, mark, now_s))
        for node in nodes
        if (mark := mark_of(state.marks, node))
    ]
    waits = [(f"waits at {one['site']}", one["sentence"]) for one in waits_json(found)]
    rows = [("job", found.job_id), *summary_rows(facts), *attempts, *waits, *marks]
    console().print(pairs([*rows, ("files", facts["run_dir"])]))
    warn_if_alone(plane, [found], now_s)
    return 0


def _array(shown: "Sequence[tuple[Job, Progress]]", seen: "Seen", *, json: bool) -> int:
    from gridloom.base.units import format_duration
    from gridloom.cli.arrays import array_of
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.views import job_json, step_text, up_to_now

    array, now_s = array_of(shown[0][0]), seen.now_s
    counts: dict[str, int] = {}
    for job, _ in shown:
        counts[job.state.value] = counts.get(job.state.value, 0) + 1
    if json:
        listed = [job_json(job, progress, now_s) for job, progress in shown]
        emit({"array": array, "states": counts, "jobs": listed})
        return 0
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    say(f"{array} is an array of {len(shown)}: {said}")
    rows = [
        (
            job.job_id,
            job.state.value,
            str(len(job.attempts)),
            step_text(progress),
            format_duration(up_to_now(job, now_s).run_s),
            job.reason.sentence if job.reason else "-",
        )
        for job, progress in shown
    ]
    columns = ("job", "state", "attempt", "step", "run time", "because")
    console().print(
        table(columns, rows, right=columns[2:5], whole=("job", "state"), spare=("attempt",))
    )
    return 0
