"""The common end of `run` and `resume`: follow a job with the right display, then sum it up."""

import sys

from gridloom.base.errors import GridloomError
from gridloom.cli.display import JsonDisplay, LiveDisplay, PlainDisplay
from gridloom.cli.follow import Display, Follower, Interrupts
from gridloom.cli.output import console, emit, pairs, say
from gridloom.cli.wiring import Plane
from gridloom.control.close import summarised
from gridloom.control.report import attempt_line, summary_rows
from gridloom.control.rundir import REPORT_FILE
from gridloom.model.life import OVER, Job, JobState


def follow_to_the_end(
    plane: Plane,
    job_id: str,
    steps: int,
    interrupts: Interrupts,
    *,
    as_json: bool,
    fresh: bool,
) -> int:
    """Follow a job until it is over, print its summary, and return the exit code.

    Args:
        plane: Where it lives.
        job_id: The job.
        steps: How many training steps it is to do; 0 when unknown.
        interrupts: Notes the signals that ask to stop.
        as_json: Print JSON lines, the summary last.
        fresh: Whether the job is new, so that all its metrics are news.
    """
    display: Display
    if as_json:
        display = JsonDisplay()
    elif sys.stdout.isatty():
        display = LiveDisplay()
    else:
        display = PlainDisplay(plane.clock)
    follower = Follower(plane, job_id, steps, display, interrupts)
    if not fresh:
        follower.skip_what_is_past()
    try:
        job, code = follower.until_over()
        if job is not None:
            _sum_up(plane, job, as_json=as_json)
    except GridloomError:
        plane.abandon()
        raise
    finally:
        plane.release()
    return code


def _sum_up(plane: Plane, job: Job, *, as_json: bool) -> None:
    facts = summarised(plane.settings.runs, job, plane.state().inventory)
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
    if job.reason is not None and job.reason.remedy and job.state is not JobState.SUCCEEDED:
        say(f"remedy: {job.reason.remedy}")
    if job.state in (JobState.STOPPED, JobState.FAILED) and job.attempts:
        step = job.checkpoint_step
        onward = f"goes on from training step {step}" if step else "starts it anew"
        say(f"`gridloom resume {job.job_id}` {onward}")
