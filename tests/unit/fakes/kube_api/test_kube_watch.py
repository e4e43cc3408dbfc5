"""Watches, as informers rely on them: resume, bookmarks, 410, selection, cuts."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.fakes.kube_api.faults import Fault
from tests.fakes.kube_api.reads import WatchSettings
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj
from tests.unit.fakes.kube_api.kit import MAPS, PODS, Http, create, pod_spec

from gridloom.base.system import SystemClock

WATCH = f"{MAPS}?watch=true"


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi(watching=WatchSettings(bookmark_s=0.1, longest_s=0.4)) as api:
        yield api


@pytest.fixture
def patient() -> Iterator[KubeApi]:
    with KubeApi() as api:
        yield api


def put(api: KubeApi, name: str, data: str = "1", **labels: str) -> str:
    """Create or change a config map; return its version."""
    body = {"metadata": {"name": name, "labels": labels or None}, "data": {"x": data}}
    found = [one["metadata"]["name"] for one in api.do("list", "v1", "configmaps")["items"]]
    if name not in found:
        made = create(api, "configmaps", body)
    else:
        made = api.do("patch", "v1", "configmaps", namespace="default", name=name, body=body)
    return str(made["metadata"]["resourceVersion"])


def drop(api: KubeApi, name: str) -> None:
    api.do("delete", "v1", "configmaps", namespace="default", name=name)


def told(events: list[Obj]) -> list[tuple[str, str]]:
    return [(one["type"], one["object"]["metadata"].get("name", "")) for one in events]


def test_changes_after_a_version_come_in_order_and_each_once(api: KubeApi) -> None:
    version = put(api, "a")
    put(api, "b")
    put(api, "b", "2")
    drop(api, "a")
    events = list(Http(api).lines(f"{WATCH}&resourceVersion={version}&timeoutSeconds=1"))
    assert told(events) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in events]
    assert versions == sorted(versions)
    assert events[0]["object"]["kind"] == "ConfigMap"  # events do say their kind


def test_a_watch_can_be_resumed_anywhere(api: KubeApi) -> None:
    version = put(api, "a")
    for at in range(5):
        put(api, "a", str(at + 2))
    whole = list(Http(api).lines(f"{WATCH}&resourceVersion={version}&timeoutSeconds=1"))
    last = whole[2]["object"]["metadata"]["resourceVersion"]
    rest = list(Http(api).lines(f"{WATCH}&resourceVersion={last}&timeoutSeconds=1"))
    assert whole == whole[:3] + rest


def test_what_happens_while_one_watches_is_seen(patient: KubeApi) -> None:
    lines = Http(patient).lines(f"{WATCH}&resourceVersion={put(patient, 'a')}&timeoutSeconds=20")
    timer = threading.Timer(0.2, put, (patient, "b"))
    timer.start()
    assert told([next(lines)]) == [("ADDED", "b")]
    timer.join()


@pytest.mark.parametrize("version", ["", "&resourceVersion=0"])
def test_without_a_version_what_is_there_comes_first(api: KubeApi, version: str) -> None:
    put(api, "b")
    put(api, "a")
    events = list(Http(api).lines(f"{WATCH}&timeoutSeconds=1{version}"))
    assert told(events) == [("ADDED", "a"), ("ADDED", "b")]


def test_the_end_of_what_is_there_is_marked_on_request(api: KubeApi) -> None:
    put(api, "a")
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = list(Http(api).lines(f"{WATCH}&timeoutSeconds=1{query}"))
    assert told(events)[:2] == [("ADDED", "a"), ("BOOKMARK", "")]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert Http(api)("GET", f"{WATCH}&sendInitialEvents=true")[0] == 400


def test_bookmarks_carry_the_version_of_other_kinds_too(api: KubeApi) -> None:
    version = put(api, "a")
    create(api, "secrets", {"metadata": {"name": "s"}})
    query = f"&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=true"
    events = list(Http(api).lines(WATCH + query))
    assert {one["type"] for one in events} == {"BOOKMARK"}
    assert len(events) > 2
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) > int(version)
    assert events[-1]["object"]["kind"] == "ConfigMap"


def test_a_version_that_is_no_longer_kept_is_an_error_event(api: KubeApi) -> None:
    version = put(api, "a")
    put(api, "b")
    api.kernel.store.compact()
    events = list(Http(api).lines(f"{WATCH}&resourceVersion={version}&timeoutSeconds=5"))
    assert [one["type"] for one in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")
    assert "too old resource version" in events[0]["object"]["message"]


def test_a_small_window_forgets_soon() -> None:
    with KubeApi(window=3) as api:
        version = put(api, "a")
        for at in range(5):
            put(api, "a", str(at + 2))
        events = list(Http(api).lines(f"{WATCH}&resourceVersion={version}&timeoutSeconds=5"))
        assert events[0]["object"]["code"] == 410


def test_what_enters_and_leaves_a_selection(api: KubeApi) -> None:
    version = put(api, "a", l="no")
    put(api, "a", l="yes")
    put(api, "a", "2", l="yes")
    put(api, "a", l="no")
    put(api, "a", "3", l="no")
    query = f"&labelSelector=l%3Dyes&resourceVersion={version}&timeoutSeconds=1"
    events = list(Http(api).lines(WATCH + query))
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_fields_select_too(api: KubeApi) -> None:
    version = put(api, "x")
    create(api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    query = f"{PODS}?watch=1&fieldSelector=spec.nodeName%3Dn1&resourceVersion={version}"
    api.do(
        "create",
        "v1",
        "pods",
        namespace="default",
        name="p",
        subresource="binding",
        body={"target": {"name": "n1"}},
    )
    assert told(list(Http(api).lines(f"{query}&timeoutSeconds=1"))) == [("ADDED", "p")]


def test_other_namespaces_are_not_seen(api: KubeApi) -> None:
    version = put(api, "a")
    create(api, "configmaps", {"metadata": {"name": "m"}}, "kube-system")
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=1"
    assert list(Http(api).lines(f"{MAPS}?{query}")) == []
    assert told(list(Http(api).lines(f"/api/v1/configmaps?{query}"))) == [("ADDED", "m")]


def test_a_watch_ends_when_its_time_is_over(patient: KubeApi) -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert (
        list(Http(patient).lines(f"{WATCH}&resourceVersion={put(patient, 'a')}&timeoutSeconds=1"))
        == []
    )
    assert 0.9 < clock.monotonic_s() - began_s < 10


def test_a_watch_of_a_wrong_version_is_refused(api: KubeApi) -> None:
    assert Http(api)("GET", f"{WATCH}&resourceVersion=abc")[0] == 400


@pytest.mark.parametrize("half", [False, True])
def test_a_watch_can_be_cut_off(api: KubeApi, half: bool) -> None:
    version = put(api, "a")
    for at in range(4):
        put(api, "a", str(at + 2))
    api.faults.add(Fault("watch", "configmaps", cut_after=2, half=half))
    seen: list[Any] = []
    # http.client takes a stream that ends between two chunks for a whole one
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError, ValueError):
        for one in Http(api).lines(f"{WATCH}&resourceVersion={version}&timeoutSeconds=5"):
            seen.append(one)  # noqa: PERF402 - what came before the cut is wanted
    assert len(seen) == 2
    last = seen[-1]["object"]["metadata"]["resourceVersion"]
    rest = list(Http(api).lines(f"{WATCH}&resourceVersion={last}&timeoutSeconds=1"))
    assert len(rest) == 2


def test_all_connections_can_be_closed(patient: KubeApi) -> None:
    lines = Http(patient).lines(f"{WATCH}&timeoutSeconds=30&resourceVersion={put(patient, 'a')}")
    put(patient, "b")
    next(lines)
    patient.disconnect()
    with pytest.raises((http.client.IncompleteRead, ConnectionError, StopIteration)):
        next(lines)
    assert Http(patient)("GET", MAPS)[0] == 200


def test_stopping_the_server_ends_watches() -> None:
    api = KubeApi().start()
    lines = Http(api).lines(f"{WATCH}&timeoutSeconds=30")
    put(api, "a")
    next(lines)
    api.stop()
    with pytest.raises((http.client.IncompleteRead, ConnectionError, StopIteration)):
        next(lines)


def run_pod(api: KubeApi, phase: str = "Running") -> None:
    create(api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    phase_is(api, phase)


def phase_is(api: KubeApi, phase: str) -> None:
    api.do(
        "patch",
        "v1",
        "pods",
        namespace="default",
        name="p",
        subresource="status",
        body={"status": {"phase": phase}},
    )


def test_logs(api: KubeApi) -> None:
    run_pod(api)
    api.logs["default", "p", "main"] = ["one", "two", "three"]
    http = Http(api)
    assert http.text(f"{PODS}/p/log") == "one\ntwo\nthree\n"
    assert http.text(f"{PODS}/p/log?tailLines=1") == "three\n"
    assert http.text(f"{PODS}/p/log?tailLines=9&container=main") == "one\ntwo\nthree\n"
    assert http("GET", f"{PODS}/p/log?container=x")[0] == 400


def test_logs_of_what_has_not_begun_are_refused(api: KubeApi) -> None:
    create(api, "pods", {"metadata": {"name": "p"}, "spec": pod_spec()})
    code, body = Http(api)("GET", f"{PODS}/p/log")
    assert (code, "is waiting to start" in body["message"]) == (400, True)


def test_with_two_containers_one_must_be_named(api: KubeApi) -> None:
    spec = pod_spec()
    spec["containers"].append({"name": "side", "image": "x:1"})
    create(api, "pods", {"metadata": {"name": "p"}, "spec": spec})
    code, body = Http(api)("GET", f"{PODS}/p/log")
    assert (code, "choose one of: [main side]" in body["message"]) == (400, True)


def test_logs_are_followed_to_the_end(api: KubeApi) -> None:
    run_pod(api)
    lines = api.logs.setdefault(("default", "p", "main"), ["one"])

    def go_on() -> None:
        lines.append("two")
        api.kernel.store.wake()
        phase_is(api, "Succeeded")

    timer = threading.Timer(0.3, go_on)
    timer.start()
    assert Http(api).text(f"{PODS}/p/log?follow=true") == "one\ntwo\n"
    timer.join()
