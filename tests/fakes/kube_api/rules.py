"""What a real server refuses of Kubernetes' own kinds beyond their schemas."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.fakes.kube_api.rules_pod import check_pod_spec
from tests.fakes.kube_api.status import Obj, cause, copied, required, unsupported

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SERVICE = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_RBAC = "rbac.authorization.k8s.io/v1"
_PATH_SEGMENT = {
    (_RBAC, kind) for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
}
_LABEL_NAMES = {("v1", "Namespace")}


def check(obj: Obj, old: Obj | None) -> list[Obj]:
    """Return what is wrong with an object, as causes of an ``Invalid``.

    Args:
        obj: The object as it would be kept.
        old: The object as it is; None when it is created.
    """
    kind = (obj["apiVersion"], obj["kind"])
    causes = list(_metadata(obj, kind))
    if kind in _RULES:
        causes += _RULES[kind](obj)
    if old is not None and kind in _FIXED:
        causes += _FIXED[kind](obj, old)
    return causes


def _metadata(obj: Obj, kind: tuple[str, str]) -> Iterator[Obj]:
    meta = obj["metadata"]
    yield from _name(meta.get("name", ""), kind)
    yield from _labels(meta.get("labels") or {}, "metadata.labels")
    annotations = meta.get("annotations") or {}
    for key in annotations:
        yield from _qualified(key, "metadata.annotations")
    if sum(len(key) + len(value) for key, value in annotations.items()) > 256 * 1024:
        yield cause("metadata.annotations", "Too long: must have at most 262144 bytes")
    owners = meta.get("ownerReferences") or ()
    for at, owner in enumerate(owners):
        if not owner.get("uid"):
            yield required(f"metadata.ownerReferences[{at}].uid")
    if sum(bool(one.get("controller")) for one in owners) > 1:
        told = "Invalid value: Only one reference can have Controller set to true"
        yield cause("metadata.ownerReferences", told)


def _name(name: str, kind: tuple[str, str]) -> Iterator[Obj]:
    if kind in _PATH_SEGMENT:
        if "/" in name or "%" in name or name in (".", ".."):
            yield cause("metadata.name", f'Invalid value: "{name}": may not contain / or %')
        return
    if kind == ("v1", "Service"):
        pattern, longest = _SERVICE, 63
    elif kind in _LABEL_NAMES:
        pattern, longest = _LABEL, 63
    else:
        pattern, longest = _SUBDOMAIN, 253
    if not pattern.match(name) or len(name) > longest:
        told = f"must match {pattern.pattern} and have at most {longest} characters"
        yield cause("metadata.name", f'Invalid value: "{name}": {told}')


def _labels(labels: Mapping[str, str], path: str) -> Iterator[Obj]:
    for key, value in labels.items():
        yield from _qualified(key, path)
        if not _VALUE.match(value) or len(value) > 63:
            yield cause(
                path,
                f'Invalid value: "{value}": a valid label must be an empty string or '
                "consist of at most 63 alphanumeric characters, '-', '_' or '.'",
            )


def _qualified(key: str, path: str) -> Iterator[Obj]:
    prefix, slash, name = key.rpartition("/")
    is_named = bool(name) and len(name) <= 63 and bool(_VALUE.match(name))
    if not is_named or (slash and (not _SUBDOMAIN.match(prefix.lower()) or len(prefix) > 253)):
        yield cause(
            path,
            f'Invalid value: "{key}": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', with an optional DNS prefix",
        )


def _pod(obj: Obj) -> list[Obj]:
    return list(check_pod_spec(obj["spec"], "spec"))


def _job(obj: Obj) -> list[Obj]:
    spec = obj["spec"]
    causes = [
        cause(f"spec.{name}", f"Invalid value: {spec[name]}: must be greater than or equal to 0")
        for name in (
            "parallelism",
            "completions",
            "backoffLimit",
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
        )
        if spec.get(name, 0) < 0
    ]
    mode = spec["completionMode"]
    if mode not in ("NonIndexed", "Indexed"):
        causes.append(unsupported("spec.completionMode", mode, ["NonIndexed", "Indexed"]))
    causes += _indexed(obj) if mode == "Indexed" else []
    template = spec["template"]
    causes += check_pod_spec(template["spec"], "spec.template.spec")
    meta = template.get("metadata") or {}
    causes += _labels(meta.get("labels") or {}, "spec.template.metadata.labels")
    policy = template["spec"]["restartPolicy"]
    if policy not in ("OnFailure", "Never"):
        causes.append(
            unsupported("spec.template.spec.restartPolicy", policy, ["OnFailure", "Never"])
        )
    if not spec.get("selector"):
        causes.append(required("spec.selector"))
    if "podFailurePolicy" in spec:
        causes += _failure_policy(spec, policy)
    return causes


def _indexed(obj: Obj) -> list[Obj]:
    spec, name = obj["spec"], obj["metadata"]["name"]
    if "completions" not in spec:
        return [required("spec.completions", "when completion mode is Indexed")]
    last = f"{name}-{max(spec['completions'] - 1, 0)}"
    if not _LABEL.match(last) or len(last) > 63:
        return [
            cause(
                "metadata.name",
                f'Invalid value: "{name}": will not able to create pod with '
                f'invalid DNS label: "{last}"',
            )
        ]
    return []


def _failure_policy(spec: Obj, restart: str) -> list[Obj]:
    causes: list[Obj] = []
    path = "spec.podFailurePolicy"
    if restart != "Never":
        causes.append(
            cause(
                "spec.template.spec.restartPolicy",
                f'Invalid value: "{restart}": only "Never" is supported when '
                "podFailurePolicy is specified",
            )
        )
    names = {
        one["name"]
        for part in ("containers", "initContainers")
        for one in spec["template"]["spec"].get(part) or ()
    }
    for at, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        here = f"{path}.rules[{at}]"
        actions = ("FailJob", "Ignore", "Count", "FailIndex")
        if rule.get("action") not in actions:
            causes.append(unsupported(f"{here}.action", rule.get("action"), actions))
        if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
            causes.append(
                cause(
                    f"{here}.action",
                    'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
                )
            )
        given = [one for one in ("onExitCodes", "onPodConditions") if rule.get(one)]
        if len(given) != 1:
            causes.append(
                cause(
                    here,
                    "Invalid value: specifying one of OnExitCodes and "
                    "OnPodConditions is required, and not both",
                )
            )
        elif given == ["onExitCodes"]:
            causes += _exit_codes(rule["onExitCodes"], f"{here}.onExitCodes", names)
    return causes


def _exit_codes(rule: Obj, path: str, names: set[str]) -> Iterator[Obj]:
    if rule["operator"] not in ("In", "NotIn"):
        yield unsupported(f"{path}.operator", rule["operator"], ["In", "NotIn"])
    values = rule.get("values") or []
    if not values or len(values) > 255:
        yield cause(f"{path}.values", "Invalid value: must have 1 to 255 items")
    if values != sorted(set(values)):
        yield cause(f"{path}.values", f"Invalid value: {values}: must be ordered and unique")
    if rule["operator"] == "In" and 0 in values:
        yield cause(f"{path}.values", "Invalid value: 0: must not be 0 for the In operator")
    if rule.get("containerName", next(iter(names), None)) not in names:
        yield cause(
            f"{path}.containerName",
            f'Invalid value: "{rule["containerName"]}": must be '
            "one of the container names in the pod template",
        )


def _service(obj: Obj) -> list[Obj]:
    spec = obj["spec"]
    kinds = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
    causes = [] if spec["type"] in kinds else [unsupported("spec.type", spec["type"], kinds)]
    is_headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not is_headless and spec["type"] != "ExternalName":
        causes.append(required("spec.ports"))
    ports = spec.get("ports") or []
    for at, port in enumerate(ports):
        if not 1 <= port["port"] <= 65535:
            causes.append(
                cause(
                    f"spec.ports[{at}].port",
                    f"Invalid value: {port['port']}: must be between 1 and 65535, inclusive",
                )
            )
        if len(ports) > 1 and not port.get("name"):
            causes.append(required(f"spec.ports[{at}].name"))
    return causes + list(_labels(spec.get("selector") or {}, "spec.selector"))


def _role(obj: Obj) -> list[Obj]:
    causes: list[Obj] = []
    for at, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{at}]"
        if not rule.get("verbs"):
            causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if obj["kind"] == "Role":
                causes.append(
                    cause(
                        f"{path}.nonResourceURLs",
                        "Invalid value: namespaced rules cannot apply to non-resource URLs",
                    )
                )
            continue
        if not rule.get("apiGroups"):
            causes.append(
                required(f"{path}.apiGroups", "resource rules must supply at least one api group")
            )
        if not rule.get("resources"):
            causes.append(
                required(f"{path}.resources", "resource rules must supply at least one resource")
            )
    return causes


def _binding(obj: Obj) -> list[Obj]:
    causes: list[Obj] = []
    kinds = ("Role", "ClusterRole") if obj["kind"] == "RoleBinding" else ("ClusterRole",)
    if obj["roleRef"].get("kind") not in kinds:
        causes.append(unsupported("roleRef.kind", obj["roleRef"].get("kind"), kinds))
    for at, one in enumerate(obj.get("subjects") or ()):
        if one.get("kind") == "ServiceAccount" and not one.get("namespace"):
            causes.append(required(f"subjects[{at}].namespace"))
    return causes


def _job_fixed(obj: Obj, old: Obj) -> list[Obj]:
    new_spec, old_spec = obj["spec"], old["spec"]
    names = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"]
    is_elastic = new_spec["completionMode"] == "Indexed" and new_spec.get(
        "completions"
    ) == new_spec.get("parallelism")
    if not is_elastic:
        names.append("completions")
    causes = [_immutable(f"spec.{one}") for one in names if new_spec.get(one) != old_spec.get(one)]
    before, after = copied(old_spec["template"]), copied(new_spec["template"])
    if old_spec.get("suspend") and "startTime" not in old.get("status", {}):
        for template in (before, after):
            for name in ("labels", "annotations"):
                (template.get("metadata") or {}).pop(name, None)
            for name in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
                template["spec"].pop(name, None)
            if not template.get("metadata"):
                template.pop("metadata", None)
    if before != after:
        causes.append(_immutable("spec.template"))
    return causes


def _pod_fixed(obj: Obj, old: Obj) -> list[Obj]:
    def frozen(pod: Obj) -> Any:
        spec = copied(pod["spec"])
        for name in (
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "nodeName",
            "schedulingGates",
            "priority",
        ):
            spec.pop(name, None)
        for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
            container.pop("image", None)
        return spec

    causes: list[Obj] = []
    was, now = old["spec"].get("nodeName"), obj["spec"].get("nodeName")
    if frozen(obj) != frozen(old) or (was and was != now):
        causes.append(
            cause(
                "spec",
                "Forbidden: pod updates may not change fields other than "
                "`spec.containers[*].image`,`spec.initContainers[*].image`,"
                "`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
                "additions to existing tolerations),"
                "`spec.terminationGracePeriodSeconds`",
                "FieldValueForbidden",
            )
        )
    return causes


def _service_fixed(obj: Obj, old: Obj) -> list[Obj]:
    was, now = old["spec"].get("clusterIP"), obj["spec"].get("clusterIP")
    return [_immutable("spec.clusterIPs[0]")] if was and was != now else []


def _fixed(*names: str) -> Callable[[Obj, Obj], list[Obj]]:
    def rule(obj: Obj, old: Obj) -> list[Obj]:
        return [_immutable(one) for one in names if obj.get(one) != old.get(one)]

    return rule


def _immutable(path: str) -> Obj:
    return cause(path, "Invalid value: field is immutable")


_RULES: Mapping[tuple[str, str], Callable[[Obj], list[Obj]]] = {
    ("v1", "Pod"): _pod,
    ("v1", "Service"): _service,
    ("batch/v1", "Job"): _job,
    (_RBAC, "Role"): _role,
    (_RBAC, "ClusterRole"): _role,
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
}
_FIXED: Mapping[tuple[str, str], Callable[[Obj, Obj], list[Obj]]] = {
    ("v1", "Pod"): _pod_fixed,
    ("v1", "Service"): _service_fixed,
    ("batch/v1", "Job"): _job_fixed,
    (_RBAC, "RoleBinding"): _fixed("roleRef"),
    (_RBAC, "ClusterRoleBinding"): _fixed("roleRef"),
    ("scheduling.k8s.io/v1", "PriorityClass"): _fixed("value", "preemptionPolicy"),
    ("node.k8s.io/v1", "RuntimeClass"): _fixed("handler"),
}
