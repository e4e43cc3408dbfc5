"""The run directory: everything about one job in one place, readable without gridloom."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gridloom.base.codec import decode, pretty
from gridloom.base.errors import InputError
from gridloom.base.files import FULL, cause_of, replace_file
from gridloom.control.metrics import decode_metric
from gridloom.model.life import SiteUse

JOB_FILE = "job.yaml"
GRID_FILE = "grid.yaml"
JOB_RESOLVED_FILE = "job.resolved.json"
GRID_RESOLVED_FILE = "grid.resolved.json"
RECIPE_FILE = "recipe.json"
ENVIRONMENT_FILE = "environment.json"
DIFF_FILE = "workdir.diff"
JOURNAL_FILE = "journal.jsonl"
METRICS_FILE = "metrics.jsonl"
SITE_METRICS_FILE = "metrics-*.jsonl"
RESULT_FILE = "result.json"
USE_FILE = "use.json"
SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"


def create(
    runs: Path, job_id: str, files: Mapping[str, bytes | object], *, durable: bool = True
) -> Path:
    """Make the run directory of a new job with its first files; return it.

    Args:
        runs: Directory of all run directories.
        job_id: The job, whose directory must not exist.
        files: By name; bytes are written as they are, anything else as indented JSON.
        durable: Wait until each would survive a power cut.

    Raises:
        InputError: The directory cannot be written; nothing is left of it then.
    """
    directory = runs / job_id
    contents = {
        name: content if isinstance(content, bytes) else pretty(content).encode()
        for name, content in files.items()
    }
    try:
        directory.mkdir(parents=True)
        (directory / "logs").mkdir()
        for name, data in contents.items():
            replace_file(directory / name, data, durable=durable)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        remedy = "set GRIDLOOM_HOME to a directory that you can write"
        if error.errno in FULL:
            remedy = f"free space there, or {remedy}"
        raise InputError(
            f"the run directory {directory} cannot be written: {cause_of(error)}; {remedy}"
        ) from error
    return directory


def metrics(run_dir: Path, name: str = METRICS_FILE) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of metrics, oldest first; what a crash cut short is left out."""
    try:
        with (run_dir / name).open("rb") as file:
            for line in file:
                metric = decode_metric(line)
                if metric is not None:
                    yield metric
    except FileNotFoundError:
        return


def other_metrics(run_dir: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of ``metrics-<site>.jsonl`` of the sites that have rows of their own."""
    before, after = SITE_METRICS_FILE.split("*")
    found = sorted(path.name for path in run_dir.glob(SITE_METRICS_FILE))
    return {
        name.removeprefix(before).removesuffix(after): list(metrics(run_dir, name))
        for name in found
    }


def result(run_dir: Path) -> dict[str, Any]:
    """Return what the training program wrote at its end; empty when it wrote nothing usable."""
    try:
        found = msgspec.json.decode((run_dir / RESULT_FILE).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def write_use(run_dir: Path, used: Sequence[SiteUse]) -> None:
    """Write down what a job has used by its sites' accounts; nothing when its directory is gone.

    Raises:
        OSError: It cannot be written.
    """
    if run_dir.exists():
        replace_file(run_dir / USE_FILE, pretty(used).encode())


def use(run_dir: Path) -> list[SiteUse]:
    """Return what a job has used by its sites' accounts, as far as that is known."""
    try:
        return decode((run_dir / USE_FILE).read_bytes(), list[SiteUse])
    except (OSError, msgspec.MsgspecError):
        return []
