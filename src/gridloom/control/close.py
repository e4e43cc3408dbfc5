"""The end of a job: its summary, its report and its part of the journal, in its run directory."""

from pathlib import Path
from typing import Any

from gridloom.base.codec import encode, pretty
from gridloom.base.files import replace_file
from gridloom.control import rundir
from gridloom.control.report import report_html
from gridloom.control.summary import summary
from gridloom.model.inventory import Inventory
from gridloom.model.life import Job
from gridloom.ports.journal import Journal, Record


def summarised(runs: Path, job: Job, inventory: Inventory | None) -> dict[str, Any]:
    """Return the summary of a job from what stands in its run directory."""
    run_dir = runs / job.job_id
    metrics, others = list(rundir.metrics(run_dir)), rundir.other_metrics(run_dir)
    used = rundir.use(run_dir)
    facts = summary(job, metrics, rundir.result(run_dir), inventory, others=others, used=used)
    return {**facts, "run_dir": str(run_dir)}


def close_job(runs: Path, job: Job, inventory: Inventory | None, journal: Journal) -> None:
    """Write what is left to write of a job that is over; nothing when its directory was removed.

    Raises:
        OSError: The run directory cannot be written.
    """
    run_dir = runs / job.job_id
    if not run_dir.exists():
        return
    facts = summarised(runs, job, inventory)
    page = report_html(facts, list(rundir.metrics(run_dir)))
    records = journal.records_of(job.job_id)
    lines = [encode(record) for record in records if _concerns(record, job.job_id)]
    replace_file(run_dir / rundir.JOURNAL_FILE, b"".join(line + b"\n" for line in lines))
    replace_file(run_dir / rundir.SUMMARY_FILE, pretty(facts).encode())
    replace_file(run_dir / rundir.REPORT_FILE, page.encode())


def _concerns(record: Record, job_id: str) -> bool:
    return any(getattr(item, "job_id", "") == job_id for item in (*record.events, *record.actions))
