"""Deletion: grace, preconditions, finalizers, and the three ways with dependents."""

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.controllers.garbage import Garbage
from tests.fakes.kube_api.controllers.loop import Loops
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create, job, pod_spec, refused


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(clock=FakeClock())


def delete(api: KubeApi, plural: str, name: str, **options: object) -> Obj:
    version = "batch/v1" if plural == "jobs" else "v1"
    return api.do("delete", version, plural, namespace="default", name=name, body=options)


def names(api: KubeApi, plural: str) -> list[str]:
    version = "batch/v1" if plural == "jobs" else "v1"
    return [one["metadata"]["name"] for one in api.do("list", version, plural)["items"]]


def pod(api: KubeApi, name: str, owner: Obj | None = None, **meta: object) -> Obj:
    refs = []
    if owner is not None:
        refs = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "controller": True,
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ]
    body = {"metadata": {"name": name, "ownerReferences": refs, **meta}, "spec": pod_spec()}
    return create(api, "pods", body)


def bind(api: KubeApi, name: str) -> None:
    api.do(
        "create",
        "v1",
        "pods",
        namespace="default",
        name=name,
        subresource="binding",
        body={"target": {"name": "n1"}},
    )


def test_a_pod_without_a_node_is_gone_at_once(api: KubeApi) -> None:
    pod(api, "p")
    assert delete(api, "pods", "p")["metadata"]["name"] == "p"
    assert names(api, "pods") == []


def test_a_pod_on_a_node_is_given_its_grace(api: KubeApi) -> None:
    pod(api, "p")
    bind(api, "p")
    marked = delete(api, "pods", "p")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    assert marked["deletionTimestamp"] == "1970-01-12T13:47:10Z"
    assert (
        delete(api, "pods", "p", gracePeriodSeconds=5)["metadata"]["deletionGracePeriodSeconds"]
        == 5
    )
    # It may be shortened, not lengthened
    assert (
        delete(api, "pods", "p", gracePeriodSeconds=60)["metadata"]["deletionGracePeriodSeconds"]
        == 5
    )
    delete(api, "pods", "p", gracePeriodSeconds=0)
    assert names(api, "pods") == []


def test_a_pod_that_has_ended_is_gone_at_once(api: KubeApi) -> None:
    pod(api, "p")
    bind(api, "p")
    api.do(
        "patch",
        "v1",
        "pods",
        namespace="default",
        name="p",
        subresource="status",
        body={"status": {"phase": "Succeeded"}},
    )
    delete(api, "pods", "p")
    assert names(api, "pods") == []


def test_other_kinds_answer_with_a_status(api: KubeApi) -> None:
    create(api, "configmaps", {"metadata": {"name": "m"}})
    done = delete(api, "configmaps", "m")
    assert (done["kind"], done["status"], done["details"]["kind"]) == (
        "Status",
        "Success",
        "configmaps",
    )


def test_preconditions_are_kept(api: KubeApi) -> None:
    made = create(api, "configmaps", {"metadata": {"name": "m"}})
    for name in ("uid", "resourceVersion"):
        error = refused(
            api,
            "delete",
            "v1",
            "configmaps",
            namespace="default",
            name="m",
            body={"preconditions": {name: "other"}},
        )
        assert (error.code, "Precondition failed" in error.message) == (409, True)
    delete(api, "configmaps", "m", preconditions={"uid": made["metadata"]["uid"]})
    assert "m" not in names(api, "configmaps")


def test_finalizers_hold_an_object_until_they_are_gone(api: KubeApi) -> None:
    create(api, "configmaps", {"metadata": {"name": "m", "finalizers": ["a/b"]}})
    marked = delete(api, "configmaps", "m")
    assert marked["metadata"]["deletionTimestamp"]
    assert delete(api, "configmaps", "m") == marked
    error = refused(
        api,
        "patch",
        "v1",
        "configmaps",
        namespace="default",
        name="m",
        body={"metadata": {"finalizers": ["a/b", "c/d"]}},
    )
    assert "no new finalizers can be added" in error.message
    api.do(
        "patch",
        "v1",
        "configmaps",
        namespace="default",
        name="m",
        body={"metadata": {"finalizers": None}},
    )
    assert "m" not in names(api, "configmaps")


