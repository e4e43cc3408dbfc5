"""The server over HTTP: paths, discovery, who may what, faults, connections, TLS."""

import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPSConnection, RemoteDisconnected
from urllib.parse import urlsplit

import pytest
import trustme
from tests.fakes.clock import FakeClock
from tests.fakes.kube_api.faults import Fault
from tests.fakes.kube_api.resources import crds_of
from tests.fakes.kube_api.server import ADMIN_TOKEN, KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import APPLY, JOBS, MAPS, PODS, Http, create, job

from gridloom.base.system import SystemClock

LOST = (RemoteDisconnected, ConnectionError)
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi() as api:
        yield api


@pytest.fixture
def http(api: KubeApi) -> Http:
    return Http(api)


def test_a_life_over_http(http: Http) -> None:
    code, made = http("POST", JOBS, job("j"))
    assert (code, made["metadata"]["name"]) == (201, "j")
    assert http("GET", f"{JOBS}/j") == (200, made)
    assert http("GET", "/apis/batch/v1/jobs")[1]["items"][0]["metadata"]["name"] == "j"
    code, after = http(
        "PATCH", f"{JOBS}/j/status", {"status": {"active": 1}}, "application/merge-patch+json"
    )
    assert (code, after["status"]["active"]) == (200, 1)
    code, after = http(
        "PUT", f"{JOBS}/j", after | {"metadata": {**after["metadata"], "labels": {"a": "b"}}}
    )
    assert (code, after["metadata"]["labels"]) == (200, {"a": "b"})
    assert http("DELETE", f"{JOBS}/j", {"propagationPolicy": "Background"})[0] == 200
    assert http("GET", f"{JOBS}/j")[0] == 404
    assert http("DELETE", JOBS)[0] == 200


def test_apply_takes_yaml(http: Http) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '1'}\n"
    code, made = http("PATCH", f"{MAPS}/m?fieldManager=me", text, APPLY)
    assert (code, made["data"]) == (200, {"a": "1"})


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/apis/none/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/things", 404),
        ("GET", f"{PODS}/p/scale", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("PUT", PODS, 405),
        ("POST", "/api/v1/pods", 405),
        ("GET", f"{PODS}/p/exec", 405),
        ("POST", f"{PODS}/p", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("POST", f"{PODS}/p/status", 405),
    ],
)
def test_paths_that_are_not_served(http: Http, method: str, path: str, code: int) -> None:
    found, body = http(method, path, {})
    assert (found, body["kind"], body["code"]) == (code, "Status", code)


@pytest.mark.parametrize(
    ("body", "kind", "code", "told"),
    [
        ("{", "application/json", 400, "unrecognized"),
        (
            '{"metadata": {"name": "a", "name": "b"}}',
            "application/json",
            400,
            'duplicate field "name"',
        ),
        ("a: [", "application/yaml", 400, "unrecognized"),
        ("x", "application/vnd.kubernetes.protobuf", 415, "unknown format"),
    ],
)
def test_bodies_that_cannot_be_read(http: Http, body: str, kind: str, code: int, told: str) -> None:
    found, status = http("POST", JOBS, body, kind)
    assert found == code
    assert told in status["message"]


def test_unknown_fields_are_warned_of_in_a_header(http: Http) -> None:
    body = job("j")
    body["spec"]["wrong"] = 1
    assert http("POST", JOBS, body)[0] == 201
    assert http.headers["warning"].startswith("299 - ")
    assert "spec.wrong" in http.headers["warning"]


