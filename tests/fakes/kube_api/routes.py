"""From a path to what it asks for: a resource, discovery, or a document."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.fakes.kube_api.kernel import Kernel
from tests.fakes.kube_api.resources import Resources, ResourceType, openapi_v3
from tests.fakes.kube_api.status import ApiError, Obj, no_such_path

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/"
    r"(?:namespaces/(?P<ns>[^/]+)/(?!(?:status|finalize)$))?"
    r"(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?/?$"
)
_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "buildDate": "",
    "gitTreeState": "clean",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}


@dataclass(frozen=True)
class Target:
    """What the path of a request for a resource names, and which verb the method makes of it."""

    verb: str
    resource: ResourceType
    namespace: str
    name: str
    subresource: str

    @property
    def named(self) -> str:
        """``pods`` or ``pods/log``: as rules and faults name it."""
        part = f"/{self.subresource}" if self.subresource else ""
        return self.resource.plural + part


def target(resources: Resources, method: str, path: str, query: Mapping[str, str]) -> Target | None:
    """Return what a path names; None where it is no resource's.

    Raises:
        ApiError: 404 where the resource is not served, 405 where the method does not fit.
    """
    match = _PATH.match(path)
    if match is None:
        return None
    group, version = match["group"] or "", match["version"]
    resource = resources.get(group, version, match["plural"])
    name, sub, namespace = match["name"] or "", match["sub"] or "", match["ns"] or ""
    if resource is None or (sub and sub not in resource.subresources):
        raise no_such_path()
    if namespace and not resource.namespaced:
        raise no_such_path()
    verb = _verb(method, query, is_named=bool(name))
    served = resource.subresources[sub] if sub else resource.verbs
    if verb not in served or not _is_whole(verb, resource, namespace, name, sub):
        raise ApiError(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    return Target(verb, resource, namespace, name, sub)


def _is_whole(verb: str, resource: ResourceType, namespace: str, name: str, sub: str) -> bool:
    """Say whether a path names as much as its verb needs: a namespace, and a name or none."""
    is_placed = bool(namespace) or not resource.namespaced
    if verb in ("list", "watch"):
        return True
    if verb in ("create", "deletecollection"):
        return is_placed and bool(name) is bool(sub)
    return is_placed and bool(name)


def _verb(method: str, query: Mapping[str, str], *, is_named: bool) -> str:
    if method == "GET":
        if query.get("watch") in ("true", "1"):
            return "watch"
        return "get" if is_named else "list"
    if method == "DELETE":
        return "delete" if is_named else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())


def document(kernel: Kernel, path: str) -> Obj | None:
    """Return what discovery or OpenAPI has at a path; None where nothing is."""
    path = path.rstrip("/")
    groups = _groups(kernel.resources)
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}
    if path == "/openapi/v3":
        return {
            "paths": {
                one: {"serverRelativeURL": f"/openapi/v3/{one}?hash=0"}
                for one in _served(kernel.resources)
                if openapi_v3(one)
            }
        }
    if path.startswith("/openapi/v3/"):
        return openapi_v3(path.removeprefix("/openapi/v3/"))
    if path.startswith("/apis/") and path.removeprefix("/apis/") in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **groups[path.removeprefix("/apis/")]}
    return _listed(kernel.resources, path)


def _served(resources: Resources) -> list[str]:
    found = {f"{'apis/' if one.group else 'api/'}{one.api_version}" for one in resources.all()}
    return sorted(found)


def _groups(resources: Resources) -> dict[str, Obj]:
    groups: dict[str, Obj] = {}
    for one in resources.all():
        if not one.group:
            continue
        version = {"groupVersion": one.api_version, "version": one.version}
        group = groups.setdefault(one.group, {"name": one.group, "versions": []})
        if version not in group["versions"]:
            group["versions"].append(version)
    for group in groups.values():
        group["versions"].reverse()  # the newest first: v1beta2 before v1beta1
        group["preferredVersion"] = group["versions"][0]
    return groups


def _listed(resources: Resources, path: str) -> Obj | None:
    found = [
        one
        for one in resources.all()
        if path == f"/{'apis' if one.group else 'api'}/{one.api_version}"
    ]
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": [entry for one in found for entry in one.listed()],
    }
