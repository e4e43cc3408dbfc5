"""The resources that the server has: Kubernetes' own from OpenAPI, others from CRDs."""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.kube_api.schema import Findings, Schema, shape
from tests.fakes.kube_api.status import Obj

DATA = Path(__file__).parents[2] / "data" / "kubernetes"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/(?P<ns>namespaces/\{namespace\}/)?"
    r"(?P<plural>[a-z]+)(?:/\{name\}(?:/(?P<sub>[a-z]+))?)?$"
)
_ACTIONS = {"post": "create", "put": "update"}
_SHORT = {"pods": "po", "services": "svc", "nodes": "no", "namespaces": "ns", "events": "ev"}


@dataclass(frozen=True)
class ResourceType:
    """One resource in one version.

    Attributes:
        verbs: What may be done to it, as discovery lists.
        subresources: Verbs by subresource, as ``status``.
        stored_as: The version in which its objects are kept.
        custom: Whether a CRD brought it.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: Mapping[str, tuple[str, ...]]
    schema: Schema
    stored_as: str
    custom: bool = False

    @property
    def api_version(self) -> str:
        """``batch/v1`` or ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """The group and plural under which its objects are kept."""
        return (self.group, self.plural)

    def listed(self) -> list[Obj]:
        """Return its entries in an APIResourceList."""
        whole: Obj = {
            "name": self.plural,
            "singularName": self.kind.lower(),
            "namespaced": self.namespaced,
            "kind": self.kind,
            "verbs": sorted(self.verbs),
        }
        if self.plural in _SHORT:
            whole["shortNames"] = [_SHORT[self.plural]]
        parts = [
            {**whole, "name": f"{self.plural}/{name}", "singularName": "", "verbs": sorted(verbs)}
            for name, verbs in sorted(self.subresources.items())
        ]
        return [whole, *parts]


class Resources:
    """All resource types that are served; CRDs may be added."""

    def __init__(self) -> None:
        self._types = {(one.group, one.version, one.plural): one for one in _builtins()}

    def add_crd(self, crd: Obj) -> None:
        """Serve what a CustomResourceDefinition declares, in each served version."""
        for one in _of_crd(crd):
            self._types[one.group, one.version, one.plural] = one

    def remove_crd(self, crd: Obj) -> None:
        """Serve it no longer."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        self._types = {key: one for key, one in self._types.items() if one.key != (group, plural)}

    def get(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the resource; None where it is not served."""
        return self._types.get((group, version, plural))

    def stored(self, key: tuple[str, str]) -> ResourceType | None:
        """Return the resource in the version in which its objects are kept."""
        found = [one for one in self._types.values() if one.key == key]
        return next((one for one in found if one.version == one.stored_as), None)

    def of_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the resource whose objects say this of themselves."""
        found = self._types.values()
        return next((o for o in found if (o.api_version, o.kind) == (api_version, kind)), None)

    def all(self) -> list[ResourceType]:
        """Return every resource, ordered."""
        return [self._types[key] for key in sorted(self._types)]


@functools.cache
def _documents() -> tuple[tuple[str, Obj], ...]:
    files = sorted((DATA / "openapi-v1.36.2").glob("*_openapi.json"))
    return tuple((one.name, json.loads(one.read_text(encoding="utf-8"))) for one in files)


@functools.cache
def _builtins() -> tuple[ResourceType, ...]:
    found: list[ResourceType] = []
    for _, document in _documents():
        found += _of_document(document)
    return tuple(found)


def _of_document(document: Obj) -> Iterable[ResourceType]:
    verbs: dict[tuple[str, str, str], dict[str, set[str]]] = {}
    kinds: dict[tuple[str, str, str], str] = {}
    namespaced: set[tuple[str, str, str]] = set()
    for path, operations in document["paths"].items():
        match = _PATH.match(path)
        if match is None:
            continue
        key = (match["group"] or "", match["version"], match["plural"])
        if match["ns"]:
            namespaced.add(key)
        parts = verbs.setdefault(key, {})
        for method, operation in operations.items():
            action = operation["x-kubernetes-action"]
            action = _ACTIONS.get(method, action)
            parts.setdefault(match["sub"] or "", set()).add(action)
            if not match["sub"]:
                kinds[key] = operation["x-kubernetes-group-version-kind"]["kind"]
    schemas = document["schemas"]
    for key, parts in verbs.items():
        group, version, plural = key
        main = parts.pop("", set())
        if key not in kinds:
            continue
        if "list" in main:
            main.add("watch")
        yield ResourceType(
            group=group,
            version=version,
            plural=plural,
            kind=kinds[key],
            namespaced=key in namespaced,
            verbs=tuple(sorted(main)),
            subresources={name: tuple(sorted(found)) for name, found in parts.items()},
            schema=_schema_of(schemas, group, version, kinds[key]),
            stored_as=version,
        )


def _schema_of(schemas: Obj, group: str, version: str, kind: str) -> Schema:
    wanted = {"group": group, "version": version, "kind": kind}
    for node in schemas.values():
        if wanted in node.get("x-kubernetes-group-version-kind", ()):
            return Schema(node, schemas)
    raise LookupError(f"no schema of {wanted}")


def _core_schemas() -> Obj:
    schemas: Obj = dict(_documents())["api__v1_openapi.json"]["schemas"]
    return schemas


def _of_crd(crd: Obj) -> Iterable[ResourceType]:
    spec = crd["spec"]
    stored_as = next(one["name"] for one in spec["versions"] if one["storage"])
    verbs = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    for version in spec["versions"]:
        if not version["served"]:
            continue
        root = version["schema"]["openAPIV3Schema"]
        meta = {"$ref": f"#/components/schemas/{_META}"}
        known = {**root.get("properties", {}), "metadata": meta}
        node = {**root, "properties": known}
        yield ResourceType(
            group=spec["group"],
            version=version["name"],
            plural=spec["names"]["plural"],
            kind=spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
            verbs=verbs,
            subresources=dict.fromkeys(version.get("subresources", {}), ("get", "patch", "update")),
            schema=Schema(node, _core_schemas(), custom=True),
            stored_as=stored_as,
            custom=True,
        )


@functools.cache
def crds_of(project: str) -> tuple[Obj, ...]:
    """Return the CRDs of a folder of the test data, as ``kueue-v0.13.1``."""
    files = sorted((DATA / project).glob("*.yaml"))
    if not files:
        raise LookupError(f"no CRDs of {project} in {DATA.name}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(yaml.load(one.read_text(encoding="utf-8"), loader) for one in files)


def convert(obj: Obj, to: ResourceType) -> Obj:
    """Return a stored object in another version: fields renamed as Kueue's webhook does, pruned."""
    if obj.get("apiVersion") == to.api_version:
        return obj
    moved: Obj = {**obj, "apiVersion": to.api_version, "kind": to.kind}
    renames = _RENAMES.get((to.group, to.kind), ())
    for names in renames:
        was, becomes = names if to.version == "v1beta2" else names[::-1]
        _rename(moved, was.split("."), becomes.rsplit(".", 1)[-1])
    if (to.group, to.kind) == ("kueue.x-k8s.io", "Workload"):
        moved["spec"] = _priority_class(moved.get("spec") or {})
    pruned: Obj = shape(moved, to.schema, "", Findings())
    return pruned


