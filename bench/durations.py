"""How well durations of jobs are predicted on logs of clusters, as a Markdown table.

    python -m bench.durations LOG.csv.gz ... [--medians] [--refit-jobs N] [--seed N]

Each log is replayed in the order of time: a job is predicted when it is submitted, by the jobs that
had ended by then. The columns of a log are known by its header (`FORMATS`); a log without the time
of a start counts each job as started when it was submitted. Some minutes a log.
"""

import argparse
import csv
import gzip
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gridloom.base.errors import GridloomError, InputError, Problem
from gridloom.planner.durations import Method, Refit
from gridloom.planner.durations_evaluate import Evaluation, Score, evaluate
from gridloom.planner.durations_features import Finished


@dataclass(frozen=True, kw_only=True)
class Format:
    """Where a log keeps what is needed: names of columns, empty where it has none."""

    name: str
    submit: str
    devices: str
    duration: str = ""
    start: str = ""
    end: str = ""
    user: str = ""
    job: tuple[str, ...] = ()
    queue: str = ""
    requested: str = ""
    unit_s: float = 1.0
    epoch_s: float = 0.0


FORMATS = (
    Format(
        name="gridloom's own",
        submit="submit_s",
        duration="duration_s",
        end="end_s",
        devices="devices",
        user="user",
        job=("name",),
        queue="queue",
        requested="requested_s",
    ),
    Format(  # seconds since 2017-09-04 07:00 UTC
        name="Philly",
        submit="submit_utc_s",
        duration="duration_s",
        devices="num_gpus",
        queue="vc",
        epoch_s=1_504_508_400.0,
    ),
    Format(  # minutes, it seems; its deadlines are made from the durations, so they are no request
        name="Chronus",
        submit="submit_time",
        duration="duration",
        devices="num_gpu",
        job=("model_name",),
        queue="vc",
        unit_s=60.0,
    ),
    Format(
        name="OpenB",
        submit="creation_time",
        start="scheduled_time",
        end="deletion_time",
        devices="num_gpu",
        job=("cpu_milli", "memory_mib", "gpu_milli", "gpu_spec"),
        queue="qos",
    ),
    Format(
        name="DLRM",
        submit="creation_time",
        start="scheduled_time",
        end="deletion_time",
        devices="gpu_request",
        job=("app_name",),
        queue="role",
    ),
    Format(name="PAI, resampled", submit="submit_s", duration="duration_s", devices="units"),
)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--medians", action="store_true", help="without the learned method")
    parser.add_argument("--refit-jobs", type=int, default=Refit().jobs)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    method: Method = "medians" if flags.medians else "learned"
    print(
        "| log | method | jobs | error, median | error, mean | within x2 | pinball | 80 % holds |"
        " bias | rank |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for path in flags.logs:
        try:
            jobs = list(read(path))
            began = time.perf_counter()
            refit = Refit(jobs=flags.refit_jobs)
            found = evaluate(jobs, seed=flags.seed, method=method, refit=refit)
        except GridloomError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        _print(path.name.split(".")[0], found)
        took_s = time.perf_counter() - began
        print(f"{path.name}: {found.fits} fits, {took_s:.0f} s", file=sys.stderr)
    return 0


def read(path: Path) -> Iterator[Finished]:
    """Yield the jobs of a log that have both begun and ended."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="", encoding="utf-8") as lines:
            table = csv.DictReader(lines)
            shape = _format(path, table.fieldnames or ())
            for number, row in enumerate(table, start=2):
                try:
                    job = _job(row, shape)
                except (ValueError, TypeError) as error:  # a cell is no number, or is missing
                    raise InputError([Problem(str(error), file=str(path), line=number)]) from error
                if job:
                    yield job
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError([Problem(str(error), file=str(path))]) from error


def _format(path: Path, header: object) -> Format:
    named = set(header) if isinstance(header, list | tuple) else set()
    for shape in FORMATS:
        texts = (shape.submit, shape.devices, shape.duration, shape.start, shape.queue, *shape.job)
        if {text for text in texts if text} <= named:
            return shape
    right = "write the columns submit_s, end_s, duration_s, devices, user, name, queue"
    raise InputError([Problem("its columns are those of no known log", right, file=str(path))])


def _job(row: dict[str, str], shape: Format) -> Finished | None:
    def seconds(column: str) -> float:
        return float(row[column]) * shape.unit_s if row.get(column) else math.nan

    submit_s, end_s, duration_s = (seconds(c) for c in (shape.submit, shape.end, shape.duration))
    if shape.start:
        duration_s = end_s - seconds(shape.start)
    if not shape.end:
        end_s = submit_s + duration_s
    if math.isnan(submit_s + end_s + duration_s):
        return None
    return Finished(
        submit_s=submit_s + shape.epoch_s,
        end_s=end_s + shape.epoch_s,
        duration_s=duration_s,
        user=row.get(shape.user, ""),
        name=" ".join(row[column] for column in shape.job),
        queue=row.get(shape.queue, ""),
        devices=math.ceil(float(row[shape.devices])),
        requested_s=float(row.get(shape.requested) or 0.0) * shape.unit_s,
    )


def _print(log: str, found: Evaluation) -> None:
    for score in found.scores:
        print(_row(log, score))
    for score in found.requested:
        print(_row(f"{log}, with a request", score))


def _row(log: str, score: Score) -> str:
    def told(value: float, form: str) -> str:
        return "" if math.isnan(value) else format(value, form)

    return (
        f"| {log} | {score.method} | {score.jobs} | {score.error_median:.3f} |"
        f" {score.error_mean:.3f} | {score.within_2:.1%} | {told(score.pinball, '.4f')} |"
        f" {told(score.coverage, '.1%')} | {score.bias:+.2f} | {told(score.rank, '.3f')} |"
    )


if __name__ == "__main__":
    sys.exit(main())
