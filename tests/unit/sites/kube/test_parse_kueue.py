"""Kueue's queues in both spellings of its API; every sample is one that its schema takes."""

from typing import Any

import pytest
from tests.unit.sites.kube.schemas import custom_errors

from gridloom.base.errors import SiteError
from gridloom.sites.kube.parse_kueue import (
    ClusterQueue,
    Cohort,
    Flavor,
    FlavorQuota,
    KueueTopology,
    LocalQueue,
    read_cluster_queue,
    read_cohort,
    read_flavor,
    read_local_queue,
    read_topology,
)
from gridloom.sites.kube.parse_nodes import Taint
from gridloom.sites.kube.submission import Toleration

SINCE = "2026-01-02T03:04:05Z"
VERSIONS = {
    "0.13": ("kueue-v0.13.1", "v1beta1"),
    "0.19 old": ("kueue-v0.19.2", "v1beta1"),
    "0.19": ("kueue-v0.19.2", "v1beta2"),
}
EACH = pytest.mark.parametrize(("folder", "version"), VERSIONS.values(), ids=VERSIONS)


def valid(folder: str, version: str, kind: str, name: str, **parts: Any) -> dict[str, Any]:
    """An object of Kueue that its own schema takes."""
    metadata = {"name": name, **({"namespace": "team-a"} if kind == "LocalQueue" else {})}
    data = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata, **parts}
    assert custom_errors(data, folder) == []
    return data


def active(status: str, reason: str = "Ready", message: str = "Can admit") -> dict[str, str]:
    return {
        "type": "Active",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
    }


GROUPS = [
    {
        "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
        "flavors": [
            {
                "name": "h100",
                "resources": [
                    {"name": "cpu", "nominalQuota": "96500m"},
                    {"name": "memory", "nominalQuota": "1Ti", "borrowingLimit": "0"},
                    {
                        "name": "nvidia.com/gpu",
                        "nominalQuota": 16,
                        "borrowingLimit": 8,
                        "lendingLimit": "4",
                    },
                ],
            },
            {"name": "spot", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 0}]},
        ],
    }
]


def usage(total: str, borrowed: str) -> list[dict[str, Any]]:
    resources = [{"name": "nvidia.com/gpu", "total": total, "borrowed": borrowed}]
    return [{"name": "h100", "resources": resources}]


@EACH
def test_a_cluster_queue(folder: str, version: str) -> None:
    cohort = "cohortName" if version == "v1beta2" else "cohort"
    data = valid(
        folder,
        version,
        "ClusterQueue",
        "research",
        spec={
            cohort: "all",
            "queueingStrategy": "StrictFIFO",
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
            },
            "fairSharing": {"weight": "500m"},
            "stopPolicy": "None",
            "resourceGroups": GROUPS,
        },
        status={
            "conditions": [active("True")],
            "flavorsReservation": usage("24", "8"),
            "flavorsUsage": usage("20", "4"),
            "pendingWorkloads": 3,
            "reservingWorkloads": 2,
            "admittedWorkloads": 1,
        },
    )
    assert read_cluster_queue(data) == ClusterQueue(
        name="research",
        cohort="all",
        quotas=(
            FlavorQuota(flavor="h100", resource="cpu", nominal=96_500),
            FlavorQuota(flavor="h100", resource="memory", nominal=2**40, borrowing=0),
            FlavorQuota(
                flavor="h100",
                resource="nvidia.com/gpu",
                nominal=16,
                borrowing=8,
                lending=4,
                reserved=24,
                used=20,
                borrowed=4,
            ),
            FlavorQuota(flavor="spot", resource="nvidia.com/gpu", nominal=0),
        ),
        strict=True,
        within_queue="LowerPriority",
        reclaim="Any",
        borrow_preemption="LowerPriority",
        fair_weight=0.5,
        stop="",
        active=True,
        sentence="",
        pending=3,
        reserving=2,
        admitted=1,
    )


