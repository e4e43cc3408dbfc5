"""From what ``scontrol -o show`` prints to records (pure), for releases whose scontrol has no JSON.

It prints one line a record, ``Key=value`` with spaces between values and inside of them: a key
that is known ends the value before it. So whoever can name a job can make a name that looks like
keys: what decides about a job is to be asked of squeue and sacct.

Ask with ``TZ=UTC0`` in the environment: times are told without a zone.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import values
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.reasons import reason_code
from gridloom.sites.slurm.records import Gres, Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.states import job_states, node_states

T = TypeVar("T")
_Fields = Mapping[str, str]

# A key begins with a capital; what stands before "=" inside of Slurm's own values does not, as in
# CfgTRES=cpu=32. In what people wrote it may: such a text ends only at a key that can follow it.
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=")
_OUTPUTS = ("StdErr", "StdIn", "StdOut")
_TAIL = (
    *("Power", "TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask", "TresBind", "TresFreq"),
    *("MailUser", "MailType", "CpusPerTres", "MemPerTres", "NtasksPerTRES", "ReservationName"),
)
_AFTER_TEXT: dict[str, tuple[str, ...]] = {
    "JobName": ("HetJobIdSet", "UserId"),
    "Comment": (*_OUTPUTS, *_TAIL, "AdminComment", "Extra", "InstanceId", "Reason"),
    "Command": ("WorkDir", "SubmitLine"),
    "SubmitLine": ("WorkDir",),
    "WorkDir": ("AdminComment", "SystemComment", "Comment", *_OUTPUTS, *_TAIL),
    "AdminComment": ("SystemComment", "Comment", *_OUTPUTS),
    "SystemComment": ("Comment", *_OUTPUTS),
    "StdErr": ("StdIn",),
    "StdIn": ("StdOut",),
    "StdOut": _TAIL,
    "OS": ("RealMemory",),
    "Extra": ("InstanceId", "InstanceType", "Reason", "ReservationName", "Comment"),
    "Reason": ("ReservationName", "Comment", "Dependency"),
}
_REASON = re.compile(r"(?P<text>.*?)\s*\[(?P<by>[^@\[\]]*)@(?P<since>[^@\[\]]+)\]", re.DOTALL)


def jobs(text: str) -> tuple[Job, ...]:
    """Return the jobs of ``scontrol -o show job``, with or without ``-d``.

    Raises:
        SiteError: A line cannot be read.
    """
    return _records(text, "JobId", _job)


def nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes of ``scontrol -o show node``; with ``-d`` it tells which devices are taken.

    Raises:
        SiteError: A line cannot be read.
    """
    return _records(text, "NodeName", _node)


def partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions of ``scontrol -o show partition``.

    Raises:
        SiteError: A line cannot be read.
    """
    return _records(text, "PartitionName", _partition)


def reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations of ``scontrol -o show reservation``.

    Raises:
        SiteError: A line cannot be read.
    """
    return _records(text, "ReservationName", _reservation)


def licences(text: str) -> tuple[Licence, ...]:
    """Return the licences of ``scontrol -o show lic``.

    Raises:
        SiteError: A line cannot be read.
    """
    return _records(text, "LicenseName", _licence)


def fields(line: str) -> list[tuple[str, str]]:
    """Return the keys and values of one record, in their order; a key may stand there again."""
    found: list[tuple[str, str]] = []
    starts: list[tuple[int, int]] = []
    for match in _KEY.finditer(line):
        last = found[-1][0] if found else ""
        if last in _AFTER_TEXT and match[1] not in _AFTER_TEXT[last]:
            continue
        found.append((match[1], ""))
        starts.append((match.start(1), match.end()))
    ends = [start for start, _ in starts[1:]] + [len(line)]
    return [
        (key, line[begin:end].strip())
        for (key, _), (_, begin), end in zip(found, starts, ends, strict=True)
    ]


def _records(text: str, first: str, read: Callable[[list[tuple[str, str]]], T]) -> tuple[T, ...]:
    """Read every record: a line, or without ``-o`` the lines up to the next one with ``first``."""
    found = []
    for part in re.split(rf"^(?={first}=)", text, flags=re.MULTILINE):
        if not part.startswith(f"{first}="):
            _check_empty(part)
            continue
        pairs = fields(" ".join(part.split()))
        try:
            found.append(read(pairs))
        except KeyError as error:
            raise SiteError(f"scontrol: {first}={pairs[0][1]}: {error} is missing") from None
        except ValueError as error:
            raise SiteError(f"scontrol: {first}={pairs[0][1]}: {error}") from None
    return tuple(found)


def _check_empty(text: str) -> None:
    """Accept what scontrol says when there is nothing to show."""
    said = text.strip()
    if said and not re.match(r"No \w+ (?:in the system|configured)", said):
        raise SiteError(f"scontrol printed no record but {said[:80]!r}")


