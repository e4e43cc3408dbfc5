"""Objects with one growing version, and the history of changes that watches read."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.fakes.kube_api.status import ApiError, Obj, copied, expired

Key = tuple[str, str]
"""Group and plural."""
Place = tuple[str, str]
"""Namespace (empty for what has none) and name."""


@dataclass(frozen=True)
class Change:
    """One change; ``new`` is None for a removal, ``old`` for a creation."""

    version: int
    key: Key
    place: Place
    new: Obj | None
    old: Obj | None


class Store:
    """What etcd and the watch cache are to a real server; hold ``lock`` over reads that belong.

    Args:
        window: How many changes are kept for watches; older versions are answered 410.
    """

    def __init__(self, window: int = 10_000) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.window = window
        self._version = 1
        self._oldest = 1
        self._objects: dict[Key, dict[Place, Obj]] = {}
        self._history: list[Change] = []

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._version

    def get(self, key: Key, place: Place) -> Obj | None:
        """Return a copy of one object."""
        with self.lock:
            return copied(self._objects.get(key, {}).get(place))

    def all(self, key: Key, namespace: str = "") -> list[Obj]:
        """Return copies of all objects, ordered by namespace and name."""
        with self.lock:
            found = self._objects.get(key, {})
            return [
                copied(found[place])
                for place in sorted(found)
                if not namespace or place[0] == namespace
            ]

    def kept(self) -> list[Key]:
        """Return the resources that have objects."""
        with self.lock:
            return sorted(key for key, found in self._objects.items() if found)

    def put(self, key: Key, place: Place, obj: Obj) -> Obj:
        """Keep an object under a new version; return it with that version."""
        with self.lock:
            self._version += 1
            kept = copied(obj)
            kept["metadata"]["resourceVersion"] = str(self._version)
            found = self._objects.setdefault(key, {})
            old = found.get(place)
            found[place] = kept
            self._note(Change(self._version, key, place, kept, old))
            return copied(kept)

    def remove(self, key: Key, place: Place) -> Obj:
        """Forget an object; return it with the version of its removal."""
        with self.lock:
            self._version += 1
            old = self._objects[key].pop(place)
            self._note(Change(self._version, key, place, None, old))
            gone: Obj = copied(old)
            gone["metadata"]["resourceVersion"] = str(self._version)
            return gone

    def _note(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > self.window:
            self._oldest = self._history[-self.window - 1].version
            del self._history[: -self.window]
        self.changed.notify_all()

    def compact(self) -> None:
        """Forget all history: any version but the present one is too old."""
        with self.lock:
            self._history.clear()
            self._oldest = self._version

    def wake(self) -> None:
        """Let all who wait look again."""
        with self.lock:
            self.changed.notify_all()

    def since(self, version: int, key: Key) -> list[Change]:
        """Return the changes after ``version``.

        Raises:
            ApiError: 410 where they are no longer all kept.
        """
        with self.lock:
            if version < self._oldest:
                raise self._too_old(version)
            start = _first_after(self._history, version)
            return [one for one in self._history[start:] if one.key == key]

    def at(self, key: Key, version: int) -> Mapping[Place, Obj]:
        """Return the objects as they were at ``version``.

        Raises:
            ApiError: 410 where that is no longer known.
        """
        with self.lock:
            if version < self._oldest:
                raise self._too_old(version)
            found = dict(self._objects.get(key, {}))
            for change in reversed(self._history):
                if change.version <= version:
                    break
                if change.key == key and change.old is None:
                    del found[change.place]
                elif change.key == key and change.old is not None:
                    found[change.place] = change.old
            return dict(found)

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for changes until ``done`` holds; say whether it does."""
        with self.lock:
            return self.changed.wait_for(done, timeout_s)

    def _too_old(self, version: int) -> ApiError:
        return expired(f"too old resource version: {version} ({self._oldest})")


def _first_after(history: list[Change], version: int) -> int:
    low, high = 0, len(history)
    while low < high:
        middle = (low + high) // 2
        if history[middle].version <= version:
            low = middle + 1
        else:
            high = middle
    return low
