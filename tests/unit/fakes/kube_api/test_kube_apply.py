"""Server-side apply, by the rules of the Kubernetes documentation on field management."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.fieldsets import decode, encode, shown
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj
from tests.unit.fakes.kube_api.kit import APPLY, MERGE, job

NAME = "field-one"


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(clock=FakeClock())


def config(data: dict[str, str]) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


def apply(api: KubeApi, data: dict[str, str], who: str, *, force: bool = False) -> Obj:
    query = {"fieldManager": who, "force": str(force).lower()}
    return api.do(
        "patch",
        "v1",
        "configmaps",
        namespace="default",
        name="m",
        body=config(data),
        content_type=APPLY,
        query=query,
    )


def owners(obj: Obj, field: str) -> set[str]:
    return {
        one["manager"]
        for one in obj["metadata"]["managedFields"]
        if field in one["fieldsV1"].get("f:data", {})
    }


def test_applying_creates(api: KubeApi) -> None:
    made = apply(api, {"a": "1"}, "me")
    assert made["data"] == {"a": "1"}
    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_applying_the_same_again_changes_nothing(api: KubeApi) -> None:
    first = apply(api, {"a": "1"}, "me")
    assert apply(api, {"a": "1"}, "me") == first


def test_a_field_of_another_is_a_conflict_that_names_it(api: KubeApi) -> None:
    apply(api, {"a": "1", "b": "1"}, "me")
    with pytest.raises(ApiError) as caught:
        apply(api, {"a": "2", "b": "2"}, "you")
    error = caught.value
    assert (error.code, error.reason) == (409, "Conflict")
    assert [one["field"] for one in error.details["causes"]] == [".data.a", ".data.b"]
    assert error.details["causes"][0]["reason"] == "FieldManagerConflict"
    assert "conflicts with" in error.message
    assert '"me" using v1' in error.message


def test_force_takes_the_field_over(api: KubeApi) -> None:
    apply(api, {"a": "1", "b": "1"}, "me")
    taken = apply(api, {"a": "2"}, "you", force=True)
    assert taken["data"] == {"a": "2", "b": "1"}
    assert owners(taken, "f:a") == {"you"}
    assert owners(taken, "f:b") == {"me"}


def test_equal_values_are_shared_without_conflict(api: KubeApi) -> None:
    apply(api, {"a": "1"}, "me")
    shared = apply(api, {"a": "1"}, "you")
    assert owners(shared, "f:a") == {"me", "you"}
    left = apply(api, {}, "me")
    assert left["data"] == {"a": "1"}  # the other still wants it
    gone = apply(api, {}, "you")
    assert "data" not in gone


def test_what_is_no_longer_applied_is_removed(api: KubeApi) -> None:
    apply(api, {"a": "1", "b": "2"}, "me")
    assert apply(api, {"b": "2"}, "me")["data"] == {"b": "2"}


def test_what_others_added_stays(api: KubeApi) -> None:
    apply(api, {"a": "1"}, "me")
    api.do(
        "patch",
        "v1",
        "configmaps",
        namespace="default",
        name="m",
        body={"data": {"c": "3"}},
        content_type=MERGE,
        agent="kubectl/1.36",
    )
    after = apply(api, {"a": "2"}, "me")
    assert after["data"] == {"a": "2", "c": "3"}
    assert owners(after, "f:c") == {"kubectl"}


def test_an_update_takes_what_it_changes(api: KubeApi) -> None:
    apply(api, {"a": "1", "b": "1"}, "me")
    changed = api.do(
        "patch",
        "v1",
        "configmaps",
        namespace="default",
        name="m",
        body={"data": {"a": "9"}},
        query={"fieldManager": "editor"},
    )
    assert owners(changed, "f:a") == {"editor"}
    with pytest.raises(ApiError, match=r'conflict with "editor" using v1: \.data\.a'):
        apply(api, {"a": "1", "b": "1"}, "me")


def test_a_removed_field_has_no_owner(api: KubeApi) -> None:
    apply(api, {"a": "1", "b": "1"}, "me")
    left = api.do(
        "patch", "v1", "configmaps", namespace="default", name="m", body={"data": {"a": None}}
    )
    assert owners(left, "f:a") == set()
    assert apply(api, {"a": "5", "b": "1"}, "you")["data"]["a"] == "5"


def test_a_field_manager_is_required(api: KubeApi) -> None:
    with pytest.raises(ApiError) as caught:
        api.do(
            "patch",
            "v1",
            "configmaps",
            namespace="default",
            name="m",
            body=config({}),
            content_type=APPLY,
        )
    assert caught.value.code == 422
    assert "is required for apply patch" in caught.value.message


def test_managed_fields_may_not_be_applied(api: KubeApi) -> None:
    body = config({})
    body["metadata"]["managedFields"] = []
    with pytest.raises(ApiError, match="managedFields must be nil"):
        api.do(
            "patch",
            "v1",
            "configmaps",
            namespace="default",
            name="m",
            body=body,
            content_type=APPLY,
            query={"fieldManager": "me"},
        )


def test_an_applied_version_must_be_the_present_one(api: KubeApi) -> None:
    body = config({"a": "1"})
    body["metadata"]["resourceVersion"] = "1"
    with pytest.raises(ApiError) as caught:
        api.do(
            "patch",
            "v1",
            "configmaps",
            namespace="default",
            name="m",
            body=body,
            content_type=APPLY,
            query={"fieldManager": "me"},
        )
    assert caught.value.code == 404
    apply(api, {"a": "1"}, "me")
    with pytest.raises(ApiError, match="has been modified"):
        api.do(
            "patch",
            "v1",
            "configmaps",
            namespace="default",
            name="m",
            body=body,
            content_type=APPLY,
            query={"fieldManager": "me"},
        )


def apply_job(api: KubeApi, body: Obj, who: str) -> Obj:
    return api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body=body,
        content_type=APPLY,
        query={"fieldManager": who, "fieldValidation": "Strict"},
    )


def test_suspending_by_another_controller_conflicts_with_applying_it_again(api: KubeApi) -> None:
    body = job("j", suspend=True)
    apply_job(api, body, "me")
    api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        agent="kueue",
        body={"spec": {"suspend": False}},
    )
    with pytest.raises(ApiError, match=r'conflict with "kueue" using batch/v1: .spec.suspend'):
        apply_job(api, body, "me")
    del body["spec"]["suspend"]
    assert apply_job(api, body, "me")["spec"]["suspend"] is False


def test_items_of_keyed_lists_have_owners_of_their_own(api: KubeApi) -> None:
    body = job("j", suspend=True)
    made = apply_job(api, body, "me")
    mine = next(one for one in made["metadata"]["managedFields"] if one["manager"] == "me")
    containers = mine["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers == {'k:{"name":"main"}': {".": {}, "f:image": {}, "f:name": {}}}
    # What the server filled in belongs to nobody
    assert made["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "f:dnsPolicy" not in mine["fieldsV1"]["f:spec"]["f:template"]["f:spec"]


def test_status_is_not_applied_through_the_object_nor_spec_through_the_status(api: KubeApi) -> None:
    body = job("j", suspend=True)
    body["status"] = {"active": 3}
    assert "status" not in apply_job(api, body, "me")
    told = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"parallelism": 7},
        "status": {"active": 1},
    }
    after = api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body=told,
        subresource="status",
        content_type=APPLY,
        query={"fieldManager": "ctl"},
    )
    assert after["status"]["active"] == 1
    assert after["spec"]["parallelism"] == 2
    entry = next(one for one in after["metadata"]["managedFields"] if one["manager"] == "ctl")
    assert entry["subresource"] == "status"


elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"x"'])
paths = st.sets(st.lists(elements, min_size=1, max_size=4).map(tuple), max_size=12)


@given(paths)
def test_field_sets_survive_a_round_trip(found: set[tuple[str, ...]]) -> None:
    assert set(decode(encode(found))) == found


def test_paths_are_shown_as_conflicts_show_them() -> None:
    path = ("f:spec", "f:containers", 'k:{"name":"main"}', "f:image")
    assert shown(path) == '.spec.containers[name="main"].image'
    assert shown(("f:finalizers", 'v:"x"')) == '.finalizers[="x"]'


keys = st.sampled_from("abc")
data = st.dictionaries(keys, st.sampled_from(["1", "2"]), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["me", "you"]), data), max_size=6))
def test_forced_applies_give_each_manager_what_it_said_last(steps: list[tuple[str, Any]]) -> None:
    api = KubeApi(clock=FakeClock())
    wanted: dict[str, dict[str, str]] = {}
    result: Obj = {}
    for who, said in steps:
        taken = set(said)
        for other in wanted:
            if other != who:  # what another sets to a different value is lost to it
                wanted[other] = {
                    k: v for k, v in wanted[other].items() if k not in taken or said[k] == v
                }
        wanted[who] = dict(said)
        result = apply(api, said, who, force=True)
        merged: dict[str, str] = {}
        for one in wanted.values():
            merged |= one
        assert result.get("data", {}) == merged
        for name in merged:
            assert owners(result, f"f:{name}") == {w for w, one in wanted.items() if name in one}
