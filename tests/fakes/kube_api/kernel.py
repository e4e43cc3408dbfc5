"""What every verb of the API shares: the store, the resources, time, identity, admission."""

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.fakes.kube_api.resources import Resources, ResourceType, convert
from tests.fakes.kube_api.status import Obj, not_found
from tests.fakes.kube_api.store import Store

from gridloom.base.clock import Clock

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: nothing that makes words
MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True)
class User:
    """Who calls."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)


ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))


@dataclass(frozen=True)
class Call:
    """One request for a resource, read.

    Attributes:
        verb: As RBAC names it: get, list, watch, create, update, patch, delete, deletecollection.
        namespace: Empty for what has none, and for all namespaces.
        name: Empty for a collection.
        subresource: As ``status``; empty for the object itself.
        content_type: Of the body, as ``application/merge-patch+json``.
        agent: The ``User-Agent``, which names the field manager where none is given.
        warnings: What the answer warns of; filled while it is worked on.
    """

    verb: str
    resource: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    user: User = ADMIN
    agent: str = "unknown"
    warnings: list[str] = field(default_factory=list)

    @property
    def is_dry(self) -> bool:
        """Whether nothing is to be kept."""
        return self.query.get("dryRun") == "All"


Webhook = Callable[[str, Obj, Obj | None], None]
"""Called with ``CREATE`` or ``UPDATE``, the object (to change in place) and the object before."""


class Kernel:
    """The state of one cluster's API.

    Args:
        store: Where objects are kept.
        clock: Where timestamps come from.
        seed: Makes uids and name suffixes; the same seed and calls give the same ones.
    """

    def __init__(self, store: Store, clock: Clock, seed: int = 0) -> None:
        self.store, self.clock = store, clock
        self.resources = Resources()
        self.webhooks: list[Webhook] = []
        self._seed, self._minted = seed, 0

    def now(self, after_s: float = 0.0) -> str:
        """Return the time, RFC 3339, to the second as ``metav1.Time`` has it."""
        moment = datetime.fromtimestamp(self.clock.now_s() + after_s, tz=UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _digest(self) -> bytes:
        self._minted += 1
        return hashlib.sha256(f"{self._seed}/{self._minted}".encode()).digest()

    def new_uid(self) -> str:
        """Return a uid that was never given before."""
        return str(uuid.UUID(bytes=self._digest()[:16], version=4))

    def new_suffix(self) -> str:
        """Return the five characters that end a generated name."""
        return "".join(_LETTERS[one % len(_LETTERS)] for one in self._digest()[:5])

    def live(self, resource: ResourceType, namespace: str, name: str) -> Obj | None:
        """Return an object in the version of ``resource``; None where there is none."""
        found = self.store.get(resource.key, (namespace if resource.namespaced else "", name))
        return None if found is None else convert(found, resource)

    def must(self, resource: ResourceType, namespace: str, name: str) -> Obj:
        """Return an object.

        Raises:
            ApiError: 404.
        """
        found = self.live(resource, namespace, name)
        if found is None:
            raise not_found(resource.group, resource.plural, name)
        return found

    def keep(self, resource: ResourceType, obj: Obj) -> Obj:
        """Keep an object in the version that is stored; return it in that of ``resource``."""
        stored = self.resources.stored(resource.key) or resource
        return convert(self.store.put(resource.key, place(obj), convert(obj, stored)), resource)

    def drop(self, resource: ResourceType, obj: Obj) -> Obj:
        """Forget an object."""
        gone = convert(self.store.remove(resource.key, place(obj)), resource)
        if resource.key == ("apiextensions.k8s.io", "customresourcedefinitions"):
            self.resources.remove_crd(gone)
        return gone


def place(obj: Obj) -> tuple[str, str]:
    """Return an object's namespace and name."""
    return (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
