"""Logs of clusters to streams of jobs: what there is, which format a text has, and its reader."""

from collections.abc import Callable

from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.sim.workload_helios import read_helios
from gridloom.sim.workload_journal import journal_inventory, read_journal
from gridloom.sim.workload_kube import read_kube
from gridloom.sim.workload_nouns import (
    Arrival,
    Dropped,
    ReadOptions,
    Workload,
    larger_than,
)
from gridloom.sim.workload_openb import openb_inventory, read_dlrm, read_openb
from gridloom.sim.workload_rows import decoded, numbered
from gridloom.sim.workload_sia import read_sia
from gridloom.sim.workload_slurm import read_sacct
from gridloom.sim.workload_swf import FIELDS, read_swf
from gridloom.sim.workload_tables import read_pai, read_philly, read_simple

__all__ = [
    "FORMATS",
    "Arrival",
    "Dropped",
    "ReadOptions",
    "Workload",
    "journal_inventory",
    "larger_than",
    "openb_inventory",
    "read",
    "sniff",
]

Reader = Callable[[str, str, ReadOptions], Workload]

FORMATS: dict[str, Reader] = {
    "simple": read_simple,
    "swf": read_swf,
    "slurm": read_sacct,
    "kube": read_kube,
    "journal": read_journal,
    "helios": read_helios,
    "acme": read_helios,
    "philly": read_philly,
    "pai": read_pai,
    "openb": read_openb,
    "dlrm": read_dlrm,
    "sia": read_sia,
}
"""The readers, by the name of their format."""

_COLUMNS: tuple[tuple[str, frozenset[str]], ...] = (
    ("philly", frozenset({"job_id", "duration_s", "num_gpus", "submit_local"})),
    ("openb", frozenset({"name", "num_gpu", "creation_time", "scheduled_time"})),
    ("dlrm", frozenset({"instance_sn", "gpu_request", "creation_time"})),
    ("sia", frozenset({"name", "time", "application", "num_replicas", "batch_size"})),
    ("acme", frozenset({"job_id", "gpu_num", "type", "state", "submit_time"})),
    ("helios", frozenset({"job_id", "gpu_num", "state", "submit_time"})),
    ("pai", frozenset({"submit_s", "duration_s", "units"})),
    ("simple", frozenset({"id", "submit", "duration", "gpus"})),
    ("simple", frozenset({"job_id", "submit_s", "duration_s", "num_gpus"})),
)
"""Columns by which a table is known, the more telling first."""

_LOOK = 65_536  # characters that are looked at


def read(
    data: str | bytes,
    *,
    format: str = "",  # noqa: A002 - as the flag is called
    file: str = "log",
    options: ReadOptions | None = None,
) -> Workload:
    """Return the jobs of a log.

    Args:
        data: All of it, as text or as bytes of text.
        format: One of `FORMATS`; empty to find out.
        file: Its name, for errors.
        options: What the log leaves open.

    Raises:
        InputError: The format is unknown, the text is none of it, or no row is usable.
    """
    text, notes = decoded(data, file)
    if not text.strip():
        raise InputError((Problem("is empty", "hand in a log with jobs", file=file),))
    found = format or sniff(text)
    known = ", ".join(FORMATS)
    if not found:
        problem = Problem("has an unknown format", f"say which one: {known}", file=file, line=1)
        raise InputError((problem,))
    if found not in FORMATS:
        raise InputError((Problem(f"there is no format {found}", f"choose one of {known}"),))
    workload = FORMATS[found](text, file, options or ReadOptions())
    return replace(workload, notes=(*notes, *workload.notes)) if notes else workload


def sniff(text: str) -> str | None:
    """Return the format that a text seems to have; nothing when it is none of `FORMATS`."""
    head = text.removeprefix("\ufeff")[:_LOOK]
    lines = [line for _, line in numbered(head)][:2]
    first = lines[0].strip() if lines else ""
    if first.startswith(("{", "[")):
        return _sniff_json(head, first)
    if first.startswith(";") or _is_swf(first):
        return "swf"
    if "|" in first:
        names = {name.strip("# ").lower() for name in first.split("|")}
        return "slurm" if {"jobid", "submit", "state"} <= names else None
    columns = {name.strip(' "').lower() for name in first.split(",")}
    return next((name for name, needed in _COLUMNS if needed <= columns), None)


def _sniff_json(head: str, first: str) -> str | None:
    if '"now_s"' in first and '"events"' in first:
        return "journal"
    return "kube" if '"kind"' in head and '"apiVersion"' in head else None


def _is_swf(line: str) -> bool:
    cells = line.split()
    return len(cells) == FIELDS and all(_is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
