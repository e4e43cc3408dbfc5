"""`eta`: looks into the futures of the live state for one job."""

import math
from typing import Any

from gridloom.base.errors import InputError, Problem
from gridloom.cli.live import (
    LEVELS,
    REMEDY,
    futures_bar,
    live,
    times_json,
    times_text,
)
from gridloom.cli.lookup import find_job, open_plane
from gridloom.cli.output import console, emit, pairs, say
from gridloom.model.life import HOLDING, OVER, Job
from gridloom.sim.forecast import Futures, Outlook, outlooks

_RUNS_MAX = 10_000
_NAMED_MAX = 5


def show_eta(wanted: str, *, runs: int, as_json: bool) -> int:
    """Print when a job starts and ends.

    Raises:
        InputError: There is no such job.
    """
    check_runs(runs)
    now = live(open_plane())
    job = find_job(now.jobs, wanted)
    about = {"job": job.job_id, "state": job.state.value}
    if job.state in OVER:
        if as_json:
            emit({**about, "start": None, "end": None})
        else:
            say(f"{job.job_id} is over: {job.state.value}")
        return 0
    with futures_bar("futures") as told:
        futures = Futures(runs=runs, durations=now.durations, facts=now.pending, told=told)
        found = outlooks(now.state, [job.job_id], now.now_s, futures)[job.job_id]
    unknown = now.unknown()
    if as_json:
        emit({**about, **outlook_json(found), "unknown": unknown})
        return 0
    say(f"{job.job_id} is {job.state.value}")
    console().print(pairs(rows(job, found, now.now_s)))
    said = why_unknown(job, found, unknown)
    if said:
        say(said)
    return 0


def check_runs(runs: int) -> None:
    """Return if so many futures can be looked at.

    Raises:
        InputError: They cannot.
    """
    if not 0 <= runs <= _RUNS_MAX:
        problem = Problem(f"{runs} futures cannot be", f"write 1 to {_RUNS_MAX}", field="--runs")
        raise InputError([problem])


def outlook_json(found: Outlook) -> dict[str, Any]:
    """Return what becomes of a job, for machines."""
    placement, share = found.placement()
    return {
        "start": times_json(found, "start"),
        "end": times_json(found, "end"),
        "sites": dict(placement.site_ranks()) if placement else {},
        "share": share,
        "runs": len(found.seen),
    }


def rows(job: Job, found: Outlook, now_s: float) -> list[tuple[str, str]]:
    """Return what becomes of a job as labels and texts."""
    placement, share = found.placement()
    begun = "started" if job.state in HOLDING else "starts"
    told = [(begun, times_text(found, "start", now_s))]
    if placement is not None:
        where = ", ".join(f"{site}:{ranks}" for site, ranks in placement.site_ranks())
        often = f", in {share:.0%} of {len(found.seen)} futures" if share < 1 else ""
        told.append(("where", f"{where} ranks{often}"))
    return [*told, ("ends", times_text(found, "end", now_s))]


def why_unknown(job: Job, found: Outlook, unknown: list[str]) -> str:
    """Return why a start or an end is not known, and what to add; empty when both are."""
    if math.isinf(found.start_s(LEVELS[-1])) and math.isfinite(found.end_s(LEVELS[-1])):
        if job.spec.after:
            return "it ends without a start: what it waits for does not come out as `after` asks"
        return "it can never run on this grid: the scheduler refuses it when it takes it up"
    if not any(math.isinf(seen.end_s) for seen in found.seen):
        return ""
    if not unknown:
        return "it waits for something that none of these jobs brings about: `gridloom why` tells"
    others = [job_id for job_id in unknown if job_id != job.job_id]
    if job.job_id in unknown and math.isfinite(found.start_s(LEVELS[-1])):
        return f"nobody knows how long {job.job_id} runs: {REMEDY}"
    named = ", ".join(others[:_NAMED_MAX]) + (", ..." if len(others) > _NAMED_MAX else "")
    return f"nobody knows how long {named or job.job_id} run: {REMEDY}"
