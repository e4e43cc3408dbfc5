"""What the driver needs of a cluster's API, and what can go wrong there."""

from collections.abc import Generator
from typing import Protocol

import msgspec

from gridloom.base.errors import SiteError
from gridloom.model.inventory import KubeAccess
from gridloom.sites.kube.render_pod import Manifest


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace of one cluster, as one account sees it.

    Attributes:
        kubeconfig: File that says how the cluster is reached; empty: as ``kubectl`` finds it.
        context: Which of its contexts; empty for the current one.
        namespace: The namespace.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str

    @classmethod
    def of(cls, access: KubeAccess) -> "Place":
        """Return where the jobs of a site are."""
        return cls(kubeconfig=access.kubeconfig, context=access.context, namespace=access.namespace)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object, as the API's paths name it.

    Attributes:
        api_version: Group and version, as ``batch/v1``; the core group has no name.
        plural: As ``jobs``.
        namespaced: Whether each is in a namespace; nodes are in none.
    """

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str, name: str = "", part: str = "") -> str:
        """Return the path of the objects in a namespace, of one of them, or of a part of it."""
        root = "apis" if "/" in self.api_version else "api"
        scope = ("namespaces", namespace) if self.namespaced else ()
        parts = (root, self.api_version, *scope, self.plural, name, part)
        return "/" + "/".join(filter(None, parts))


PODS = Resource(api_version="v1", plural="pods")
NODES = Resource(api_version="v1", plural="nodes", namespaced=False)
EVENTS = Resource(api_version="v1", plural="events")
WORKLOADS = tuple(
    Resource(api_version=f"kueue.x-k8s.io/{version}", plural="workloads")
    for version in ("v1beta2", "v1beta1")
)
"""Kueue's, in the versions in which it may be served, the newest first."""


def resource_of(manifest: Manifest) -> Resource:
    """Return the kind of an object; those that are made here have regular plurals."""
    return Resource(api_version=manifest["apiVersion"], plural=f"{manifest['kind'].lower()}s")


class AwayError(SiteError):
    """The API does not answer, or not now: the same request may succeed soon."""


class ExpiredError(SiteError):
    """What a watch was to go on from is too long ago: everything must be listed anew."""


class RefusedError(SiteError):
    """The API said no.

    Attributes:
        code: HTTP code, as 403.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the API answered, and what it said besides.

    Attributes:
        body: The object.
        told_s: The server's clock, in whole seconds; nothing if it does not tell.
        warnings: What it warns of.
    """

    body: Manifest
    told_s: float | None = None
    warnings: tuple[str, ...] = ()


class Questions(Protocol):
    """Questions to a cluster that change nothing. All raise ``AwayError`` and ``RefusedError``."""

    def ask(self, path: str, body: Manifest | None = None) -> Answer:
        """Get what stands at a path, or post a question there."""
        ...

    def tries(self, manifest: Manifest) -> Answer:
        """Ask whether an object would be taken, without making it."""
        ...


class Api(Protocol):
    """Requests to one place. Each may last; all raise ``AwayError`` and ``RefusedError``."""

    def close(self) -> None:
        """Close the connections: nothing more is asked."""
        ...

    def apply(self, manifest: Manifest) -> Manifest:
        """Make an object, or make it as it is to be: server-side apply. Return what it is now."""
        ...

    def merge(self, resource: Resource, name: str, change: Manifest) -> Manifest:
        """Change some fields of an object; return what it is now."""
        ...

    def get(self, resource: Resource, name: str) -> Manifest | None:
        """Return an object; nothing if there is none."""
        ...

    def delete(self, resource: Resource, name: str, uid: str) -> None:
        """Delete an object and then all that belongs to it; one of another uid is left alone."""
        ...

    def list(
        self, resource: Resource, selector: str, fields: str = ""
    ) -> tuple[list[Manifest], str]:
        """Return the objects with these labels and fields, and the version from which to watch."""
        ...

    def watch(
        self, resource: Resource, selector: str, version: str
    ) -> Generator[tuple[str, Manifest], None, None]:
        """Open a watch; yield what happened after ``version``: ``ADDED``, ``MODIFIED`` and so on.

        It ends by itself after a while.

        Raises:
            ExpiredError: ``version`` is too old.
        """
        ...

    def log(self, pod: str, lines: int) -> str:
        """Return the last lines of what a pod has printed."""
        ...
