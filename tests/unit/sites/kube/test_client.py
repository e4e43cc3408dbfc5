"""The client: pages, answers that are none, tokens that stay unseen."""

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.kube_api.account import kubeconfig
from tests.fakes.kube_api.faults import Fault
from tests.fakes.kube_api.server import KubeApi
from tests.unit.sites.kube.desk import Hasty

from gridloom.base.errors import SiteError
from gridloom.sites.kube import client as module
from gridloom.sites.kube.api import PODS, AwayError, ExpiredError, Place, RefusedError, Resource
from gridloom.sites.kube.client import KubeClient

JOBS = Resource(api_version="batch/v1", plural="jobs")


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi() as made:
        yield made


@pytest.fixture
def client(api: KubeApi, tmp_path: Path) -> Iterator[KubeClient]:
    config = kubeconfig(api, tmp_path, namespace="team")
    made = KubeClient(Place(kubeconfig=str(config), namespace="team"), Hasty())
    yield made
    made.close()


def job(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    meta = {"name": name, "namespace": "team", "labels": {"a": "b"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def test_a_list_comes_in_pages(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    for number in range(5):
        client.apply(job(f"j{number}"))
    found, version = client.list(JOBS, "a=b")
    assert [one["metadata"]["name"] for one in found] == [f"j{n}" for n in range(5)]
    assert {one["kind"] for one in found} == {"Job"}, "of the list, for its items do not say"
    assert version
    assert client.list(JOBS, "a=c")[0] == []


def test_what_is_watched_goes_on_from_where_it_was_listed(client: KubeClient) -> None:
    _, version = client.list(JOBS, "")
    made = client.apply(job("j"))
    events = client.watch(JOBS, "", version)
    assert next(events)[1]["metadata"]["uid"] == made["metadata"]["uid"]
    events.close()


def test_a_version_of_long_ago_has_expired(tmp_path: Path) -> None:
    with KubeApi(window=1) as api:
        config = kubeconfig(api, tmp_path, namespace="team")
        client = KubeClient(Place(kubeconfig=str(config), namespace="team"), Hasty())
        for number in range(4):
            client.apply(job(f"j{number}"))
        with pytest.raises(ExpiredError):
            next(client.watch(JOBS, "", "1"))
        client.close()


def test_what_is_gone_is_deleted_and_not_there(client: KubeClient) -> None:
    made = client.apply(job("j"))
    uid = made["metadata"]["uid"]
    client.delete(JOBS, "j", "another")
    assert client.get(JOBS, "j") is not None, "one of another uid is left alone"
    client.delete(JOBS, "j", uid)
    client.delete(JOBS, "j", uid)
    assert client.get(JOBS, "j") is None


def test_a_server_that_stays_busy_is_away(api: KubeApi, client: KubeClient) -> None:
    api.faults.add(Fault("get", "jobs", times=0, code=429, retry_after_s=1))
    with pytest.raises(AwayError, match="too many requests"):
        client.get(JOBS, "j")
    assert sum(one[0] == "get" for one in api.requests) == 4


def test_what_is_not_allowed_says_so(client: KubeClient) -> None:
    with pytest.raises(RefusedError, match='cannot get resource "secrets"') as error:
        client.get(Resource(api_version="v1", plural="secrets"), "s")
    assert error.value.code == 403
    with pytest.raises(RefusedError):
        client.merge(PODS, "p", {"metadata": {"labels": {"a": "b"}}})


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers everything with what it was given."""

    code, body = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[KubeClient]:
    """A client of something that is no API server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    config = tmp_path / "config"
    said = {
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {"token": "the-secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    config.write_text(yaml.safe_dump(said))
    made = KubeClient(Place(kubeconfig=str(config), context="one", namespace="n"), Hasty())
    yield made
    made.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (200, b"<html>a gateway</html>", "answers with no JSON"),
        (200, b"[]", "answers with no object"),
        (502, b"<html>Bad\ngateway</html>", "Bad gateway"),
        (418, b"", "HTTP 418"),
        (404, b'{"kind": "Status"}', '{"kind": "Status"}'),
    ],
)
def test_answers_that_are_none_are_told(
    odd: KubeClient, monkeypatch: pytest.MonkeyPatch, code: int, body: bytes, said: str
) -> None:
    monkeypatch.setattr(Answers, "code", code)
    monkeypatch.setattr(Answers, "body", body)
    with pytest.raises(SiteError) as error:
        odd.list(JOBS, "")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"no json\n", AwayError),
        (b'{"type": "ADDED"}\n', AwayError),
        (b'{"type": "ERROR", "object": {"code": 410, "message": "old"}}\n', ExpiredError),
        (b'{"type": "ERROR", "object": {"code": 500, "message": "bad"}}\n', AwayError),
    ],
)
def test_a_watch_that_tells_of_trouble_is_over(
    odd: KubeClient, monkeypatch: pytest.MonkeyPatch, line: bytes, kind: type[SiteError]
) -> None:
    monkeypatch.setattr(Answers, "code", 200)
    monkeypatch.setattr(Answers, "body", b"\n" + line)
    with pytest.raises(kind):
        next(odd.watch(JOBS, "", "1"))


@pytest.mark.parametrize(
    ("config", "context", "said"),
    [
        ("", "", "cannot be used"),
        ("clusters: []\nusers: []\ncontexts: []\n", "", "cannot be used"),
        ("clusters: []\nusers: []\ncontexts: []\n", "other", "cannot be used"),
        (": no yaml :", "", "cannot be used"),
        (
            "clusters: [{name: c, cluster: {server: 'http://[::'}}]\nusers: [{name: u}]\n"
            "contexts: [{name: one, context: {cluster: c, user: u}}]\n",
            "one",
            "cannot be used",
        ),
    ],
)
def test_a_kubeconfig_that_is_none_is_told(
    tmp_path: Path, config: str, context: str, said: str
) -> None:
    path = tmp_path / "config"
    path.write_text(config)
    with pytest.raises(AwayError, match=said):
        KubeClient(Place(kubeconfig=str(path), context=context, namespace="n"), Hasty())


def test_a_kubeconfig_with_a_new_token_is_read_again(
    api: KubeApi, client: KubeClient, tmp_path: Path
) -> None:
    config = tmp_path / "team.kubeconfig"
    old = api.token_of("team", "gridloom")
    api.tokens["a-new-one"] = api.tokens.pop(old)
    with pytest.raises(AwayError, match="does not accept our token"):
        client.get(JOBS, "j")
    config.write_text(config.read_text().replace(old, "a-new-one"))
    os.utime(config, (1.0, 1.0))
    assert client.get(JOBS, "j") is None


def test_a_client_that_is_closed_is_away(client: KubeClient) -> None:
    client.close()
    with pytest.raises(AwayError, match="closed"):
        client.get(JOBS, "j")


def test_without_a_file_it_is_found_as_others_find_it(
    odd: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    KubeClient(Place(context="one", namespace="n"), Hasty()).close()


def test_a_token_that_cannot_be_had_is_told(odd: KubeClient, tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "config").read_text())
    command = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "false"}
    config["users"] = [{"name": "u", "user": {"exec": command}}]
    path = tmp_path / "exec"
    path.write_text(yaml.safe_dump(config))
    client = KubeClient(Place(kubeconfig=str(path), context="one", namespace="n"), Hasty())
    with pytest.raises(AwayError, match="its token cannot be had"):
        client.list(JOBS, "")
    client.close()
