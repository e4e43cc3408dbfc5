"""The run directories of a site that sees nothing of ours, kept there and here alike."""

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.sites.remote.host import Host
from gridloom.sites.remote.listener import Listener
from gridloom.sites.remote.places import Places
from gridloom.sites.remote.sender import Sender
from gridloom.sites.remote.teller import ALWAYS_S, Teller
from gridloom.sites.remote.watched import Watched


class Mirror:
    """Carries files between here and one directory of a login host; nothing of it waits."""

    def __init__(
        self,
        here: Path,
        there: str,
        host: Callable[[], Host],
        clock: Clock,
        executor: Executor,
    ) -> None:
        """Carry nothing yet.

        Args:
            here: Directory of all run directories.
            there: The same at the other end.
            host: Returns the login host; raises ``SiteError`` if that cannot be.
            clock: Where the time comes from.
            executor: Where files are carried.
        """
        self._here = here
        self._sender = Sender(here, host, clock, executor)
        self._teller = Teller(here, there, host, clock, executor)
        self._listener = Listener(here, there, host, clock, executor)

    def send(self, gang: Path, to: Places) -> str:
        """As ``gridloom.sites.remote.sender.Sender.send``."""
        return self._sender.send(gang, to)

    def tell(self, path: Path, until_s: float = ALWAYS_S) -> None:
        """Send a small file as it is now, or as it will be then.

        Args:
            path: Of the file here.
            until_s: What it says is of no use after that, in seconds since the epoch.
        """
        self._teller.tell(path.relative_to(self._here).as_posix(), until_s)

    def look(self, tasks: Collection[Watched]) -> None:
        """Go on with what is due: bring what tasks write, send what could not be sent."""
        self._listener.look(tasks)
        self._teller.look()

    def is_bringing(self, names: Watched) -> bool:
        """As ``gridloom.sites.remote.listener.Listener.is_bringing``."""
        return self._listener.is_bringing(names)

    def finish(self, names: Watched) -> bool:
        """As ``gridloom.sites.remote.listener.Listener.finish``."""
        return self._listener.finish(names)