def test_discovery(api: KubeApi, http: Http) -> None:
    api.install(crds_of("kueue-v0.19.2"))
    assert http("GET", "/api")[1]["versions"] == ["v1"]
    groups = {one["name"]: one for one in http("GET", "/apis")[1]["groups"]}
    assert groups["kueue.x-k8s.io"]["preferredVersion"]["version"] == "v1beta2"
    assert len(groups["kueue.x-k8s.io"]["versions"]) == 2
    assert http("GET", "/apis/batch")[1]["kind"] == "APIGroup"
    listed = {one["name"]: one for one in http("GET", "/apis/batch/v1")[1]["resources"]}
    assert (listed["jobs"]["kind"], listed["jobs"]["namespaced"]) == ("Job", True)
    assert "watch" in listed["jobs"]["verbs"]
    assert listed["jobs/status"]["verbs"] == ["get", "patch", "update"]
    core = {one["name"]: one for one in http("GET", "/api/v1")[1]["resources"]}
    assert core["nodes"]["namespaced"] is False
    assert core["pods"]["shortNames"] == ["po"]
    assert http("GET", "/version")[1]["gitVersion"] == "v1.36.2"
    assert http("GET", "/readyz")[0] == 200


def test_openapi_says_that_fields_are_validated_here(http: Http) -> None:
    root = http("GET", "/openapi/v3")[1]["paths"]
    document = http("GET", root["apis/batch/v1"]["serverRelativeURL"])[1]
    patch = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert "fieldValidation" in [one["name"] for one in patch["parameters"]]
    assert "io.k8s.api.batch.v1.Job" in document["components"]["schemas"]
    assert http("GET", "/openapi/v3/apis/none/v1")[0] == 404


def test_who_is_not_known_is_turned_away(api: KubeApi) -> None:
    code, body = Http(api, "wrong")("GET", PODS)
    assert (code, body["reason"]) == (401, "Unauthorized")
    code, body = Http(api, "")("GET", PODS)
    assert (code, "system:anonymous" in body["message"]) == (403, True)
    assert Http(api, "")("GET", "/version")[0] == 403


def allow(
    api: KubeApi, *rules: Obj, cluster: bool = False, role: str = "r", bound: str = ""
) -> None:
    kind = "ClusterRole" if cluster else "Role"
    space = "" if cluster else "default"
    api.do(
        "create",
        RBAC,
        f"{kind.lower()}s",
        namespace=space,
        body={"metadata": {"name": role}, "rules": list(rules)},
    )
    bound = bound or ("ClusterRoleBinding" if cluster else "RoleBinding")
    api.do(
        "create",
        RBAC,
        f"{bound.lower()}s",
        namespace="default" if bound == "RoleBinding" else "",
        body={
            "metadata": {"name": role},
            "roleRef": {"kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "driver", "namespace": "default"}],
        },
    )


def rule(group: str, resources: list[str], verbs: list[str], **more: object) -> Obj:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **more}


def test_a_role_gives_what_it_says_and_no_more(api: KubeApi) -> None:
    driver = Http(api, api.token_of("default", "driver"))
    code, body = driver("GET", PODS)
    assert (code, body["reason"]) == (403, "Forbidden")
    assert body["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:driver" cannot list resource '
        '"pods" in API group "" in the namespace "default"'
    )
    allow(api, rule("", ["pods", "pods/log"], ["get", "list"]), rule("batch", ["jobs"], ["create"]))
    assert driver("GET", PODS)[0] == 200
    assert driver("GET", f"{PODS}?watch=1&timeoutSeconds=1")[0] == 403
    assert driver("GET", "/api/v1/pods")[0] == 403  # a Role holds in its namespace only
    assert driver("GET", "/api/v1/namespaces/kube-system/pods")[0] == 403
    assert driver("POST", JOBS, job("j"))[0] == 201
    assert driver("DELETE", f"{JOBS}/j")[0] == 403
    assert driver("PATCH", f"{JOBS}/j/status", {}, "application/merge-patch+json")[0] == 403
    assert driver("GET", f"{PODS}/p/log")[0] == 404  # may, but is not there
    assert driver("GET", "/version")[0] == 200


def test_a_cluster_role_holds_everywhere_or_where_it_is_bound(api: KubeApi) -> None:
    driver = Http(api, api.token_of("default", "driver"))
    allow(api, rule("", ["nodes"], ["list"]), cluster=True, role="nodes")
    assert driver("GET", "/api/v1/nodes")[0] == 200
    assert driver("GET", "/api/v1/nodes/n")[0] == 403
    allow(api, rule("", ["pods"], ["*"]), cluster=True, role="pods", bound="RoleBinding")
    assert driver("GET", PODS)[0] == 200
    assert driver("GET", "/api/v1/pods")[0] == 403


