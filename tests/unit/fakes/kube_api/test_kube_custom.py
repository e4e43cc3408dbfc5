"""Custom resources: strict schemas, rules, and two versions of one kind."""

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.resources import crds_of
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj
from tests.unit.fakes.kube_api.kit import MERGE, pod_spec, refused

V1BETA1, V1BETA2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(clock=FakeClock())


def cluster_queue(**spec: object) -> Obj:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 4}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return {"metadata": {"name": "q"}, "spec": {"resourceGroups": [group], **spec}}


def test_custom_resources_are_checked_against_their_schema(api: KubeApi) -> None:
    api.install(crds_of("kueue-v0.13.1"))
    made = api.do("create", V1BETA1, "clusterqueues", body=cluster_queue(cohort="c"))
    assert made["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert made["spec"]["preemption"]["withinClusterQueue"] == "Never"
    for spec, field in (
        ({"queueingStrategy": "Fair"}, "spec.queueingStrategy"),
        ({"resourceGroups": [{"coveredResources": ["cpu"]}]}, "spec.resourceGroups[0].flavors"),
        ({"cohort": "-"}, "spec.cohort"),
        ({"resourceGroups": [{}] * 17}, "spec.resourceGroups"),
    ):
        error = refused(api, "create", V1BETA1, "clusterqueues", body=cluster_queue(**spec))
        assert field in [one["field"] for one in error.details["causes"]], error.message
    error = refused(
        api,
        "create",
        V1BETA1,
        "clusterqueues",
        body=cluster_queue(cohortName="c"),
        query={"fieldValidation": "Strict"},
    )
    assert error.message == 'strict decoding error: unknown field "spec.cohortName"'


def test_custom_resources_want_a_version_to_be_replaced_and_no_strategic_patch(
    api: KubeApi,
) -> None:
    api.install(crds_of("kueue-v0.13.1"))
    made = api.do("create", V1BETA1, "clusterqueues", body=cluster_queue())
    del made["metadata"]["resourceVersion"]
    error = refused(api, "update", V1BETA1, "clusterqueues", name="q", body=made)
    assert "must be specified for an update" in error.message
    error = refused(
        api,
        "patch",
        V1BETA1,
        "clusterqueues",
        name="q",
        body={},
        content_type="application/strategic-merge-patch+json",
    )
    assert error.code == 415


def test_rules_that_forbid_changes_are_heeded(api: KubeApi) -> None:
    api.install(crds_of("kueue-v0.13.1"))
    body = {"metadata": {"name": "l"}, "spec": {"clusterQueue": "q"}}
    api.do("create", V1BETA1, "localqueues", namespace="default", body=body)
    error = refused(
        api,
        "patch",
        V1BETA1,
        "localqueues",
        namespace="default",
        name="l",
        body={"spec": {"clusterQueue": "other"}},
        content_type=MERGE,
    )
    assert "immutable" in error.message


def test_both_versions_of_a_kind_are_served_and_renamed(api: KubeApi) -> None:
    api.install(crds_of("kueue-v0.19.2"))
    api.do("create", V1BETA1, "clusterqueues", body=cluster_queue(cohort="c"))
    new = api.do("get", V1BETA2, "clusterqueues", name="q")
    assert new["apiVersion"] == V1BETA2
    assert new["spec"]["cohortName"] == "c"
    assert "cohort" not in new["spec"]
    old = api.do("patch", V1BETA1, "clusterqueues", name="q", body={"spec": {"cohort": "d"}})
    assert old["spec"]["cohort"] == "d"
    assert api.do("list", V1BETA2, "clusterqueues")["items"][0]["spec"]["cohortName"] == "d"


@pytest.mark.parametrize(
    ("group", "kind"),
    [("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass")],
)
def test_a_workloads_priority_class_is_renamed(api: KubeApi, group: str, kind: str) -> None:
    api.install(crds_of("kueue-v0.19.2"))
    sets = [{"name": "main", "count": 1, "template": {"spec": pod_spec()}}]
    spec = {
        "podSets": sets,
        "priority": 1,
        "priorityClassName": "high",
        "priorityClassSource": f"{group}/{kind.lower()}",
    }
    body = {"metadata": {"name": "w"}, "spec": spec}
    api.do("create", V1BETA1, "workloads", namespace="default", body=body)
    new = api.do("get", V1BETA2, "workloads", namespace="default", name="w")["spec"]
    assert new["priorityClassRef"] == {"group": group, "kind": kind, "name": "high"}
    old = api.do("get", V1BETA1, "workloads", namespace="default", name="w")["spec"]
    assert old["priorityClassSource"] == spec["priorityClassSource"]


def test_a_crd_can_be_created_and_is_served(api: KubeApi) -> None:
    crd = next(one for one in crds_of("kueue-v0.13.1") if "flavors" in one["metadata"]["name"])
    version, plural = "apiextensions.k8s.io/v1", "customresourcedefinitions"
    api.do("create", version, plural, body=crd)
    api.do("create", V1BETA1, "resourceflavors", body={"metadata": {"name": "f"}})
    api.do("delete", version, plural, name=crd["metadata"]["name"])
    with pytest.raises(ApiError, match="could not find the requested resource"):
        api.do("list", V1BETA1, "resourceflavors")
