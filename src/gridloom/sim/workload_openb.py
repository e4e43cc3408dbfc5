"""Readers of Alibaba's logs of pods: the openb cluster of 2023, and its nodes; inference of 2025.

Source of the columns: alibaba/clusterdata, ``cluster-trace-gpu-v2023`` and
``cluster-trace-gpu-v2025``. Times are seconds from the log's own zero.
"""

from gridloom.base.errors import InputError, Problem
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.sim.workload_nouns import End, ReadOptions, Workload
from gridloom.sim.workload_rows import Collector, Draft, RowError, Table, alone, number, whole
from gridloom.sim.workload_shapes import Needs

_STATES: dict[str, End] = {"Succeeded": "completed", "Failed": "failed"}
_WHOLE_MILLI = 1000


def read_openb(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the pods of openb as jobs; the class of service (``qos``) is a queue.

    A pod ran from when it was scheduled until it was deleted. Models of GPU that it may use,
    joined by ``|``, are kinds, in lower case. A share of one GPU takes a whole one.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table, out = Table(text, file=file), Collector("openb", file, options)
    name, gpus, spec = table.required("name"), table.required("num_gpu"), table.column("gpu_spec")
    milli, qos, phase = (table.column(column) for column in ("gpu_milli", "qos", "pod_phase"))
    cores, memory = table.column("cpu_milli"), table.column("memory_mib")
    created, deleted = table.required("creation_time"), table.required("deletion_time")
    scheduled = table.required("scheduled_time")
    shared, ends = 0, [0.0]

    def make(row: int, cells: list[str]) -> Draft:
        nonlocal shared
        submit_s = number(cells[created], "creation_time")
        end_s = number(cells[deleted], "deletion_time")
        if end_s == submit_s:
            raise RowError("zero_duration", "was deleted when it was created", "deletion_time")
        if not cells[scheduled]:
            raise RowError("never_ran", "was never scheduled", "scheduled_time")
        devices = whole(cells[gpus], "num_gpu")
        shared += (
            devices == 1 and 0 < number(_cell(cells, milli) or "0", "gpu_milli") < _WHOLE_MILLI
        )
        ends.append(end_s)
        return Draft(
            row=row,
            job_id=cells[name],
            submit_s=submit_s,
            work_s=end_s - number(cells[scheduled], "scheduled_time"),
            steps=alone(devices),
            kinds=tuple(kind.lower() for kind in _cell(cells, spec).split("|") if kind),
            needs=_needs(_cell(cells, cores), _cell(cells, memory)),
            state=_STATES.get(_cell(cells, phase), ""),
            queue=_cell(cells, qos),
            priority=options.priorities.get(_cell(cells, qos), 0),
        )

    out.read(table.rows(out), make)
    if shared:
        out.notes.append(f"{shared} shares of one GPU (gpu_milli) were rounded up to whole devices")
    last_s = max(ends)
    cut = ends.count(last_s)
    if cut > 1:
        out.notes.append(
            f"{cut} pods end with the log, at {last_s:.0f} s: they may have run longer"
        )
    return out.workload()


def openb_inventory(text: str, file: str = "nodes", *, site: str = "openb") -> Inventory:
    """Return the nodes of openb as one site; those without GPUs are left out.

    Args:
        text: A table with ``sn``, ``cpu_milli``, ``memory_mib``, ``gpu`` and ``model``.
        file: Its name, for errors.
        site: What to call the site.

    Raises:
        InputError: A column is missing, a row is wrong, or no node has a GPU.
    """
    table, out = Table(text, file=file), Collector("openb", file, ReadOptions())
    name, gpus, model = table.required("sn"), table.required("gpu"), table.required("model")
    cores, memory = table.column("cpu_milli"), table.column("memory_mib")
    nodes: list[Node] = []

    def make(row: int, cells: list[str]) -> None:
        del row
        count = whole(cells[gpus], "gpu")
        needs = _needs(_cell(cells, cores), _cell(cells, memory), up=False)
        if count > 0:
            nodes.append(
                Node(
                    name=cells[name],
                    address=cells[name],
                    accelerator=cells[model].lower(),
                    count=count,
                    resources=dict(needs),
                )
            )

    out.read(table.rows(out), make)
    if out.dropped:
        raise InputError(
            [
                Problem(wrong.sentence, "correct it", file=file, line=wrong.row, field=wrong.field)
                for wrong in out.dropped
            ]
        )
    if not nodes:
        raise InputError((Problem("has no node with a GPU", "give a list of nodes", file=file),))
    return Inventory(sites=(Site(name=site, kind="simulated", nodes=tuple(nodes)),))


def read_dlrm(text: str, file: str, options: ReadOptions) -> Workload:
    """Return the inference instances of 2025 as jobs; an application is a queue.

    Those that were there before the log, or still are after it, are dropped.

    Raises:
        InputError: A column is missing, or no row is usable.
    """
    table, out = Table(text, file=file), Collector("dlrm", file, options)
    name, gpus, app = (table.required(c) for c in ("instance_sn", "gpu_request", "app_name"))
    created, deleted = table.required("creation_time"), table.required("deletion_time")
    scheduled = table.required("scheduled_time")

    def make(row: int, cells: list[str]) -> Draft:
        devices = whole(cells[gpus], "gpu_request")
        if devices < 1:
            raise RowError("no_devices", "asks for no GPU", "gpu_request")
        if not cells[created]:
            raise RowError("before_log", "was there before the log begins", "creation_time")
        if not cells[deleted]:
            raise RowError("unfinished", "is still there when the log ends", "deletion_time")
        if not cells[scheduled]:
            raise RowError("never_ran", "was never scheduled", "scheduled_time")
        return Draft(
            row=row,
            job_id=cells[name],
            submit_s=number(cells[created], "creation_time"),
            work_s=number(cells[deleted], "deletion_time")
            - number(cells[scheduled], "scheduled_time"),
            steps=alone(devices),
            queue=cells[app],
        )

    out.read(table.rows(out), make)
    return out.workload()


def _needs(cores_milli: str, memory_mib: str, *, up: bool = True) -> Needs:
    """Return whole cores and GiB: what is needed rounded up, what is there rounded down."""
    sign = -1 if up else 1
    amounts = (
        ("cpus", whole(cores_milli or "0", "cpu_milli"), 1000),
        ("memory_gib", whole(memory_mib or "0", "memory_mib"), 1024),
    )
    return tuple((name, sign * (sign * amount // unit)) for name, amount, unit in amounts)


def _cell(cells: list[str], place: int) -> str:
    return cells[place] if place >= 0 else ""
