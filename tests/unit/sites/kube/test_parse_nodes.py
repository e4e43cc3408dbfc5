"""Nodes to inventory: what can be used, and why not."""

from typing import Any

import pytest
import yaml
from tests.unit.sites.kube.schemas import DATA, built_in_errors

from gridloom.model.inventory import CPU, Node
from gridloom.sites.kube.parse_nodes import KubeNode, Standing, Taint, node_labels, read_nodes
from gridloom.sites.kube.submission import Toleration
from gridloom.sites.kube.topology_levels import Level, find_levels

GIB, MIB = 2**30, 2**20
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}


def sample(name: str) -> Any:
    return yaml.safe_load((DATA / "nodes" / f"{name}.yaml").read_text(encoding="utf-8"))


def made(name: str = "n1", **change: Any) -> dict[str, Any]:
    """A node of eight H100 as a server would keep it."""
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
            | change.get("labels", {}),
        },
        "spec": change.get("spec", {}),
        "status": {
            "capacity": size,
            "allocatable": size | change.get("allocatable", {}),
            "conditions": change.get("conditions", [READY]),
            "addresses": change.get("addresses", [{"type": "InternalIP", "address": "10.0.0.1"}]),
        },
    }
    assert built_in_errors(node, "1.36") == []
    return node


def one(*tolerations: Toleration, **change: Any) -> KubeNode:
    (only,) = read_nodes([made(**change)], tolerations=tolerations)
    return only


def test_a_real_node_with_two_gpus() -> None:
    (only,) = read_nodes([sample("t4")])
    assert only.standing is Standing.USABLE
    assert (only.resource, only.broken, only.shared, only.sentence) == (
        "nvidia.com/gpu",
        0,
        False,
        "",
    )
    node = only.node
    assert (node.name, node.accelerator, node.count) == ("qa-mig-worker-gpu-1", "t4", 2)
    assert node.address == "192.0.2.80"
    assert node.memory_bytes == 15360 * MIB
    assert node.resources == {"cpus": 32, "memory_gib": 117}
    assert node.labels["kubernetes.io/arch"] == "amd64"


def test_a_real_node_cut_into_slices_is_one_entry_a_size() -> None:
    small, large = read_nodes([sample("a100_mig_mixed")])
    assert small.host == large.host == "qa-mig-worker-gpu-a100"
    assert small.node.name == "qa-mig-worker-gpu-a100.mig-1g.5gb"
    assert (small.resource, small.node.accelerator) == ("nvidia.com/mig-1g.5gb", "a100-1g.5gb")
    assert (small.node.count, large.node.count) == (2, 1)
    assert (small.node.memory_bytes, large.node.memory_bytes) == (4864 * MIB, 9856 * MIB)


def test_a_real_node_as_one_slice() -> None:
    (only,) = read_nodes([sample("a100_mig_7g")])
    assert (only.node.name, only.node.accelerator) == ("qa-mig-worker-gpu-a100", "a100-7g.40gb")
    assert (only.node.count, only.node.memory_bytes) == (1, 40192 * MIB)


def test_a_node_without_accelerators_offers_its_cores() -> None:
    size = {"cpu": "3920m", "memory": "16Gi"}
    node = {"metadata": {"name": "c"}, "status": {"allocatable": size, "conditions": [READY]}}
    (only,) = read_nodes([node])
    assert only.node == Node(
        name="c",
        address="c",
        accelerator=CPU,
        count=3,
        memory_bytes=16 * GIB // 3,
        resources={"cpus": 3, "memory_gib": 16},
    )
    assert only.resource == "cpu"


def test_a_node_that_says_nothing_yet() -> None:
    (only,) = read_nodes([{"metadata": {"name": "new"}}])
    assert only.standing is Standing.NOT_READY
    assert only.sentence == "the node has not said yet whether it is ready"
    assert (only.node.count, only.node.memory_bytes) == (0, 0)


def test_nodes_stand_by_name_with_their_place() -> None:
    levels = (Level(name="rack", label="rack"),)
    nodes = [made("b", labels={"rack": "r2"}), made("a", labels={"rack": "r1"})]
    assert [(n.node.name, n.node.path) for n in read_nodes(nodes, levels)] == [
        ("a", ("r1",)),
        ("b", ("r2",)),
    ]


def test_levels_are_sought_among_nodes_with_accelerators() -> None:
    control = {"metadata": {"name": "control"}}
    nodes = {
        "kind": "NodeList",
        "items": [made(labels={"topology.kubernetes.io/zone": "z"}), control],
    }
    assert [level.name for level in find_levels(node_labels(nodes))] == ["zone"]
    assert node_labels([control]) == [{}]


NOT_READY = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "Kubelet stopped posting node status.",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
PRESSURE = {
    "type": "DiskPressure",
    "status": "True",
    "reason": "KubeletHasDiskPressure",
    "message": "kubelet has disk pressure",
}
CALM = PRESSURE | {"status": "False"}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


