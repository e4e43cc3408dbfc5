"""The API of a cluster over HTTP: who we are by lightkube, requests and retries by ourselves.

lightkube reads kubeconfig files and service accounts, and knows certificates, tokens that change
and programs that print tokens. Its typed objects are not used: what is sent and read is plain data.
"""

import contextlib
import re
import ssl
from collections.abc import Generator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError

from gridloom import __version__
from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.sites.kube.api import (
    PODS,
    Answer,
    AwayError,
    ExpiredError,
    Place,
    RefusedError,
    Resource,
    resource_of,
)
from gridloom.sites.kube.reading import items
from gridloom.sites.kube.render_pod import CONTAINER, Manifest

FIELD_MANAGER = "gridloom"

_TIMEOUT_S = 20.0
_WATCH_S = 60
"""How long a watch is: a connection that died without a word is noticed after that."""
_WATCH_MARGIN_S = 15.0
_PAGE = 500
_TAG = re.compile(r"<[^>]{1,200}>")
"""Of a page for people, as proxies answer with."""
_TRIES = 4
_WAIT_S, _WAIT_MAX_S = 0.25, 5.0
"""Before the second try; then twice as long each time, or as long as the server says."""
_UNAUTHORIZED, _MISSING, _CONFLICT, _EXPIRED = 401, 404, 409, 410
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_WARNING = re.compile(r'299 \S+ "(.*?)"(?: "|$)')
_UNUSABLE = (
    ConfigError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    httpx2.InvalidURL,
    yaml.YAMLError,
)
"""What lightkube lets through of a kubeconfig that is none."""
_SECRETS = re.compile(r"(?i)bearer\s+\S+")