@pytest.mark.parametrize(
    ("body", "code"),
    [({"propagationPolicy": "Sideways"}, 422), ({"kind": "Pod"}, 400), ([], 400)],
)
def test_bad_options_are_refused(api: KubeApi, body: object, code: int) -> None:
    create(api, "configmaps", {"metadata": {"name": "m"}})
    error = refused(api, "delete", "v1", "configmaps", namespace="default", name="m", body=body)
    assert error.code == code


def family(api: KubeApi) -> None:
    owner = create(api, "jobs", job("j", suspend=True))
    pod(api, "mine", owner)
    pod(api, "other")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_dependents_go_with_their_owner(api: KubeApi, policy: str) -> None:
    family(api)
    delete(api, "jobs", "j", propagationPolicy=policy)
    assert ("j" in names(api, "jobs")) is (policy == "Foreground")
    Loops(api, [Garbage(api)]).settle()
    assert (names(api, "jobs"), names(api, "pods")) == ([], ["other"])


def test_in_the_foreground_the_owner_goes_last(api: KubeApi) -> None:
    owner = create(api, "jobs", job("j", suspend=True))
    pod(api, "mine", owner, finalizers=["a/b"])
    delete(api, "jobs", "j", propagationPolicy="Foreground")
    loops = Loops(api, [Garbage(api)])
    loops.settle()
    assert names(api, "jobs") == ["j"]
    api.do(
        "patch",
        "v1",
        "pods",
        namespace="default",
        name="mine",
        body={"metadata": {"finalizers": []}},
    )
    loops.settle()
    assert (names(api, "jobs"), names(api, "pods")) == ([], [])


@pytest.mark.parametrize(
    "options", [{}, {"propagationPolicy": "Orphan"}, {"orphanDependents": True}]
)
def test_a_job_deleted_without_a_policy_leaves_its_pods_behind(api: KubeApi, options: Obj) -> None:
    family(api)
    delete(api, "jobs", "j", **options)
    Loops(api, [Garbage(api)]).settle()
    assert (names(api, "jobs"), names(api, "pods")) == ([], ["mine", "other"])
    left = api.do("get", "v1", "pods", namespace="default", name="mine")
    assert not left["metadata"].get("ownerReferences")


def test_options_may_stand_in_the_query(api: KubeApi) -> None:
    family(api)
    api.do(
        "delete",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        query={"propagationPolicy": "Background", "gracePeriodSeconds": "0"},
    )
    Loops(api, [Garbage(api)]).settle()
    assert names(api, "pods") == ["other"]


def test_a_collection_is_deleted_by_selector(api: KubeApi) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        create(api, "configmaps", {"metadata": {"name": name, "labels": {"l": label}}})
    gone = api.do(
        "deletecollection", "v1", "configmaps", namespace="default", query={"labelSelector": "l=x"}
    )
    assert [one["metadata"]["name"] for one in gone["items"]] == ["a", "b"]
    assert names(api, "configmaps") == ["c"]


def test_a_namespace_goes_when_it_is_empty(api: KubeApi) -> None:
    api.do("create", "v1", "namespaces", body={"metadata": {"name": "n"}})
    loops = Loops(api, [Garbage(api)])
    loops.settle()
    assert api.do("get", "v1", "serviceaccounts", namespace="n", name="default")
    create(api, "configmaps", {"metadata": {"name": "m", "finalizers": ["a/b"]}}, "n")
    api.do("delete", "v1", "namespaces", name="n")
    loops.settle()
    assert api.do("get", "v1", "namespaces", name="n")["status"]["phase"] == "Terminating"
    error = refused(
        api, "create", "v1", "configmaps", namespace="n", body={"metadata": {"name": "x"}}
    )
    assert (error.code, "being terminated" in error.message) == (403, True)
    api.do(
        "patch", "v1", "configmaps", namespace="n", name="m", body={"metadata": {"finalizers": []}}
    )
    loops.settle()
    assert refused(api, "get", "v1", "namespaces", name="n").code == 404


def test_eviction_marks_the_pod_and_deletes_it(api: KubeApi) -> None:
    pod(api, "p")
    bind(api, "p")
    api.do("create", "v1", "pods", namespace="default", name="p", subresource="eviction", body={})
    left = api.do("get", "v1", "pods", namespace="default", name="p")
    assert left["metadata"]["deletionTimestamp"]
    assert "DisruptionTarget" in [one["type"] for one in left["status"]["conditions"]]