STANDINGS: dict[str, tuple[dict[str, Any], Standing, str]] = {
    "usable": ({"conditions": [READY, CALM]}, Standing.USABLE, ""),
    "cordoned": (
        {"spec": {"unschedulable": True, "taints": [taint("node.kubernetes.io/unschedulable")]}},
        Standing.CORDONED,
        "the node is cordoned: its owner lets no new pods on it",
    ),
    "cordoned by taint": (
        {"spec": {"taints": [taint("node.kubernetes.io/unschedulable")]}},
        Standing.CORDONED,
        "the node is cordoned: its owner lets no new pods on it",
    ),
    "lost": (
        {"conditions": [NOT_READY]},
        Standing.NOT_READY,
        "the node is not ready since 2026-01-02 03:04:05+0000: NodeStatusUnknown: "
        "Kubelet stopped posting node status.",
    ),
    "not ready": (
        {"conditions": [READY | {"status": "False"}]},
        Standing.NOT_READY,
        "the node is not ready: KubeletReady: ready",
    ),
    "pressure": (
        {"conditions": [READY, PRESSURE]},
        Standing.NOT_READY,
        "DiskPressure: KubeletHasDiskPressure: kubelet has disk pressure",
    ),
    "lifecycle taint": (
        {"spec": {"taints": [taint("node.kubernetes.io/unreachable", effect="NoExecute")]}},
        Standing.NOT_READY,
        "the cluster keeps pods away from the node: node.kubernetes.io/unreachable",
    ),
    "tainted": (
        {"spec": {"taints": [taint("dedicated", "inference")]}},
        Standing.TAINTED,
        "the taint dedicated=inference:NoSchedule keeps pods away that do not tolerate it",
    ),
    "a mere preference": (
        {"spec": {"taints": [taint("dedicated", effect="PreferNoSchedule")]}},
        Standing.USABLE,
        "",
    ),
    "its own taint": (
        {"spec": {"taints": [taint("nvidia.com/gpu", "present")]}},
        Standing.USABLE,
        "",
    ),
    "leaving": (
        {"spec": {"taints": [taint("ToBeDeletedByClusterAutoscaler", "17")]}},
        Standing.LEAVING,
        "the node is about to be removed: ToBeDeletedByClusterAutoscaler",
    ),
    "unhealthy": (
        {"allocatable": {"nvidia.com/gpu": "7"}},
        Standing.USABLE,
        "1 of its 8 devices are unhealthy",
    ),
    "shared": (
        {"labels": {"nvidia.com/gpu.replicas": "4"}},
        Standing.USABLE,
        "each of its devices is shared out to several pods",
    ),
}


@pytest.mark.parametrize(("change", "standing", "sentence"), STANDINGS.values(), ids=STANDINGS)
def test_whether_a_node_can_be_used(
    change: dict[str, Any], standing: Standing, sentence: str
) -> None:
    seen = one(**change)
    assert (seen.standing, seen.sentence) == (standing, sentence)


def test_a_node_that_is_being_deleted() -> None:
    node = made()
    node["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    (only,) = read_nodes([node])
    assert only.standing is Standing.LEAVING


DEDICATED = {"spec": {"taints": [taint("dedicated", "training")]}}


@pytest.mark.parametrize(
    ("toleration", "standing"),
    [
        (Toleration(key="dedicated", value="training"), Standing.USABLE),
        (Toleration(key="dedicated", value="training", effect="NoSchedule"), Standing.USABLE),
        (Toleration(key="dedicated", exists=True), Standing.USABLE),
        (Toleration(exists=True), Standing.USABLE),
        (Toleration(key="dedicated", value="inference"), Standing.TAINTED),
        (Toleration(key="dedicated"), Standing.TAINTED),
        (Toleration(key="other", exists=True), Standing.TAINTED),
        (Toleration(key="dedicated", exists=True, effect="NoExecute"), Standing.TAINTED),
        (Toleration(exists=True, seconds=60), Standing.TAINTED),
    ],
    ids=repr,
)
def test_what_a_toleration_bears(toleration: Toleration, standing: Standing) -> None:
    seen = one(toleration, **DEDICATED)
    assert seen.standing is standing
    kept_away = Taint(key="dedicated", value="training", effect="NoSchedule")
    assert seen.taints == (() if standing is Standing.USABLE else (kept_away,))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([("Hostname", "h"), ("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::2")], "10.0.0.2"),
        ([("ExternalIP", "192.0.2.1"), ("Hostname", "h")], "h"),
        ([("ExternalIP", "192.0.2.1")], "n1"),
    ],
    ids=["internal", "host name", "name"],
)
def test_where_a_node_is_reached(addresses: list[tuple[str, str]], expected: str) -> None:
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    assert one(addresses=listed).node.address == expected


def test_further_devices_are_resources() -> None:
    seen = one(allocatable={"rdma/hca_shared_devices_a": "8", "example.org/none": "0"})
    assert seen.node.resources == {"cpus": 64, "memory_gib": 512, "rdma/hca_shared_devices_a": 8}
