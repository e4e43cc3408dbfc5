"""A slurmrestd over real HTTP whose answers are scripted; real ones stand in the beds."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = tuple[int, Any]


class Slurmrestd:
    """Plays the server: answers are set by method and path, of one version of the interface.

    Attributes:
        url: Where it listens.
        answers: Status and body of each request that it knows; all else it has never heard of.
        tokens: Those it accepts; none for any.
        asked: Method and path of each request, without those that look for the version.
        bodies: What was posted.
        headers: Of the last request.
    """

    def __init__(self, url: str, version: str) -> None:
        self.url = url
        self.version = version
        self.answers: dict[tuple[str, str], Said] = {}
        self.tokens: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.headers: dict[str, str] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Said:
        self.headers = headers
        if self.tokens and headers.get("X-SLURM-USER-TOKEN") not in self.tokens:
            return 401, "Authentication failure"
        _, plugin, version, what = path.split("/", 3)
        if version != self.version or plugin not in ("slurm", "slurmdb"):
            return 404, "Unable find requested URL. Please view /openapi/v3 for API reference."
        if what == "ping":
            return self.answers.get((method, what), (200, {"errors": [], "pings": []}))
        self.asked.append((method, what))
        if body:
            self.bodies.append(json.loads(body))
        return self.answers.get((method, what), (404, "Unable find requested URL."))


@contextmanager
def slurmrestd(
    version: str = "v0.0.38", context: ssl.SSLContext | None = None
) -> Iterator[Slurmrestd]:
    """Run one at a free port of this machine.

    Args:
        version: The only one of the interface that it has.
        context: For a server with a certificate.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, said = fake.answer(self.command, self.path, dict(self.headers), body)
            data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if context else "http"
    fake = Slurmrestd(f"{scheme}://localhost:{server.server_address[1]}", version)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
