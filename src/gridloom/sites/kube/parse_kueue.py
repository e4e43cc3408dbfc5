"""From Kueue's queues to quotas: ClusterQueue, LocalQueue, Cohort, ResourceFlavor, Topology (pure).

Versions of Kueue's API spell some fields differently (``cohort`` became ``cohortName``,
``flavorUsage`` became ``flavorsUsage``): both are read, by what the data has.
"""

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from gridloom.sites.kube.parse_nodes import Taint
from gridloom.sites.kube.quantity import amount
from gridloom.sites.kube.reading import Condition, Metadata, Part, condition, convert, said
from gridloom.sites.kube.submission import Toleration


class FlavorQuota(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one resource a queue or cohort has in one flavour, and uses.

    Amounts are thousandths of a core for ``cpu``, bytes for memory, and devices otherwise.

    Attributes:
        flavor: Name of the ResourceFlavor.
        resource: Name of the resource.
        nominal: Its own.
        borrowing: At most so much more from its cohort; nothing for no limit.
        lending: At most so much to its cohort; nothing for all.
        reserved: Held by workloads that were granted it, whether they run yet or not.
        used: Held by admitted workloads.
        borrowed: Part of ``used`` that is the cohort's.
    """

    flavor: str
    resource: str
    nominal: int
    borrowing: int | None = None
    lending: int | None = None
    reserved: int = 0
    used: int = 0
    borrowed: int = 0


class ClusterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Quota that one or more namespaces share.

    Attributes:
        name: Its name.
        cohort: With whom it lends and borrows; empty for nobody.
        quotas: In Kueue's order: a workload tries the flavours of a resource from first to last.
        strict: Whether a large workload at the head holds back those behind it.
        within_queue: Whom it preempts in the queue itself, in Kueue's words; ``Never`` for nobody.
        reclaim: Whom it preempts in its cohort to get back what it lent.
        borrow_preemption: Whom it preempts in its cohort while it borrows.
        fair_weight: Its weight where the cohort shares fairly.
        stop: ``Hold`` or ``HoldAndDrain`` when its administrator stopped it.
        active: Whether it admits workloads.
        sentence: Why not.
        pending: Workloads that wait.
        reserving: Workloads that hold quota.
        admitted: Workloads that may run.
    """

    name: str
    cohort: str
    quotas: tuple[FlavorQuota, ...]
    strict: bool
    within_queue: str
    reclaim: str
    borrow_preemption: str
    fair_weight: float
    stop: str
    active: bool
    sentence: str
    pending: int
    reserving: int
    admitted: int


class LocalQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The door of one namespace to a ClusterQueue.

    Attributes:
        namespace: Where it is.
        name: What a job's queue label says.
        cluster_queue: Whose quota it spends.
        stop: ``Hold`` or ``HoldAndDrain`` when its administrator stopped it.
        active: Whether it passes workloads on.
        sentence: Why not.
        pending: Workloads that wait.
        reserving: Workloads that hold quota.
        admitted: Workloads that may run.
        used: What they use, by flavour and resource.
    """

    namespace: str
    name: str
    cluster_queue: str
    stop: str
    active: bool
    sentence: str
    pending: int
    reserving: int
    admitted: int
    used: dict[str, dict[str, int]]


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """Queues that may borrow from each other.

    Attributes:
        name: Its name.
        parent: The cohort that it is part of; empty at the root.
        quotas: What it has beyond its queues'.
        fair_weight: Its weight among its parent's children.
    """

    name: str
    parent: str
    quotas: tuple[FlavorQuota, ...]
    fair_weight: float


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of nodes.

    Attributes:
        name: Its name.
        node_labels: What its nodes have.
        taints: What its nodes keep away, unless tolerated.
        tolerations: What workloads of it are given.
        topology: Name of its Topology; empty without topology-aware placement.
    """

    name: str
    node_labels: dict[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str


class KueueTopology(msgspec.Struct, frozen=True, kw_only=True):
    """Levels that Kueue places by.

    Attributes:
        name: Its name.
        levels: Node labels, outermost first.
    """

    name: str
    levels: tuple[str, ...]


class _Resource(Part, frozen=True, kw_only=True):
    name: str
    nominal_quota: Fraction = Fraction(0)
    borrowing_limit: Fraction | None = None
    lending_limit: Fraction | None = None


class _FlavorQuotas(Part, frozen=True, kw_only=True):
    name: str
    resources: tuple[_Resource, ...] = ()


class _Group(Part, frozen=True, kw_only=True):
    flavors: tuple[_FlavorQuotas, ...] = ()


class _Used(Part, frozen=True, kw_only=True):
    name: str
    total: Fraction = Fraction(0)
    borrowed: Fraction = Fraction(0)


class _Usage(Part, frozen=True, kw_only=True):
    name: str
    resources: tuple[_Used, ...] = ()


class _Fair(Part, frozen=True, kw_only=True):
    weight: Fraction = Fraction(1)


class _Borrow(Part, frozen=True, kw_only=True):
    policy: str = "Never"


class _Preemption(Part, frozen=True, kw_only=True):
    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: _Borrow = _Borrow()


class _QueueSpec(Part, frozen=True, kw_only=True):
    """Of a ClusterQueue, a LocalQueue or a Cohort: of what one lacks, the default stands."""

    cluster_queue: str = ""
    cohort: str = ""
    cohort_name: str = ""
    parent: str = ""
    parent_name: str = ""
    resource_groups: tuple[_Group, ...] = ()
    queueing_strategy: str = "BestEffortFIFO"
    preemption: _Preemption = _Preemption()
    fair_sharing: _Fair = _Fair()
    stop_policy: str = "None"


class _QueueStatus(Part, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[_Usage, ...] = ()
    flavors_usage: tuple[_Usage, ...] = ()
    flavor_usage: tuple[_Usage, ...] = ()
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0


class _Queue(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()


class _Toleration(Part, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class _FlavorSpec(Part, frozen=True, kw_only=True):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[_Toleration, ...] = ()
    topology_name: str = ""


class _Flavor(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _FlavorSpec = _FlavorSpec()


class _LevelSpec(Part, frozen=True, kw_only=True):
    node_label: str


class _TopologySpec(Part, frozen=True, kw_only=True):
    levels: list[_LevelSpec]


class _Topology(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _TopologySpec


def read_cluster_queue(data: object) -> ClusterQueue:
    """Return a ClusterQueue; raise ``SiteError`` when it is none."""
    queue = convert(data, _Queue)
    spec, status = queue.spec, queue.status
    active, sentence = _activity(queue)
    return ClusterQueue(
        name=queue.metadata.name,
        cohort=spec.cohort_name or spec.cohort,
        quotas=_quotas(queue),
        strict=spec.queueing_strategy == "StrictFIFO",
        within_queue=spec.preemption.within_cluster_queue,
        reclaim=spec.preemption.reclaim_within_cohort,
        borrow_preemption=spec.preemption.borrow_within_cohort.policy,
        fair_weight=float(spec.fair_sharing.weight),
        stop=_stop(spec),
        active=active,
        sentence=sentence,
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
    )


def read_local_queue(data: object) -> LocalQueue:
    """Return a LocalQueue; raise ``SiteError`` when it is none."""
    queue = convert(data, _Queue)
    status = queue.status
    active, sentence = _activity(queue)
    used: dict[str, dict[str, int]] = {}
    usage = _usage(status.flavors_usage or status.flavor_usage)
    for (flavor, resource), (total, _) in usage.items():
        used.setdefault(flavor, {})[resource] = total
    return LocalQueue(
        namespace=queue.metadata.namespace,
        name=queue.metadata.name,
        cluster_queue=queue.spec.cluster_queue,
        stop=_stop(queue.spec),
        active=active,
        sentence=sentence,
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        used=used,
    )


def read_cohort(data: object) -> Cohort:
    """Return a Cohort; raise ``SiteError`` when it is none."""
    queue = convert(data, _Queue)
    return Cohort(
        name=queue.metadata.name,
        parent=queue.spec.parent_name or queue.spec.parent,
        quotas=_quotas(queue),
        fair_weight=float(queue.spec.fair_sharing.weight),
    )


def read_flavor(data: object) -> Flavor:
    """Return a ResourceFlavor; raise ``SiteError`` when it is none."""
    flavor = convert(data, _Flavor)
    return Flavor(
        name=flavor.metadata.name,
        node_labels=flavor.spec.node_labels,
        taints=tuple(flavor.spec.node_taints),
        tolerations=tuple(
            Toleration(
                key=one.key,
                value=one.value,
                exists=one.operator == "Exists",
                effect=one.effect,
                seconds=one.toleration_seconds,
            )
            for one in flavor.spec.tolerations
        ),
        topology=flavor.spec.topology_name,
    )


def read_topology(data: object) -> KueueTopology:
    """Return a Topology; raise ``SiteError`` when it is none."""
    topology = convert(data, _Topology)
    labels = tuple(level.node_label for level in topology.spec.levels)
    return KueueTopology(name=topology.metadata.name, levels=labels)


def _quotas(queue: _Queue) -> tuple[FlavorQuota, ...]:
    reserved, used = _usage(queue.status.flavors_reservation), _usage(queue.status.flavors_usage)
    found = []
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for one in flavor.resources:
                key = (flavor.name, one.name)
                found.append(
                    FlavorQuota(
                        flavor=flavor.name,
                        resource=one.name,
                        nominal=amount(one.name, one.nominal_quota),
                        borrowing=_limit(one.name, one.borrowing_limit),
                        lending=_limit(one.name, one.lending_limit),
                        reserved=reserved.get(key, (0, 0))[0],
                        used=used.get(key, (0, 0))[0],
                        borrowed=used.get(key, (0, 0))[1],
                    )
                )
    return tuple(found)


def _limit(resource: str, quantity: Fraction | None) -> int | None:
    return None if quantity is None else amount(resource, quantity)


def _usage(usage: Sequence[_Usage]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what is used in all and what of it is borrowed, by flavour and resource."""
    return {
        (flavor.name, one.name): (amount(one.name, one.total), amount(one.name, one.borrowed))
        for flavor in usage
        for one in flavor.resources
    }


def _stop(spec: _QueueSpec) -> str:
    return "" if spec.stop_policy == "None" else spec.stop_policy


def _activity(queue: _Queue) -> tuple[bool, str]:
    """A queue that Kueue has not looked at yet admits nothing either."""
    active = condition(queue.status.conditions, "Active")
    if active is None:
        return False, "Kueue has not said yet whether the queue is active"
    if active.status == "True":
        return True, ""
    return False, said("the queue is not active", active.reason, active.message)
