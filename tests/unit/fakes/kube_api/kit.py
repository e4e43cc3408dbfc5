"""What the tests of the pretended Kubernetes share: a bare HTTP client, and objects to write."""

import http.client
import json
from collections.abc import Generator
from typing import Any

from tests.fakes.kube_api.server import ADMIN_TOKEN, KubeApi
from tests.fakes.kube_api.status import ApiError, Obj

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Http:
    """One client with one token; a connection a request."""

    def __init__(self, api: KubeApi, token: str = ADMIN_TOKEN) -> None:
        host, _, port = api.url.removeprefix("http://").partition(":")
        self._where, self._token = (host, int(port)), token
        self.headers: dict[str, str] = {}
        """Of the last answer, by lower-case name."""

    def __call__(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Return the code and the JSON body of an answer."""
        connection, answer = self._send(method, path, body, kind)
        try:
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def lines(self, path: str) -> Generator[Any, None, None]:
        """Yield the JSON lines of a streamed answer until it ends."""
        connection, answer = self._send("GET", path, None, "application/json")
        try:
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def text(self, path: str) -> str:
        """Return an answer's text."""
        connection, answer = self._send("GET", path, None, "application/json")
        try:
            return answer.read().decode()
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: object, kind: str
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers = {"Content-Type": kind, "User-Agent": "tester/1.0"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = body if isinstance(body, str | bytes | None) else json.dumps(body)
        connection = http.client.HTTPConnection(*self._where, timeout=10)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        return connection, answer


def pod_spec(**more: object) -> Obj:
    """Return a pod's spec with one container."""
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}], **more}


def job(name: str, size: int = 2, *, gpus: int = 0, meta: Obj | None = None, **spec: object) -> Obj:
    """Return an indexed Job of so many pods with so many GPUs each."""
    pods = pod_spec()
    if gpus:
        pods["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **(meta or {})},
        "spec": {
            "completions": size,
            "parallelism": size,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": pods},
            **spec,
        },
    }


def create(api: KubeApi, plural: str, body: Obj, namespace: str = "default") -> Obj:
    """Create an object in-process; its kind's API is that of its apiVersion, or v1."""
    version = body.get("apiVersion", "v1")
    return api.do("create", version, plural, namespace=namespace, body=body)


def refused(api: KubeApi, verb: str, version: str, plural: str, **more: Any) -> ApiError:
    """Return the error that a request is answered with; fail where it is not refused."""
    try:
        done = api.do(verb, version, plural, **more)
    except ApiError as error:
        return error
    raise AssertionError(f"was not refused: {done}")
