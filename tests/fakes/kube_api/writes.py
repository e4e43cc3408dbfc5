"""Create, update and patch: read strictly, fill in, admit, check, settle owners, keep."""

import json
from collections.abc import Mapping
from typing import Any

import yaml
from tests.fakes.kube_api import defaults, managed, rules
from tests.fakes.kube_api.kernel import Call, Kernel
from tests.fakes.kube_api.patches import json_patch, merge_patch, strategic_patch
from tests.fakes.kube_api.schema import Findings, check, shape
from tests.fakes.kube_api.status import (
    ApiError,
    Obj,
    already_exists,
    bad_request,
    cause,
    conflict,
    copied,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)

_STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
)
_GENERATED = {"Job", "Pod", "CronJob", "PodDisruptionBudget", "CustomResourceDefinition"}
_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", _STRATEGIC, _APPLY)


def create(kernel: Kernel, call: Call) -> Obj:
    """Create an object; return it as it is kept."""
    _check_options(call)
    body = _read(call, call.body)
    meta = body.setdefault("metadata", {})
    if meta.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:58] + kernel.new_suffix()
    if not meta.get("name"):
        raise _invalid(call, body, [required("metadata.name", "name or generateName is required")])
    with kernel.store.lock:
        return _create(kernel, call, body, None)


def _create(kernel: Kernel, call: Call, body: Obj, applied: Obj | None) -> Obj:
    resource, meta = call.resource, body["metadata"]
    if resource.namespaced:
        meta["namespace"] = call.namespace
        _check_namespace(kernel, call)
    for name in (*_SYSTEM_FIELDS, "resourceVersion"):
        meta.pop(name, None)
    meta |= {"uid": kernel.new_uid(), "creationTimestamp": kernel.now()}
    if resource.custom or resource.kind in _GENERATED:
        meta["generation"] = 1
    if "status" in resource.subresources:
        body.pop("status", None)
    return _finish(kernel, call, None, body, applied)


def update(kernel: Kernel, call: Call) -> Obj:
    """Replace an object, or its status; return it as it is kept."""
    _check_options(call)
    body = _read(call, call.body)
    with kernel.store.lock:
        old = kernel.must(call.resource, call.namespace, call.name)
        meta = body.get("metadata") or {}
        if call.resource.custom and not meta.get("resourceVersion"):
            told = "Invalid value: 0x0: must be specified for an update"
            raise _invalid(call, body, [cause("metadata.resourceVersion", told)])
        return _change(kernel, call, old, body, None)


def patch(kernel: Kernel, call: Call) -> Obj:
    """Patch an object, or its status; apply creates what is not there."""
    _check_options(call)
    kind = call.content_type
    if kind not in _PATCHES or (kind == _STRATEGIC and call.resource.custom):
        known = [one for one in _PATCHES if one != _STRATEGIC or not call.resource.custom]
        raise ApiError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown "
            f"format - accepted media types include: {', '.join(known)}",
        )
    with kernel.store.lock:
        if kind == _APPLY:
            return _apply(kernel, call)
        old = kernel.must(call.resource, call.namespace, call.name)
        if kind == _STRATEGIC:
            patched = strategic_patch(old, _object(call.body), call.resource.schema)
        elif kind == "application/merge-patch+json":
            patched = merge_patch(old, _object(call.body))
        else:
            patched = json_patch(old, call.body)
        return _change(kernel, call, old, _read(call, patched), None)


def _apply(kernel: Kernel, call: Call) -> Obj:
    config = _object(call.body)
    if "managedFields" in (config.get("metadata") or {}):
        raise bad_request("metadata.managedFields must be nil")
    config = _read(call, config, fill=False)
    config.setdefault("metadata", {}).setdefault("name", call.name)
    asked = config["metadata"].pop("resourceVersion", None)
    old = kernel.live(call.resource, call.namespace, call.name)
    if old is None and (call.subresource or asked):
        raise not_found(call.resource.group, call.resource.plural, call.name)
    if old is not None and asked not in (None, old["metadata"]["resourceVersion"]):
        raise conflict(call.resource.group, call.resource.plural, call.name, _STALE)
    config = _only_own(call, config)
    force = call.query.get("force") == "true"
    body = managed.apply(old, config, call.resource.schema, _writer(call), force=force)
    filled = _read(call, copied(body), quiet=True)
    if old is None:
        return _create(kernel, call, filled, config)
    return _change(kernel, call, old, filled, config)


