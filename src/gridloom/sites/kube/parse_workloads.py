"""From Kueue's Workload to whether it waits, may run, or was put out again, and why (pure)."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

import msgspec

from gridloom.sites.kube.endings import EndKind
from gridloom.sites.kube.quantity import amount
from gridloom.sites.kube.reading import (
    Condition,
    Metadata,
    Part,
    condition,
    convert,
    holding,
    said,
    seconds,
)


class WorkloadState(StrEnum):
    """Where a workload is with Kueue."""

    PENDING = "pending"
    """It waits for quota."""
    RESERVED = "reserved"
    """It has quota, and waits for a check."""
    ADMITTED = "admitted"
    """Its pods may run."""
    EVICTED = "evicted"
    """It lost its quota: its job is suspended, and it waits to be queued again."""
    DEACTIVATED = "deactivated"
    """It is not queued again unless somebody activates it."""
    FINISHED = "finished"


class PodSet(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one kind that were given quota.

    Attributes:
        name: Of the set.
        count: How many pods.
        flavors: The flavour of each resource.
        usage: How much of each for all pods; thousandths of a core, bytes, devices.
    """

    name: str
    count: int
    flavors: dict[str, str]
    usage: dict[str, int]


class WorkloadSight(msgspec.Struct, frozen=True, kw_only=True):
    """One workload.

    Attributes:
        namespace: Where it is.
        name: Its name.
        owner: Kind and name of the job that it stands for, as ``Job/train-a1``; empty for none.
        owner_uid: What the cluster calls that job.
        queue: Its LocalQueue.
        priority: Its priority as a number; higher goes first.
        priority_class: Where that comes from.
        state: Where it is.
        sentence: Why, with Kueue's words.
        cluster_queue: Whose quota it has; empty for none.
        pod_sets: What it was given.
        pods_ready: Whether all its pods run.
        eviction: Kueue's reason for the last eviction; empty when it was never evicted, or runs
            again.
        eviction_kind: What that was.
        was_evicted: Whether it ever was, even if it runs again.
        evictions: How often it was evicted, by reason, where Kueue counts.
        requeues: How often it was queued again after a failure to start.
        requeue_s: When it is queued again, in seconds since the epoch; 0 for at once.
    """

    namespace: str
    name: str
    owner: str
    owner_uid: str
    queue: str
    priority: int
    priority_class: str
    state: WorkloadState
    sentence: str
    cluster_queue: str
    pod_sets: tuple[PodSet, ...]
    pods_ready: bool
    eviction: str
    eviction_kind: EndKind | None
    was_evicted: bool
    evictions: dict[str, int]
    requeues: int
    requeue_s: float


class _Owner(Part, frozen=True, kw_only=True):
    kind: str
    name: str
    uid: str = ""
    controller: bool = False


class _Metadata(Metadata, frozen=True, kw_only=True):
    owner_references: tuple[_Owner, ...] = ()


class _ClassRef(Part, frozen=True, kw_only=True):
    name: str


class _Spec(Part, frozen=True, kw_only=True):
    active: bool = True
    queue_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    priority_class_ref: _ClassRef | None = None


class _Assignment(Part, frozen=True, kw_only=True):
    name: str = "main"
    count: int = 0
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, Fraction] = msgspec.field(default_factory=dict)


