"""Brings there what tasks are told: small files, each as it is now, as soon as possible."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future

import msgspec

from gridloom.base.errors import SiteError
from gridloom.sites.remote.ends import Ends
from gridloom.sites.remote.errors import RemoteFileError

_AGAIN_S = 0.5
_FORGET_S = 600.0
"""How long a file is tried that the other end will not have, as when its directory is gone."""
ALWAYS_S = float("inf")
"""Until when most of what is told counts."""


class _Told(msgspec.Struct, frozen=True):
    """That a file is to be sent: until when it counts, since when, and which telling that was."""

    until_s: float
    since_s: float
    number: int


class Teller:
    """Sends files of ours that have changed."""

    def __init__(self, ends: Ends) -> None:
        """Send nothing yet."""
        self._here, self._there, self._host = ends.here, ends.there, ends.host
        self._clock, self._executor = ends.clock, ends.executor
        self._lock = threading.Lock()
        self._pending: dict[str, _Told] = {}
        self._count = 0
        self._sending: Future[None] | None = None
        self._tried_s = -_AGAIN_S

    def tell(self, name: str, until_s: float = ALWAYS_S) -> None:
        """Send a file as it is now, or as it will be then.

        Args:
            name: Below the directory of all run directories.
            until_s: What it says is of no use after that, in seconds since the epoch.
        """
        with self._lock:
            self._count += 1
            self._pending[name] = _Told(until_s, self._clock.monotonic_s(), self._count)
        self._begin()

    def look(self) -> None:
        """Try again what could not be sent."""
        with self._lock:
            waits = bool(self._pending)
        if waits and self._clock.monotonic_s() - self._tried_s >= _AGAIN_S:
            self._begin()

    def _begin(self) -> None:
        if self._sending is not None:
            if not self._sending.done():
                return  # it looks again before it ends, or the next look does
            self._sending.result()
        self._tried_s = self._clock.monotonic_s()
        self._sending = self._executor.submit(self._send)

    def _send(self) -> None:
        refused: set[str] = set()
        while due := self._due(refused):
            contents = {name: data for name in due if (data := self._read(name)) is not None}
            try:
                refused |= self._write(contents)
            except SiteError:  # the link is down
                return
            with self._lock:
                for name in due.keys() - refused:
                    if self._pending.get(name) == due[name]:
                        del self._pending[name]

    def _write(self, contents: Mapping[str, bytes]) -> set[str]:
        """Write files; return those that are refused, the others of which are written then."""
        if not contents:
            return set()
        files = self._host().files
        try:
            files.write({f"{self._there}/{name}": data for name, data in contents.items()})
        except RemoteFileError:
            if len(contents) == 1:
                return {*contents}
            return {one for name, data in contents.items() for one in self._write({name: data})}
        return set()

    def _due(self, refused: set[str]) -> dict[str, _Told]:
        """Return what is to be sent; forget what is of no use any more.

        A lease that has lapsed would be taken for one that was just renewed where clocks differ.
        """
        now_s, old_s = self._clock.now_s(), self._clock.monotonic_s() - _FORGET_S
        with self._lock:
            for name, told in [*self._pending.items()]:
                if told.until_s <= now_s or told.since_s <= old_s:
                    del self._pending[name]
            return {name: told for name, told in self._pending.items() if name not in refused}

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._here / name).read_bytes()
        except OSError:  # somebody has removed the run directory
            return None
