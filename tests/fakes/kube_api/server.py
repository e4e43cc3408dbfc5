"""The HTTP server: reads requests, knows who calls, plays faults, answers and streams."""

import json
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.kube_api import deletes, rbac, reads, routes, special, writes
from tests.fakes.kube_api.admission import PodAdmission
from tests.fakes.kube_api.faults import Fault, Faults
from tests.fakes.kube_api.kernel import ADMIN, Call, Kernel, User
from tests.fakes.kube_api.reads import WatchSettings
from tests.fakes.kube_api.selectors import named_by
from tests.fakes.kube_api.status import ApiError, Obj, forbidden, no_such_path
from tests.fakes.kube_api.store import Store

from gridloom.base.clock import Clock
from gridloom.base.system import SystemClock

ADMIN_TOKEN = "admin-token"
_VERBS: Mapping[str, Callable[[Kernel, Call], Obj]] = {
    "get": reads.get,
    "list": reads.list_,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patch,
    "delete": deletes.delete,
    "deletecollection": deletes.delete_collection,
}
_SPECIAL: Mapping[tuple[str, str], Callable[[Kernel, Call], Obj]] = {
    ("pods", "binding"): special.bind,
    ("pods", "eviction"): special.evict,
    ("selfsubjectaccessreviews", ""): special.review,
}


class _CutError(Exception):
    """The connection is to be closed here and now."""