class KubeClient:
    """Requests to one namespace of one cluster (plays `gridloom.sites.kube.api.Api`)."""

    def __init__(self, place: Place, clock: Clock) -> None:
        """Read how the cluster is reached; nothing is sent yet.

        Raises:
            AwayError: That cannot be read.
        """
        self._place = place
        self._namespace = place.namespace
        self._clock = clock
        self._read = _stamp(place)
        self._http = _connect(place)
        self._old: list[httpx2.Client] = []

    def close(self) -> None:
        """Close the connections."""
        for one in (self._http, *self._old):
            one.close()

    def apply(self, manifest: Manifest) -> Manifest:
        """Make an object, or make it as it is to be; raise ``RefusedError`` for a conflict."""
        path = resource_of(manifest).path(self._namespace, manifest["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._json("PATCH", path, query=query, body=manifest, kind=_APPLY)

    def ask(self, path: str, body: Manifest | None = None) -> Answer:
        """Get what stands at a path, or post a question there.

        Raises:
            RefusedError: It is not there, or not for us.
        """
        answer = self._tried("GET" if body is None else "POST", path, body=body)
        return _answer(answer)

    def tries(self, manifest: Manifest) -> Answer:
        """Ask whether an object would be taken, without making it."""
        path = resource_of(manifest).path(self._namespace, manifest["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "dryRun": "All"}
        return _answer(self._tried("PATCH", path, query=query, body=manifest, kind=_APPLY))

    def merge(self, resource: Resource, name: str, change: Manifest) -> Manifest:
        """Change some fields of an object."""
        path = resource.path(self._namespace, name)
        query = {"fieldManager": FIELD_MANAGER}
        return self._json("PATCH", path, query=query, body=change, kind=_MERGE)

    def get(self, resource: Resource, name: str) -> Manifest | None:
        """Return an object; nothing if there is none."""
        try:
            return self._json("GET", resource.path(self._namespace, name))
        except RefusedError as error:
            if error.code == _MISSING:
                return None
            raise

    def delete(self, resource: Resource, name: str, uid: str) -> None:
        """Delete an object, and in the background all that belongs to it.

        Without that being said, a Job's pods would stay behind.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            self._json("DELETE", resource.path(self._namespace, name), body=body)
        except RefusedError as error:
            if error.code not in (_MISSING, _CONFLICT):  # gone, or another one by now
                raise

    def list(
        self, resource: Resource, selector: str, fields: str = ""
    ) -> tuple[list[Manifest], str]:
        """Return the objects with these labels and fields, page by page, and their version."""
        path = resource.path(self._namespace)
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(_PAGE)}
        found: list[Manifest] = []
        while True:
            answer = self._json("GET", path, query=query)
            # Of their kind only the list as a whole says something
            of = {"apiVersion": answer.get("apiVersion"), "kind": _kind(answer)}
            found += [{**of, **one} for one in items(answer) if isinstance(one, dict)]
            about = answer.get("metadata") or {}
            if not about.get("continue"):
                return found, str(about.get("resourceVersion", ""))
            query["continue"] = about["continue"]

    def watch(
        self, resource: Resource, selector: str, version: str
    ) -> Generator[tuple[str, Manifest], None, None]:
        """Open a watch and return what comes; it ends by itself after a minute."""
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        request = self._http.build_request(
            "GET",
            resource.path(self._namespace),
            params=query,
            timeout=httpx2.Timeout(_TIMEOUT_S, read=_WATCH_S + _WATCH_MARGIN_S),
        )
        return _events(self._sent(request, stream=True))

    def log(self, pod: str, lines: int) -> str:
        """Return the last lines of what a pod has printed."""
        query = {"container": CONTAINER, "tailLines": str(lines)}
        path = PODS.path(self._namespace, pod, "log")
        return self._tried("GET", path, query=query).text

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        kind: str = "application/json",
    ) -> Manifest:
        answer = self._tried(method, path, query=query, body=body, kind=kind)
        try:
            said = msgspec.json.decode(answer.content)
        except msgspec.DecodeError as error:
            raise SiteError(f"{self._url(path)} answers with no JSON: {error}") from error
        if not isinstance(said, dict):
            raise SiteError(f"{self._url(path)} answers with no object")
        return said

    def _tried(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        kind: str = "application/json",
    ) -> httpx2.Response:
        """Send a request, again while the server is busy; each of ours may be repeated."""
        for again in range(_TRIES):
            request = self._http.build_request(
                method,
                path,
                params=query,
                content=None if body is None else msgspec.json.encode(body),
                headers={"Content-Type": kind},
            )
            try:
                return self._sent(request)
            except _BusyError as error:
                if again == _TRIES - 1:
                    raise AwayError(str(error)) from error
                self._clock.sleep(min(error.after_s or _WAIT_S * 2**again, _WAIT_MAX_S))
        raise AssertionError("not reached")

    def _sent(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        """Send one request; raise what its answer means unless it is good."""
        try:
            answer = self._http.send(request, stream=stream)
            if answer.is_success:
                return answer
            answer.read()
            answer.close()
        except ConfigError as error:
            raise AwayError(f"its token cannot be had: {_words(error)}") from error
        except RuntimeError as error:  # closed meanwhile
            raise AwayError(f"{self._url('')}: {_words(error)}") from error
        except (httpx2.RequestError, ssl.SSLError) as error:
            raise _BusyError(f"{self._url('')}: {_words(error)}") from error
        code, said = answer.status_code, _message(answer)
        if code == _EXPIRED:
            raise ExpiredError(said)
        if code == _UNAUTHORIZED:
            self._read_again()
            raise AwayError(f"{self._url('')} does not accept our token or certificate: {said}")
        if code in _BUSY:
            raise _BusyError(said, _seconds(answer.headers.get("Retry-After", "")))
        raise RefusedError(code, said)

    def _read_again(self) -> None:
        """Use what the kubeconfig says now, if it was changed.

        Raises:
            AwayError: It was; the same request may succeed now.
        """
        stamp = _stamp(self._place)
        if stamp != self._read:
            changed = _connect(self._place)
            self._old.append(self._http)  # others may still hear from it
            self._read, self._http = stamp, changed
            raise _BusyError(f"{self._place.kubeconfig} was changed")

    def _url(self, path: str) -> str:
        return f"{str(self._http.base_url).rstrip('/')}{path}"


class _BusyError(AwayError):
    """Not now.

    Attributes:
        after_s: When to ask again, as the server says; 0 if it does not.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


def _stamp(place: Place) -> float:
    """Return when the kubeconfig file was changed last; 0 if there is none that was named."""
    try:
        return Path(place.kubeconfig).stat().st_mtime if place.kubeconfig else 0.0
    except OSError:
        return 0.0


def _connect(place: Place) -> httpx2.Client:
    try:
        path = place.kubeconfig
        said = KubeConfig.from_file(path) if path else KubeConfig.from_env()
        if place.context and place.context not in said.contexts:
            raise LookupError(f"it has no context {place.context}, only {', '.join(said.contexts)}")
        config = said.get(place.context or None)
        assert config is not None, "it names no current context"
        found = Client(config, ConnectionParams(timeout=httpx2.Timeout(_TIMEOUT_S)))
    except _UNUSABLE as error:
        where = place.kubeconfig or "the kubeconfig"
        raise AwayError(f"{where} cannot be used: {_words(error)}") from error
    found.headers["User-Agent"] = f"{FIELD_MANAGER}/{__version__}"
    return found


def _answer(answer: httpx2.Response) -> Answer:
    body = msgspec.json.decode(answer.content)
    told_s = None
    with contextlib.suppress(ValueError):
        told_s = parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
    said = answer.headers.get_list("Warning")
    warnings = tuple(match[1] for one in said if (match := _WARNING.match(one)))
    return Answer(body=body, told_s=told_s, warnings=warnings)


def _kind(answer: Manifest) -> str:
    return str(answer.get("kind", "")).removesuffix("List")


def _events(answer: httpx2.Response) -> Generator[tuple[str, Manifest], None, None]:
    try:
        for line in answer.iter_lines():
            if line:
                yield _event(line)
    except (httpx2.RequestError, httpx2.StreamError) as error:
        raise AwayError(f"a watch was cut off: {_words(error)}") from error
    finally:
        answer.close()


def _event(line: str) -> tuple[str, Manifest]:
    try:
        event: dict[str, Any] = msgspec.json.decode(line)
        kind, about = str(event["type"]), event["object"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise AwayError(f"a watch tells what cannot be read: {error}") from error
    if kind != "ERROR":
        return kind, about
    code, said = int(about.get("code", 0)), str(about.get("message", "a watch failed"))
    if code == _EXPIRED:
        raise ExpiredError(said)
    raise AwayError(said)


def _message(answer: httpx2.Response) -> str:
    """Return what the server says, which is a Status in JSON if the API itself answers."""
    try:
        said = msgspec.json.decode(answer.content)
        message = str(said["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = " ".join(_TAG.sub(" ", answer.text).split())[:200]
    return message or f"HTTP {answer.status_code} {answer.reason_phrase}"


def _seconds(text: str) -> float:
    """Return how long ``Retry-After`` says to wait; a date, which no API sends, says nothing."""
    return float(text) if re.fullmatch(r"\d{1,6}", text.strip()) else 0.0


def _words(error: Exception) -> str:
    """Return what went wrong, without what a header may have held."""
    return " ".join(_SECRETS.sub("Bearer ...", str(error)).split()) or type(error).__name__