def test_names_in_a_role_hold_for_these_objects(api: KubeApi) -> None:
    driver = Http(api, api.token_of("default", "driver"))
    allow(api, rule("", ["configmaps"], ["get", "list"], resourceNames=["mine"]))
    create(api, "configmaps", {"metadata": {"name": "mine"}})
    assert driver("GET", f"{MAPS}/mine")[0] == 200
    assert driver("GET", f"{MAPS}/other")[0] == 403
    assert driver("GET", MAPS)[0] == 403
    assert driver("GET", f"{MAPS}?fieldSelector=metadata.name%3Dmine")[0] == 200


def test_stars_groups_users_and_aggregation(api: KubeApi) -> None:
    driver = Http(api, api.token_of("default", "driver"))
    other = Http(api, api.token_of("default", "other"))
    allow(api, rule("*", ["*/status"], ["patch"]))
    assert driver("PATCH", f"{JOBS}/j/status", {}, "application/merge-patch+json")[0] == 404
    api.do(
        "create",
        RBAC,
        "clusterroles",
        body={
            "metadata": {"name": "part", "labels": {"of": "all"}},
            "rules": [rule("", ["nodes"], ["list"])],
        },
    )
    api.do(
        "create",
        RBAC,
        "clusterroles",
        body={
            "metadata": {"name": "all"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"of": "all"}}]},
        },
    )
    api.do(
        "create",
        RBAC,
        "clusterrolebindings",
        body={
            "metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "all"},
            "subjects": [{"kind": "Group", "name": "system:serviceaccounts:default"}],
        },
    )
    assert (driver("GET", "/api/v1/nodes")[0], other("GET", "/api/v1/nodes")[0]) == (200, 200)
    api.do(
        "create",
        RBAC,
        "clusterrolebindings",
        body={
            "metadata": {"name": "none"},
            "roleRef": {"kind": "ClusterRole", "name": "missing"},
            "subjects": [{"kind": "User", "name": "system:serviceaccount:default:other"}],
        },
    )
    assert other("GET", "/api/v1/namespaces")[0] == 403


def test_one_may_ask_what_one_may(api: KubeApi) -> None:
    driver = Http(api, api.token_of("default", "driver"))
    allow(api, rule("", ["pods/log"], ["get"]))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def asked(**attributes: str) -> bool:
        code, body = driver("POST", path, {"spec": {"resourceAttributes": attributes}})
        assert code == 201
        return bool(body["status"]["allowed"])

    log = {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "default"}
    assert asked(**log) is True
    assert asked(**{**log, "verb": "delete"}) is False
    assert driver("POST", path, {"spec": {}})[0] == 400


def test_a_fault_hits_the_nth_request(api: KubeApi, http: Http) -> None:
    api.faults.add(Fault("list", "pods", nth=2, times=2, code=429, retry_after_s=1))
    assert [http("GET", PODS)[0] for _ in range(5)] == [200, 429, 429, 200, 200]
    api.faults.add(Fault("list", "pods", code=429, retry_after_s=7))
    body = http("GET", PODS)[1]
    assert http.headers["retry-after"] == "7"
    assert (body["reason"], body["details"]["retryAfterSeconds"]) == ("TooManyRequests", 7)


@pytest.mark.parametrize("code", [401, 403, 409, 410, 500, 503, 504, 507])
def test_any_code_can_be_answered(api: KubeApi, http: Http, code: int) -> None:
    api.faults.add(Fault("create", "jobs", code=code))
    found, body = http("POST", JOBS, job("j"))
    assert (found, body["code"], body["kind"]) == (code, code, "Status")
    assert api.do("list", "batch/v1", "jobs")["items"] == []


