"""What a server refuses: values that may not be, and values of wrong types."""

from typing import Any

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import job, refused


@pytest.fixture
def api() -> KubeApi:
    return KubeApi(clock=FakeClock())


def wrong(path: str, value: object) -> Obj:
    body = job("j")
    holder: Any = body
    parts = path.split(".")
    for part in parts[:-1]:
        holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
    holder[parts[-1]] = value
    return body


POD = "spec.template.spec"
BOX = f"{POD}.containers.0"
CODES = {"operator": "In", "values": [1]}


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("metadata.name", "Not_A_Name", "metadata.name"),
        ("metadata.name", "a" * 62, "metadata.name"),  # a pod's host name would be too long
        ("metadata.labels", {"a": "no spaces"}, "metadata.labels"),
        ("metadata.labels", {"-x": "a"}, "metadata.labels"),
        ("metadata.annotations", {"a b": "x"}, "metadata.annotations"),
        ("spec.completions", -1, "spec.completions"),
        ("spec.completionMode", "Sorted", "spec.completionMode"),
        (f"{POD}.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
        (f"{POD}.containers", [], "spec.template.spec.containers"),
        (f"{BOX}.name", "Main", "spec.template.spec.containers[0].name"),
        (f"{BOX}.imagePullPolicy", "Sometimes", "spec.template.spec.containers[0].imagePullPolicy"),
        (f"{BOX}.env", [{"name": "A=B"}], "spec.template.spec.containers[0].env[0].name"),
        (
            f"{BOX}.env",
            [
                {
                    "name": "A",
                    "value": "x",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                }
            ],
            "spec.template.spec.containers[0].env[0].valueFrom",
        ),
        (
            f"{BOX}.volumeMounts",
            [{"name": "none", "mountPath": "/x"}],
            "spec.template.spec.containers[0].volumeMounts[0].name",
        ),
        (
            f"{BOX}.resources",
            {"limits": {"gpu": "1"}},
            "spec.template.spec.containers[0].resources.limits.gpu",
        ),
        (
            f"{BOX}.resources",
            {"limits": {"cpu": "much"}},
            "spec.template.spec.containers[0].resources.limits.cpu",
        ),
        (
            f"{BOX}.resources",
            {"limits": {"nvidia.com/gpu": "1.5"}},
            "spec.template.spec.containers[0].resources.limits.nvidia.com/gpu",
        ),
        (
            f"{BOX}.resources",
            {"requests": {"nvidia.com/gpu": "1"}},
            "spec.template.spec.containers[0].resources.requests.nvidia.com/gpu",
        ),
        (
            f"{BOX}.resources",
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            "spec.template.spec.containers[0].resources.requests.cpu",
        ),
        (
            f"{BOX}.ports",
            [{"containerPort": 70000}],
            "spec.template.spec.containers[0].ports[0].containerPort",
        ),
        (
            f"{BOX}.ports",
            [{"containerPort": 1, "name": "much-too-long-a-name"}],
            "spec.template.spec.containers[0].ports[0].name",
        ),
        (
            f"{POD}.tolerations",
            [{"operator": "Equal"}],
            "spec.template.spec.tolerations[0].operator",
        ),
        (
            f"{POD}.tolerations",
            [{"key": "k", "operator": "Exists", "value": "v"}],
            "spec.template.spec.tolerations[0].operator",
        ),
        (
            f"{POD}.tolerations",
            [{"key": "k", "operator": "Exists", "effect": "Never"}],
            "spec.template.spec.tolerations[0].effect",
        ),
        (
            f"{POD}.tolerations",
            [{"key": "k", "operator": "Is", "tolerationSeconds": 3}],
            "spec.template.spec.tolerations[0].operator",
        ),
        (f"{POD}.volumes", [{"name": "V"}], "spec.template.spec.volumes[0].name"),
        (f"{POD}.volumes", [{"name": "v"}, {"name": "v"}], "spec.template.spec.volumes[1].name"),
        (
            f"{POD}.volumes",
            [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}],
            "spec.template.spec.volumes[0].hostPath",
        ),
        (
            f"{POD}.terminationGracePeriodSeconds",
            -1,
            "spec.template.spec.terminationGracePeriodSeconds",
        ),
        (f"{POD}.hostname", "Not a name", "spec.template.spec.hostname"),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Explode", "onExitCodes": CODES}]},
            "spec.podFailurePolicy.rules[0].action",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "FailIndex", "onExitCodes": CODES}]},
            "spec.podFailurePolicy.rules[0].action",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Ignore"}]},
            "spec.podFailurePolicy.rules[0]",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [2, 1]}}]},
            "spec.podFailurePolicy.rules[0].onExitCodes.values",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0]}}]},
            "spec.podFailurePolicy.rules[0].onExitCodes.values",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "Near", "values": []}}]},
            "spec.podFailurePolicy.rules[0].onExitCodes.operator",
        ),
        (
            "spec.podFailurePolicy",
            {"rules": [{"action": "Ignore", "onExitCodes": {**CODES, "containerName": "other"}}]},
            "spec.podFailurePolicy.rules[0].onExitCodes.containerName",
        ),
        (
            "metadata.ownerReferences",
            [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}],
            "metadata.ownerReferences[0].uid",
        ),
    ],
)
def test_a_job_that_says_what_may_not_be_is_invalid(
    api: KubeApi, path: str, value: object, field: str
) -> None:
    error = refused(api, "create", "batch/v1", "jobs", namespace="default", body=wrong(path, value))
    assert (error.code, error.reason) == (422, "Invalid")
    assert field in [one["field"] for one in error.details["causes"]]
    assert error.message.startswith('Job.batch "')


