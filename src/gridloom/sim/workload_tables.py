"""Readers of plain tables: gridloom's simple one, GAIA's of Alibaba PAI, and Philly's.

Sources of the columns: the Philly trace (Microsoft, CC-BY-4.0) as Sia's authors reduced it to a
table, and PAI (Alibaba, CC-BY-4.0) as GAIA's authors resampled it to a year.
"""

from gridloom.sim.workload_nouns import ReadOptions, Workload
from gridloom.sim.workload_rows import STATES, Collector, Draft, Table, alone, number, whole
from gridloom.sim.workload_shapes import Steps, scaled

PHILLY_ORIGIN_S = 1504508400.0
"""Zero of Philly's submission times: 2017-09-04 00:00 in its own zone, 07:00 UTC."""

_PHILLY_TWICE = "2017-11-05 01:"  # the end of daylight-saving time in the United States


def read_simple(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a table with ``id``, ``submit``, ``duration`` (s) and ``gpus``.

    It may also have ``forecast`` (s), ``state``, ``user``, ``queue``, ``priority``,
    ``accelerator``, and ``gpus_min`` and ``gpus_max`` for a job that may take other numbers.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table, out = Table(text, file=file), Collector("simple", file, options)
    ids, gpus = table.required("id", "job_id"), table.required("gpus", "num_gpus")
    submit = table.required("submit", "submit_s")
    duration = table.required("duration", "duration_s")
    forecast, state = table.column("forecast", "forecast_s"), table.column("state")
    least, most = table.column("gpus_min"), table.column("gpus_max")
    user, queue = table.column("user"), table.column("queue")
    priority, kind = table.column("priority"), table.column("accelerator")

    def steps(cells: list[str]) -> Steps:
        devices = whole(cells[gpus], "gpus")
        low = whole(cells[least], "gpus_min") if _given(cells, least) else devices
        high = whole(cells[most], "gpus_max") if _given(cells, most) else devices
        return scaled(devices, max(1, low), high) if devices > 0 else alone(devices)

    def make(row: int, cells: list[str]) -> Draft:
        return Draft(
            row=row,
            job_id=cells[ids],
            submit_s=number(cells[submit], "submit"),
            work_s=number(cells[duration], "duration"),
            steps=steps(cells),
            kinds=(cells[kind],) if _given(cells, kind) else (),
            forecast_s=number(cells[forecast], "forecast") if _given(cells, forecast) else 0.0,
            state=STATES.get(cells[state].lower(), "") if _given(cells, state) else "",
            user=cells[user] if _given(cells, user) else "",
            queue=cells[queue] if _given(cells, queue) else "",
            priority=whole(cells[priority], "priority") if _given(cells, priority) else 0,
        )

    out.read(table.rows(out), make)
    return out.workload()


def read_pai(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of a table with ``submit_s``, ``duration_s`` and ``units``; rows have no id.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table, out = Table(text, file=file), Collector("pai", file, options)
    submit, duration = table.required("submit_s"), table.required("duration_s")
    units = table.required("units")

    def make(row: int, cells: list[str]) -> Draft:
        return Draft(
            row=row,
            job_id=f"pai-{row - 1}",
            submit_s=number(cells[submit], "submit_s"),
            work_s=number(cells[duration], "duration_s"),
            steps=alone(whole(cells[units], "units")),
        )

    out.read(table.rows(out), make)
    return out.workload()


def read_philly(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the jobs of Philly; a virtual cluster (``vc``) is a queue.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table, out = Table(text, file=file), Collector("philly", file, options)
    submit = table.required("submit_utc_s", "submit_s")
    duration, gpus = table.required("duration_s"), table.required("num_gpus")
    ids, vc, local = table.required("job_id"), table.column("vc"), table.column("submit_local")
    twice = 0

    def make(row: int, cells: list[str]) -> Draft:
        nonlocal twice
        twice += local >= 0 and cells[local].startswith(_PHILLY_TWICE)
        submit_s = number(cells[submit], "submit")
        work_s, devices = number(cells[duration], "duration_s"), whole(cells[gpus], "num_gpus")
        queue = cells[vc] if vc >= 0 else ""
        return Draft(
            row=row,
            job_id=cells[ids],
            submit_s=submit_s,
            work_s=work_s,
            steps=alone(devices),
            queue=queue,
            twin=(submit_s, work_s, devices, queue),
        )

    out.read(table.rows(out), make)
    if submit == table.column("submit_utc_s"):
        out.notes.append("submit_utc_s was taken: submit_s jumps where daylight-saving time ends")
        if twice:
            out.notes.append(
                "the hour 01:00-02:00 of 2017-11-05 occurs twice: "
                f"its {twice} rows were taken as of the first"
            )
    else:
        out.notes.append("submit_s was taken: it is local time, and wrong by 1 h from 2017-11-05")
    return out.workload(origin_s=PHILLY_ORIGIN_S)


def _given(cells: list[str], place: int) -> bool:
    return place >= 0 and cells[place] != ""
