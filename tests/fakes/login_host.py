"""A login host: a real SSH server in this process, whose commands and files are this machine's."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh
from tests.fakes.clock import FakeClock

from gridloom.base.clock import Clock
from gridloom.model.inventory import SshAccess
from gridloom.sites.ssh.connect import connect
from gridloom.sites.ssh.files import SshFiles
from gridloom.sites.ssh.link import SshLink
from gridloom.sites.ssh.loop import LoopThread

_CALL_S = 30.0


_SERVERS, _LINKS = LoopThread(), LoopThread()
"""Shared by all tests of a process: a loop that has begun keeps its files open."""


class LoginHost:
    """Listens on this machine, lets one key in, and can be cut off."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.key_file, self.known_hosts = place / "id_test", place / "known_hosts"
        self.config = place / "config"
        self.config.touch()
        self.port = 0
        self.logins = 0
        self.gives_files = self.tells_room = True
        self.before: Callable[[str, str], None] = lambda verb, path: None
        """Is called with what is about to be done with which file; raises what goes wrong."""
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._key.write_private_key(self.key_file)
        self._loop = _SERVERS
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: list[asyncssh.SSHServerConnection] = []

    @property
    def open(self) -> int:
        """Connections that are there."""
        return sum(not one.is_closed() for one in self._connections)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, after a stop at the same port."""
        self._loop.call(self._start(), _CALL_S)
        self.introduce()

    def stop(self) -> None:
        """Listen no more, and cut all connections."""
        self._loop.call(self._stop(), _CALL_S)

    def cut(self) -> None:
        """Cut all connections."""
        self._loop.call(self._cut(), _CALL_S)

    def leave(self) -> None:
        """Stop from within what it is asked."""
        if self._acceptor is not None:
            self._acceptor.close()
        asyncio.get_running_loop().call_soon(self._cut_now)

    def introduce(self) -> None:
        """Make its key known."""
        key = self._host_key.export_public_key().decode().strip()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}\n")

    def change_key(self) -> None:
        """Have another key from the next start on, as an impostor has."""
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")

    def access(self, **more: Any) -> SshAccess:
        """Return how it is reached."""
        said: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "me",
            "key_file": str(self.key_file),
            "known_hosts": str(self.known_hosts),
            "directory": str(self.place / "scratch"),
        }
        return SshAccess(**said | more)

    def link(self, clock: Clock | None = None, **more: Any) -> SshLink:
        """Return a link of its own."""
        return SshLink(self.access(**more), connect, clock or FakeClock(), _LINKS)

    def files(self, clock: Clock | None = None, **more: Any) -> SshFiles:
        """Return its files over a link of their own."""
        return SshFiles(self.link(clock, **more))

    async def _start(self) -> None:
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Server(self),
            server_host_keys=[self._host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(
                self._key.export_public_key().decode()
            ),
            process_factory=_run,
            sftp_factory=(lambda channel: _Files(channel, self)) if self.gives_files else None,
            reuse_address=True,
        )
        self.port = self._acceptor.get_port()

    async def _stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        await self._cut()

    async def _cut(self) -> None:
        self._cut_now()

    def _cut_now(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    def greet(self, connection: asyncssh.SSHServerConnection) -> None:
        """Take a connection in."""
        self._connections.append(connection)


class _Server(asyncssh.SSHServer):
    def __init__(self, host: LoginHost) -> None:
        self._host = host

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._host.greet(conn)

    def auth_completed(self) -> None:
        self._host.logins += 1


async def _run(process: asyncssh.SSHServerProcess[str]) -> None:
    """Run a command as sshd does: by a shell."""
    run = await asyncio.create_subprocess_shell(
        process.command or "true",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},  # as where nobody logs in
    )
    stdout, stderr = await run.communicate((await process.stdin.read()).encode())
    process.stdout.write(stdout.decode(errors="replace"))
    process.stderr.write(stderr.decode(errors="replace"))
    code = run.returncode or 0
    if code < 0:
        process.exit_with_signal("KILL")
    else:
        process.exit(code)


class _Files(asyncssh.SFTPServer):
    """This machine's files, each access announced."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], host: LoginHost) -> None:
        super().__init__(channel)
        self._host = host

    def statvfs(self, path: bytes) -> asyncssh.SFTPVFSAttrs:
        if not self._host.tells_room:
            raise asyncssh.SFTPOpUnsupported("statvfs")
        return asyncssh.SFTPVFSAttrs.from_local(os.statvfs(path))

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        self._host.before("open", path.decode())
        return super().open(path, pflags, attrs)

    def write(self, file_obj: object, offset: int, data: bytes) -> int | Awaitable[int]:
        self._host.before("write", getattr(file_obj, "name", b"").decode())
        return super().write(file_obj, offset, data)

    def read(self, file_obj: object, offset: int, size: int) -> bytes | Awaitable[bytes]:
        self._host.before("read", getattr(file_obj, "name", b"").decode())
        return super().read(file_obj, offset, size)
