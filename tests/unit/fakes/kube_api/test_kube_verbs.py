"""Create, get, list, update and patch: what is filled in, what is refused, and how it is said."""

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.resources import crds_of
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import create, job, pod_spec, refused

V1BETA1, V1BETA2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(clock=FakeClock())


def test_a_job_is_filled_in_as_a_server_does(api: KubeApi) -> None:
    made = create(api, "jobs", job("j"))
    meta, spec = made["metadata"], made["spec"]
    assert meta["uid"]
    assert meta["resourceVersion"]
    assert (meta["generation"], meta["namespace"]) == (1, "default")
    assert meta["creationTimestamp"] == "1970-01-12T13:46:40Z"
    assert (spec["suspend"], spec["manualSelector"]) == (False, False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    uid = meta["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    pods = spec["template"]["spec"]
    assert (pods["dnsPolicy"], pods["terminationGracePeriodSeconds"]) == ("ClusterFirst", 30)
    assert pods["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert "status" not in made


def test_a_pod_failure_policy_changes_what_is_replaced(api: KubeApi) -> None:
    policy = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}
    made = create(api, "jobs", job("j", podFailurePolicy=policy))
    assert made["spec"]["podReplacementPolicy"] == "Failed"


def test_a_job_without_numbers_runs_once(api: KubeApi) -> None:
    body = job("j")
    for name in ("completions", "parallelism", "completionMode", "backoffLimit"):
        del body["spec"][name]
    spec = create(api, "jobs", body)["spec"]
    found = {name: spec[name] for name in ("completions", "parallelism", "completionMode")}
    assert found == {"completions": 1, "parallelism": 1, "completionMode": "NonIndexed"}
    assert spec["backoffLimit"] == 6


def test_a_pod_is_filled_in_as_a_server_does(api: KubeApi) -> None:
    spec = pod_spec()
    spec["containers"][0] |= {
        "image": "train",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    }
    pod = create(api, "pods", {"metadata": {"generateName": "p-"}, "spec": spec})
    assert pod["metadata"]["name"].startswith("p-")
    container = pod["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "Always"  # no tag is the latest
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert pod["spec"]["serviceAccountName"] == "default"
    assert {one["key"] for one in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(api: KubeApi, resources: Obj, qos: str) -> None:
    spec = pod_spec()
    spec["containers"][0]["resources"] = resources
    pod = create(api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    assert pod["status"]["qosClass"] == qos


def test_a_service_gets_an_address_unless_it_is_headless(api: KubeApi) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    spec = create(api, "services", body)["spec"]
    assert spec["clusterIP"].startswith("10.96.")
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    none = create(api, "services", {"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}})
    assert none["spec"]["clusterIPs"] == ["None"]


def test_an_unknown_field_is_refused_warned_of_or_ignored(api: KubeApi) -> None:
    body = job("j")
    body["spec"]["paralelism"] = 2
    error = refused(
        api,
        "create",
        "batch/v1",
        "jobs",
        namespace="default",
        body=body,
        query={"fieldValidation": "Strict"},
    )
    assert (error.code, error.reason) == (400, "BadRequest")
    assert error.message == 'strict decoding error: unknown field "spec.paralelism"'
    made = create(api, "jobs", body)
    assert "paralelism" not in made["spec"]


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ({"apiVersion": "v1", "kind": "Job"}, 400, "does not match the expected API version"),
        ({"kind": "Pod"}, 400, "does not match the expected kind"),
        ({"metadata": {"name": "x", "namespace": "other"}}, 400, "does not match the namespace"),
        ({"metadata": {"name": "x", "resourceVersion": "3"}}, 400, "should not be set"),
        ({"metadata": {}}, 422, "name or generateName is required"),
        ([], 400, "no JSON object"),
    ],
)
def test_what_does_not_fit_the_request_is_refused(
    api: KubeApi, body: object, code: int, told: str
) -> None:
    error = refused(api, "create", "batch/v1", "jobs", namespace="default", body=body)
    assert error.code == code
    assert told in error.message


def test_names_are_taken_once(api: KubeApi) -> None:
    create(api, "jobs", job("j"))
    error = refused(api, "create", "batch/v1", "jobs", namespace="default", body=job("j"))
    assert (error.code, error.reason) == (409, "AlreadyExists")
    assert error.message == 'jobs.batch "j" already exists'
    assert error.details == {"name": "j", "group": "batch", "kind": "jobs"}


def test_a_namespace_must_be_there(api: KubeApi) -> None:
    error = refused(api, "create", "batch/v1", "jobs", namespace="none", body=job("j"))
    assert (error.code, error.message) == (404, 'namespaces "none" not found')


def test_what_is_not_there_is_not_found(api: KubeApi) -> None:
    for verb in ("get", "delete", "update", "patch"):
        error = refused(api, verb, "batch/v1", "jobs", namespace="default", name="j", body={})
        assert (error.code, error.reason, error.message) == (
            404,
            "NotFound",
            'jobs.batch "j" not found',
        )


def test_a_dry_run_keeps_nothing(api: KubeApi) -> None:
    dry = api.do(
        "create", "batch/v1", "jobs", namespace="default", body=job("j"), query={"dryRun": "All"}
    )
    assert dry["spec"]["suspend"] is False
    assert api.do("list", "batch/v1", "jobs")["items"] == []
    made = create(api, "jobs", job("j"))
    api.do("delete", "batch/v1", "jobs", namespace="default", name="j", query={"dryRun": "All"})
    api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"spec": {"parallelism": 1}},
        query={"dryRun": "All"},
    )
    assert api.do("get", "batch/v1", "jobs", namespace="default", name="j") == made


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"dryRun": "Some"}, 'supported values: "All"'),
        ({"fieldValidation": "Loose"}, 'supported values: "Ignore", "Strict", "Warn"'),
        ({"force": "true"}, "may not be specified for non-apply patch"),
    ],
)
def test_options_are_checked(api: KubeApi, query: dict[str, str], told: str) -> None:
    create(api, "jobs", job("j"))
    error = refused(
        api, "patch", "batch/v1", "jobs", namespace="default", name="j", body={}, query=query
    )
    assert error.code == 422
    assert told in error.message