class KubeApi:
    """An API server of one cluster, in threads of this process.

    Args:
        clock: Where timestamps and waits come from.
        window: How many changes watches may look back.
        watching: How watches behave.
        seed: Makes uids and the suffixes of names.
        tls: Serves https where given.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        window: int = 10_000,
        watching: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
        seed: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.kernel = Kernel(Store(window), clock or SystemClock(), seed)
        self.faults = Faults()
        self.logs: special.Logs = {}
        self.watching = watching
        self.date_skew_s = 0.0
        self.requests: list[tuple[str, str, str]] = []
        """Verb, resource and user agent of each request for a resource, in order."""
        self.broken: list[BaseException] = []
        """What went wrong in the server itself; `stop` raises the first."""
        self.tokens: dict[str, User] = {ADMIN_TOKEN: ADMIN}
        self._is_over = threading.Event()
        self._cut = 0
        self._tls = tls
        self._server: _Server | None = None
        self.kernel.webhooks.append(PodAdmission(self.kernel))
        for name in ("default", "kube-system"):
            self.do("create", "v1", "namespaces", body={"metadata": {"name": name}})
            account = {"metadata": {"name": "default"}}
            self.do("create", "v1", "serviceaccounts", namespace=name, body=account)

    @property
    def url(self) -> str:
        """Where it listens, as ``http://127.0.0.1:41234``."""
        assert self._server is not None, "start it first"
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> "KubeApi":
        """Listen on a free port of this machine."""
        self._is_over.clear()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        if self._tls:
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Close all connections and stop listening; the objects are kept."""
        if self._server is None:
            return
        self._is_over.set()
        self.kernel.store.wake()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._server = None
        if self.broken:
            raise self.broken[0]

    def __enter__(self) -> "KubeApi":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def disconnect(self) -> None:
        """Close every connection that is open now; new ones are taken."""
        if self._server is not None:
            self._server.close_connections()

    def token_of(self, namespace: str, name: str) -> str:
        """Return a bearer token of a service account, which need not have an object."""
        token = f"token-of-{namespace}-{name}"
        self.tokens[token] = rbac.service_account(namespace, name)
        return token

    def install(self, crds: tuple[Obj, ...]) -> None:
        """Serve what these CRDs declare."""
        for crd in crds:
            self.kernel.resources.add_crd(crd)

    def do(
        self,
        verb: str,
        api_version: str,
        plural: str,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/merge-patch+json",
        user: User = ADMIN,
        agent: str = "test",
    ) -> Obj:
        """Carry out one request without HTTP and without faults, as controllers do.

        Raises:
            ApiError: What the server would have answered.
        """
        group, _, version = api_version.rpartition("/")
        resource = self.kernel.resources.get(group, version, plural)
        if resource is None:
            raise no_such_path()
        kind = content_type if verb == "patch" else "application/json"
        call = Call(
            verb, resource, namespace, name, subresource, query or {}, body, kind, user, agent
        )
        return self.carry_out(call)

    def carry_out(self, call: Call) -> Obj:
        """Carry out a call that is answered with one object."""
        special_one = _SPECIAL.get((call.resource.plural, call.subresource))
        if special_one is not None:
            return special_one(self.kernel, call)
        if call.subresource not in ("", "status"):
            raise ApiError(405, "MethodNotAllowed", f"{call.subresource} is not played here")
        return _VERBS[call.verb](self.kernel, call)

    def stream(self, call: Call) -> Iterator[bytes]:
        """Yield the lines of a watch or of a log."""
        if call.verb == "watch":
            events = reads.watch(self.kernel, call, self.watching, self._is_over.is_set)
            return (json.dumps(one).encode() + b"\n" for one in events)
        lines = special.log(self.kernel, call, self.logs, self._is_over.is_set)
        return (line.encode() + b"\n" for line in lines)

    def user_of(self, header: str | None) -> User:
        """Return who sends this ``Authorization`` header.

        Raises:
            ApiError: 401 for a token that is not known.
        """
        if not header:
            return User("system:anonymous", ("system:unauthenticated",))
        kind, _, token = header.partition(" ")
        user = self.tokens.get(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def read(self, handler: "_Handler") -> tuple[Call, Fault | None] | Obj:
        """Return the call that a request is, or the document that it asks for."""
        url = urlsplit(handler.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        data = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        user = self.user_of(handler.headers.get("Authorization"))
        target = routes.target(self.kernel.resources, handler.command, url.path, query)
        if target is None:
            return self._document(user, url.path)
        agent = handler.headers.get("User-Agent") or "unknown"
        self.requests.append((target.verb, target.named, agent))
        fault = self.faults.of(target.verb, target.named)
        handler.hold(fault)
        self._authorize(user, target, query)
        kind = (handler.headers.get("Content-Type") or "application/json").split(";")[0]
        body = writes.read_body(data, kind)
        call = Call(
            target.verb,
            target.resource,
            target.namespace,
            target.name,
            target.subresource,
            query,
            body,
            kind,
            user,
            agent,
        )
        return call, fault

    def _document(self, user: User, path: str) -> Obj:
        if not rbac.may_path(user, path):
            raise ApiError(
                403, "Forbidden", f'forbidden: User "{user.name}" cannot get path "{path}"'
            )
        found = routes.document(self.kernel, path)
        if found is None and path in ("/healthz", "/livez", "/readyz"):
            return {"ok": True}
        if found is None:
            raise no_such_path()
        return found

    def _authorize(self, user: User, target: routes.Target, query: Mapping[str, str]) -> None:
        from_selector = named_by(query.get("fieldSelector", ""))
        name = target.name or (from_selector if target.verb in ("list", "watch") else "")
        group = target.resource.group
        deed = rbac.Deed(target.verb, group, target.named, target.namespace, name)
        if rbac.may(self.kernel, user, deed):
            return
        where = (
            f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        )
        raise forbidden(
            group,
            target.resource.plural,
            name,
            f'User "{user.name}" cannot {target.verb} resource "{target.named}" in '
            f'API group "{group}" {where}',
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: KubeApi

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Shut every open connection."""
        for one in list(self._open):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:  # the client was faster
                self._open.discard(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what broke in the server itself; a client that went away is no news."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError) and error is not None:
            self.api.broken.append(error)
            traceback.print_exception(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version, sys_version = "kube-apiserver", ""

    @property
    def api(self) -> KubeApi:
        return cast(_Server, self.server).api

    def do_GET(self) -> None:
        try:
            self._answer()
        except ApiError as error:
            self._send(error.code, error.body(), error.headers)
        except _CutError:
            self._close()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that http.server wants

    def hold(self, fault: Fault | None) -> None:
        """Play what a fault does before anything is done."""
        if fault is None:
            return
        if fault.delay_s:
            self.api.kernel.clock.sleep(fault.delay_s)
        if fault.drop == "before":
            raise _CutError
        if fault.code:
            raise _played(fault)

    def _answer(self) -> None:
        read = self.api.read(self)
        if isinstance(read, dict):
            self._send(200, read)
            return
        call, fault = read
        if call.verb == "watch" or call.subresource == "log":
            self._stream(call, fault)
            return
        done = self.api.carry_out(call)
        if fault is not None and fault.drop == "after":
            raise _CutError
        headers = {
            "Warning": ", ".join(
                f'299 - "{one}"'.replace("\n", " ")
                .replace('field "', "field '")
                .replace('""', "'\"")
                for one in call.warnings
            )
        }
        code = 201 if call.verb == "create" else 200
        self._send(code, done, headers if call.warnings else {})

    def _stream(self, call: Call, fault: Fault | None) -> None:
        kind = "application/json" if call.verb == "watch" else "text/plain"
        pieces = self.api.stream(call)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = None if fault is None else fault.cut_after
        for piece in pieces:
            if left == 0:
                if fault is not None and fault.half:
                    self._chunk(piece[: len(piece) // 2])
                raise _CutError
            self._chunk(piece)
            left = None if left is None else left - 1
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, code: int, body: Obj, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _close(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date header, by the server's own idea of the time."""
        now_s = self.api.kernel.clock.now_s() + self.api.date_skew_s
        return formatdate(now_s if timestamp is None else timestamp, usegmt=True)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name above
        """Say nothing: the requests are kept in ``KubeApi.requests``."""


def _played(fault: Fault) -> ApiError:
    reasons = {
        401: ("Unauthorized", "Unauthorized"),
        403: ("Forbidden", "forbidden: played"),
        409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
        410: ("Expired", "too old resource version: 1 (2)"),
        429: ("TooManyRequests", "too many requests, please try again later"),
        500: ("InternalError", "Internal error occurred: played"),
        503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504: ("Timeout", "the server was unable to return a response in the time allotted"),
    }
    reason, told = reasons.get(fault.code, ("Unknown", "an error on the server"))
    if fault.retry_after_s is None:
        return ApiError(fault.code, reason, told)
    details = {"retryAfterSeconds": fault.retry_after_s}
    headers = {"Retry-After": str(fault.retry_after_s)}
    return ApiError(fault.code, reason, told, details=details, headers=headers)
