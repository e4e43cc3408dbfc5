"""From what squeue, sacct and sinfo print in columns of ours to records (pure).

Columns stand between characters that nobody types. What people write stands last, so that it may
hold anything; a record begins with a mark of its own, or with a number, so that it may hold the end
of a line, too.

Ask with ``TZ=UTC0`` and ``SLURM_TIME_FORMAT=standard`` in the environment.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import values
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.reasons import reason_code
from gridloom.sites.slurm.records import Job, Node
from gridloom.sites.slurm.states import job_states, node_states

T = TypeVar("T")
_Fields = Mapping[str, str]

BETWEEN = "\x1f"
BEFORE = "\x1e"

_SQUEUE = {
    "id": "%i",
    "raw_id": "%A",
    "array": "%F",
    "task": "%K",
    "state": "%T",
    "priority": "%Q",
    "submitted": "%V",
    "started": "%S",
    "ended": "%e",
    "limit": "%l",
    "count": "%D",
    "nodes": "%N",
    "batch_host": "%B",
    "gres": "%b",
    "partition": "%P",
    "account": "%a",
    "qos": "%q",
    "user": "%u",
    "reservation": "%v",
    "directory": "%Z",
    "dependency": "%E",
    "reason": "%r",
    "name": "%j",
    "comment": "%k",
}
SQUEUE_FORMAT = BEFORE + BETWEEN.join(_SQUEUE.values())
"""The value of squeue's ``--format``; with ``--start`` too, where a start is the expected one."""

PREEMPTIONS_FORMAT = "jobid:20,preempttime:30"
"""The value of squeue's ``--Format``, which alone has this column."""

_SACCT = {
    "raw_id": "JobIDRaw",
    "id": "JobID",
    "state": "State",
    "exit": "ExitCode",
    "derived_exit": "DerivedExitCode",
    "priority": "Priority",
    "submitted": "Submit",
    "started": "Start",
    "ended": "End",
    "limit": "TimelimitRaw",
    "count": "NNodes",
    "nodes": "NodeList",
    "partition": "Partition",
    "account": "Account",
    "qos": "QOS",
    "user": "User",
    "reservation": "Reservation",
    "reason": "Reason",
    "directory": "WorkDir",
    "name": "JobName",
    "comment": "Comment",
}
SACCT_FORMAT = ",".join(_SACCT.values())
"""The value of sacct's ``--format``, beside ``--parsable2 --noheader --delimiter`` with
``BETWEEN``."""

_SINFO = {
    "name": "%N",
    "hostname": "%n",
    "address": "%o",
    "state": "%T",
    "partition": "%R",
    "cpus": "%c",
    "cpus_by_state": "%C",
    "memory": "%m",
    "gres": "%G",
    "features": "%b",
    "version": "%v",
    "since": "%H",
    "by": "%u",
    "reason": "%E",
}
SINFO_FORMAT = BEFORE + BETWEEN.join(_SINFO.values())
"""The value of sinfo's ``--format``, beside ``--Node``."""

_ARRAY = re.compile(r"(\d+)_(?:(\d+)|\[(.*)\])", re.DOTALL)
_HET = re.compile(r"(\d+)\+(\d+)")


def squeue(text: str) -> tuple[Job, ...]:
    """Return the jobs of ``squeue --noheader`` with ``SQUEUE_FORMAT``.

    Raises:
        SiteError: A record cannot be read.
    """
    return _records("squeue", text.split(BEFORE)[1:], tuple(_SQUEUE), _queued)


def preemptions(text: str) -> dict[int, float]:
    """Return when each job was preempted, of ``squeue`` with ``PREEMPTIONS_FORMAT``; 0: never.

    Raises:
        SiteError: A line cannot be read.
    """
    found = {}
    for line in text.splitlines():
        try:
            job_id, when = line.split()
            found[int(job_id)] = values.time_s(when) or 0.0
        except ValueError:
            raise SiteError(f"squeue printed no id and time but {line[:80]!r}") from None
    return found


def sacct(text: str) -> tuple[Job, ...]:
    """Return the jobs, not their steps, of ``sacct`` with ``SACCT_FORMAT``.

    With ``--duplicates`` a job that was requeued stands there once for each of its runs.

    Raises:
        SiteError: A record cannot be read.
    """
    lines = re.split(rf"^(?=\d+(?:\.\w+)?{BETWEEN})", text, flags=re.MULTILINE)
    whole = [line for line in lines if line.strip() and "." not in line.partition(BETWEEN)[0]]
    return _records("sacct", whole, tuple(_SACCT), _accounted)


