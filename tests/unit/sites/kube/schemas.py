"""Strict validation of manifests: by Kubernetes' own schemas, and by the CRDs' of what it runs."""

import copy
import functools
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from kubernetes_validate import utils
from referencing import Registry, Resource

DATA = Path(__file__).parents[3] / "data" / "kubernetes"
VERSIONS = tuple(f"1.{minor}" for minor in range(28, 37))
KUEUE = ("kueue-v0.13.1", "kueue-v0.19.2")

_INT_OR_STRING = "x-kubernetes-int-or-string"
_OPEN = "x-kubernetes-preserve-unknown-fields"


def built_in_errors(manifest: dict[str, Any], version: str) -> list[str]:
    """What a server of this version would say of an object of Kubernetes' own, strictly."""
    group, _, api = manifest["apiVersion"].rpartition("/")
    prefix = f"{group.split('.')[0]}-" if group else ""
    return _errors(_built_in(manifest["kind"].lower(), f"{prefix}{api}", version), manifest)


def custom_errors(manifest: dict[str, Any], folder: str) -> list[str]:
    """What a server would say of a custom resource, if it refused what it otherwise drops."""
    kind, version = manifest["kind"], manifest["apiVersion"].rpartition("/")[2]
    return _errors(_custom(folder, kind, version), manifest)


def _errors(validator: Any, manifest: dict[str, Any]) -> list[str]:
    return [
        f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(manifest)
    ]


@functools.cache
def _definitions(version: str) -> Any:
    name = f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    return Resource.from_contents(utils.schema_contents(name, version))


@functools.cache
def _built_in(kind: str, api: str, version: str) -> Any:
    name = f"kubernetes-json-schema/v{version}.0-local-strict/{kind}-{api}.json"
    schema = utils.schema_contents(name, version)
    registry = _definitions(version) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.cache
def _custom(folder: str, kind: str, version: str) -> Any:
    for path in sorted((DATA / folder).glob("*.yaml")):
        crd = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        if crd["spec"]["names"]["kind"] == kind:
            versions = {one["name"]: one for one in crd["spec"]["versions"]}
            schema = copy.deepcopy(versions[version]["schema"]["openAPIV3Schema"])
            return jsonschema.Draft202012Validator(_strict(schema, root=True))
    raise LookupError(f"{folder} has no {kind}")


def _strict(schema: dict[str, Any], *, root: bool = False) -> dict[str, Any]:
    """JSON Schema for an OpenAPI one: nothing unknown passes, which a server would drop."""
    if schema.pop(_INT_OR_STRING, False):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    properties = {name: _strict(one) for name, one in schema.get("properties", {}).items()}
    if root:
        properties["metadata"] = {"type": "object"}
    if properties:
        schema["properties"] = properties
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        schema["additionalProperties"] = _strict(extra)
    elif schema.get("type") == "object" and not schema.get(_OPEN):
        schema["additionalProperties"] = False
    if "items" in schema:
        schema["items"] = _strict(schema["items"])
    return schema
