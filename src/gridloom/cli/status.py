"""``gridloom status``."""

from typing import TYPE_CHECKING

from gridloom.cli.flags import JobName, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridloom.cli.wiring import Plane
    from gridloom.model.life import Job


def status(job: JobName, /, *, json: Json = False) -> int:
    """Show one job: its state, attempts, sites, speed and costs; or the jobs of an array."""
    from gridloom.cli.arrays import jobs_of_array
    from gridloom.cli.lookup import all_jobs, find_job, open_plane

    plane = open_plane()
    jobs = all_jobs(plane)
    if members := jobs_of_array(jobs, job):
        return _array(plane, members, json=json)
    return _one(plane, find_job(jobs, job), json=json)


def _one(plane: "Plane", found: "Job", *, json: bool) -> int:
    from gridloom.cli.alone import warn_if_alone
    from gridloom.cli.marks import mark_of, mark_text
    from gridloom.cli.output import console, emit, pairs
    from gridloom.cli.views import job_json, progress_of, up_to_now, waits_json
    from gridloom.control.close import summarised
    from gridloom.control.report import attempt_line, summary_rows
    from gridloom.core.state import stands_on, tasks_of

    now_s, state = plane.clock.now_s(), plane.state()
    facts = summarised(plane.settings.runs, up_to_now(found, now_s), state.inventory)
    if json:
        now = job_json(found, progress_of(plane, found), now_s)
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


def _array(plane: "Plane", members: "Sequence[Job]", *, json: bool) -> int:
    from gridloom.base.units import format_duration
    from gridloom.cli.arrays import array_of
    from gridloom.cli.output import console, emit, say, table
    from gridloom.cli.views import job_json, progress_of, step_text, up_to_now

    array, now_s = array_of(members[0]), plane.clock.now_s()
    counts: dict[str, int] = {}
    for job in members:
        counts[job.state.value] = counts.get(job.state.value, 0) + 1
    shown = [(job, progress_of(plane, job)) for job in members]
    if json:
        listed = [job_json(job, progress, now_s) for job, progress in shown]
        emit({"array": array, "states": counts, "jobs": listed})
        return 0
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    say(f"{array} is an array of {len(members)}: {said}")
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
