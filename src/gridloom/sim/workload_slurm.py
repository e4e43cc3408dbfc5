"""Reader of what Slurm's ``sacct --parsable2`` prints.

Source of the fields: the manual of sacct, https://slurm.schedmd.com/sacct.html, and outputs of
22.05. Needed are ``JobID``, ``Submit``, ``State``, one of ``ElapsedRaw`` and ``Elapsed``, and one
of ``AllocTRES`` and ``ReqTRES``; used besides are ``Start``, ``TimelimitRaw``, ``Timelimit``,
``Account``, ``Partition``, ``User``, ``QOS``.
"""

import re
from collections.abc import Iterator

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import parse_duration_s
from gridloom.model.inventory import CPU
from gridloom.sim.workload_nouns import ReadOptions, Workload
from gridloom.sim.workload_rows import (
    STATES,
    Collector,
    Draft,
    RowError,
    Table,
    alone,
    number,
    seconds_since_epoch,
    zoneless,
)

_STEP = re.compile(r"\.(?:batch|extern|interactive|\d+)$")
_DURATION = re.compile(r"(?:\d{1,9}-)?\d{1,9}:\d\d(?::\d\d)?", re.ASCII)
_UNFINISHED = frozenset(
    {"running", "pending", "suspended", "configuring", "completing", "resizing"}
)
_AGAIN = frozenset({"requeued", "requeue_hold", "preempted", "node_fail"})
_UNKNOWN = frozenset({"", "unknown", "none"})
_MINUTE_S = 60


