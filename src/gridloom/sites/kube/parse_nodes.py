"""From the nodes of a cluster to inventory, with who can be used and why not (pure)."""

import math
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

import msgspec

from gridloom.model.inventory import CPU, Node
from gridloom.sites.kube.accelerators import Found, accelerators, vendor_of
from gridloom.sites.kube.reading import Condition, Metadata, Part, condition, convert, items, said
from gridloom.sites.kube.submission import Toleration
from gridloom.sites.kube.topology_levels import Level, path_of

_GIB = 2**30
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_CORDON = "node.kubernetes.io/unschedulable"
_LEAVING = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
_LIFECYCLE = "node.kubernetes.io/"


class Standing(StrEnum):
    """Whether pods can be placed on a node."""

    USABLE = "usable"
    CORDONED = "cordoned"
    """Its owner lets no new pods on it."""
    NOT_READY = "not_ready"
    """It is lost, unhealthy, or short of something."""
    TAINTED = "tainted"
    """It keeps pods away that do not tolerate its taint."""
    LEAVING = "leaving"
    """It is about to be removed."""


class Taint(Part, frozen=True, kw_only=True):
    """What keeps pods away from a node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str


class KubeNode(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one kind on a node of the cluster.

    Attributes:
        node: As the inventory has it. ``count`` is what can be asked for when nothing runs there.
        host: The node's name in the cluster. Where it has devices of several kinds, ``node.name``
            is this with the resource appended.
        resource: What a pod must ask for; ``cpu`` for a node without accelerators.
        standing: Whether it can be used.
        sentence: Why not; for a usable one, what a person should know, or nothing.
        taints: Those that keep pods away.
        broken: Devices that the node has beyond ``node.count`` and that are unhealthy.
        shared: Its devices are shared out to several pods each: unfit for training.
        offers: What pods may ask of it in all, by resource, as quotas count it.
    """

    node: Node
    host: str
    resource: str
    standing: Standing
    sentence: str = ""
    taints: tuple[Taint, ...] = ()
    broken: int = 0
    shared: bool = False
    offers: dict[str, int] = {}


class _Address(Part, frozen=True, kw_only=True):
    type: str
    address: str


