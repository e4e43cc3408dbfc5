"""Reader of the Helios and Acme logs: one row a job, with submission, start and end as times.

Sources of the columns: S-Lab-System-Group/HeliosData (``cluster_log.csv``) and InternLM/AcmeTrace
(``trace_seren.csv``, ``trace_kalos.csv``), both CC-BY-4.0; same group, same columns. Helios has
``vc``; Acme has ``type``, and in Kalos ``fail_time``.
"""

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
    whole,
    zoneless,
)

_UNFINISHED = frozenset({"running", "pending", "suspended"})


def read_helios(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a Helios or Acme log.

    A job ran from its start to its end: Kalos counts the wait into its ``duration``. Without these
    times ``duration`` is taken. A virtual cluster or, without any, the type of work is a queue.
    CPU-only jobs are read where ``options.accelerators`` is ``cpu`` alone, as one device a core.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table = Table(text, file=file)
    out = Collector("acme" if table.column("type") >= 0 else "helios", file, options)
    columns = _Columns(table, cores=options.accelerators == (CPU,))
    out.read(table.rows(out), columns.draft)
    if columns.disagree:
        out.notes.append(
            f"duration is not end - start in {columns.disagree} rows; end - start was taken"
        )
    if columns.zoneless:
        out.notes.append("times have no zone and were taken as UTC")
    return out.workload(rebase=True)


class _Columns:
    """Where the columns stand, and what was seen on the way through the rows."""

    def __init__(self, table: Table, *, cores: bool) -> None:
        self.disagree = 0
        self.zoneless = False
        self._count_name = "cpu_num" if cores else "gpu_num"
        self._count = table.required(self._count_name)
        self._id, self._submit = table.required("job_id"), table.required("submit_time")
        self._state = table.required("state")
        self._start, self._end = table.column("start_time"), table.column("end_time")
        self._fail = table.column("fail_time")
        has_times = self._start >= 0 and self._end >= 0
        self._duration = table.column("duration") if has_times else table.required("duration")
        self._user, self._queue = table.column("user"), table.column("vc", "type")

    def draft(self, row: int, cells: list[str]) -> Draft:
        """Return the job of a row."""
        state = cells[self._state].lower()
        if state in _UNFINISHED:
            raise RowError("unfinished", f"is {state} at the end of the log", "state")
        devices = whole(cells[self._count], self._count_name)
        submit = cells[self._submit]
        submit_s = seconds_since_epoch(submit, "submit_time")
        self.zoneless = self.zoneless or zoneless(submit)
        start_s, work_s = self._run(cells)
        fail = self._cell(cells, self._fail)
        fail_s = seconds_since_epoch(fail, "fail_time") - start_s if fail and start_s else 0.0
        return Draft(
            row=row,
            job_id=cells[self._id],
            submit_s=submit_s,
            work_s=work_s,
            steps=alone(devices),
            state=STATES.get(state, ""),
            fail_after_s=fail_s if 0 < fail_s <= work_s else 0.0,
            user=self._cell(cells, self._user),
            queue=self._cell(cells, self._queue),
        )

    def _run(self, cells: list[str]) -> tuple[float, float]:
        """Return when a job started (0 when the log does not say), and how long it ran."""
        start, end = self._cell(cells, self._start), self._cell(cells, self._end)
        if not start or not end:
            if self._start >= 0 and not start and not self._cell(cells, self._duration):
                raise RowError("never_ran", "has no start_time", "start_time")
            return 0.0, number(self._cell(cells, self._duration), "duration")
        start_s = seconds_since_epoch(start, "start_time")
        work_s = seconds_since_epoch(end, "end_time") - start_s
        stated = self._cell(cells, self._duration)
        self.disagree += bool(stated) and abs(number(stated, "duration") - work_s) > 1
        return start_s, work_s

    @staticmethod
    def _cell(cells: list[str], place: int) -> str:
        return cells[place] if place >= 0 else ""