def read_sacct(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a listing by ``sacct --parsable2``.

    Steps (``12.batch``, ``12.0``) are part of their job and dropped. A job that was put back into
    the queue has a line for each try: it was submitted with the first and ran as the last. The
    account, or the partition where there is none, is the queue; the limit of time is the
    prediction; ``QOS`` gives a priority where ``options.priorities`` names it. Where
    ``options.accelerators`` is ``cpu`` alone, devices are cores.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    header = text.lstrip().partition("\n")[0]
    delimiter = "|#" if "|#" in header else "|"  # some sites print with a delimiter of two signs
    table, out = Table(text, file=file, delimiter=delimiter), Collector("slurm", file, options)
    columns = _Columns(table, options, file)
    tries = _by_job(table.rows(out), columns, out)
    out.read(tries, columns.draft)
    if columns.zoneless:
        out.notes.append("times have no zone and were taken as UTC; run times are Slurm's own")
    return out.workload(rebase=True)


def _by_job(
    rows: Iterator[tuple[int, list[str]]], columns: "_Columns", out: Collector
) -> Iterator[tuple[int, tuple[list[str], float]]]:
    """Return the last line of each job with the time of its first submission; drop the others."""
    tries: dict[str, list[tuple[int, list[str]]]] = {}
    for row, cells in rows:
        job_id = cells[columns.job_id]
        if _STEP.search(job_id):
            out.drop(row, RowError("step", f"{job_id} is a step of a job", "jobid"))
            continue
        tries.setdefault(job_id, []).append((row, cells))
    for job_id, lines in tries.items():
        again = {row: cells for row, cells in lines[:-1] if columns.state(cells) in _AGAIN}
        for row in again:
            sentence = f"an earlier try of {job_id}; the last one counts"
            out.drop(row, RowError("requeued", sentence, "state"))
        first_s = _time_or_zero(next(iter(again.values()))[columns.submit]) if again else 0.0
        yield from ((row, (cells, first_s)) for row, cells in lines if row not in again)


class _Columns:
    """Where the columns stand, and what was seen on the way through the rows."""

    def __init__(self, table: Table, options: ReadOptions, file: str) -> None:
        self.job_id, self.submit = table.required("jobid"), table.required("submit")
        self.zoneless = False
        self._options = options
        self._state = table.required("state")
        self._elapsed_raw = table.column("elapsedraw")
        self._elapsed = (
            table.column("elapsed") if self._elapsed_raw >= 0 else table.required("elapsed")
        )
        self._tres = [p for p in (table.column("alloctres"), table.column("reqtres")) if p >= 0]
        if not self._tres:
            problem = Problem(
                "there is no column AllocTRES or ReqTRES, so that devices are not known",
                "run sacct with --format=ALL, or name AllocTRES in its format",
                file=file,
                line=1,
                field="AllocTRES",
            )
            raise InputError((problem,))
        self._start, self._limit = table.column("start"), table.column("timelimit")
        self._limit_raw = table.column("timelimitraw")
        self._queues = [p for p in (table.column("account"), table.column("partition")) if p >= 0]
        self._user, self._qos = table.column("user"), table.column("qos")

    def state(self, cells: list[str]) -> str:
        """Return the state in lower case, without who did it: ``CANCELLED by 1000``."""
        return (cells[self._state].split() or [""])[0].rstrip("+").lower()

    def draft(self, row: int, content: tuple[list[str], float]) -> Draft:
        """Return the job of a line."""
        cells, first_s = content
        state = self.state(cells)
        if state in _UNFINISHED:
            raise RowError("unfinished", f"is {state} at the end of the log", "state")
        started = self._start < 0 or cells[self._start].lower() not in _UNKNOWN
        if not started:
            raise RowError("never_ran", f"is {state or 'over'} without a start", "start")
        submit = cells[self.submit]
        submit_s = seconds_since_epoch(submit, "submit")
        self.zoneless = self.zoneless or zoneless(submit)
        devices, kinds = self._devices(cells)
        qos = self._cell(cells, self._qos)
        return Draft(
            row=row,
            job_id=cells[self.job_id],
            submit_s=min(submit_s, first_s or submit_s),
            work_s=self._ran_s(cells),
            steps=alone(devices),
            kinds=kinds,
            forecast_s=self._limit_s(cells),
            state=STATES.get(state, ""),
            user=self._cell(cells, self._user),
            queue=next((cells[place] for place in self._queues if cells[place]), ""),
            priority=self._options.priorities.get(qos, 0),
        )

    def _devices(self, cells: list[str]) -> tuple[int, tuple[str, ...]]:
        """Return how many devices a job had, or asked for, and of which kind."""
        text = next((cells[place] for place in self._tres if cells[place]), "")
        amounts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if self._options.accelerators == (CPU,):
            return int(number(amounts.get("cpu", "0"), "cpu")), ()
        typed = {
            name.removeprefix("gres/gpu:"): int(number(amount, name))
            for name, amount in amounts.items()
            if name.startswith("gres/gpu:")
        }
        whole_amount = amounts.get("gres/gpu")  # the sum of the typed ones, where both are there
        devices = int(number(whole_amount, "gres/gpu")) if whole_amount else sum(typed.values())
        return devices, tuple(typed) if len(typed) == 1 else ()

    def _ran_s(self, cells: list[str]) -> float:
        """Return seconds of running, without those that it was suspended."""
        raw = self._cell(cells, self._elapsed_raw)
        return number(raw, "elapsedraw") if raw else _duration_s(cells[self._elapsed], "elapsed")

    def _limit_s(self, cells: list[str]) -> float:
        """Return the limit of time; 0 for none."""
        raw = self._cell(cells, self._limit_raw)
        if raw.isdecimal():
            return number(raw, "timelimitraw") * _MINUTE_S
        text = self._cell(cells, self._limit)
        return _duration_s(text, "timelimit") if text[:1].isdecimal() else 0.0

    @staticmethod
    def _cell(cells: list[str], place: int) -> str:
        return cells[place] if place >= 0 else ""


def _time_or_zero(cell: str) -> float:
    try:
        return seconds_since_epoch(cell, "submit")
    except RowError:
        return 0.0


def _duration_s(cell: str, field: str) -> float:
    if _DURATION.fullmatch(cell):
        return parse_duration_s(cell)
    raise RowError("not_a_number", f"{field} is {cell[:40]!r}, not [DD-]HH:MM:SS", field)