def test_an_update_of_an_older_version_is_a_conflict(api: KubeApi) -> None:
    first = create(api, "jobs", job("j"))
    api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"spec": {"parallelism": 1}},
    )
    error = refused(api, "update", "batch/v1", "jobs", namespace="default", name="j", body=first)
    assert (error.code, error.reason) == (409, "Conflict")
    assert "the object has been modified" in error.message
    error = refused(
        api,
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"metadata": {"resourceVersion": "1"}},
    )
    assert error.code == 409


def test_an_update_of_another_object_of_that_name_is_a_conflict(api: KubeApi) -> None:
    create(api, "jobs", job("j"))
    body = job("j", meta={"uid": "other"})
    error = refused(api, "update", "batch/v1", "jobs", namespace="default", name="j", body=body)
    assert "UID in precondition: other" in error.message
    error = refused(api, "update", "batch/v1", "jobs", namespace="default", name="j", body=job("k"))
    assert (error.code, "does not match the name on the URL" in error.message) == (400, True)


def test_versions_move_only_with_changes_and_generations_with_the_spec(api: KubeApi) -> None:
    def patched(body: Obj, sub: str = "") -> tuple[int, int]:
        meta = api.do(
            "patch", "batch/v1", "jobs", namespace="default", name="j", body=body, subresource=sub
        )["metadata"]
        return int(meta["resourceVersion"]), meta["generation"]

    create(api, "jobs", job("j"))
    same, _ = patched({})
    labelled, generation = patched({"metadata": {"labels": {"a": "b"}}})
    assert (labelled, generation) == (same + 1, 1)
    assert patched({"metadata": {"labels": {"a": "b"}}}) == (labelled, 1)
    assert patched({"spec": {"parallelism": 1}}) == (labelled + 1, 2)
    assert patched({"status": {"active": 1}}, "status") == (labelled + 2, 2)
    assert patched({"status": {"active": 5}}) == (labelled + 2, 2)  # not through the object


