"""Where a probe writes at the other end of a link, and is answered."""

import contextlib

from gridloom.base.errors import SiteError
from gridloom.sites.remote.host import Host

_BYTES_MAX = 1 << 20
_REMOVE_S = 20.0


class FarPlace:
    """A directory of a login host (plays `gridloom.sites.probing.ProbePlace`)."""

    def __init__(self, host: Host, directory: str) -> None:
        """Take a directory that is not there yet."""
        self._host, self._directory = host, directory

    def make(self) -> None:
        """As the protocol says; raise ``RemoteError`` when it cannot be made."""
        self._host.files.make([self._directory])

    def read(self, name: str) -> bytes | None:
        """As the protocol says."""
        path = f"{self._directory}/{name}"
        try:
            if self._host.files.statuses([path])[0] is None:
                return None
            return self._host.files.read([(path, 0, _BYTES_MAX)])[0]
        except SiteError:
            return None

    def touch(self, name: str) -> None:
        """As the protocol says; raise ``RemoteError`` when it cannot be written."""
        self._host.files.write({f"{self._directory}/{name}": b""})

    def clear(self) -> None:
        """As the protocol says."""
        with contextlib.suppress(SiteError):
            self._host.link.run(["rm", "-r", "--", self._directory], timeout_s=_REMOVE_S)