def _only_own(call: Call, config: Obj) -> Obj:
    """Leave out what this endpoint resets: status here, all but the status there."""
    if call.subresource == "status":
        return {name: one for name, one in config.items() if name != "spec"}
    if "status" in call.resource.subresources:
        return {name: one for name, one in config.items() if name != "status"}
    return config


def _change(kernel: Kernel, call: Call, old: Obj, body: Obj, applied: Obj | None) -> Obj:
    resource = call.resource
    meta = body.setdefault("metadata", {})
    if meta.setdefault("name", call.name) != call.name:
        raise bad_request(
            f"the name of the object ({meta['name']}) does not match the name on "
            f"the URL ({call.name})"
        )
    given = meta.get("resourceVersion")
    if given and given != old["metadata"]["resourceVersion"]:
        raise conflict(resource.group, resource.plural, call.name, _STALE)
    if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
        told = (
            f"Precondition failed: UID in precondition: {meta['uid']}, "
            f"UID in object meta: {old['metadata']['uid']}"
        )
        raise conflict(resource.group, resource.plural, call.name, told)
    for name in (*_SYSTEM_FIELDS, "namespace", "resourceVersion"):
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = copied(old["metadata"][name])
    _check_finalizers(call, old, body)
    new = _split(call, old, body)
    if _has_new_generation(call, old, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return _finish(kernel, call, old, new, applied)


def _split(call: Call, old: Obj, body: Obj) -> Obj:
    """Take the status from where this endpoint may not write it, and all else likewise."""
    if "status" not in call.resource.subresources:
        return body
    if call.subresource == "status":
        kept = {**old, "metadata": old["metadata"] if call.resource.custom else body["metadata"]}
        kept.pop("status", None)
        return kept | ({"status": body["status"]} if "status" in body else {})
    body.pop("status", None)
    return body | ({"status": copied(old["status"])} if "status" in old else {})


def _has_new_generation(call: Call, old: Obj, new: Obj) -> bool:
    if call.subresource or "generation" not in old["metadata"]:
        return False

    def rest(obj: Obj) -> Obj:
        return {name: one for name, one in obj.items() if name not in ("metadata", "status")}

    return rest(old) != rest(new)


def _check_finalizers(call: Call, old: Obj, body: Obj) -> None:
    if "deletionTimestamp" not in old["metadata"]:
        return
    more = set(body["metadata"].get("finalizers") or ()) - set(
        old["metadata"].get("finalizers") or ()
    )
    if more:
        told = f"Forbidden: no new finalizers can be added if the object is being deleted, {more}"
        raise _invalid(call, body, [cause("metadata.finalizers", told, "FieldValueForbidden")])


def _finish(kernel: Kernel, call: Call, old: Obj | None, new: Obj, applied: Obj | None) -> Obj:
    resource = call.resource
    new |= {"apiVersion": resource.api_version, "kind": resource.kind}
    defaults.fill(new, is_new=old is None)
    if not call.subresource:
        for hook in kernel.webhooks:
            hook("UPDATE" if old else "CREATE", new, old)
    found = Findings()
    check(new, resource.schema, "", found, old)
    causes = [one for one in found.causes if resource.custom or not _is_of_status(one)]
    if not causes and call.subresource != "status":
        causes = rules.check(new, old)
    if causes:
        raise _invalid(call, new, causes)
    name = new["metadata"]["name"]
    if old is None and kernel.live(resource, call.namespace, name) is not None:
        raise already_exists(resource.group, resource.plural, name)
    fields = managed.settle(
        old, new, resource.schema, _writer(call), applied=applied, time=kernel.now()
    )
    new["metadata"]["managedFields"] = fields
    if call.is_dry or new == old:
        return new
    if old is not None and _is_done_with(new):
        kept = kernel.keep(resource, new)
        kernel.drop(resource, new)
        return kept
    kept = kernel.keep(resource, new)
    if resource.key == ("apiextensions.k8s.io", "customresourcedefinitions"):
        kernel.resources.add_crd(kept)
    return kept


def _is_of_status(one: Obj) -> bool:
    # Go's zero values stand for required fields of a status that nobody set
    field: str = one["field"]
    return field.startswith("status.") and one["reason"] == "FieldValueRequired"


def _is_done_with(obj: Obj) -> bool:
    meta = obj["metadata"]
    is_leaving = "deletionTimestamp" in meta and not meta.get("finalizers")
    if obj["kind"] == "Namespace":
        is_leaving = is_leaving and not obj.get("spec", {}).get("finalizers")
    return is_leaving and not meta.get("deletionGracePeriodSeconds")


def _read(call: Call, body: Any, *, fill: bool = True, quiet: bool = False) -> Obj:
    """Return the object in a body, its shape checked against the schema."""
    given = _object(body)
    resource = call.resource
    for name, right in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if given.setdefault(name, right) != right:
            what = "API version" if name == "apiVersion" else "kind"
            raise bad_request(
                f"the {what} in the data ({given[name]}) does not match the "
                f"expected {what} ({right})"
            )
    meta = given.get("metadata") or {}
    if resource.namespaced and meta.get("namespace", call.namespace) != call.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    found = Findings()
    shaped: Obj = shape(copied(given), resource.schema, "", found, fill=fill)
    if found.mistyped:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as '
            f"a {resource.kind}: {'; '.join(found.mistyped)}"
        )
    level = call.query.get("fieldValidation", "Warn")
    faults = [f'unknown field "{path}"' for path in found.unknown]
    if faults and level == "Strict" and not quiet:
        raise bad_request(f"strict decoding error: {', '.join(faults)}")
    if level == "Warn" and not quiet:
        call.warnings.extend(faults)
    return shaped