def test_system_fields_cannot_be_written(api: KubeApi) -> None:
    made = create(
        api, "jobs", job("j", meta={"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"})
    )
    assert made["metadata"]["uid"] != "mine"
    body = {"metadata": {"generation": 99, "deletionTimestamp": "2001-01-01T00:00:00Z"}}
    after = api.do("patch", "batch/v1", "jobs", namespace="default", name="j", body=body)
    assert after == made


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"spec": {"completions": 9}}, "spec.completions: Invalid value: field is immutable"),
        ({"spec": {"completionMode": "NonIndexed"}}, "spec.completionMode"),
        ({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, "spec.template"),
    ],
)
def test_a_job_that_runs_is_fixed(api: KubeApi, body: Obj, told: str) -> None:
    create(api, "jobs", job("j"))
    error = refused(api, "patch", "batch/v1", "jobs", namespace="default", name="j", body=body)
    assert (error.code, told in error.message) == (422, True)


def test_an_indexed_job_may_grow_as_a_whole(api: KubeApi) -> None:
    create(api, "jobs", job("j"))
    grown = api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body={"spec": {"completions": 4, "parallelism": 4}},
    )
    assert grown["spec"]["completions"] == 4


def test_where_a_suspended_job_runs_may_change_until_it_has_started(api: KubeApi) -> None:
    create(api, "jobs", job("j", suspend=True))
    where = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}
    api.do("patch", "batch/v1", "jobs", namespace="default", name="j", body=where)
    image = {"spec": {"template": {"spec": {"activeDeadlineSeconds": 3}}}}
    refused(api, "patch", "batch/v1", "jobs", namespace="default", name="j", body=image)
    api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        subresource="status",
        body={"status": {"startTime": "2026-01-01T00:00:00Z"}},
    )
    where["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
    refused(api, "patch", "batch/v1", "jobs", namespace="default", name="j", body=where)


def test_a_pods_spec_is_fixed_but_for_little(api: KubeApi) -> None:
    create(api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    error = refused(
        api,
        "patch",
        "v1",
        "pods",
        namespace="default",
        name="p",
        body={"spec": {"nodeSelector": {"a": "b"}}},
    )
    assert "pod updates may not change fields" in error.message
    image = [{"name": "main", "image": "train:2"}]
    after = api.do(
        "patch",
        "v1",
        "pods",
        namespace="default",
        name="p",
        body={"spec": {"containers": image}},
        content_type="application/strategic-merge-patch+json",
    )
    assert after["spec"]["containers"][0]["image"] == "train:2"


@pytest.mark.parametrize(
    ("plural", "version", "body", "patch"),
    [
        (
            "services",
            "v1",
            {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}},
            {"spec": {"clusterIP": "10.0.0.9"}},
        ),
        (
            "rolebindings",
            "rbac.authorization.k8s.io/v1",
            {"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "a"}},
            {"roleRef": {"name": "b"}},
        ),
    ],
)
def test_other_fixed_fields(api: KubeApi, plural: str, version: str, body: Obj, patch: Obj) -> None:
    api.do("create", version, plural, namespace="default", body=body)
    error = refused(api, "patch", version, plural, namespace="default", name="x", body=patch)
    assert "field is immutable" in error.message


def test_lists_come_in_pages_of_one_version(api: KubeApi) -> None:
    for name in "abcde":
        create(api, "configmaps", {"metadata": {"name": name}})
    first = api.do("list", "v1", "configmaps", query={"limit": "2"})
    assert first["metadata"]["remainingItemCount"] == 3
    api.do("delete", "v1", "configmaps", namespace="default", name="d")
    create(api, "configmaps", {"metadata": {"name": "z"}})
    names = [one["metadata"]["name"] for one in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        page = api.do("list", "v1", "configmaps", query={"limit": "2", "continue": token})
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [one["metadata"]["name"] for one in page["items"]]
        token = page["metadata"].get("continue")
    assert names == list("abcde")


def test_a_page_that_is_too_late_says_how_to_go_on(api: KubeApi) -> None:
    for name in "abc":
        create(api, "configmaps", {"metadata": {"name": name}})
    token = api.do("list", "v1", "configmaps", query={"limit": "1"})["metadata"]["continue"]
    create(api, "configmaps", {"metadata": {"name": "d"}})
    api.kernel.store.compact()
    error = refused(api, "list", "v1", "configmaps", query={"continue": token})
    assert (error.code, error.reason) == (410, "Expired")
    page = api.do("list", "v1", "configmaps", query={"continue": error.details["continue"]})
    assert [one["metadata"]["name"] for one in page["items"]] == ["b", "c", "d"]


def test_a_list_can_be_of_an_exact_version(api: KubeApi) -> None:
    version = create(api, "configmaps", {"metadata": {"name": "a"}})["metadata"]["resourceVersion"]
    create(api, "configmaps", {"metadata": {"name": "b"}})
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert len(api.do("list", "v1", "configmaps", query=exact)["items"]) == 1
    assert len(api.do("list", "v1", "configmaps", query={"resourceVersion": version})["items"]) == 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "999999"}, 504),
        ({"resourceVersion": "abc"}, 400),
        ({"resourceVersionMatch": "Exact"}, 400),
        ({"continue": "nonsense"}, 400),
        ({"fieldSelector": "spec.x=1"}, 400),
    ],
)
def test_lists_that_cannot_be(api: KubeApi, query: dict[str, str], code: int) -> None:
    assert refused(api, "list", "v1", "configmaps", query=query).code == code


