"""The login hosts that are reached over SSH, each by two connections."""

from collections.abc import Awaitable, Callable

import asyncssh
from msgspec.structs import replace

from gridloom.base.clock import Clock
from gridloom.model.inventory import SshAccess
from gridloom.sites.remote.host import Host
from gridloom.sites.ssh.connect import connect
from gridloom.sites.ssh.files import SshFiles
from gridloom.sites.ssh.link import SshLink
from gridloom.sites.ssh.loop import LoopThread


class SshHosts:
    """Login hosts, one for all sites behind it."""

    def __init__(
        self,
        clock: Clock,
        connect: Callable[[SshAccess], Awaitable[asyncssh.SSHClientConnection]] = connect,
    ) -> None:
        """Connect to each when it is first asked for something.

        Args:
            clock: For the pauses between tries.
            connect: Opens a connection.
        """
        self._clock = clock
        self._connect = connect
        self._made: dict[SshAccess, Host] = {}
        self._links: list[SshLink] = []

    def of(self, access: SshAccess) -> Host:
        """Return a login host: the same one whatever directory a site has there."""
        key = replace(access, directory="", workdir="", checkpoints="fetch")
        if key not in self._made:
            link = self._link(key)
            self._made[key] = Host(link=link, files=SshFiles(link), bulk=SshFiles(self._link(key)))
        return self._made[key]

    def close(self) -> None:
        """End all connections."""
        for link in self._links:
            link.close()

    def _link(self, access: SshAccess) -> SshLink:
        # A loop of its own: what is small does not wait for what is large to be encrypted
        self._links.append(SshLink(access, self._connect, self._clock, LoopThread()))
        return self._links[-1]