def test_a_fault_without_end_lasts_until_it_is_cleared(api: KubeApi, http: Http) -> None:
    api.faults.add(Fault(code=503, times=0))
    assert {http("GET", PODS)[0] for _ in range(3)} == {503}
    assert http("GET", "/version")[0] == 200
    api.faults.clear()
    assert http("GET", PODS)[0] == 200


def test_an_answer_may_be_lost_before_or_after_the_work(api: KubeApi, http: Http) -> None:
    api.faults.add(Fault("create", "jobs", drop="before"))
    with pytest.raises(LOST):
        http("POST", JOBS, job("j"))
    assert http("GET", f"{JOBS}/j")[0] == 404
    api.faults.add(Fault("create", "jobs", drop="after"))
    with pytest.raises(LOST):
        http("POST", JOBS, job("j"))
    assert http("GET", f"{JOBS}/j")[0] == 200
    assert http("POST", JOBS, job("j"))[0] == 409


def test_a_slow_answer_takes_its_time(api: KubeApi, http: Http) -> None:
    api.faults.add(Fault("list", "pods", delay_s=0.3))
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert http("GET", PODS)[0] == 200
    assert clock.monotonic_s() - began_s >= 0.3


def test_the_servers_clock_may_be_wrong(api: KubeApi, http: Http) -> None:
    api.date_skew_s = 3600.0
    http("GET", PODS)
    ahead = parsedate_to_datetime(http.headers["date"]) - datetime.fromtimestamp(
        SystemClock().now_s(), tz=UTC
    )
    assert 3500 < ahead.total_seconds() < 3700


def test_a_stopped_server_comes_back_with_its_objects() -> None:
    api = KubeApi()
    with api:
        Http(api)("POST", JOBS, job("j"))
    with api:
        assert Http(api)("GET", f"{JOBS}/j")[0] == 200
    api.stop()  # a second stop does no harm


def test_what_breaks_in_the_server_is_not_swallowed(capsys: pytest.CaptureFixture[str]) -> None:
    api = KubeApi().start()

    def broken(operation: str, obj: Obj, old: Obj | None) -> None:
        raise ZeroDivisionError(operation)

    api.kernel.webhooks.append(broken)
    with pytest.raises(LOST):
        Http(api)("POST", JOBS, job("j"))
    with pytest.raises(ZeroDivisionError, match="CREATE"):
        api.stop()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_requests_are_remembered(api: KubeApi, http: Http) -> None:
    http("GET", PODS)
    http("GET", f"{PODS}/p/log")
    assert api.requests == [("list", "pods", "tester/1.0"), ("get", "pods/log", "tester/1.0")]


def test_uids_and_names_follow_from_the_seed() -> None:
    def uids(seed: int) -> list[str]:
        api = KubeApi(clock=FakeClock(), seed=seed)
        return [
            create(api, "configmaps", {"metadata": {"generateName": "m-"}})["metadata"]["uid"]
            for _ in range(3)
        ]

    assert uids(1) == uids(1)
    assert not set(uids(1)) & set(uids(2))


def test_https() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with KubeApi(tls=context) as api:
        where = urlsplit(api.url)
        assert where.scheme == "https"
        connection = HTTPSConnection("127.0.0.1", where.port, context=trusting, timeout=10)
        connection.request("GET", "/version", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        assert json.loads(connection.getresponse().read())["minor"] == "36"
        connection.close()


def test_concurrent_writers_lose_nothing(api: KubeApi) -> None:
    create(api, "configmaps", {"metadata": {"name": "m"}, "data": {"n": "0"}})

    def add() -> None:
        http = Http(api)
        for _ in range(5):
            while True:
                _, body = http("GET", f"{MAPS}/m")
                body["data"]["n"] = str(int(body["data"]["n"]) + 1)
                if http("PUT", f"{MAPS}/m", body)[0] == 200:
                    break

    threads = [threading.Thread(target=add) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert api.do("get", "v1", "configmaps", namespace="default", name="m")["data"]["n"] == "20"
