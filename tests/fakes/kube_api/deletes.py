"""Delete: grace, preconditions, finalizers, and what becomes of dependents."""

from typing import Any

from tests.fakes.kube_api import reads
from tests.fakes.kube_api.kernel import Call, Kernel
from tests.fakes.kube_api.resources import ResourceType
from tests.fakes.kube_api.status import Obj, bad_request, conflict, copied, invalid, unsupported

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_POLICIES = ("Foreground", "Background", "Orphan")


def delete(kernel: Kernel, call: Call) -> Obj:
    """Delete one object, or mark it for deletion; return the object, or a Status."""
    options = _options(call)
    with kernel.store.lock:
        obj = kernel.must(call.resource, call.namespace, call.name)
        _check_preconditions(call, obj, options.get("preconditions") or {})
        return _delete(kernel, call, obj, options)


def delete_collection(kernel: Kernel, call: Call) -> Obj:
    """Delete every object that the selectors choose; return the list."""
    options = _options(call)
    with kernel.store.lock:
        listed = reads.list_(kernel, call)
        for one in listed["items"]:
            meta = one["metadata"]
            obj = kernel.live(call.resource, meta.get("namespace", ""), meta["name"])
            if obj is not None:
                _delete(kernel, call, obj, options)
    return listed


def _options(call: Call) -> Obj:
    body: Any = call.body
    if body is None:
        body = {}
    if not isinstance(body, dict) or body.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request("the body of a delete is DeleteOptions, or empty")
    options = copied(body)
    if "gracePeriodSeconds" in call.query:
        options["gracePeriodSeconds"] = int(call.query["gracePeriodSeconds"])
    if "propagationPolicy" in call.query:
        options["propagationPolicy"] = call.query["propagationPolicy"]
    if "orphanDependents" in options and "propagationPolicy" not in options:
        is_orphan = options.pop("orphanDependents")
        options["propagationPolicy"] = "Orphan" if is_orphan else "Background"
    policy = options.get("propagationPolicy", "Background")
    if policy not in _POLICIES:
        raise invalid(
            "meta.k8s.io",
            "DeleteOptions",
            "",
            [unsupported("propagationPolicy", policy, _POLICIES)],
        )
    return options


def _check_preconditions(call: Call, obj: Obj, wanted: Obj) -> None:
    for name, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if name in wanted and wanted[name] != obj["metadata"][name]:
            why = (
                f"Precondition failed: {shown} in precondition: {wanted[name]}, "
                f"{shown} in object meta: {obj['metadata'][name]}"
            )
            raise conflict(call.resource.group, call.resource.plural, call.name, why)


def _default_policy(resource: ResourceType) -> str:
    """Say what a request without a policy means: batch/v1 Jobs still leave their pods behind."""
    return "Orphan" if resource.key == ("batch", "jobs") else "Background"


def _delete(kernel: Kernel, call: Call, obj: Obj, options: Obj) -> Obj:
    policy = options.get("propagationPolicy") or _default_policy(call.resource)
    new = copied(obj)
    meta = new["metadata"]
    finalizers = [one for one in meta.get("finalizers") or () if one not in (FOREGROUND, ORPHAN)]
    finalizers += {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])
    meta["finalizers"] = finalizers
    grace_s = _grace_s(obj, options.get("gracePeriodSeconds"))
    is_content_left = obj["kind"] == "Namespace" and obj.get("spec", {}).get("finalizers")
    if call.is_dry:
        return new
    if not finalizers and not grace_s and not is_content_left:
        gone = kernel.drop(call.resource, obj)
        return gone if obj["kind"] in ("Pod", "Service", "ServiceAccount") else _done(call, obj)
    if not finalizers:
        del meta["finalizers"]
    was_s = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta or (was_s is not None and grace_s < was_s):
        meta["deletionTimestamp"] = kernel.now(after_s=grace_s)
        meta["deletionGracePeriodSeconds"] = grace_s
        if "generation" in meta:
            meta["generation"] += 1
    if is_content_left:
        new["status"] = {**new.get("status", {}), "phase": "Terminating"}
    return kernel.keep(call.resource, new) if new != obj else obj


def _grace_s(obj: Obj, asked_s: int | None) -> int:
    if obj["kind"] != "Pod":
        return 0
    is_ended = obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if is_ended or not obj["spec"].get("nodeName"):
        return 0
    return int(obj["spec"]["terminationGracePeriodSeconds"]) if asked_s is None else asked_s


def _done(call: Call, obj: Obj) -> Obj:
    details = {
        "name": obj["metadata"]["name"],
        "group": call.resource.group,
        "kind": call.resource.plural,
        "uid": obj["metadata"]["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: one for name, one in details.items() if one},
    }
