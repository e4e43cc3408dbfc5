"""Which labels of nodes tell where they sit in the network, outermost first (pure)."""

import re
from collections.abc import Mapping, Sequence

import msgspec


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level of the topology between site and node.

    Attributes:
        name: As ``rack``.
        label: The label of a node whose value names its domain.
    """

    name: str
    label: str


KNOWN_LEVELS = tuple(
    Level(name=name, label=label)
    for name, label in (
        ("region", "topology.kubernetes.io/region"),
        ("zone", "topology.kubernetes.io/zone"),
        ("datacenter", "network.topology.nvidia.com/datacenter"),
        ("core", "network.topology.nvidia.com/core"),
        ("layer-1", "topology.k8s.aws/network-node-layer-1"),
        ("spine", "network.topology.nvidia.com/spine"),
        ("layer-2", "topology.k8s.aws/network-node-layer-2"),
        ("block", "cloud.google.com/gce-topology-block"),
        ("block", "cloud.provider.com/topology-block"),
        ("block", "network.topology.nvidia.com/block"),
        ("leaf", "network.topology.nvidia.com/leaf"),
        ("layer-3", "topology.k8s.aws/network-node-layer-3"),
        ("subblock", "cloud.google.com/gce-topology-subblock"),
        ("rack", "cloud.provider.com/topology-rack"),
        ("rack", "topology.kubernetes.io/rack"),
        ("nvlink", "network.topology.nvidia.com/accelerator"),
        ("nvlink", "nvidia.com/gpu.clique"),
    )
)
"""Labels that clouds and vendors set, outermost first. Of those with one name the first counts."""

_TIER = re.compile(r"network\.topology\.nvidia\.com/tier-(\d{1,2})")
_NVLINK = "nvlink"


def find_levels(
    nodes: Sequence[Mapping[str, str]], custom: Sequence[Level] = ()
) -> tuple[Level, ...]:
    """Return the levels that all of these nodes have a label for, outermost first.

    A level that divides nothing, because all nodes are in one domain of it, is kept: another site
    may be told apart by it, and jobs may name it.

    Args:
        nodes: Labels of each node.
        custom: Levels to use instead of the known ones; what not every node has is left out.
    """
    if not nodes:
        return ()
    common = set.intersection(*({key for key, value in one.items() if value} for one in nodes))
    found: dict[str, Level] = {}
    for level in custom or _known(common):
        if level.label in common:
            found.setdefault(level.name, level)
    return tuple(found.values())


def path_of(labels: Mapping[str, str], levels: Sequence[Level]) -> tuple[str, ...]:
    """Return the domain of a node on each level; empty where its label is missing."""
    return tuple(labels.get(level.label, "") for level in levels)


def _known(labels: set[str]) -> list[Level]:
    """Known levels; tiers of the fabric, 0 next to the node, stand before those inside NVLink."""
    numbers = sorted(int(match[1]) for label in labels if (match := _TIER.fullmatch(label)))
    tiers = [
        Level(name=f"tier-{number}", label=f"network.topology.nvidia.com/tier-{number}")
        for number in reversed(numbers)
    ]
    inner = [level for level in KNOWN_LEVELS if level.name == _NVLINK]
    return [level for level in KNOWN_LEVELS if level.name != _NVLINK] + tiers + inner