def test_a_failure_policy_wants_pods_that_never_restart(api: KubeApi) -> None:
    body = job("j", podFailurePolicy={"rules": [{"action": "Ignore", "onExitCodes": CODES}]})
    body["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    error = refused(api, "create", "batch/v1", "jobs", namespace="default", body=body)
    assert 'only "Never" is supported' in error.message


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("spec.parallelism", "two", "spec.parallelism: expected integer, got string"),
        ("spec.suspend", 1, "spec.suspend: expected boolean, got integer"),
        ("spec.template", [], "spec.template: expected object, got array"),
        (f"{BOX}.command", "run", "containers[0].command: expected array, got string"),
        ("spec.parallelism", True, "spec.parallelism: expected integer, got boolean"),
    ],
)
def test_a_value_of_a_wrong_type_is_a_bad_request(
    api: KubeApi, path: str, value: object, told: str
) -> None:
    error = refused(api, "create", "batch/v1", "jobs", namespace="default", body=wrong(path, value))
    assert error.code == 400
    assert told in error.message


@pytest.mark.parametrize(
    ("plural", "version", "body", "field"),
    [
        ("services", "v1", {"spec": {}}, "spec.ports"),
        ("services", "v1", {"spec": {"type": "Best", "clusterIP": "None"}}, "spec.type"),
        ("services", "v1", {"spec": {"ports": [{"port": 0}]}}, "spec.ports[0].port"),
        ("services", "v1", {"spec": {"ports": [{"port": 1}, {"port": 2}]}}, "spec.ports[0].name"),
        (
            "roles",
            "rbac.authorization.k8s.io/v1",
            {"rules": [{"verbs": ["get"]}]},
            "rules[0].apiGroups",
        ),
        (
            "roles",
            "rbac.authorization.k8s.io/v1",
            {"rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]},
            "rules[0].verbs",
        ),
        (
            "roles",
            "rbac.authorization.k8s.io/v1",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            "rules[0].nonResourceURLs",
        ),
        (
            "rolebindings",
            "rbac.authorization.k8s.io/v1",
            {"roleRef": {"kind": "User", "name": "x"}},
            "roleRef.kind",
        ),
        (
            "rolebindings",
            "rbac.authorization.k8s.io/v1",
            {
                "roleRef": {"kind": "Role", "name": "x"},
                "subjects": [{"kind": "ServiceAccount", "name": "s"}],
            },
            "subjects[0].namespace",
        ),
        ("leases", "coordination.k8s.io/v1", {"spec": {"renewTime": "noon"}}, "spec.renewTime"),
    ],
)
def test_other_kinds_are_checked(
    api: KubeApi, plural: str, version: str, body: Obj, field: str
) -> None:
    body = {"metadata": {"name": "x"}, **body}
    error = refused(api, "create", version, plural, namespace="default", body=body)
    assert field in [one["field"] for one in error.details["causes"]]
