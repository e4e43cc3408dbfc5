"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from typing import Any

from tests.fakes.kube_api.schema import Schema
from tests.fakes.kube_api.status import ApiError, Obj, bad_request, copied


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged in; null removes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, one in patch.items():
        if one is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), one)
    return merged


def json_patch(target: Obj, patch: Any) -> Obj:
    """Return ``target`` after each operation in turn.

    Raises:
        ApiError: 422 where an operation cannot be done or a test fails.
    """
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    root = copied(target)
    for operation in patch:
        try:
            root = _operate(root, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            told = f"the server rejected our request due to an error in our request: {error}"
            raise ApiError(422, "Invalid", told) from error
    return root


def _operate(root: Any, operation: Obj) -> Any:
    kind, path = operation["op"], operation["path"]
    if kind in ("add", "replace", "test"):
        return _PLAIN[kind](root, path, copied(operation["value"]))
    if kind == "remove":
        return _take(root, path)[0]
    if kind in ("move", "copy"):
        moved = copied(_read(root, operation["from"]))
        if kind == "move":
            root = _take(root, operation["from"])[0]
        return _add(root, path, moved)
    raise ValueError(f"unexpected operation {kind!r}")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"a JSON pointer begins with /: {path!r}")
    return [one.replace("~1", "/").replace("~0", "~") for one in path.split("/")[1:]]


def _read(root: Any, path: str) -> Any:
    for part in _parts(path):
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root


def _holder(root: Any, path: str) -> tuple[Any, str]:
    parts = _parts(path)
    if not parts:
        raise ValueError("the whole document cannot be replaced")
    for part in parts[:-1]:
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root, parts[-1]


def _add(root: Any, path: str, value: Any) -> Any:
    holder, last = _holder(root, path)
    if not isinstance(holder, list):
        holder[last] = value
        return root
    at = len(holder) if last == "-" else int(last)
    if not 0 <= at <= len(holder):
        raise IndexError(f"no index {last}: the list has {len(holder)} items")
    holder.insert(at, value)
    return root


def _replace(root: Any, path: str, value: Any) -> Any:
    holder, last = _holder(root, path)
    if isinstance(holder, list):
        holder[int(last)] = value
    elif last in holder:
        holder[last] = value
    else:
        raise KeyError(path)
    return root


def _test(root: Any, path: str, value: Any) -> Any:
    if _read(root, path) != value:
        raise ValueError(f"testing value {path} failed")
    return root


def _take(root: Any, path: str) -> tuple[Any, Any]:
    holder, last = _holder(root, path)
    return root, holder.pop(int(last)) if isinstance(holder, list) else holder.pop(last)


_PLAIN = {"add": _add, "replace": _replace, "test": _test}


def strategic_patch(target: Any, patch: Any, schema: Schema | None) -> Any:
    """Return ``target`` with ``patch`` merged in, lists by their merge keys as the schema says."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: one for name, one in patch.items() if name != "$patch"}
    if directive not in (None, "merge", "delete"):
        raise bad_request(f"unknown patch type: {directive}")
    merged: Obj = dict(target) if isinstance(target, dict) else {}
    kept = patch.get("$retainKeys")
    if kept is not None:
        merged = {name: one for name, one in merged.items() if name in kept}
    for name, one in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.split("/", 1)[1]
            merged[field] = [item for item in merged.get(field, []) if item not in one]
        elif not name.startswith("$"):
            _set(merged, name, one, schema.field(name) if schema else None)
    return merged


def _set(merged: Obj, name: str, one: Any, schema: Schema | None) -> None:
    if one is None or (isinstance(one, dict) and one.get("$patch") == "delete"):
        merged.pop(name, None)
    elif isinstance(one, list) and schema is not None and schema.merge_key is not None:
        merged[name] = _merge_list(merged.get(name) or [], one, schema, schema.merge_key)
    else:
        merged[name] = strategic_patch(merged.get(name), one, schema)


def _merge_list(target: list[Any], patch: list[Any], schema: Schema, key: str) -> list[Any]:
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if not (isinstance(one, dict) and "$patch" in one)]
    if not key:
        return [*target, *(one for one in patch if one not in target)]
    merged = {one.get(key): one for one in target}
    for one in patch:
        if key not in one:
            raise bad_request(f"map does not contain declared merge key: {key}")
        if one.get("$patch") == "delete":
            merged.pop(one[key], None)
        else:
            merged[one[key]] = strategic_patch(merged.get(one[key]), one, schema.items())
    return list(merged.values())