def test_items_of_typed_lists_do_not_say_their_kind(api: KubeApi) -> None:
    create(api, "configmaps", {"metadata": {"name": "a"}})
    listed = api.do("list", "v1", "configmaps")
    assert listed["kind"] == "ConfigMapList"
    assert "kind" not in listed["items"][0]
    api.install(crds_of("kueue-v0.13.1"))
    api.do("create", V1BETA1, "resourceflavors", body={"metadata": {"name": "f"}})
    assert api.do("list", V1BETA1, "resourceflavors")["items"][0]["kind"] == "ResourceFlavor"


def test_what_was_listed_can_be_changed_without_harm(api: KubeApi) -> None:
    create(api, "configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    api.do("list", "v1", "configmaps")["items"][0]["data"]["x"] = "2"
    got = api.do("get", "v1", "configmaps", namespace="default", name="a")
    assert got["data"] == {"x": "1"}


def test_plain_texts_of_secrets_are_encoded_and_numbers_of_quantities_written(api: KubeApi) -> None:
    made = create(api, "secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert made["data"] == {"a": "Yg=="}
    assert "stringData" not in made
    spec = pod_spec()
    spec["containers"][0]["resources"] = {"limits": {"cpu": 2}}
    pod = create(api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"serviceAccountName": "x"}, 'service account default/x: serviceaccount "x" not found'),
        ({"priorityClassName": "x"}, "no PriorityClass with name x was found"),
    ],
)
def test_what_a_pod_refers_to_must_be_there(api: KubeApi, spec: Obj, told: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": pod_spec(**spec)}
    error = refused(api, "create", "v1", "pods", namespace="default", body=body)
    assert (error.code, error.reason) == (403, "Forbidden")
    assert told in error.message


def test_a_pods_priority_is_that_of_its_class_or_the_usual_one(api: KubeApi) -> None:
    def priority(name: str, **spec: object) -> int:
        pod = create(api, "pods", {"metadata": {"name": name}, "spec": pod_spec(**spec)})
        return int(pod["spec"]["priority"])

    assert priority("a") == 0
    for name, value, is_usual in (("high", 9, False), ("usual", 3, True)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": is_usual}
        api.do("create", "scheduling.k8s.io/v1", "priorityclasses", body=body)
    assert (priority("b"), priority("c", priorityClassName="high")) == (3, 9)
    assert priority("d", priorityClassName="system-node-critical") == 2_000_001_000


def test_a_json_patch_of_an_object(api: KubeApi) -> None:
    create(api, "jobs", job("j"))
    patch = [{"op": "replace", "path": "/spec/parallelism", "value": 1}]
    after = api.do(
        "patch",
        "batch/v1",
        "jobs",
        namespace="default",
        name="j",
        body=patch,
        content_type="application/json-patch+json",
    )
    assert after["spec"]["parallelism"] == 1
