"""Simulated: the garbage collector, and the life of namespaces and their service accounts."""

from collections.abc import Iterator

from tests.fakes.kube_api.controllers.loop import Hands
from tests.fakes.kube_api.deletes import FOREGROUND, ORPHAN
from tests.fakes.kube_api.resources import ResourceType
from tests.fakes.kube_api.server import KubeApi
from tests.fakes.kube_api.status import Obj


class Garbage:
    """Deletes what has lost all its owners; carries foreground and orphan deletions through."""

    name = "garbage"

    def __init__(self, api: KubeApi) -> None:
        self._api, self._hands = api, Hands(api, "kube-controller-manager")

    def due_s(self) -> float | None:
        """Nothing is due by time."""
        return None

    def step(self) -> None:
        """Look at every object once."""
        uids = {obj["metadata"]["uid"] for _, obj in self._everything()}
        for resource, obj in self._everything():
            finalizers = obj["metadata"].get("finalizers") or []
            if "deletionTimestamp" in obj["metadata"] and ORPHAN in finalizers:
                self._orphan(resource, obj)
            elif "deletionTimestamp" in obj["metadata"] and FOREGROUND in finalizers:
                self._foreground(resource, obj)
            elif owners := obj["metadata"].get("ownerReferences"):
                self._collect(resource, obj, [one for one in owners if one["uid"] in uids])
        self._namespaces()

    def _everything(self) -> Iterator[tuple[ResourceType, Obj]]:
        kernel = self._api.kernel
        for key in kernel.store.kept():
            resource = kernel.resources.stored(key)
            if resource is not None:
                for obj in kernel.store.all(key):
                    yield resource, obj

    def _dependents(self, owner: Obj) -> list[tuple[ResourceType, Obj]]:
        uid = owner["metadata"]["uid"]
        return [
            (resource, obj)
            for resource, obj in self._everything()
            if any(one["uid"] == uid for one in obj["metadata"].get("ownerReferences") or ())
        ]

    def _orphan(self, resource: ResourceType, obj: Obj) -> None:
        uid = obj["metadata"]["uid"]
        for kind, one in self._dependents(obj):
            owners = one["metadata"]["ownerReferences"]
            one["metadata"]["ownerReferences"] = [own for own in owners if own["uid"] != uid]
            self._hands.write(kind.plural, one)
        obj["metadata"]["finalizers"].remove(ORPHAN)
        self._hands.write(resource.plural, obj)

    def _foreground(self, resource: ResourceType, obj: Obj) -> None:
        blocking = False
        for kind, one in self._dependents(obj):
            uid = obj["metadata"]["uid"]
            owner = next(o for o in one["metadata"]["ownerReferences"] if o["uid"] == uid)
            blocking = blocking or bool(owner.get("blockOwnerDeletion"))
            if "deletionTimestamp" not in one["metadata"]:
                self._hands.delete(kind.plural, one, propagationPolicy="Foreground")
        if not blocking:
            obj["metadata"]["finalizers"].remove(FOREGROUND)
            self._hands.write(resource.plural, obj)

    def _collect(self, resource: ResourceType, obj: Obj, living: list[Obj]) -> None:
        if not living and "deletionTimestamp" not in obj["metadata"]:
            self._hands.delete(resource.plural, obj, propagationPolicy="Background")

    def _namespaces(self) -> None:
        for namespace in self._hands.all("namespaces"):
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" not in namespace["metadata"]:
                if self._hands.get("serviceaccounts", name, "default") is None:
                    meta = {"name": "default", "namespace": name}
                    self._hands.create("serviceaccounts", {"metadata": meta})
                continue
            left = [
                (resource, obj)
                for resource, obj in self._everything()
                if obj["metadata"].get("namespace") == name
            ]
            for resource, obj in left:
                if "deletionTimestamp" not in obj["metadata"]:
                    self._hands.delete(resource.plural, obj, propagationPolicy="Background")
            if not left and namespace["spec"].get("finalizers"):
                namespace["spec"]["finalizers"] = []
                self._hands.write("namespaces", namespace)
