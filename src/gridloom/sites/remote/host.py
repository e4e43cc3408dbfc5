"""A login host: what a driver needs of it."""

from dataclasses import dataclass

from gridloom.sites.remote.files import RemoteFiles
from gridloom.sites.remote.link import Link


@dataclass(frozen=True)
class Host:
    """One login host.

    Attributes:
        link: Runs its commands.
        files: Its files, for what is small and must not wait, as leases.
        bulk: The same over a connection of its own, for what is large.
    """

    link: Link
    files: RemoteFiles
    bulk: RemoteFiles