class _Spec(Part, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _Status(Part, frozen=True, kw_only=True):
    allocatable: dict[str, Fraction] = msgspec.field(default_factory=dict)
    capacity: dict[str, Fraction] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[_Address, ...] = ()


class _Node(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


def node_labels(answer: object) -> list[dict[str, str]]:
    """Return the labels of every node that has accelerators, or of all when none has.

    Raises:
        SiteError: It is no list of nodes.
    """
    nodes = [convert(one, _Node) for one in items(answer)]
    with_devices = [one for one in nodes if any(map(vendor_of, one.status.capacity))]
    return [one.metadata.labels for one in with_devices or nodes]


def read_nodes(
    answer: object, levels: Sequence[Level] = (), tolerations: Sequence[Toleration] = ()
) -> tuple[KubeNode, ...]:
    """Return what the nodes of a cluster have, by name.

    Args:
        answer: The API's list of nodes.
        levels: Of the topology, as ``find_levels`` found them or a person wrote.
        tolerations: Those that the site's pods will have, besides that for the accelerator.

    Raises:
        SiteError: It is no list of nodes, or a node lacks what every node has.
    """
    found: list[KubeNode] = []
    for one in sorted((convert(one, _Node) for one in items(answer)), key=_name):
        devices = accelerators(one.status.allocatable, one.status.capacity, one.metadata.labels)
        for device in devices or (_slots(one),):
            name = one.metadata.name
            if len(devices) > 1:
                name = f"{name}.{device.resource.rpartition('/')[2]}"
            found.append(_read(one, device, name, levels, tolerations))
    return tuple(found)


def _name(node: _Node) -> str:
    return node.metadata.name


def _slots(node: _Node) -> Found:
    """A node without accelerators offers its cores, each with its share of the memory."""
    cores = int(node.status.allocatable.get("cpu", 0))
    memory_bytes = int(node.status.allocatable.get("memory", 0)) // max(cores, 1)
    return Found(resource="cpu", kind=CPU, count=cores, broken=0, memory_bytes=memory_bytes)


def _read(
    node: _Node,
    device: Found,
    name: str,
    levels: Sequence[Level],
    tolerations: Sequence[Toleration],
) -> KubeNode:
    own = Toleration(key=device.resource, exists=True)
    taints = tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in _KEEPS_AWAY
        and not any(_tolerates(t, taint) for t in (own, *tolerations))
    )
    standing, sentence = _standing(node, taints)
    if standing is Standing.USABLE:
        sentence = _note(device)
    return KubeNode(
        node=Node(
            name=name,
            address=_address(node),
            accelerator=device.kind,
            count=device.count,
            memory_bytes=device.memory_bytes,
            path=path_of(node.metadata.labels, levels),
            labels=dict(sorted(node.metadata.labels.items())),
            resources=_resources(node),
        ),
        host=node.metadata.name,
        resource=device.resource,
        standing=standing,
        sentence=sentence,
        taints=taints,
        broken=device.broken,
        shared=device.shared,
        offers={
            name: math.floor(quantity * 1000) if name == "cpu" else math.floor(quantity)
            for name, quantity in node.status.allocatable.items()
        },
    )


def _standing(node: _Node, taints: Sequence[Taint]) -> tuple[Standing, str]:
    leaving = next((taint.key for taint in taints if taint.key in _LEAVING), "")
    if node.metadata.deletion_timestamp or leaving:
        return Standing.LEAVING, said("the node is about to be removed", leaving)
    ready = condition(node.status.conditions, "Ready")
    if ready is None:
        return Standing.NOT_READY, "the node has not said yet whether it is ready"
    if ready.status != "True":
        since = _since(ready.last_transition_time)
        return Standing.NOT_READY, said(
            f"the node is not ready{since}", ready.reason, ready.message
        )
    for name in _PRESSURES:
        pressure = condition(node.status.conditions, name)
        if pressure and pressure.status == "True":
            return Standing.NOT_READY, said(name, pressure.reason, pressure.message)
    if node.spec.unschedulable or any(taint.key == _CORDON for taint in taints):
        return Standing.CORDONED, "the node is cordoned: its owner lets no new pods on it"
    if taints:
        taint = taints[0]
        text = f"{taint.key}={taint.value}" if taint.value else taint.key
        if taint.key.startswith(_LIFECYCLE):
            return Standing.NOT_READY, f"the cluster keeps pods away from the node: {text}"
        sentence = f"the taint {text}:{taint.effect} keeps pods away that do not tolerate it"
        return Standing.TAINTED, sentence
    return Standing.USABLE, ""


def _note(device: Found) -> str:
    if device.shared:
        return "each of its devices is shared out to several pods"
    if device.broken:
        total = device.count + device.broken
        return f"{device.broken} of its {total} devices are unhealthy"
    return ""


def _since(moment: datetime | None) -> str:
    return f" since {moment:%Y-%m-%d %H:%M:%S%z}" if moment else ""


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.seconds is not None or toleration.effect not in ("", taint.effect):
        return False  # what is borne for a time only is no place to train
    if toleration.key not in ("", taint.key):
        return False
    return toleration.exists or toleration.value == taint.value


def _address(node: _Node) -> str:
    """Where other nodes reach it: the internal address, IPv4 or IPv6, whichever comes first."""
    by_type = {one.type: one.address for one in reversed(node.status.addresses)}
    names = ("InternalIP", "InternalDNS", "Hostname")
    return next((by_type[name] for name in names if name in by_type), node.metadata.name)


def _resources(node: _Node) -> dict[str, int]:
    """What the host has besides accelerators, in whole units."""
    allocatable = node.status.allocatable
    found = {
        "cpus": int(allocatable.get("cpu", 0)),
        "memory_gib": int(allocatable.get("memory", 0) / _GIB),
    }
    for name, quantity in sorted(allocatable.items()):
        if "/" in name and vendor_of(name) is None and quantity >= 1:
            found[name] = int(quantity)
    return found
