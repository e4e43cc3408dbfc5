"""From the nodes and the wiring that Slurm tells to a site of the inventory (pure)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from gridloom.base.errors import SiteError
from gridloom.model.inventory import CPU, Node, Site, SlurmAccess
from gridloom.sites.slurm import records
from gridloom.sites.slurm.records import Gres, Partition, Reservation, Topology
from gridloom.sites.slurm.topology import node_paths

_MIB = 2**20
_MIB_PER_GIB = 2**10
_ABSENT = frozenset({"FUTURE"})
"""States of what may become a node one day."""
BESIDE_DEVICES = frozenset({"craynetwork", "nic", "hca", "tmpdisk", "bandwidth"})
"""Generic resources that compute nothing."""
_NOT_DEVICES = BESIDE_DEVICES | {"mps", "shard"}
"""These, and shares of devices which are listed, too."""
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9._/-]{0,62}")
_SWITCH_LEVELS = ("core", "spine", "leaf")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a Slurm has.

    Attributes:
        nodes: All of them.
        partitions: All of them.
        reservations: All of them.
        topology: How the nodes are wired; nothing when Slurm does not say.
    """

    nodes: tuple[records.Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    topology: Topology = Topology()


def with_nodes(site: Site, cluster: Cluster) -> Site:
    """Return the site with the nodes that its jobs may get, whatever their state is now.

    Those of its partition, and of its reservation if it names one; of which features may be asked
    for. Kinds of devices are Slurm's types in small letters, unless the site's ``gres`` says what
    type a kind is; what it does not say is added there, so that jobs get what they were promised.

    Raises:
        SiteError: There is no such partition or reservation, or no node in it.
    """
    access = site.slurm or SlurmAccess()
    found = [node for node in candidates(access, cluster) if not _ABSENT & {*node.states}]
    if not found:
        where = f"partition {partition_of(access, cluster.partitions).name}"
        raise SiteError(f"Slurm has no node for the site {site.name} in its {where}")
    levels, paths = _places([node.name for node in found], cluster.topology)
    kinds = {text: kind for kind, text in access.gres.items()}
    nodes, gres = [], dict(access.gres)
    for node in found:
        devices = device_of(node)
        kind = CPU
        if devices is not None:
            name = f"{devices.name}:{devices.type}" if devices.type else devices.name
            kind = kinds.get(name) or kinds.get(devices.name) or kind_of(devices)
            gres.setdefault(kind, name)
        nodes.append(_node(node, kind, devices, paths[node.name]))
    return replace(site, nodes=tuple(nodes), levels=levels, slurm=replace(access, gres=dict(gres)))


def candidates(access: SlurmAccess, cluster: Cluster) -> list[records.Node]:
    """Return the nodes on which jobs of a site may be placed by its partition and reservation.

    Raises:
        SiteError: There is no such partition or reservation.
    """
    names = {*partition_of(access, cluster.partitions).nodes}
    if access.reservation:
        known = {one.name: one for one in cluster.reservations}
        if access.reservation not in known:
            raise SiteError(f"Slurm has no reservation {access.reservation}")
        names &= {*known[access.reservation].nodes}
    return [
        node
        for node in cluster.nodes
        if node.name in names and _has_features(access.constraint, node.features)
    ]


def partition_of(access: SlurmAccess, partitions: Sequence[Partition]) -> Partition:
    """Return the partition that a site's jobs go to: the one that it names, else the default one.

    Raises:
        SiteError: There is none.
    """
    wanted = access.partition
    for one in partitions:
        if one.name == wanted or (not wanted and one.is_default):
            return one
    if wanted:
        listed = ", ".join(sorted(one.name for one in partitions))
        raise SiteError(f"Slurm has no partition {wanted}, it has: {listed or 'none'}")
    raise SiteError("Slurm has no default partition, and the site names none")


def device_of(node: records.Node) -> Gres | None:
    """Return the accelerators of a node; of several kinds those of which it has most."""
    found: Counter[tuple[str, str]] = Counter()
    for one in node.gres:
        if one.name not in _NOT_DEVICES:
            found[one.name, one.type] += one.count
    if not found:
        return None
    (name, type_), count = min(found.items(), key=lambda item: (-item[1], item[0]))
    return Gres(name=name, type=type_, count=count) if count else None


def kind_of(devices: Gres) -> str:
    """Return what a job file calls devices: Slurm's type in small letters, else its name."""
    said = re.sub(r"[^a-z0-9._-]", "-", (devices.type or devices.name).lower())
    return re.sub(r"^(nvidia|tesla|amd)[-_]", "", said)


def _node(node: records.Node, kind: str, devices: Gres | None, path: tuple[str, ...]) -> Node:
    count = devices.count if devices is not None else max(node.cpus, 1)
    share = node.memory_mib * _MIB // count if devices is None else 0  # of a device Slurm is silent
    resources = {"cpus": node.cpus, "memory_gib": node.memory_mib // _MIB_PER_GIB}
    return Node(
        name=node.name,
        address=node.address or node.name,
        accelerator=kind,
        count=count,
        memory_bytes=share,
        path=path,
        labels={word: "yes" for word in sorted(node.features) if _LABEL.fullmatch(word)},
        resources={name: amount for name, amount in resources.items() if amount},
    )


def _has_features(constraint: str, features: Iterable[str]) -> bool:
    """Return whether a node's features suffice for ``a&b`` or ``a|b``; for all else Slurm knows."""
    if not constraint or re.search(r"[\[\]()*]", constraint):
        return True
    has = {*features}
    return any({*one.split("&")} <= has for one in constraint.split("|"))


def _places(
    names: Sequence[str], wired: Topology
) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """Return the levels of the topology, and the domains that each node sits in.

    A node that is not wired, or wired otherwise than the others, leaves only the levels that all
    have, from the node outwards. A level with one domain says nothing and is left out.
    """
    known = node_paths(wired)
    paths = {name: known.get(name, ()) for name in names}
    depth = min(len(path) for path in paths.values())
    paths = {name: path[len(path) - depth :] for name, path in paths.items()}
    levels = list(_levels(depth, has_blocks=bool(wired.blocks)))
    while depth and len({path[0] for path in paths.values()}) == 1:
        depth -= 1
        levels.pop(0)
        paths = {name: path[1:] for name, path in paths.items()}
    return tuple(levels), paths


def _levels(depth: int, *, has_blocks: bool) -> tuple[str, ...]:
    """Return names of levels, outermost first: of blocks the innermost is one."""
    inner = ("block",) if has_blocks and depth else ()
    switches = depth - len(inner)
    far = tuple(f"switch{number}" for number in range(switches - len(_SWITCH_LEVELS), 0, -1))
    return (*far, *_SWITCH_LEVELS[max(0, len(_SWITCH_LEVELS) - switches) :], *inner)
