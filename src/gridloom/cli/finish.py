"""The common end of `run` and `resume`: follow a job with the right display, then sum it up."""

import sys

from gridloom.base.errors import GridloomError
from gridloom.cli.display import JsonDisplay, LiveDisplay, PlainDisplay
from gridloom.cli.follow import Display, Follower, Interrupts
from gridloom.cli.output import console, emit, pairs, say
from gridloom.cli.views import up_to_now
from gridloom.cli.wiring import Plane
from gridloom.control.close import summarised
from gridloom.control.report import attempt_line, summary_rows
from gridloom.control.rundir import REPORT_FILE
from gridloom.model.life import OVER, Job, JobState
from gridloom.model.reason import Why


def follow_to_the_end(
    plane: Plane,
    job_id: str,
    steps: int,
    interrupts: Interrupts,
    *,
    as_json: bool,
    new: str = "",
) -> int:
    """Follow a job until it is over, print its summary, and return the exit code.

    Args:
        plane: Where it lives.
        job_id: The job.
        steps: How many training steps it is to do; 0 when unknown.
        interrupts: Notes the signals that ask to stop.
        as_json: Print JSON lines, the summary last.
        new: Name of the job when it was handed in just now, so that all its metrics are news.
    """
    try:  # from here on the job is looked after, even if nothing can be printed
        if new and as_json:
            emit({"event": "submitted", "job": job_id, "name": new})
        display = _display(plane, as_json=as_json)
        follower = Follower(plane, job_id, steps, display, interrupts)
        if not new:
            follower.skip_what_is_past()
        job, code = follower.until_over()
        if job is not None:
            _sum_up(plane, job, as_json=as_json)
    except GridloomError:
        plane.abandon()
        raise
    except OSError:
        plane.start_background()
        raise
    finally:
        plane.release()
    return code


def _display(plane: Plane, *, as_json: bool) -> Display:
    if as_json:
        return JsonDisplay()
    return LiveDisplay() if sys.stdout.isatty() else PlainDisplay(plane.clock)


def _sum_up(plane: Plane, job: Job, *, as_json: bool) -> None:
    now = up_to_now(job, plane.clock.now_s())
    facts = summarised(plane.settings.runs, now, plane.state().inventory)
    if as_json:
        emit({"event": "summary", **facts})
        return
    if job.state not in OVER:
        say(f"{job.job_id} is still {job.state.value}; `gridloom status {job.job_id}` tells")
        return
    rows = summary_rows(facts)
    if len(facts["attempts"]) > 1:
        rows += [(f"attempt {a['number']}", attempt_line(a)) for a in facts["attempts"]]
    rows.append(("report", f"{facts['run_dir']}/{REPORT_FILE}"))
    out = console()
    out.print()
    out.print(pairs(rows))
    for line in what_next(job):
        say(line)


def what_next(job: Job) -> list[str]:
    """Return what helps a job that is over, and how it goes on; one of both when they are one."""
    remedy = job.reason.remedy if job.reason and job.state is not JobState.SUCCEEDED else ""
    spent = job.reason is not None and job.reason.code is Why.BUDGET_SPENT
    may_go_on = job.state in (JobState.STOPPED, JobState.FAILED) and job.attempts and not spent
    lines = [f"remedy: {remedy}"] if remedy else []
    if may_go_on:
        step = job.checkpoint_step
        onward = f"goes on from training step {step}" if step else "starts it anew"
        hint = f"`gridloom resume {job.job_id}` {onward}"
        if remedy.startswith("resume"):  # the hint says the same, and how
            lines = [hint]
        elif "resume" not in remedy:
            lines.append(hint)
    return lines
