"""A login host over one connection that is kept, and made anew when it breaks."""

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import asyncssh

from gridloom.base.clock import Clock
from gridloom.model.inventory import SshAccess
from gridloom.sites.remote.errors import LinkDownError, LinkRefusedError, RemoteError
from gridloom.sites.remote.link import Done
from gridloom.sites.ssh.connect import place_of
from gridloom.sites.ssh.loop import LoopThread

T = TypeVar("T")

_DOWN_PAUSES_S = (1.0, 1.0, 2.0, 2.0, 4.0)
"""Before the next try to connect, after so many that failed in a row; the last one from then on."""
_REFUSED_PAUSES_S = (10.0, 30.0, 60.0, 300.0)
"""The same where we are not let in: hosts bar those who try that often."""
_COMMANDS_MAX = 6
"""At a time; servers allow ten sessions a connection by default."""
_OPEN_S = 30.0
"""For a connection and a session, on top of what a command may take."""
_OVERDUE_S = 5.0
"""Beyond the time that a call may take: nothing but a fault of ours needs it."""
_LOST = (asyncssh.Error, OSError, TimeoutError)


class SshLink:
    """One login host (plays `gridloom.sites.remote.link.Link`).

    Calls may come from any thread, and last as long as they say at most.
    """

    def __init__(
        self,
        access: SshAccess,
        connect: Callable[[SshAccess], Awaitable[asyncssh.SSHClientConnection]],
        clock: Clock,
        loop: LoopThread,
    ) -> None:
        """Connect when first asked for something.

        Args:
            access: Where.
            connect: Opens a connection.
            clock: For the pauses between tries.
            loop: Where it is spoken.
        """
        self.place = place_of(access)
        self._access = access
        self._connect = connect
        self._clock = clock
        self._loop = loop
        self._connection: asyncssh.SSHClientConnection | None = None
        self._sftp: asyncssh.SFTPClient | None = None
        self._connecting, self._starting = asyncio.Lock(), asyncio.Lock()
        self._commands = asyncio.Semaphore(_COMMANDS_MAX)
        self._error: RemoteError | None = None
        self._was_up = False
        self._failures = 0
        self._retry_s = 0.0

    def run(self, argv: Sequence[str], stdin: str = "", *, timeout_s: float) -> Done:
        """As ``gridloom.sites.remote.link.Link.run``."""
        return self.call(lambda: self._run(argv, stdin, timeout_s), timeout_s=timeout_s + _OPEN_S)

    def call(self, what: Callable[[], Coroutine[Any, Any, T]], *, timeout_s: float) -> T:
        """Return what a coroutine of this link returns; raise as it does, and as ``run``.

        Whatever speaks of a broken connection, and whatever takes too long, ends this one: the next
        call makes a new one.
        """
        try:
            return self._loop.call(self._guarded(what, timeout_s), timeout_s + _OVERDUE_S)
        except TimeoutError:
            raise LinkDownError(f"{self.place} has not answered for {timeout_s:g} s") from None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with contextlib.suppress(TimeoutError):  # it is nobody's then
                self._loop.call(self._left(), _OVERDUE_S)
        self._loop.close()

    async def sftp(self) -> asyncssh.SFTPClient:
        """Return the SFTP session of the connection; to be asked for in a call."""
        connection = await self._connected()
        async with self._starting:
            if self._sftp is None:
                self._sftp = await self._session(connection)
            return self._sftp

    async def _session(self, connection: asyncssh.SSHClientConnection) -> asyncssh.SFTPClient:
        try:
            return await connection.start_sftp_client()
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection):
            raise
        except (asyncssh.ChannelOpenError, asyncssh.SFTPError) as error:
            raise LinkRefusedError(
                f"{self.place} gives no access to files: {error.reason}",
                "sshd there needs `Subsystem sftp`, and no start-up file of the shell may print"
                f" anything: `sftp {self._access.host}` should connect",
            ) from error

    async def _guarded(self, what: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await what()
        except TimeoutError:
            self._drop()
            raise LinkDownError(f"{self.place} has not answered for {timeout_s:g} s") from None
        except _LOST as error:
            self._drop()
            why = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
            raise LinkDownError(f"the link to {self.place} broke: {why}") from error

    async def _run(self, argv: Sequence[str], stdin: str, timeout_s: float) -> Done:
        connection = await self._connected()
        async with self._commands:
            process = await connection.create_process(shlex.join(argv), errors="replace")
            try:
                with contextlib.suppress(BrokenPipeError):  # it need not read what it is given
                    process.stdin.write(stdin)
                    process.stdin.write_eof()
                async with asyncio.timeout(timeout_s):
                    stdout, stderr = await process.communicate()
            except TimeoutError:  # of the command alone: others may be served well
                said = f"{argv[0]} at {self.place} has not answered for {timeout_s:g} s"
                raise LinkDownError(said) from None
            finally:
                process.close()
        if process.exit_status is None:
            raise LinkDownError(f"the link to {self.place} broke before {argv[0]} had ended")
        ended_by = f"\nended by SIG{process.exit_signal[0]}" if process.exit_signal else ""
        return Done(code=process.exit_status, stdout=stdout, stderr=stderr + ended_by)

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            self._drop()
            if self._error is not None and self._clock.monotonic_s() < self._retry_s:
                raise type(self._error)(self._error.sentence, self._error.remedy)
            try:
                self._connection = await self._connect(self._access)
            except RemoteError as error:
                self._note(error)
                if self._was_up and isinstance(error, LinkRefusedError):
                    # As when the agent is gone over night: whoever waits need not be refused
                    self._error = LinkDownError(error.sentence, error.remedy)
                    raise self._error from error
                raise
            self._error, self._failures, self._was_up = None, 0, True
            return self._connection

    def _note(self, error: RemoteError) -> None:
        pauses = _DOWN_PAUSES_S if isinstance(error, LinkDownError) else _REFUSED_PAUSES_S
        pause_s = pauses[min(self._failures, len(pauses) - 1)]
        self._error, self._failures = error, self._failures + 1
        self._retry_s = self._clock.monotonic_s() + pause_s

    async def _left(self) -> None:
        connection = self._connection
        self._drop()
        if connection is not None:
            await connection.wait_closed()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._connection = self._sftp = None
