"""Copies of a place's objects, kept up to date by watches in threads; looking at them is free."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from gridloom.base.clock import Clock
from gridloom.base.errors import SiteError
from gridloom.sites.kube.api import Api, ExpiredError, RefusedError, Resource
from gridloom.sites.kube.render_pod import Manifest

Read = Callable[[object], Any]
"""From an object of the API to what is kept of it."""

_IDLE_S = 30.0
"""After so long without a look nobody needs the copies."""
_WAIT_S, _WAIT_MAX_S = 0.25, 5.0
"""After a failure; then twice as long each time."""
_TICK_S = 0.25
_MISSING = 404


class Watched:
    """What of the objects of one kind is kept.

    Attributes:
        resources: The kind, in the versions in which it may be served; the first that is counts.
        selector: Labels that they have.
        read: Makes of each what is kept.
        key: By which of what is kept it is looked up.
    """

    def __init__(
        self, resources: Sequence[Resource], selector: str, read: Read, key: Callable[[Any], str]
    ) -> None:
        self.resources, self.selector = tuple(resources), selector
        self.read, self.key = read, key
        self.version = ""
        """From which to watch; empty: everything must be listed."""

    @property
    def plural(self) -> str:
        """What the kind is called."""
        return self.resources[0].plural


class Mirror:
    """Copies of objects of some kinds at one place.

    A watch goes on from where the last one ended. Where that is too long ago, everything is listed
    anew, so that what was deleted meanwhile is missed here, too. When nobody has needed the copies
    for a while, the watches end, and the client is closed.
    """

    def __init__(
        self, api: Api, watched: Sequence[Watched], clock: Clock, executor: Executor
    ) -> None:
        """Begin to watch.

        Args:
            api: Where.
            watched: What.
            clock: Where the time comes from.
            executor: Makes calls that last.
        """
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}
        self._troubles: dict[str, str] = {}
        self._looked_s = clock.monotonic_s()
        self._is_over = False
        self._left = len(watched)
        self._threads = [executor.submit(self._follow, one) for one in watched]

    def touch(self) -> bool:
        """Say that the copies are needed; return whether they are still kept."""
        for one in self._threads:
            if one.done():
                one.result()  # a fault of ours is raised here
        with self._lock:
            self._looked_s = self._clock.monotonic_s()
            return not self._is_over

    def look(self, plural: str, key: str) -> tuple[Any, ...] | None:
        """Return what there is of a kind under a key; nothing before the kind was listed."""
        with self._lock:
            shelf = self._shelves.get(plural)
            return shelf.of(key) if shelf is not None else None

    def trouble(self) -> str:
        """Return why not everything can be seen now; empty if it can."""
        with self._lock:
            return next(iter(self._troubles.values()), "")

    def _follow(self, watched: Watched) -> None:
        """Keep one kind up to date until nobody needs it; runs in a thread of its own."""
        wait_s = _WAIT_S
        while not self._is_idle():
            try:
                if not watched.version:
                    self._take_all(watched)
                self._take_changes(watched)
                wait_s = _WAIT_S
            except ExpiredError:
                watched.version = ""
            except SiteError as error:
                with self._lock:
                    self._troubles[watched.plural] = str(error)
                self._rest(wait_s)
                wait_s = min(2 * wait_s, _WAIT_MAX_S)
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._api.close()

    def _take_all(self, watched: Watched) -> None:
        objects, version = self._list(watched)
        shelf = _Shelf()
        for one in objects:
            kept = watched.read(one)
            shelf.put(_name(one), watched.key(kept), kept)
        with self._lock:
            self._shelves[watched.plural] = shelf
            self._troubles.pop(watched.plural, None)
        watched.version = version

    def _list(self, watched: Watched) -> tuple[list[Manifest], str]:
        while True:
            try:
                return self._api.list(watched.resources[0], watched.selector)
            except RefusedError as error:
                if error.code != _MISSING or len(watched.resources) == 1:
                    raise
                watched.resources = watched.resources[1:]

    def _take_changes(self, watched: Watched) -> None:
        events = self._api.watch(watched.resources[0], watched.selector, watched.version)
        with self._lock:
            self._troubles.pop(watched.plural, None)
            shelf = self._shelves[watched.plural]
        with contextlib.closing(events):
            for kind, about in events:
                self._take(watched, shelf, kind, about)
                if self._is_idle():
                    break

    def _take(self, watched: Watched, shelf: "_Shelf", kind: str, about: Manifest) -> None:
        if kind == "DELETED":
            with self._lock:
                shelf.remove(_name(about))
        elif kind in ("ADDED", "MODIFIED"):
            kept = watched.read(about)
            with self._lock:
                shelf.put(_name(about), watched.key(kept), kept)
        version = about.get("metadata", {}).get("resourceVersion")
        watched.version = str(version or watched.version)

    def _is_idle(self) -> bool:
        with self._lock:
            idle_s = self._clock.monotonic_s() - self._looked_s
            self._is_over = self._is_over or idle_s > _IDLE_S
            return self._is_over

    def _rest(self, wait_s: float) -> None:
        until_s = self._clock.monotonic_s() + wait_s
        while not self._is_idle() and self._clock.monotonic_s() < until_s:
            self._clock.sleep(_TICK_S)


class _Shelf:
    """What is kept of the objects of one kind, by key."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._kept: dict[str, dict[str, Any]] = {}

    def put(self, name: str, key: str, kept: Any) -> None:
        """Keep what an object is now."""
        if self._keys.get(name, key) != key:
            self.remove(name)
        self._keys[name] = key
        self._kept.setdefault(key, {})[name] = kept

    def remove(self, name: str) -> None:
        """Forget an object."""
        key = self._keys.pop(name, None)
        if key is not None:
            del self._kept[key][name]
            if not self._kept[key]:
                del self._kept[key]

    def of(self, key: str) -> tuple[Any, ...]:
        """Return what is kept under a key."""
        return tuple(self._kept.get(key, {}).values())


def _name(about: Manifest) -> str:
    return str(about.get("metadata", {}).get("name", ""))
