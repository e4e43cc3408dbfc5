"""Workloads of Kueue in both spellings; every sample is one that its schema takes."""

from typing import Any

import pytest
from tests.unit.sites.kube.schemas import custom_errors
from tests.unit.sites.kube.test_parse_kueue import EACH, SINCE

from gridloom.sites.kube.endings import EndKind
from gridloom.sites.kube.parse_workloads import (
    PodSet,
    WorkloadSight,
    WorkloadState,
    eviction_kind,
    read_workload,
)

POD = {"spec": {"containers": [{"name": "node", "image": "i"}]}}


def made(folder: str, version: str, **parts: Any) -> dict[str, Any]:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u0"},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train-a1",
            "uid": "u1",
            "controller": True,
        },
    ]
    data = {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": "job-train-a1-7f3", "namespace": "team-a", "ownerReferences": owners},
        "spec": {
            "queueName": "training",
            "podSets": [{"name": "main", "count": 2, "template": POD}],
            **parts.get("spec", {}),
        },
        "status": parts.get("status", {}),
    }
    assert custom_errors(data, folder) == []
    return data


def is_(type_: str, reason: str = "Any", message: str = "", status: str = "True") -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
    }


@EACH
def test_an_admitted_workload(folder: str, version: str) -> None:
    if version == "v1beta2":
        group = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}
        priority: dict[str, Any] = {"priorityClassRef": {**group, "name": "high"}}
    else:
        source = "kueue.x-k8s.io/workloadpriorityclass"
        priority = {"priorityClassName": "high", "priorityClassSource": source}
    assignment = {
        "name": "main",
        "count": 2,
        "flavors": {"cpu": "h100", "nvidia.com/gpu": "h100"},
        "resourceUsage": {"nvidia.com/gpu": "16", "cpu": "193"},
    }
    evictions = [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "Preempted", "underlyingCause": "Other", "count": 1},
    ]
    data = made(
        folder,
        version,
        spec={"priority": 1000, **priority},
        status={
            "admission": {"clusterQueue": "research", "podSetAssignments": [assignment]},
            "conditions": [
                is_("QuotaReserved"),
                is_("Admitted"),
                is_("PodsReady"),
                is_("Evicted", "QuotaReserved", status="False"),
            ],
            "requeueState": {"count": 1},
            "schedulingStats": {"evictions": evictions},
        },
    )
    assert read_workload(data) == WorkloadSight(
        namespace="team-a",
        name="job-train-a1-7f3",
        owner="Job/train-a1",
        owner_uid="u1",
        queue="training",
        priority=1000,
        priority_class="high",
        state=WorkloadState.ADMITTED,
        sentence="",
        cluster_queue="research",
        pod_sets=(
            PodSet(
                name="main",
                count=2,
                flavors={"cpu": "h100", "nvidia.com/gpu": "h100"},
                usage={"cpu": 193_000, "nvidia.com/gpu": 16},
            ),
        ),
        pods_ready=True,
        eviction="",
        eviction_kind=None,
        was_evicted=True,
        evictions={"Preempted": 3},
        requeues=1,
        requeue_s=0.0,
    )


