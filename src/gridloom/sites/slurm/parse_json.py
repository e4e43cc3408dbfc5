"""From Slurm's JSON to records (pure): ``--json`` of its commands, and slurmrestd to v0.0.42.

The shapes changed from release to release, often without a new name, so that what is there is
read, whatever the version says. sacct and slurmdbd tell a job in a shape of their own.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import msgspec

from gridloom.base.errors import SiteError
from gridloom.sites.slurm import values
from gridloom.sites.slurm.answer import Row, answer, find, rows
from gridloom.sites.slurm.gres import gres
from gridloom.sites.slurm.records import Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.states import job_states, node_states


def jobs(data: bytes | str, only: Container[int] | None = None) -> tuple[Job, ...]:
    """Return the jobs of squeue, scontrol, sacct, ``/slurm/jobs`` or ``/slurmdb/jobs``.

    sacct of 22.05 tells every exit code as 0 here: ask it for text.

    Args:
        data: The answer.
        only: Ids of those that are meant, of heterogeneous ones that of the first part; ``None``
            for all. Nothing is made of the others.

    Raises:
        SlurmError: The answer tells of errors, as of a job that Slurm does not know.
        SiteError: It is not such an answer.
    """
    said = answer(data)
    if only is not None and isinstance(said.get("jobs"), list):
        said = {"jobs": [row for row in said["jobs"] if _is_meant(row, only)]}
    return rows(said, "jobs", _job)


def nodes(data: bytes | str) -> tuple[Node, ...]:
    """Return the nodes of scontrol, sinfo or ``/slurm/nodes``.

    sinfo of 23.02 and later tells like nodes together, once a partition: they are taken apart.

    Raises:
        SlurmError: The answer tells of errors.
        SiteError: It is not such an answer.
    """
    said = answer(data)
    if "sinfo" not in said:
        return rows(said, "nodes", _node)
    found: dict[str, Node] = {}
    for group in rows(said, "sinfo", _sinfo_nodes):
        for node in group:
            before = found.get(node.name)
            parts = (before.partitions if before else ()) + node.partitions
            found[node.name] = msgspec.structs.replace(node, partitions=_once(parts))
    return tuple(found.values())


def partitions(data: bytes | str) -> tuple[Partition, ...]:
    """Return the partitions of scontrol, sinfo (23.02 and later) or ``/slurm/partitions``.

    Raises:
        SlurmError: The answer tells of errors.
        SiteError: It is not such an answer.
    """
    said = answer(data)
    if "sinfo" in said:
        told = rows(said, "sinfo", lambda row: _partition(row.get("partition", {})))
        return tuple({partition.name: partition for partition in told}.values())
    return rows(said, "partitions", _partition)


def reservations(data: bytes | str) -> tuple[Reservation, ...]:
    """Return the reservations of scontrol or ``/slurm/reservations``.

    Raises:
        SlurmError: The answer tells of errors.
        SiteError: It is not such an answer.
    """
    return rows(answer(data), "reservations", _reservation)


def licences(data: bytes | str) -> tuple[Licence, ...]:
    """Return the licences of scontrol or ``/slurm/licenses``.

    Raises:
        SlurmError: The answer tells of errors.
        SiteError: It is not such an answer.
    """
    return rows(answer(data), "licenses", _licence)


def submitted(data: bytes | str) -> int:
    """Return the id of the job that slurmrestd says it has taken.

    Raises:
        SlurmError: It has not.
        SiteError: It is not such an answer.
    """
    said = answer(data)
    job_id = find(said, "job_id", "result.job_id")
    if not isinstance(job_id, int):
        raise SiteError("slurmrestd's answer to a job names no job_id")
    return job_id


@dataclass(frozen=True)
class _Reader:
    """Reads the fields of one row, each at the first place where it is told."""

    row: Row

    def any(self, *paths: str) -> Any:
        return find(self.row, *paths)

    def plain(self, *paths: str) -> str:
        """Return what a person wrote: no word of it stands for nothing."""
        value = self.any(*paths)
        return value if isinstance(value, str) else ""

    def name(self, *paths: str) -> str:
        """Return what every row must have."""
        if not (value := self.plain(*paths)):
            raise ValueError(f"{paths[0]} is missing")
        return value

    def text(self, *paths: str) -> str:
        return values.text(self.any(*paths))

    def words(self, *paths: str) -> tuple[str, ...]:
        return values.words(self.any(*paths))

    def integer(self, *paths: str) -> int | None:
        return values.integer(self.any(*paths))

    def count(self, *paths: str) -> int:
        return values.count(self.any(*paths))

    def time_s(self, *paths: str) -> float | None:
        return values.time_s(self.any(*paths))


def _job(row: Row) -> Job:
    read = _Reader(row)
    array_id = read.integer("array_job_id", "array.job_id")
    het_id = read.integer("het_job_id", "het.job_id")
    job_id = read.integer("job_id")
    if job_id is None:
        raise ValueError("job_id is missing")
    return Job(
        job_id=job_id,
        array_job_id=array_id or None,
        array_task_id=read.integer("array_task_id", "array.task_id") if array_id else None,
        array_tasks=read.text("array_task_string", "array.task"),
        het_job_id=het_id or None,
        het_offset=read.integer("het_job_offset", "het.job_offset") if het_id else None,
        name=read.plain("name"),
        comment=read.plain("comment", "comment.job"),
        user=read.plain("user_name", "association.user", "user"),
        account=read.plain("account", "association.account"),
        qos=read.plain("qos"),
        partition=read.plain("partition"),
        reservation=read.plain("resv_name", "reservation.name"),
        states=job_states(read.words("job_state", "state.current")),
        reason=read.text("state_reason", "state.reason"),
        reason_text=read.plain("state_description"),
        dependency=read.text("dependency"),
        nodes=values.hosts(read.any("nodes")),
        node_count=read.integer("node_count", "allocation_nodes"),
        gres=_gres_asked(read),
        gres_held=tuple(gres(item) for item in read.words("gres_detail")),
        submitted_s=read.time_s("submit_time", "time.submission"),
        started_s=read.time_s("start_time", "time.start"),
        ended_s=read.time_s("end_time", "time.end"),
        time_limit_s=values.minutes_s(read.any("time_limit", "time.limit")),
        exit=values.exit_code(read.any("exit_code")),
        derived_exit=values.exit_code(read.any("derived_exit_code")),
        restarts=read.integer("restart_cnt"),
        batch_host=read.text("batch_host"),
        priority=read.integer("priority"),
        work_directory=read.plain("current_working_directory", "working_directory"),
        preempted_s=_preempted_s(read),
    )


def _is_meant(row: Any, only: Container[int]) -> bool:
    read = _Reader(row) if isinstance(row, dict) else _Reader({})
    return read.integer("job_id") in only or read.integer("het_job_id", "het.job_id") in only


def _preempted_s(read: _Reader) -> float | None:
    told = read.any("preempt_time")
    return None if told is None else values.time_s(told) or 0.0


def _gres_asked(read: _Reader) -> tuple[Any, ...]:
    """Return the devices of what is asked for on each node; other resources stand beside them."""
    asked = [item for item in read.words("tres_per_node") if item.startswith(("gres", "gpu"))]
    return gres(",".join(asked))


def _node(row: Row) -> Node:
    read = _Reader(row)
    return Node(
        name=read.name("name"),
        address=read.plain("address"),
        hostname=read.plain("hostname"),
        cpus=read.count("cpus"),
        cpus_allocated=read.integer("alloc_cpus"),
        memory_mib=read.count("real_memory"),
        memory_allocated_mib=read.integer("alloc_memory"),
        gres=gres(read.any("gres")),
        gres_used=gres(read.any("gres_used")),
        features=read.words("active_features", "features"),
        states=node_states((*read.words("state"), *read.words("state_flags"))),
        reason=read.text("reason"),
        reason_by=read.text("reason_set_by_user"),
        reason_since_s=read.time_s("reason_changed_at"),
        partitions=read.words("partitions"),
        reservation=read.text("reservation"),
        topology=read.text("topology"),
        version=read.text("version", "slurmd_version"),
    )


def _sinfo_nodes(row: Row) -> list[Node]:
    read = _Reader(row)
    has = gres(read.any("gres.total"))
    used = gres(read.any("gres.used"))
    return [
        Node(
            name=name,
            cpus=read.count("cpus.maximum"),
            memory_mib=read.count("memory.maximum"),
            gres=has,
            gres_used=used,
            features=read.words("features.active"),
            states=node_states(read.words("node.state")),
            reason=read.text("reason.description"),
            reason_by=read.text("reason.user"),
            reason_since_s=read.time_s("reason.time"),
            partitions=read.words("partition.name"),
            reservation=read.text("reservation"),
        )
        for name in values.hosts(read.any("nodes.nodes"))
    ]


def _partition(row: Row) -> Partition:
    read = _Reader(row)
    flags = [flag.lower() for flag in (*read.words("flags"), *read.words("partition.flags"))]
    return Partition(
        name=read.name("name"),
        states=tuple(state.upper() for state in read.words("state", "partition.state")),
        is_default="default" in flags,
        nodes=values.hosts(read.any("nodes.configured", "nodes")),
        cpus=read.count("total_cpus", "cpus.total"),
        max_time_s=values.minutes_s(read.any("max_time_limit", "maximums.time")),
        default_time_s=values.minutes_s(read.any("default_time_limit", "defaults.time")),
        min_nodes=read.count("min nodes per job", "minimums.nodes"),
        max_nodes=values.limit(read.any("maximum_nodes_per_job", "maximums.nodes")),
        priority_tier=read.count("priority_tier", "priority.tier"),
        preempt_mode=tuple(mode.upper() for mode in read.words("preemption_mode")),
        grace_s=read.count("preemption_grace_time", "grace_time"),
        accounts=read.words("allowed_accounts", "accounts.allowed"),
        accounts_denied=read.words("denied_accounts", "accounts.deny"),
        qos_allowed=read.words("allowed_qos", "qos.allowed"),
        groups=read.words("allowed_groups", "groups.allowed"),
        qos=read.text("qos", "qos.assigned"),
    )


def _reservation(row: Row) -> Reservation:
    read = _Reader(row)
    return Reservation(
        name=read.name("name"),
        start_s=read.time_s("start_time"),
        end_s=read.time_s("end_time"),
        nodes=values.hosts(read.any("node_list")),
        node_count=read.count("node_count"),
        partition=read.text("partition"),
        flags=read.words("flags"),
        users=read.words("users"),
        accounts=read.words("accounts"),
        groups=read.words("groups"),
        licences=read.words("licenses"),
        features=read.words("features"),
    )


def _licence(row: Row) -> Licence:
    read = _Reader({key.lower(): value for key, value in row.items()})
    return Licence(
        name=read.name("licensename"),
        total=read.count("total"),
        used=read.count("used"),
        free=read.count("free"),
        reserved=read.count("reserved"),
        is_remote=bool(read.any("remote")),
    )


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
