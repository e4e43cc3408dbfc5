"""The run directories of a site that sees nothing of ours, kept there and here alike."""

from collections.abc import Collection
from pathlib import Path

from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.listener import Listener
from gridloom.sites.remote.places import Places
from gridloom.sites.remote.sender import Sender
from gridloom.sites.remote.teller import ALWAYS_S, Teller
from gridloom.sites.remote.watched import Watched


class Mirror:
    """Carries files between here and one directory of a login host; nothing of it waits."""

    def __init__(self, ends: Ends) -> None:
        """Carry nothing yet."""
        self._here = ends.here
        self._sender = Sender(ends.here, ends.host, ends.clock, ends.executor)
        self._teller, self._listener = Teller(ends), Listener(ends)

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