PREEMPTED = [
    is_("QuotaReserved", "Pending", "Preempted to accommodate a workload", "False"),
    is_("Evicted", "Preempted", "Preempted to accommodate a workload (UID: u2)"),
    is_("Preempted", "InClusterQueue", "Preempted to accommodate a workload (UID: u2)"),
    is_("Requeued", "Preempted"),
    is_("Admitted", "NoReservation", "", "False"),
]
CHECKS = [
    {"name": "capacity", "state": "Pending", "message": "asked", "lastTransitionTime": SINCE},
    {"name": "budget", "state": "Ready", "message": "", "lastTransitionTime": SINCE},
]
STATES: dict[str, tuple[dict[str, Any], WorkloadState, str]] = {
    "new": ({}, WorkloadState.PENDING, "Kueue has not looked at it yet"),
    "pending": (
        {
            "status": {
                "conditions": [
                    is_(
                        "QuotaReserved",
                        "Pending",
                        "couldn't assign flavors to pod set main: insufficient unused quota for "
                        "nvidia.com/gpu in flavor h100, 8 more needed",
                        "False",
                    )
                ]
            }
        },
        WorkloadState.PENDING,
        "it waits for quota: Pending: couldn't assign flavors to pod set main: insufficient unused "
        "quota for nvidia.com/gpu in flavor h100, 8 more needed",
    ),
    "inadmissible": (
        {
            "status": {
                "conditions": [
                    is_("QuotaReserved", "Inadmissible", "LocalQueue q doesn't exist", "False")
                ]
            }
        },
        WorkloadState.PENDING,
        "it waits for quota: Inadmissible: LocalQueue q doesn't exist",
    ),
    "reserved": (
        {"status": {"conditions": [is_("QuotaReserved")], "admissionChecks": CHECKS}},
        WorkloadState.RESERVED,
        "it has quota and waits for checks: capacity is Pending: asked",
    ),
    "preempted": (
        {"status": {"conditions": PREEMPTED}},
        WorkloadState.EVICTED,
        "a workload of higher priority in its queue took its place: Preempted: Preempted to "
        "accommodate a workload (UID: u2)",
    ),
    "queue stopped": (
        {"status": {"conditions": [is_("Evicted", "ClusterQueueStopped", "is stopped")]}},
        WorkloadState.EVICTED,
        "it was put out: ClusterQueueStopped: is stopped",
    ),
    "preempted for a new reason": (
        {"status": {"conditions": [is_("Evicted", "Preempted", "m"), is_("Preempted", "New")]}},
        WorkloadState.EVICTED,
        "it was put out: Preempted: m",
    ),
    "deactivated": (
        {
            "spec": {"active": False},
            "status": {
                "conditions": [is_("Evicted", "Deactivated", "The workload is deactivated")]
            },
        },
        WorkloadState.DEACTIVATED,
        "it is not queued any more: Deactivated: The workload is deactivated",
    ),
    "never active": (
        {"spec": {"active": False}},
        WorkloadState.DEACTIVATED,
        "it is not queued any more",
    ),
    "finished": (
        {"status": {"conditions": [is_("Admitted"), is_("Finished", "Succeeded", "Job finished")]}},
        WorkloadState.FINISHED,
        "it is over: Succeeded: Job finished",
    ),
}


@EACH
@pytest.mark.parametrize(("parts", "state", "sentence"), STATES.values(), ids=STATES)
def test_where_a_workload_is(
    folder: str, version: str, parts: dict[str, Any], state: WorkloadState, sentence: str
) -> None:
    seen = read_workload(made(folder, version, **parts))
    assert (seen.state, seen.sentence) == (state, sentence)


@EACH
def test_an_evicted_workload_says_why_and_when_it_is_queued_again(
    folder: str, version: str
) -> None:
    status = {
        "conditions": [is_("Evicted", "PodsReadyTimeout", "Exceeded the PodsReady timeout")],
        "requeueState": {"count": 2, "requeueAt": "1970-01-01T00:02:00Z"},
    }
    seen = read_workload(made(folder, version, status=status))
    assert (seen.eviction, seen.eviction_kind) == ("PodsReadyTimeout", EndKind.LAUNCH_FAILED)
    assert (seen.requeues, seen.requeue_s) == (2, 120.0)


def test_a_workload_of_nobody() -> None:
    seen = read_workload({"metadata": {"name": "w"}})
    assert (seen.owner, seen.owner_uid, seen.priority_class) == ("", "", "")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Preempted", EndKind.PREEMPTED),
        ("PodsReadyTimeout", EndKind.LAUNCH_FAILED),
        ("AdmissionCheck", EndKind.LAUNCH_FAILED),
        ("ClusterQueueStopped", EndKind.PREEMPTED),
        ("LocalQueueStopped", EndKind.PREEMPTED),
        ("NodeFailures", EndKind.NODE_FAILED),
        ("Deactivated", EndKind.CANCELLED),
        ("InactiveWorkload", EndKind.CANCELLED),
        ("DeactivatedDueToAdmissionCheck", EndKind.LAUNCH_FAILED),
        ("DeactivatedDueToRequeuingLimitExceeded", EndKind.LAUNCH_FAILED),
        ("DeactivatedDueToMaximumExecutionTimeExceeded", EndKind.TIME_LIMIT),
        ("SomethingNew", EndKind.PREEMPTED),
    ],
)
def test_what_an_eviction_was(reason: str, kind: EndKind) -> None:
    assert eviction_kind(reason) is kind