class _Admission(Part, frozen=True, kw_only=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[_Assignment, ...] = ()


class _Check(Part, frozen=True, kw_only=True):
    name: str
    state: str
    message: str = ""


class _Requeue(Part, frozen=True, kw_only=True):
    count: int = 0
    requeue_at: datetime | None = None


class _Count(Part, frozen=True, kw_only=True):
    reason: str
    count: int


class _Stats(Part, frozen=True, kw_only=True):
    evictions: tuple[_Count, ...] = ()


class _Status(Part, frozen=True, kw_only=True):
    admission: _Admission = _Admission()
    admission_checks: tuple[_Check, ...] = ()
    conditions: tuple[Condition, ...] = ()
    requeue_state: _Requeue = _Requeue()
    scheduling_stats: _Stats = _Stats()


class _Workload(Part, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


EVICTION_KINDS = (
    ("DeactivatedDueToMaximumExecutionTimeExceeded", EndKind.TIME_LIMIT),
    ("DeactivatedDueTo", EndKind.LAUNCH_FAILED),
    ("Deactivated", EndKind.CANCELLED),
    ("InactiveWorkload", EndKind.CANCELLED),
    ("PodsReadyTimeout", EndKind.LAUNCH_FAILED),
    ("NodeFailures", EndKind.NODE_FAILED),
    ("AdmissionCheck", EndKind.LAUNCH_FAILED),
    ("", EndKind.PREEMPTED),
)
"""What Kueue's reasons for an eviction are, by how they begin: ``Preempted``, a stopped queue, and
what is not known yet took the place away from a workload that did nothing wrong."""

_PREEMPTIONS = {
    "InClusterQueue": "a workload of higher priority in its queue took its place",
    "InCohortReclamation": "a queue of its cohort took back what it had lent",
    "InCohortFairSharing": "a queue of its cohort was short of its fair share",
    "InCohortReclaimWhileBorrowing": "a queue of its cohort needed what it had borrowed",
}


def read_workload(data: object) -> WorkloadSight:
    """Return a Workload; raise ``SiteError`` when it is none."""
    workload = convert(data, _Workload)
    spec, status = workload.spec, workload.status
    owners = sorted(workload.metadata.owner_references, key=lambda one: not one.controller)
    state, sentence = _state(workload)
    evicted = holding(status.conditions, "Evicted")
    counts: dict[str, int] = {}
    for one in status.scheduling_stats.evictions:
        counts[one.reason] = counts.get(one.reason, 0) + one.count
    by_ref = spec.priority_class_ref.name if spec.priority_class_ref else ""
    return WorkloadSight(
        namespace=workload.metadata.namespace,
        name=workload.metadata.name,
        owner=f"{owners[0].kind}/{owners[0].name}" if owners else "",
        owner_uid=owners[0].uid if owners else "",
        queue=spec.queue_name,
        priority=spec.priority,
        priority_class=by_ref or spec.priority_class_name,
        state=state,
        sentence=sentence,
        cluster_queue=status.admission.cluster_queue,
        pod_sets=tuple(map(_pod_set, status.admission.pod_set_assignments)),
        pods_ready=holding(status.conditions, "PodsReady") is not None,
        eviction=evicted.reason if evicted else "",
        eviction_kind=eviction_kind(evicted.reason) if evicted else None,
        was_evicted=condition(status.conditions, "Evicted") is not None,
        evictions=counts,
        requeues=status.requeue_state.count,
        requeue_s=seconds(status.requeue_state.requeue_at),
    )


def eviction_kind(reason: str) -> EndKind:
    """Return what an eviction was, by Kueue's reason for it."""
    return next(kind for prefix, kind in EVICTION_KINDS if reason.startswith(prefix))


def _state(workload: _Workload) -> tuple[WorkloadState, str]:
    conditions = workload.status.conditions
    if finished := holding(conditions, "Finished"):
        return WorkloadState.FINISHED, said("it is over", finished.reason, finished.message)
    evicted = holding(conditions, "Evicted")
    if not workload.spec.active:
        words = (evicted.reason, evicted.message) if evicted else ()
        return WorkloadState.DEACTIVATED, said("it is not queued any more", *words)
    if evicted:
        return WorkloadState.EVICTED, _eviction(evicted, conditions)
    if holding(conditions, "Admitted"):
        return WorkloadState.ADMITTED, ""
    if holding(conditions, "QuotaReserved"):
        return WorkloadState.RESERVED, _checks(workload.status.admission_checks)
    waits = condition(conditions, "QuotaReserved")
    if waits is None:
        return WorkloadState.PENDING, "Kueue has not looked at it yet"
    return WorkloadState.PENDING, said("it waits for quota", waits.reason, waits.message)


def _eviction(evicted: Condition, conditions: Sequence[Condition]) -> str:
    preempted = holding(conditions, "Preempted")
    meaning = _PREEMPTIONS.get(preempted.reason, "") if preempted else ""
    return said(meaning or "it was put out", evicted.reason, evicted.message)


def _checks(checks: Sequence[_Check]) -> str:
    left = [one for one in checks if one.state != "Ready"]
    words = "; ".join(said(f"{one.name} is {one.state}", one.message) for one in left)
    return said("it has quota and waits for checks", words)


def _pod_set(assignment: _Assignment) -> PodSet:
    usage = assignment.resource_usage
    return PodSet(
        name=assignment.name,
        count=assignment.count,
        flavors=assignment.flavors,
        usage={name: amount(name, quantity) for name, quantity in sorted(usage.items())},
    )
