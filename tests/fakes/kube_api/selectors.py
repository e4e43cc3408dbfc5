"""Label selectors and field selectors, as a list request carries them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.fakes.kube_api.status import ApiError, Obj, bad_request

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|!=|=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_COMMA = re.compile(r",(?![^()]*\))")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
        "status.podIP",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "jobs": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
        "source",
    ),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
}

Matcher = Callable[[Obj], bool]


def label_matcher(selector: str) -> Matcher:
    """Return what says whether an object's labels fit ``a=b,c!=d,e in (f,g),!h``."""
    tests = [_label_test(one) for one in _COMMA.split(selector)] if selector.strip() else []

    def fits(obj: Obj) -> bool:
        labels = obj.get("metadata", {}).get("labels") or {}
        return all(test(labels) for test in tests)

    return fits


def _label_test(text: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(text):
        key, operator, values = match[1], match[2], {one.strip() for one in match[3].split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(text):
        key, operator, value = match[1], match[2], match[3]
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(text):
        key, is_absent = match[2], bool(match[1])
        return lambda labels: (key not in labels) is is_absent
    raise bad_request(f"unable to parse requirement: {text!r} is no label selector")


def object_matcher(selector: Obj) -> Matcher:
    """Return what says whether labels fit ``{matchLabels, matchExpressions}``."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        values = ",".join(one.get("values") or ())
        parts.append(
            {
                "In": f"{one['key']} in ({values})",
                "NotIn": f"{one['key']} notin ({values})",
                "Exists": one["key"],
                "DoesNotExist": f"!{one['key']}",
            }[one["operator"]]
        )
    return label_matcher(",".join(parts))


def field_matcher(selector: str, plural: str, *, custom: bool) -> Matcher:
    """Return what says whether an object's fields fit; only few fields of a kind may be named."""
    allowed = ("metadata.name", "metadata.namespace", *(() if custom else _FIELDS.get(plural, ())))
    tests: list[tuple[str, bool, str]] = []
    for text in (one for one in selector.split(",") if one.strip()):
        match = _EQUAL.match(text)
        if match is None:
            raise bad_request(f"invalid field selector: {text!r}")
        if match[1] not in allowed:
            raise _no_label(match[1])
        tests.append((match[1], match[2] != "!=", match[3]))

    def fits(obj: Obj) -> bool:
        return all((_value(obj, path) == value) is equal for path, equal, value in tests)

    return fits


def named_by(selector: str) -> str:
    """Return the name that a field selector asks for; empty where it asks for none."""
    for text in selector.split(","):
        match = _EQUAL.match(text)
        if match and match[1] == "metadata.name" and match[2] != "!=":
            return match[3]
    return ""


def _no_label(path: str) -> ApiError:
    return bad_request(f"field label not supported: {path}")


def _value(obj: Obj, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