_RENAMES: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("kueue.x-k8s.io", "ClusterQueue"): (("spec.cohort", "spec.cohortName"),),
    ("kueue.x-k8s.io", "LocalQueue"): (("status.flavorUsage", "status.flavorsUsage"),),
    ("kueue.x-k8s.io", "Workload"): (
        (
            "status.accumulatedPastExexcutionTimeSeconds",
            "status.accumulatedPastExecutionTimeSeconds",
        ),
    ),
}


def _priority_class(spec: Obj) -> Obj:
    """Say a Workload's priority class in both ways; pruning leaves the one that fits."""
    kinds = {"WorkloadPriorityClass": "kueue.x-k8s.io", "PriorityClass": "scheduling.k8s.io"}
    if "priorityClassRef" in spec:
        one = spec["priorityClassRef"]
        source = f"{one['group']}/{one['kind'].lower()}"
        return {**spec, "priorityClassName": one["name"], "priorityClassSource": source}
    for kind, group in kinds.items():
        if spec.get("priorityClassSource") == f"{group}/{kind.lower()}":
            one = {"group": group, "kind": kind, "name": spec["priorityClassName"]}
            return {**spec, "priorityClassRef": one}
    return spec


def _rename(obj: Obj, path: list[str], name: str) -> None:
    holder: Any = obj
    for part in path[:-1]:
        if not isinstance(holder.get(part), dict):
            return
        holder[part] = dict(holder[part])
        holder = holder[part]
    if path[-1] in holder:
        holder[name] = holder.pop(path[-1])


def openapi_v3(api: str) -> Obj | None:
    """Return the OpenAPI v3 document of ``api/v1`` or ``apis/batch/v1``; None where there is none.

    Its operations name the query parameters by which clients tell what a server can do.
    """
    name = api.replace("/", "__") + "_openapi.json"
    document = dict(_documents()).get(name)
    if document is None:
        return None
    flags = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": one, "in": "query", "schema": {"type": "string"}} for one in flags]
    paths = {
        path: {
            method: {**operation, "parameters": parameters, "responses": {}}
            for method, operation in operations.items()
        }
        for path, operations in document["paths"].items()
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": paths,
        "components": {"schemas": document["schemas"]},
    }
