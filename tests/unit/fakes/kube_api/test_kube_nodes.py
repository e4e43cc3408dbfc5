"""The simulated scheduler, and what becomes of the pods of sick and lost nodes."""

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.cluster import Cluster
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.bed import Bed, exits
from tests.unit.fakes.kube_api.kit import create, job, pod_spec, refused


def unplaced(bed: Bed) -> str:
    for pod in bed.pods():
        for one in pod["status"].get("conditions", []):
            if one["type"] == "PodScheduled" and one["status"] == "False":
                assert one["reason"] in ("Unschedulable", "SchedulingGated")
                return str(one["message"])
    return ""


def test_pods_wait_for_room_and_get_it() -> None:
    bed = Bed(exits(0, 0, 0))
    bed.run(job("j", 3, gpus=4))
    assert unplaced(bed) == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    events = bed.api.do("list", "v1", "events")["items"]
    assert "FailedScheduling" in {one["reason"] for one in events}
    bed.after(6)
    assert unplaced(bed) == ""
    bed.after(6)
    assert bed.true()["Complete"]


@pytest.mark.parametrize(
    ("node", "spec", "why"),
    [
        ({"spec": {"unschedulable": True}}, {}, "node(s) were unschedulable"),
        (
            {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}},
            {},
            "node(s) had untolerated taint {k: v}",
        ),
        (
            {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}},
            {"tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]},
            "",
        ),
        (
            {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}},
            {"tolerations": [{"key": "k", "value": "w"}]},
            "node(s) had untolerated taint {k: v}",
        ),
        ({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}, {}, ""),
        ({}, {"nodeSelector": {"pool": "a"}}, "node(s) didn't match Pod's node affinity/selector"),
        ({"metadata": {"labels": {"pool": "a"}}}, {"nodeSelector": {"pool": "a"}}, ""),
        ({}, {"schedulingGates": [{"name": "g"}]}, "Scheduling is blocked"),
    ],
)
def test_what_keeps_pods_from_nodes(node: Obj, spec: Obj, why: str) -> None:
    bed = Bed()
    for name in ("n1", "n2"):
        bed.api.do("patch", "v1", "nodes", name=name, body=node)
    create(bed.api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec(**spec)})
    bed.cluster.loops.settle()
    assert (why in unplaced(bed)) if why else (bed.phases() == ["Running"])


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["8"], True),
        ("NotIn", ["8"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["7"], True),
        ("Lt", ["7"], False),
    ],
)
def test_node_affinity(operator: str, values: list[str], fits: bool) -> None:
    bed = Bed()
    for name in ("n1", "n2"):
        bed.api.do("patch", "v1", "nodes", name=name, body={"metadata": {"labels": {"size": "8"}}})
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    create(
        bed.api,
        "pods",
        {"metadata": {"name": "p"}, "spec": pod_spec(affinity={"nodeAffinity": needed})},
    )
    bed.cluster.loops.settle()
    assert (bed.phases() == ["Running"]) is fits


def test_without_nodes_nothing_can_be_placed() -> None:
    cluster = Cluster(clock=FakeClock())
    create(cluster.api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    cluster.loops.settle()
    pod = cluster.api.do("get", "v1", "pods", namespace="default", name="p")
    assert pod["status"]["conditions"][0]["message"] == "no nodes available to schedule pods"


def test_a_new_node_is_not_ready_until_its_kubelet_says_so() -> None:
    bed = Bed()
    node = bed.api.do("create", "v1", "nodes", body={"metadata": {"name": "n3"}})
    assert node["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


def test_a_lost_nodes_pods_are_marked_and_deleted_when_patience_is_over() -> None:
    bed = Bed()
    bed.run(job("j", 1, backoffLimit=3))
    lost = bed.pods()[0]["spec"]["nodeName"]
    bed.cluster.kubelet.lose_node(lost)
    bed.after(1)
    assert "deletionTimestamp" not in bed.pods()[0]["metadata"]
    bed.after(301)
    gone = next(one for one in bed.pods() if one["spec"].get("nodeName") == lost)
    assert "deletionTimestamp" in gone["metadata"]
    marks = {one["type"]: one.get("reason") for one in gone["status"]["conditions"]}
    assert marks["DisruptionTarget"] == "DeletionByTaintManager"
    assert gone["status"]["phase"] == "Running"  # nobody is there to end it
    others = [one for one in bed.pods() if one["spec"].get("nodeName") not in (lost, None)]
    assert [one["status"]["phase"] for one in others] == ["Running"]  # its replacement


def test_a_pod_that_does_not_bear_a_taint_goes_at_once() -> None:
    bed = Bed()
    bed.run(job("j", 1, backoffLimit=3))
    node = bed.pods()[0]["spec"]["nodeName"]
    taints = [{"key": "sick", "effect": "NoExecute"}]
    bed.api.do("patch", "v1", "nodes", name=node, body={"spec": {"taints": taints}})
    bed.cluster.loops.settle()
    assert [one["spec"]["nodeName"] != node for one in bed.pods()] == [True]


def test_nodes_can_be_chosen_by_name() -> None:
    bed = Bed()
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = pod_spec(affinity={"nodeAffinity": needed})
    create(bed.api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    bed.cluster.loops.settle()
    assert bed.pods()[0]["spec"]["nodeName"] == "n2"


def test_init_containers_count_by_the_largest() -> None:
    bed = Bed()
    spec = pod_spec()
    spec["initContainers"] = [
        {"name": f"init-{size}", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": size}}}
        for size in ("5", "1")
    ]
    create(bed.api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    bed.cluster.loops.settle()
    assert "Insufficient nvidia.com/gpu" in unplaced(bed)


def test_a_pod_is_bound_once() -> None:
    bed = Bed()
    create(bed.api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    bed.cluster.loops.settle()
    error = refused(
        bed.api,
        "create",
        "v1",
        "pods",
        namespace="default",
        name="p",
        subresource="binding",
        body={"target": {"name": "n1"}},
    )
    assert (error.code, "already assigned" in error.message) == (409, True)
