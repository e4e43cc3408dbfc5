"""Sets of fields as ``managedFields`` writes them (FieldsV1), and trees taken apart by them.

A path is a tuple of FieldsV1's elements: ``f:name`` for a field, ``k:{...}`` for an item of a list
with keys, ``v:...`` for an item of a set.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.fakes.kube_api.schema import Schema
from tests.fakes.kube_api.status import Obj

Path = tuple[str, ...]
Values = dict[Path, str]
"""What stands at each owned path, as JSON; an item's own path holds nothing but its presence."""

_PRESENT = ""


def values_of(value: Any, schema: Schema | None, path: Path = ()) -> Values:
    """Return what a manager owns that sets ``value``: its leaves, and the items of its lists."""
    if isinstance(value, dict) and not (schema and schema.is_atomic):
        return _of_object(value, schema, path)
    if isinstance(value, list) and schema is not None and schema.list_type != "atomic":
        return _of_list(value, schema, path)
    return {path: json.dumps(value, sort_keys=True)}


def _of_object(value: Obj, schema: Schema | None, path: Path) -> Values:
    found: Values = {} if value or not path else {path: _PRESENT}
    for name, one in value.items():
        below = (*path, f"f:{name}")
        found |= values_of(one, schema.field(name) if schema else None, below)
    return found


def _of_list(value: list[Any], schema: Schema, path: Path) -> Values:
    found: Values = {} if value else {path: _PRESENT}
    for one in value:
        below = (*path, element(one, schema))
        if schema.list_type == "map":
            found |= values_of(one, schema.items(), below)
        found[below] = _PRESENT
    return found


def element(item: Any, schema: Schema) -> str:
    """Return the path element of an item of a list that is merged."""
    if schema.list_type == "set":
        return "v:" + json.dumps(item)
    items = schema.items()
    known = items.node.get("properties", {}) if items else {}
    keys = {key: item.get(key, known.get(key, {}).get("default")) for key in schema.list_keys}
    shown = {key: one for key, one in sorted(keys.items()) if one is not None}
    return "k:" + json.dumps(shown, separators=(",", ":"))


def encode(paths: Iterable[Path]) -> Obj:
    """Return FieldsV1."""
    root: Obj = {}
    for path in sorted(paths):
        node = root
        for part in path:
            node = node.setdefault(part, {})
        node["."] = {}
    return _tidy(root)


def _tidy(node: Obj) -> Obj:
    """Drop the mark of its own from a node that has nothing below."""
    if set(node) == {"."}:
        return {}
    return {part: _tidy(below) if part != "." else {} for part, below in node.items()}


def decode(fields: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    """Yield the paths of FieldsV1."""
    if path and (not fields or "." in fields):
        yield path
    for part, below in fields.items():
        if part != ".":
            yield from decode(below, (*path, part))


def shown(path: Path) -> str:
    """Return a path as conflicts show it: ``.spec.containers[name="main"].image``."""
    text = ""
    for part in path:
        kind, rest = part[0], part[2:]
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = ",".join(f"{key}={json.dumps(one)}" for key, one in json.loads(rest).items())
            text += f"[{keys}]"
        else:
            text += f"[={rest}]"
    return text


def merge(live: Any, config: Any, schema: Schema | None) -> Any:
    """Return ``live`` with all that ``config`` says: objects and keyed lists field by field."""
    if isinstance(config, dict) and isinstance(live, dict) and not (schema and schema.is_atomic):
        merged = dict(live)
        for name, one in config.items():
            sub = schema.field(name) if schema else None
            merged[name] = merge(live[name], one, sub) if name in live else one
        return merged
    is_merged = schema is not None and schema.list_type != "atomic"
    if schema and is_merged and isinstance(config, list) and isinstance(live, list):
        known = {element(one, schema): one for one in live}
        for one in config:
            name = element(one, schema)
            known[name] = merge(known[name], one, schema.items()) if name in known else one
        return list(known.values())
    return config


def without(value: Any, gone: set[Path], schema: Schema | None, path: Path = ()) -> Any:
    """Return ``value`` without what stands at ``gone`` and what that leaves empty; None if all."""
    if path in gone:
        return None
    if not any(one[: len(path)] == path for one in gone):
        return value
    if isinstance(value, dict):
        kept = {
            name: without(one, gone, schema.field(name) if schema else None, (*path, f"f:{name}"))
            for name, one in value.items()
        }
        return {name: one for name, one in kept.items() if one is not None} or None
    if isinstance(value, list) and schema is not None and schema.list_type != "atomic":
        items = schema.items()
        left = [without(one, gone, items, (*path, element(one, schema))) for one in value]
        return [one for one in left if one is not None] or None
    return value