def sinfo(text: str) -> tuple[Node, ...]:
    """Return the nodes of ``sinfo --noheader --Node`` with ``SINFO_FORMAT``, each once.

    Raises:
        SiteError: A record cannot be read.
    """
    found: dict[str, Node] = {}
    for node in _records("sinfo", text.split(BEFORE)[1:], tuple(_SINFO), _sinfo):
        before = found.get(node.name)
        parts = (before.partitions if before else ()) + node.partitions
        found[node.name] = msgspec.structs.replace(node, partitions=tuple(dict.fromkeys(parts)))
    return tuple(found.values())


def _records(
    tool: str, parts: Iterable[str], names: tuple[str, ...], read: Callable[[_Fields], T]
) -> tuple[T, ...]:
    found = []
    for part in parts:
        columns = part.removesuffix("\n").split(BETWEEN, len(names) - 1)
        if len(columns) != len(names):
            raise SiteError(
                f"{tool} printed {len(columns)} columns where {len(names)} were asked for: "
                f"{part[:80]!r}"
            )
        told = dict(zip(names, columns, strict=True))
        try:
            found.append(read(told))
        except ValueError as error:
            raise SiteError(f"{tool}: {columns[0]}: {error}") from None
    return tuple(found)


def _queued(told: _Fields) -> Job:
    array = told["array"] if told["array"] != told["raw_id"] or "_" in told["id"] else ""
    het = _HET.fullmatch(told["id"])
    return Job(
        job_id=values.count(told["raw_id"]),
        array_job_id=values.integer(array),
        array_task_id=int(told["task"]) if told["task"].isdigit() else None,
        array_tasks="" if told["task"].isdigit() else values.text(told["task"]),
        het_job_id=int(het[1]) if het else None,
        het_offset=int(het[2]) if het else None,
        name=told["name"],
        comment=_plain(told["comment"]),
        user=told["user"],
        account=_plain(told["account"]),
        qos=_plain(told["qos"]),
        partition=told["partition"],
        reservation=_plain(told["reservation"]),
        states=job_states((told["state"],)),
        reason=reason_code(values.text(told["reason"])),
        reason_text=values.text(told["reason"]),
        dependency=values.text(told["dependency"]),
        nodes=values.hosts(told["nodes"]),
        node_count=values.integer(told["count"].partition("-")[0]),
        gres=gres(told["gres"]),
        submitted_s=values.time_s(told["submitted"]),
        started_s=values.time_s(told["started"]),
        ended_s=values.time_s(told["ended"]),
        time_limit_s=values.duration_s(told["limit"]),
        batch_host=values.text(told["batch_host"]),
        priority=values.integer(told["priority"]),
        work_directory=told["directory"],
    )


def _accounted(told: _Fields) -> Job:
    array, het = _ARRAY.fullmatch(told["id"]), _HET.fullmatch(told["id"])
    limit = values.number(told["limit"])
    return Job(
        job_id=int(told["raw_id"]),
        array_job_id=int(array[1]) if array else None,
        array_task_id=int(array[2]) if array and array[2] else None,
        array_tasks=(array[3] or "") if array else "",
        het_job_id=int(het[1]) if het else None,
        het_offset=int(het[2]) if het else None,
        name=told["name"],
        comment=told["comment"],
        user=told["user"],
        account=told["account"],
        qos=told["qos"],
        partition=told["partition"],
        reservation=told["reservation"],
        states=job_states((told["state"],)),
        reason=reason_code(values.text(told["reason"])),
        nodes=values.hosts(told["nodes"]),
        node_count=values.integer(told["count"]),
        submitted_s=values.time_s(told["submitted"]),
        started_s=values.time_s(told["started"]),
        ended_s=values.time_s(told["ended"]),
        time_limit_s=None if limit is None else limit * 60,
        exit=values.exit_code(told["exit"]),
        derived_exit=values.exit_code(told["derived_exit"]),
        priority=values.integer(told["priority"]),
        work_directory=told["directory"],
    )


def _sinfo(told: _Fields) -> Node:
    reason = values.text(told["reason"])
    return Node(
        name=told["name"],
        hostname=told["hostname"],
        address=told["address"],
        cpus=values.count(told["cpus"].rstrip("+")),
        cpus_allocated=values.integer(told["cpus_by_state"].partition("/")[0]),
        memory_mib=values.count(told["memory"].rstrip("+")),
        gres=gres(told["gres"]),
        features=values.words(told["features"]),
        states=node_states((told["state"],)),
        reason=reason,
        reason_by=values.text(told["by"]) if reason else "",
        reason_since_s=values.time_s(told["since"]),
        partitions=values.words(told["partition"]),
        version=values.text(told["version"]),
    )


def _plain(said: str) -> str:
    return "" if said in ("(null)", "N/A") else said
