"""What a Slurm has now, what of it is free, and what will be soon (pure)."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gridloom.model.inventory import CPU, SlurmAccess
from gridloom.sites.slurm.facts import Facts
from gridloom.sites.slurm.inventory import candidates, device_of, kind_of
from gridloom.sites.slurm.reasons import waiting
from gridloom.sites.slurm.records import Job, Licence, Node, Partition, Reservation
from gridloom.sites.slurm.states import JobPhase, NodeUse, job_phase, node_use

_USE = {
    NodeUse.USABLE: "in service",
    NodeUse.BUSY: "in service",
    NodeUse.DRAINED: "drained",
    NodeUse.DOWN: "down",
}


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike.

    Attributes:
        state: ``in service``, ``drained`` or ``down``.
        kind: Of their devices; ``cpu`` for none.
        nodes: How many.
        devices: How many all of them have.
        free: How many of those are free now.
        free_nodes: How many nodes are all free.
    """

    state: str
    kind: str
    nodes: int
    devices: int
    free: int
    free_nodes: int


class Soon(msgspec.Struct, frozen=True, kw_only=True):
    """What changes at a time that is known.

    Attributes:
        at_s: When, at the latest or as expected.
        what: ``ends``: a job has reached its limit; ``starts``: one that waits.
        slurm_id: Which job.
        name: What its user calls it.
        user: Whose it is.
        nodes: How many nodes it frees or takes.
        why: What it waits for.
    """

    at_s: float
    what: str
    slurm_id: int
    name: str
    user: str
    nodes: int
    why: str = ""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of a Slurm.

    Attributes:
        release: Of Slurm.
        nodes: In rows of alike ones.
        out_of_service: Reasons, by node.
        partitions: All of them.
        reservations: All of them.
        licences: All of them.
        running: How many jobs run.
        waiting: How many wait.
        waiting_open: How many of those Slurm tells no time of.
        soon: What ends and starts, earliest first.
    """

    release: str
    nodes: tuple[NodeRow, ...]
    out_of_service: dict[str, str]
    partitions: tuple[Partition, ...]
    reservations: tuple[Reservation, ...]
    licences: tuple[Licence, ...]
    running: int
    waiting: int
    waiting_open: int
    soon: tuple[Soon, ...]


def overview(access: SlurmAccess, facts: Facts, starts: Mapping[int, float]) -> Overview:
    """Return what the site's jobs may get, and all that everybody does there.

    Args:
        access: Of the site; its nodes are those of its partition, reservation and features.
        facts: What is known of its Slurm.
        starts: When jobs that wait are expected to start, by id.

    Raises:
        SiteError: There is no such partition or reservation.
    """
    nodes = candidates(access, facts.cluster)
    names = {node.name for node in nodes}
    running = [job for job in facts.jobs if job_phase(job.states) is JobPhase.RUNNING]
    waits = [
        job
        for job in facts.jobs
        if job_phase(job.states, job.reason) in (JobPhase.WAITING, JobPhase.HELD)
    ]
    soon = [*_ends(running, names), *_starts(waits, starts)]
    return Overview(
        release=facts.release,
        nodes=_rows(nodes, access),
        out_of_service={
            node.name: f"{'+'.join(node.states).lower()}: {node.reason or 'no reason is given'}"
            for node in nodes
            if node_use(node.states) >= NodeUse.DRAINED
        },
        partitions=facts.cluster.partitions,
        reservations=facts.cluster.reservations,
        licences=facts.licences,
        running=len(running),
        waiting=len(waits),
        waiting_open=sum(job.job_id not in starts for job in waits),
        soon=tuple(sorted(soon, key=lambda one: (one.at_s, one.slurm_id))),
    )


def _rows(nodes: Sequence[Node], access: SlurmAccess) -> tuple[NodeRow, ...]:
    kinds = {text: kind for kind, text in access.gres.items()}
    rows: dict[tuple[NodeUse, str], NodeRow] = {}
    for node in nodes:
        devices = device_of(node)
        kind = CPU
        if devices is not None:
            kind = kinds.get(f"{devices.name}:{devices.type}", kind_of(devices))
        count = devices.count if devices is not None else node.cpus
        use = max(node_use(node.states), NodeUse.BUSY)
        free = max(0, count - _used(node)) if _is_open(node) else 0
        before = rows.get((use, kind))
        rows[use, kind] = NodeRow(
            state=_USE[use],
            kind=kind,
            nodes=1 + (before.nodes if before else 0),
            devices=count + (before.devices if before else 0),
            free=free + (before.free if before else 0),
            free_nodes=(free == count) + (before.free_nodes if before else 0),
        )
    return tuple(rows[key] for key in sorted(rows))


def _is_open(node: Node) -> bool:
    return node_use(node.states) is NodeUse.USABLE


def _used(node: Node) -> int:
    """Return how many devices of a node are taken; where that is not told, by its cores."""
    devices = device_of(node)
    if devices is None:
        return node.cpus_allocated or 0
    if node.gres_used is None:
        return devices.count if node.cpus_allocated else 0
    return sum(
        one.count
        for one in node.gres_used
        if one.name == devices.name and one.type in ("", devices.type)
    )


def _ends(jobs: Iterable[Job], names: set[str]) -> Iterable[Soon]:
    for job in jobs:
        ours = [node for node in job.nodes if node in names]
        if job.ended_s is not None and ours:
            yield _soon(job, "ends", job.ended_s, len(ours))


def _starts(jobs: Iterable[Job], starts: Mapping[int, float]) -> Iterable[Soon]:
    for job in jobs:
        if (at_s := starts.get(job.job_id)) is not None:
            yield _soon(job, "starts", at_s, job.node_count or 1, waiting(job.reason).sentence)


def _soon(job: Job, what: str, at_s: float, nodes: int, why: str = "") -> Soon:
    return Soon(
        at_s=at_s,
        what=what,
        slurm_id=job.job_id,
        name=job.name,
        user=job.user,
        nodes=nodes,
        why=why,
    )
