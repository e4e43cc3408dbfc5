"""Schemas of kinds: published OpenAPI v3 documents and the openAPIV3Schema of CRDs, read alike."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kube_api.status import Obj, cause, required, unsupported

_QUANTITY = re.compile(r"^[+-]?(\d+|\d+\.\d*|\.\d+)(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?$")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@dataclass(frozen=True)
class Schema:
    """One node of a schema, references resolved.

    Attributes:
        node: The node.
        defs: What ``$ref`` refers to, by name.
        custom: Whether it is a CRD's, where ``type: object`` alone admits no field.
    """

    node: Obj
    defs: Mapping[str, Obj]
    custom: bool = False
    _children: dict[int, "Schema"] = field(default_factory=dict, compare=False, repr=False)
    # By the ids of nodes below `node`, which keeps them alive

    def child(self, node: Obj) -> "Schema":
        """Return the schema of a node below, its reference followed."""
        known = self._children.get(id(node))
        if known is None:
            known = self._children[id(node)] = self._child(node)
        return known

    def _child(self, node: Obj) -> "Schema":
        extra = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        custom = self.custom
        while "$ref" in node or ("allOf" in node and "$ref" in node["allOf"][0]):
            reference = node["$ref"] if "$ref" in node else node["allOf"][0]["$ref"]
            node = self.defs[reference.rsplit("/", 1)[-1]]
            extra, custom = {**node, **extra}, False  # only Kubernetes' own are referred to
        return Schema(extra or node, self.defs, custom=custom)

    def field(self, name: str) -> "Schema | None":
        """Return the schema of a field of an object; None where none is known."""
        known = self.node.get("properties", {})
        if name in known:
            return self.child(known[name])
        more = self.node.get("additionalProperties")
        return self.child(more) if isinstance(more, dict) else None

    def declares(self, name: str) -> bool:
        """Say whether ``name`` is a declared field, not just a key of a map."""
        return name in self.node.get("properties", {})

    def items(self) -> "Schema | None":
        """Return the schema of the items of a list."""
        items = self.node.get("items")
        return self.child(items) if items else None

    @property
    def keeps_unknown(self) -> bool:
        """Whether fields that are not declared are kept as they are."""
        if self.node.get("x-kubernetes-preserve-unknown-fields"):
            return True
        closed = self.node.get("properties") or self.node.get("additionalProperties")
        return not closed and not self.custom

    @property
    def list_type(self) -> str:
        """``atomic``, ``set`` or ``map``: how server-side apply merges a list."""
        kind: str = self.node.get("x-kubernetes-list-type", "atomic")
        return kind

    @property
    def list_keys(self) -> list[str]:
        """The fields that tell the items of a ``map`` list apart."""
        keys: list[str] = self.node.get("x-kubernetes-list-map-keys", [])
        return keys

    @property
    def is_atomic(self) -> bool:
        """Whether an object is owned as a whole."""
        return self.node.get("x-kubernetes-map-type") == "atomic"

    @property
    def is_quantity(self) -> bool:
        """Whether it is one of Kubernetes' own quantities, as ``500m``."""
        return self.types == ("string", "number")

    @property
    def merge_key(self) -> str | None:
        """The key by which a strategic merge patch merges this list; None where it replaces."""
        if "merge" not in self.node.get("x-kubernetes-patch-strategy", ""):
            return None
        key: str = self.node.get("x-kubernetes-patch-merge-key", "")
        return key

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types that a value may have; empty for any."""
        if self.node.get("x-kubernetes-int-or-string"):
            return ("integer", "string")
        choices = self.node.get("oneOf") or ()
        if choices and all(set(one) <= {"type"} and "type" in one for one in choices):
            return tuple(one["type"] for one in choices)
        return (self.node["type"],) if "type" in self.node else ()


@dataclass
class Findings:
    """What is wrong with an object.

    Attributes:
        unknown: Paths of fields that the schema does not have.
        mistyped: Sentences about values of a wrong JSON type.
        causes: Values that may not be, as causes of an ``Invalid``.
    """

    unknown: list[str] = field(default_factory=list)
    mistyped: list[str] = field(default_factory=list)
    causes: list[Obj] = field(default_factory=list)


def shape(value: Any, schema: Schema, path: str, found: Findings, *, fill: bool = True) -> Any:
    """Return a copy without unknown fields and nulls; note faults.

    Args:
        value: What came.
        schema: What it should be.
        path: Where it stands.
        found: Where faults are noted.
        fill: Whether the schema's defaults are filled in.
    """
    if not _is_of(value, schema.types):
        found.mistyped.append(
            f"{path or 'object'}: expected {' or '.join(schema.types)}, got {_name_of(value)}"
        )
        return value
    if schema.is_quantity and not isinstance(value, str) and value is not None:
        return str(value)  # Kubernetes' own quantities are kept as texts
    if isinstance(value, dict):
        return _shape_object(value, schema, path, found, fill=fill)
    items = schema.items()
    if isinstance(value, list) and items is not None:
        return [
            shape(one, items, f"{path}[{at}]", found, fill=fill) for at, one in enumerate(value)
        ]
    return value


def _shape_object(value: Obj, schema: Schema, path: str, found: Findings, *, fill: bool) -> Obj:
    shaped: Obj = {}
    for name, one in value.items():
        below = f"{path}.{name}" if path else name
        sub = schema.field(name)
        if sub is None and not schema.keeps_unknown:
            found.unknown.append(below)
        elif one is not None:
            shaped[name] = one if sub is None else shape(one, sub, below, found, fill=fill)
    for name, node in schema.node.get("properties", {}).items():
        default = node.get("default")
        # The published documents also give Go's zero values, which are no defaults
        if fill and name not in shaped and default is not None and (schema.custom or default):
            child = schema.field(name)
            assert child is not None
            shaped[name] = shape(default, child, f"{path}.{name}", found)
    return shaped


def check(value: Any, schema: Schema, path: str, found: Findings, old: Any = None) -> None:
    """Note values that the schema does not allow; ``old`` is the value before, for immutables.

    Of a CRD's CEL rules only ``self == oldSelf`` is evaluated.
    """
    if isinstance(value, dict):
        _check_object(value, schema, path, found, old)
    elif isinstance(value, list):
        _check_list(value, schema, path, found, old)
    elif isinstance(value, str):
        _check_string(value, schema, path, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, path, found)
    if value not in schema.node.get("enum", [value]):
        found.causes.append(unsupported(path, value, [str(one) for one in schema.node["enum"]]))
    for rule in schema.node.get("x-kubernetes-validations", ()):
        if rule["rule"] == "self == oldSelf" and old is not None and old != value:
            told = rule.get("message", "failed rule: self == oldSelf")
            found.causes.append(cause(path, f"Invalid value: {told}"))


def _check_object(value: Obj, schema: Schema, path: str, found: Findings, old: Any) -> None:
    for name in schema.node.get("required", ()):
        if name not in value:
            found.causes.append(required(f"{path}.{name}" if path else name))
    most = schema.node.get("maxProperties")
    if most is not None and len(value) > most:
        found.causes.append(cause(path, f"Too many: {len(value)}: must have at most {most} items"))
    for name, one in value.items():
        sub = schema.field(name)
        if sub is not None:
            before = old.get(name) if isinstance(old, dict) else None
            check(one, sub, f"{path}.{name}" if path else name, found, before)


def _check_list(value: list[Any], schema: Schema, path: str, found: Findings, old: Any) -> None:
    most, least = schema.node.get("maxItems"), schema.node.get("minItems", 0)
    if most is not None and len(value) > most:
        found.causes.append(cause(path, f"Too many: {len(value)}: must have at most {most} items"))
    if len(value) < least:
        found.causes.append(cause(path, f"Invalid value: should have at least {least} items"))
    seen: set[str] = set()
    before = {item_key(one, schema): one for one in old} if isinstance(old, list) else {}
    items = schema.items()
    for at, one in enumerate(value):
        key = item_key(one, schema)
        if schema.custom and schema.list_type != "atomic" and key in seen:
            found.causes.append(
                cause(f"{path}[{at}]", f"Duplicate value: {key}", "FieldValueDuplicate")
            )
        seen.add(key)
        if items is not None:
            same = before.get(key) if schema.list_type == "map" else None
            check(one, items, f"{path}[{at}]", found, same)


def item_key(item: Any, schema: Schema) -> str:
    """Return what tells an item of a list apart: its keys, or itself."""
    if schema.list_type != "map" or not isinstance(item, dict):
        return repr(item)
    items = schema.items()
    defaults = items.node.get("properties", {}) if items else {}
    keys = {key: item.get(key, defaults.get(key, {}).get("default")) for key in schema.list_keys}
    return repr(keys)


def _check_string(value: str, schema: Schema, path: str, found: Findings) -> None:
    node = schema.node
    if len(value) > node.get("maxLength", len(value)):
        found.causes.append(cause(path, f"Too long: may not be more than {node['maxLength']}"))
    if len(value) < node.get("minLength", 0):
        found.causes.append(cause(path, f"Invalid value: at least {node['minLength']} chars long"))
    pattern = _QUANTITY if schema.is_quantity else re.compile(node.get("pattern", ""))
    if not pattern.search(value):
        told = f"Invalid value: \"{value}\": should match '{pattern.pattern}'"
        found.causes.append(cause(path, told))
    if node.get("format") == "date-time" and not _TIME.match(value):
        found.causes.append(cause(path, f'Invalid value: "{value}": must be RFC 3339'))


def _check_number(value: float, schema: Schema, path: str, found: Findings) -> None:
    least, most = schema.node.get("minimum"), schema.node.get("maximum")
    if least is not None and value < least:
        found.causes.append(cause(path, f"Invalid value: {value}: must be at least {least}"))
    if most is not None and value > most:
        found.causes.append(cause(path, f"Invalid value: {value}: must be at most {most}"))


def _is_of(value: Any, types: tuple[str, ...]) -> bool:
    if value is None or not types:
        return True
    if isinstance(value, bool):
        return "boolean" in types
    return any(isinstance(value, _PYTHON[one]) for one in types)


def _name_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _PYTHON.items() if isinstance(value, types)), "null")