def _object(body: Any) -> Obj:
    if not isinstance(body, dict):
        raise bad_request("the body of the request is no JSON object")
    return body


def read_body(data: bytes, content_type: str) -> Any:
    """Return a body as Python values.

    Raises:
        ApiError: 400 where it cannot be read, 415 where its type is not known.
    """
    if not data:
        return None
    if not content_type.endswith(("json", "yaml")):
        told = "the body of the request was in an unknown format - accepted media types include: "
        raise ApiError(415, "UnsupportedMediaType", f"{told}application/json, application/yaml")
    try:
        if "yaml" in content_type:
            return yaml.safe_load(data)
        return json.loads(data, object_pairs_hook=_no_repeats)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def _no_repeats(pairs: list[tuple[str, Any]]) -> Obj:
    names = [name for name, _ in pairs]
    repeated = next((one for one in names if names.count(one) > 1), None)
    if repeated is not None:
        raise ValueError(f'duplicate field "{repeated}"')
    return dict(pairs)


def _check_options(call: Call) -> None:
    allowed: Mapping[str, tuple[str, ...]] = {
        "fieldValidation": ("Ignore", "Warn", "Strict"),
        "dryRun": ("All",),
    }
    causes = [
        unsupported(name, call.query[name], values)
        for name, values in allowed.items()
        if call.query.get(name, values[0]) not in values
    ]
    if call.content_type == _APPLY and not call.query.get("fieldManager"):
        causes.append(required("fieldManager", "is required for apply patch"))
    if call.content_type != _APPLY and "force" in call.query:
        causes.append(cause("force", "Forbidden: may not be specified for non-apply patch"))
    if causes:
        kind = {"create": "CreateOptions", "update": "UpdateOptions"}.get(call.verb, "PatchOptions")
        raise invalid("meta.k8s.io", kind, "", causes)


def _check_namespace(kernel: Kernel, call: Call) -> None:
    found = kernel.store.get(("", "namespaces"), ("", call.namespace))
    if found is None:
        raise not_found("", "namespaces", call.namespace)
    if found.get("status", {}).get("phase") == "Terminating":
        name = (call.body or {}).get("metadata", {}).get("name", "")
        why = (
            f"unable to create new content in namespace {call.namespace} because it is being "
            "terminated"
        )
        raise forbidden(call.resource.group, call.resource.plural, name, why)


def _writer(call: Call) -> managed.Writer:
    name = call.query.get("fieldManager") or call.agent.split("/", 1)[0]
    operation = "Apply" if call.content_type == _APPLY else "Update"
    return managed.Writer(name, operation, call.resource.api_version, call.subresource)


def _invalid(call: Call, obj: Obj, causes: list[Obj]) -> ApiError:
    resource = call.resource
    return invalid(resource.group, resource.kind, obj.get("metadata", {}).get("name", ""), causes)
