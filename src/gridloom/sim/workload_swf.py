"""Reader of the Standard Workload Format, version 2.2.

Source of the fields and their meaning: D. G. Feitelson, "The Standard Workload Format",
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from collections.abc import Iterator

from gridloom.model.spec import Dependency
from gridloom.sim.workload_nouns import End, ReadOptions, Workload
from gridloom.sim.workload_rows import (
    Collector,
    Draft,
    RowError,
    alone,
    number,
    numbered,
    whole,
)

FIELDS = 18
"""Of one line, separated by blanks; -1 stands for what is not known."""

_JOB, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT = 0, 1, 3, 4, 7, 8
_STATUS, _USER, _QUEUE, _PRECEDING, _THINK = 10, 11, 14, 16, 17
_STATES: dict[int, End] = {0: "failed", 1: "completed", 5: "cancelled"}
_PARTIAL = frozenset({2, 3, 4})
_CANCELLED = 5


def read_swf(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a log in the Standard Workload Format.

    A processor is a device. A job asks for the processors that it requested, or had when the log
    does not say; it was predicted to run for its requested time. One that had to wait for another
    (fields 17 and 18) depends on its end.

    Raises:
        InputError: No line is usable.
    """
    out = Collector("swf", file, options)
    header: dict[str, str] = {}
    thought = 0

    def make(row: int, cells: list[str]) -> Draft:
        nonlocal thought
        draft = _draft(row, cells, options)
        preceding = str(whole(cells[_PRECEDING], "preceding job"))
        if out.has(preceding):
            draft.after = (Dependency(job_id=preceding, kind="afterany"),)
            thought += number(cells[_THINK], "think time") > 0
        return draft

    out.read(_lines(text, header, out), make)
    if thought:
        out.notes.append(
            f"the think time between a job's end and the next one's submission is not used "
            f"({thought} rows): the next starts as soon as it can"
        )
    return out.workload(
        origin_s=_header(header, "unixstarttime"), devices=int(_header(header, "maxprocs"))
    )


def _lines(text: str, header: dict[str, str], out: Collector) -> Iterator[tuple[int, list[str]]]:
    """Return the fields of lines that are jobs, and put what comments say into the header."""
    for row, line in numbered(text):
        if line.lstrip().startswith(";"):
            name, _, value = line.strip(" \t;").partition(":")
            header.setdefault(name.strip().lower(), value.strip())
            continue
        cells = line.split()
        if len(cells) != FIELDS:
            out.drop(row, RowError("field_count", f"{len(cells)} fields, a line has {FIELDS}"))
            continue
        yield row, cells


def _draft(row: int, cells: list[str], options: ReadOptions) -> Draft:
    """Return the job of a line, by itself."""
    status = whole(cells[_STATUS], "status")
    run_s = number(cells[_RUN], "run time")
    _refuse(status, run_s)
    requested = whole(cells[_REQUESTED], "requested processors")
    devices = requested if requested > 0 else whole(cells[_ALLOCATED], "allocated processors")
    queue = _name("queue", cells[_QUEUE])
    return Draft(
        row=row,
        job_id=str(whole(cells[_JOB], "job number")),
        submit_s=number(cells[_SUBMIT], "submit time"),
        work_s=run_s,
        steps=alone(devices),
        forecast_s=max(0.0, number(cells[_LIMIT], "requested time")),
        state=_STATES.get(status, ""),
        user=_name("user", cells[_USER]),
        queue=queue,
        priority=options.priorities.get(queue, 0),
    )


def _refuse(status: int, run_s: float) -> None:
    """Raise for lines that are no job that ran."""
    if status in _PARTIAL:
        sentence = f"status {status}: one part of a job that another line has whole"
        raise RowError("partial", sentence, "status")
    if run_s <= 0 and status == _CANCELLED:
        raise RowError("never_ran", "was cancelled before it started", "status")
    if run_s == -1:
        raise RowError("missing_duration", "the run time is not known (-1)", "run time")


def _name(what: str, cell: str) -> str:
    return "" if cell == "-1" else f"{what} {cell}"


def _header(header: dict[str, str], name: str) -> float:
    """Return a number of the header; 0 when it has none or something else."""
    try:
        return max(0.0, number(header.get(name, "").split(" ")[0], name))
    except RowError:
        return 0.0