def _first(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(reversed(pairs))


def _job(pairs: list[tuple[str, str]]) -> Job:
    told = _first(pairs)
    return Job(
        job_id=values.count(told["JobId"]),
        array_job_id=values.integer(told.get("ArrayJobId")),
        array_task_id=_task_id(told),
        array_tasks="" if _task_id(told) is not None else told.get("ArrayTaskId", ""),
        het_job_id=values.integer(told.get("HetJobId")),
        het_offset=values.integer(told.get("HetJobOffset")),
        name=_plain(told, "JobName"),
        comment=_plain(told, "Comment"),
        user=told.get("UserId", "").partition("(")[0],
        account=_plain(told, "Account"),
        qos=_plain(told, "QOS"),
        partition=_plain(told, "Partition"),
        reservation=_plain(told, "Reservation"),
        states=job_states((told["JobState"],)),
        reason=reason_code(values.text(told.get("Reason"))),
        reason_text=values.text(told.get("Reason")).replace("_", " "),
        dependency=values.text(told.get("Dependency")),
        nodes=values.hosts(told.get("NodeList")),
        node_count=values.integer(told.get("NumNodes", "").partition("-")[0]),
        gres=gres(told.get("TresPerNode")),
        gres_held=_gres_held(pairs),
        submitted_s=values.time_s(told.get("SubmitTime")),
        started_s=values.time_s(told.get("StartTime")),
        ended_s=values.time_s(told.get("EndTime")),
        time_limit_s=values.duration_s(told.get("TimeLimit", "")),
        exit=values.exit_code(told.get("ExitCode")),
        derived_exit=values.exit_code(told.get("DerivedExitCode")),
        restarts=values.integer(told.get("Restarts")),
        batch_host=values.text(told.get("BatchHost")),
        priority=values.integer(told.get("Priority")),
        work_directory=_plain(told, "WorkDir"),
    )


def _task_id(told: _Fields) -> int | None:
    said = told.get("ArrayTaskId", "")
    return int(said) if said.isdigit() else None


def _gres_held(pairs: list[tuple[str, str]]) -> tuple[tuple[Gres, ...], ...]:
    """Return the devices of each node, which ``-d`` tells once for nodes that have the same."""
    found: list[tuple[Gres, ...]] = []
    names: tuple[str, ...] = ()
    for key, value in pairs:
        if key == "Nodes":
            names = values.hosts(value)
        elif key == "GRES":
            found += [gres(value)] * len(names)
    return tuple(found)


def _node(pairs: list[tuple[str, str]]) -> Node:
    told = _first(pairs)
    reason = _REASON.fullmatch(told.get("Reason", ""))
    used = told.get("GresUsed")
    return Node(
        name=told["NodeName"],
        address=_plain(told, "NodeAddr"),
        hostname=_plain(told, "NodeHostName"),
        cpus=values.count(told.get("CPUTot")),
        cpus_allocated=values.integer(told.get("CPUAlloc")),
        memory_mib=values.count(told.get("RealMemory")),
        memory_allocated_mib=values.integer(told.get("AllocMem")),
        gres=gres(told.get("Gres")),
        gres_used=_gres_allocated(told) if used is None else gres(used),
        features=values.words(told.get("ActiveFeatures")),
        states=node_states((told.get("State", ""),)),
        reason=reason["text"] if reason else _plain(told, "Reason"),
        reason_by=reason["by"] if reason else "",
        reason_since_s=values.time_s(reason["since"]) if reason else None,
        partitions=values.words(told.get("Partitions")),
        reservation=_plain(told, "ReservationName"),
        topology=_plain(told, "Topology"),
        version=_plain(told, "Version"),
    )


def _gres_allocated(told: _Fields) -> tuple[Gres, ...] | None:
    """Return the devices that ``AllocTRES`` names, where Slurm is set up to count them."""
    if "gres/" not in told.get("CfgTRES", ""):
        return None
    taken = [item for item in told.get("AllocTRES", "").split(",") if item.startswith("gres/")]
    # ``gres/gpu=8,gres/gpu:h100=8`` tells the same devices twice
    typed = {item.split(":")[0] for item in taken if ":" in item}
    return gres(",".join(item for item in taken if item.split("=")[0] not in typed))


def _partition(pairs: list[tuple[str, str]]) -> Partition:
    told = _first(pairs)
    return Partition(
        name=told["PartitionName"],
        states=values.words(told.get("State")),
        is_default=told.get("Default") == "YES",
        nodes=values.hosts(told.get("Nodes")),
        cpus=values.count(told.get("TotalCPUs")),
        max_time_s=values.duration_s(told.get("MaxTime", "")),
        default_time_s=values.duration_s(told.get("DefaultTime", "")),
        min_nodes=values.count(told.get("MinNodes")),
        max_nodes=values.number(told.get("MaxNodes")),
        priority_tier=values.count(told.get("PriorityTier")),
        preempt_mode=values.words(told.get("PreemptMode")),
        grace_s=values.count(told.get("GraceTime")),
        accounts=_allowed(told, "AllowAccounts"),
        accounts_denied=_allowed(told, "DenyAccounts"),
        qos_allowed=_allowed(told, "AllowQos"),
        groups=_allowed(told, "AllowGroups"),
        qos=_plain(told, "QoS"),
    )


def _reservation(pairs: list[tuple[str, str]]) -> Reservation:
    told = _first(pairs)
    return Reservation(
        name=told["ReservationName"],
        start_s=values.time_s(told.get("StartTime")),
        end_s=values.time_s(told.get("EndTime")),
        nodes=values.hosts(told.get("Nodes")),
        node_count=values.count(told.get("NodeCnt")),
        partition=_plain(told, "PartitionName"),
        flags=values.words(told.get("Flags")),
        users=values.words(told.get("Users")),
        accounts=values.words(told.get("Accounts")),
        groups=values.words(told.get("Groups")),
        licences=values.words(told.get("Licenses")),
        features=values.words(told.get("Features")),
    )


def _licence(pairs: list[tuple[str, str]]) -> Licence:
    told = _first(pairs)
    return Licence(
        name=told["LicenseName"],
        total=values.count(told.get("Total")),
        used=values.count(told.get("Used")),
        free=values.count(told.get("Free")),
        reserved=values.count(told.get("Reserved")),
        is_remote=told.get("Remote") == "yes",
    )


def _plain(told: _Fields, key: str) -> str:
    value = told.get(key, "")
    return "" if value in ("(null)", "N/A") else value


def _allowed(told: _Fields, key: str) -> tuple[str, ...]:
    said = values.words(told.get(key))
    return () if said == ("ALL",) else said
