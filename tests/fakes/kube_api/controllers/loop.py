"""How controllers are run: pass by pass until nothing changes, or in a thread.

All controllers of this package are simulated: plain loops over all objects that do what the real
ones are seen to do. They write through the same verbs as clients, so what they write is checked.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

from tests.fakes.kube_api.resources import convert
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import ApiError, Obj

_LONGEST_WAIT_S = 1.0
_APIS = {
    "jobs": "batch/v1",
    "priorityclasses": "scheduling.k8s.io/v1",
    "jobsets": "jobset.x-k8s.io/v1alpha2",
}


class Controller(Protocol):
    """One loop: a pass over all that it looks after."""

    name: str

    def step(self) -> None:
        """Do what is due now. Conflicts with other writers may surface: the next pass retries."""
        ...

    def due_s(self) -> float | None:
        """Return the monotonic time at which something is due without a change; None for never."""
        ...


class Hands:
    """What a controller does to objects; an object's own apiVersion says where it is kept."""

    def __init__(self, api: KubeApi, agent: str) -> None:
        self.api, self.agent = api, agent

    def all(self, plural: str, namespace: str = "", api_version: str = "") -> list[Obj]:
        """Return every object, complete with its kind; none where the resource is not served."""
        group, _, version = self._version(plural, api_version).rpartition("/")
        resource = self.api.kernel.resources.get(group, version, plural)
        if resource is None:
            return []
        found = self.api.kernel.store.all(resource.key, namespace)
        return [convert(one, resource) for one in found]

    def get(self, plural: str, namespace: str, name: str, api_version: str = "") -> Obj | None:
        """Return one object; None where there is none."""
        version = self._version(plural, api_version)
        try:
            return self.api.do("get", version, plural, namespace=namespace, name=name)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def create(self, plural: str, obj: Obj, api_version: str = "") -> Obj:
        """Create an object."""
        version = self._version(plural, api_version)
        namespace = obj["metadata"].get("namespace", "")
        return self.api.do(
            "create",
            version,
            plural,
            namespace=namespace,
            body=obj,
            agent=self.agent,
            query={"fieldValidation": "Strict"},
        )

    def write(self, plural: str, obj: Obj, subresource: str = "") -> Obj:
        """Replace an object, or its status."""
        meta = obj["metadata"]
        return self.api.do(
            "update",
            obj["apiVersion"],
            plural,
            name=meta["name"],
            body=obj,
            namespace=meta.get("namespace", ""),
            subresource=subresource,
            agent=self.agent,
            query={"fieldValidation": "Strict"},
        )

    def status(self, plural: str, obj: Obj) -> Obj:
        """Replace an object's status."""
        return self.write(plural, obj, "status")

    def delete(self, plural: str, obj: Obj, **options: object) -> None:
        """Delete an object; it may be gone already."""
        meta = obj["metadata"]
        try:
            self.api.do(
                "delete",
                obj["apiVersion"],
                plural,
                name=meta["name"],
                namespace=meta.get("namespace", ""),
                agent=self.agent,
                body={"preconditions": {"uid": meta["uid"]}, **options},
            )
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def event(self, obj: Obj, kind: str, reason: str, message: str) -> None:
        """Record an event about an object."""
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        now = self.api.kernel.now()
        about = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "namespace": meta.get("namespace", ""),
        }
        body = {
            "metadata": {"generateName": f"{meta['name'][:40]}.", "namespace": namespace},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": self.agent},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self.create("events", body)

    def _version(self, plural: str, given: str) -> str:
        return given or _APIS.get(plural, "v1")


def owner_of(obj: Obj) -> Obj | None:
    """Return the reference to the controller that owns an object."""
    found = obj["metadata"].get("ownerReferences") or ()
    return next((one for one in found if one.get("controller")), None)


def owned_by(obj: Obj) -> Obj:
    """Return what a dependent says of this owner."""
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def set_condition(
    status: Obj,
    kind: str,
    value: str,
    *,
    reason: str = "",
    message: str = "",
    now: str,
) -> bool:
    """Set a condition in place; say whether it changed. The time moves with the value only."""
    conditions = status.setdefault("conditions", [])
    old = next((one for one in conditions if one["type"] == kind), None)
    new: Obj = {"type": kind, "status": value, "lastTransitionTime": now}
    new |= {name: one for name, one in (("reason", reason), ("message", message)) if one}
    if old is None:
        conditions.append(new)
        return True
    if old["status"] == value:
        new["lastTransitionTime"] = old["lastTransitionTime"]
    kept = {name: one for name, one in old.items() if name not in ("reason", "message")}
    merged: Obj = {**kept, **new}
    conditions[conditions.index(old)] = merged
    return bool(merged != old)


def is_true(obj: Obj, kind: str) -> bool:
    """Say whether a condition of an object is true."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


class Loops:
    """The controllers of one cluster, each of which can be switched off and on.

    Args:
        api: Whose objects.
        controllers: In the order of their passes.
    """

    def __init__(self, api: KubeApi, controllers: Sequence[Controller]) -> None:
        self._api = api
        self._controllers = tuple(controllers)
        self._off: set[str] = set()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        self.broken: list[BaseException] = []
        """What went wrong in a controller; `stop` raises the first."""

    def switch(self, name: str, *, on: bool) -> None:
        """Switch a controller on or off."""
        if name not in {one.name for one in self._controllers}:
            raise LookupError(f"no controller {name!r}")
        (self._off.discard if on else self._off.add)(name)
        self._api.kernel.store.wake()

    def settle(self, passes: int = 200) -> None:
        """Let the controllers pass until nothing changes.

        Raises:
            RuntimeError: It did not come to rest.
        """
        for _ in range(passes):
            if not self._pass():
                return
        raise RuntimeError(f"the controllers still change things after {passes} passes")

    def _pass(self) -> bool:
        before, is_retried = self._api.kernel.store.version, False
        for one in self._controllers:
            if one.name in self._off:
                continue
            try:
                one.step()
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
                is_retried = True
        return is_retried or self._api.kernel.store.version != before

    def start(self) -> "Loops":
        """Run them in a thread."""
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._api.kernel.store.wake()
        if self._thread is not None:
            self._thread.join(10)
        self._thread = None
        if self.broken:
            raise self.broken[0]

    def __enter__(self) -> "Loops":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        store = self._api.kernel.store
        while not self._is_over.is_set():
            seen = store.version
            try:
                changed = self._pass()
            except Exception as error:  # noqa: BLE001 - kept, and raised by `stop`
                self.broken.append(error)
                store.wake()
                return
            with store.lock:
                if not changed and store.version == seen and not self._is_over.is_set():
                    store.changed.wait(self._wait_s())

    def _wait_s(self) -> float:
        due = [one.due_s() for one in self._controllers if one.name not in self._off]
        soonest = min((one for one in due if one is not None), default=None)
        if soonest is None:
            return _LONGEST_WAIT_S
        left_s = soonest - self._api.kernel.clock.monotonic_s()
        return min(max(left_s, 0.01), _LONGEST_WAIT_S)