@EACH
def test_a_cluster_queue_that_is_held(folder: str, version: str) -> None:
    queue = read_cluster_queue(
        valid(
            folder,
            version,
            "ClusterQueue",
            "held",
            spec={"stopPolicy": "HoldAndDrain"},
            status={"conditions": [active("False", "Stopped", "is stopped")]},
        )
    )
    assert (queue.active, queue.stop) == (False, "HoldAndDrain")
    assert queue.sentence == "the queue is not active: Stopped: is stopped"


@EACH
def test_a_cluster_queue_of_which_nothing_is_said(folder: str, version: str) -> None:
    queue = read_cluster_queue(valid(folder, version, "ClusterQueue", "new", spec={}))
    assert (queue.active, queue.quotas, queue.cohort, queue.strict) == (False, (), "", False)
    assert (queue.within_queue, queue.reclaim, queue.borrow_preemption) == ("Never",) * 3
    assert queue.fair_weight == 1.0
    assert queue.sentence == "Kueue has not said yet whether the queue is active"


@EACH
def test_a_local_queue(folder: str, version: str) -> None:
    field = "flavorsUsage" if version == "v1beta2" else "flavorUsage"
    used = [{"name": "h100", "resources": [{"name": "cpu", "total": "1500m"}]}]
    data = valid(
        folder,
        version,
        "LocalQueue",
        "training",
        spec={"clusterQueue": "research", "stopPolicy": "Hold"},
        status={
            "conditions": [active("True")],
            "pendingWorkloads": 1,
            "reservingWorkloads": 2,
            "admittedWorkloads": 3,
            field: used,
        },
    )
    assert read_local_queue(data) == LocalQueue(
        namespace="team-a",
        name="training",
        cluster_queue="research",
        stop="Hold",
        active=True,
        sentence="",
        pending=1,
        reserving=2,
        admitted=3,
        used={"h100": {"cpu": 1500}},
    )


@EACH
def test_a_cohort(folder: str, version: str) -> None:
    spec = {"parentName": "root", "fairSharing": {"weight": "2"}, "resourceGroups": GROUPS}
    cohort = read_cohort(valid(folder, version, "Cohort", "all", spec=spec))
    assert (cohort.name, cohort.parent, cohort.fair_weight) == ("all", "root", 2.0)
    assert cohort.quotas[0] == FlavorQuota(flavor="h100", resource="cpu", nominal=96_500)


def test_a_cohort_of_before_names_its_parent_otherwise() -> None:
    data = {"metadata": {"name": "all"}, "spec": {"parent": "root"}}
    assert read_cohort(data) == Cohort(name="all", parent="root", quotas=(), fair_weight=1.0)


@EACH
def test_a_flavor(folder: str, version: str) -> None:
    data = valid(
        folder,
        version,
        "ResourceFlavor",
        "h100",
        spec={
            "nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "nodeTaints": [{"key": "dedicated", "value": "training", "effect": "NoSchedule"}],
            "tolerations": [
                {"key": "spot", "operator": "Exists"},
                {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60},
            ],
            "topologyName": "default",
        },
    )
    assert read_flavor(data) == Flavor(
        name="h100",
        node_labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        taints=(Taint(key="dedicated", value="training", effect="NoSchedule"),),
        tolerations=(
            Toleration(key="spot", exists=True),
            Toleration(key="a", value="b", effect="NoExecute", seconds=60),
        ),
        topology="default",
    )


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("kueue-v0.13.1", "v1alpha1"),
        ("kueue-v0.19.2", "v1beta1"),
        ("kueue-v0.19.2", "v1beta2"),
    ],
)
def test_a_topology(folder: str, version: str) -> None:
    levels = ("cloud.provider.com/topology-block", "kubernetes.io/hostname")
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    topology = read_topology(valid(folder, version, "Topology", "default", spec=spec))
    assert topology == KueueTopology(name="default", levels=levels)


def test_what_cannot_be_read_is_named() -> None:
    data = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": [{}]}}
    with pytest.raises(SiteError, match=r"Topology t: .*nodeLabel.*levels\[0\]"):
        read_topology(data)
