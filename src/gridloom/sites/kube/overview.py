"""What a cluster has for a site, and what its queue has left (pure)."""

from collections import Counter

import msgspec

from gridloom.sites.kube.facts import Facts
from gridloom.sites.kube.parse_kueue import FlavorQuota
from gridloom.sites.kube.parse_nodes import Standing


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike.

    Attributes:
        state: ``usable``, ``cordoned``, ``not_ready``, ``tainted`` or ``leaving``.
        kind: Of their devices.
        nodes: How many.
        devices: How many all of them have.
    """

    state: str
    kind: str
    nodes: int
    devices: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of a cluster.

    Attributes:
        release: Of Kubernetes.
        nodes: In rows of alike ones; nothing if they may not be read.
        out_of_service: Why, by node.
        queue: ClusterQueue behind the site's queue; empty if there is none or it may not be read.
        pending: Workloads that wait there.
        admitted: Workloads that may run.
        quotas: Of that queue: thousandths of a core, bytes of memory, devices.
    """

    release: str
    nodes: tuple[NodeRow, ...]
    out_of_service: dict[str, str]
    queue: str = ""
    pending: int = 0
    admitted: int = 0
    quotas: tuple[FlavorQuota, ...] = ()


def overview(facts: Facts) -> Overview:
    """Return what is there.

    Args:
        facts: Of a cluster that could be asked.
    """
    nodes: Counter[tuple[str, str]] = Counter()
    devices: Counter[tuple[str, str]] = Counter()
    for one in facts.nodes or ():
        key = (one.standing.value, one.node.accelerator)
        nodes[key] += 1
        devices[key] += one.node.count
    queue = facts.cluster_queue
    return Overview(
        release=facts.release,
        nodes=tuple(
            NodeRow(state=state, kind=kind, nodes=nodes[state, kind], devices=devices[state, kind])
            for state, kind in sorted(nodes)
        ),
        out_of_service={
            one.host: one.sentence
            for one in facts.nodes or ()
            if one.standing is not Standing.USABLE
        },
        queue=queue.name if queue is not None else "",
        pending=queue.pending if queue is not None else 0,
        admitted=queue.admitted if queue is not None else 0,
        quotas=queue.quotas if queue is not None else (),
    )
