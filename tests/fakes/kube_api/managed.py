"""Who owns which field: server-side apply, and what other writes take over (a plain version).

Owners are kept in ``metadata.managedFields`` and in nothing else. Left out of the real algorithm:
fields that another version of the kind names differently, and the order of interleaved lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.fakes.kube_api.fieldsets import (
    Path,
    decode,
    encode,
    merge,
    shown,
    values_of,
    without,
)
from tests.fakes.kube_api.schema import Schema
from tests.fakes.kube_api.status import ApiError, Obj

_META = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
)
_NOBODYS = {("f:apiVersion",), ("f:kind",), *(("f:metadata", f"f:{name}") for name in _META)}


@dataclass(frozen=True)
class Writer:
    """Who writes.

    Attributes:
        name: The field manager.
        operation: ``Apply`` or ``Update``.
        subresource: ``status``, or empty.
        api_version: In which version it writes.
    """

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True)
class _Owner:
    writer: Writer
    paths: frozenset[Path]
    time: str


def owned(obj: Obj, schema: Schema) -> dict[Path, str]:
    """Return the values that can have an owner."""
    found = values_of(dict(obj.items()), schema)
    return {
        path: one
        for path, one in found.items()
        if path[:2] not in _NOBODYS and path[:1] not in _NOBODYS and len(path) > 0
    }


def apply(live: Obj | None, config: Obj, schema: Schema, writer: Writer, *, force: bool) -> Obj:
    """Return the object after a server-side apply; its managedFields are not yet settled.

    Raises:
        ApiError: 409, one cause a field, where another manager owns what would change.
    """
    if live is None:
        return config
    merged = merge(live, dict(config.items()), schema)
    before, wanted = owned(live, schema), owned(config, schema)
    others = [one for one in _load(live) if one.writer != writer]
    mine = next((one.paths for one in _load(live) if one.writer == writer), frozenset())
    changed = {path for path, one in owned(merged, schema).items() if before.get(path) != one}
    if not force:
        _raise_conflicts(others, changed & set(wanted))
    kept = [*wanted, *(path for one in others for path in one.paths)]
    prefixes = {path[:size] for path in kept for size in range(1, len(path) + 1)}
    gone = {path for path in mine if path not in prefixes}
    left = without(merged, gone, schema)
    assert isinstance(left, dict)
    return left


def settle(
    old: Obj | None,
    new: Obj,
    schema: Schema,
    writer: Writer,
    *,
    applied: Obj | None = None,
    time: str,
) -> list[Obj]:
    """Return the managedFields of ``new``: what changed hands by this write.

    Args:
        old: The object before; None when it is created.
        new: The object after, as it will be kept.
        schema: The schema of its kind.
        writer: Who wrote.
        applied: What was applied; None for other writes.
        time: When, RFC 3339.
    """
    before = owned(old, schema) if old else {}
    after = owned(new, schema)
    changed = {path for path, one in after.items() if before.get(path) != one}
    owners = _load(old or {})
    mine = next((one.paths for one in owners if one.writer == writer), frozenset())
    if applied is not None:
        now_mine = frozenset(owned(applied, schema))
        taken = {path for path in changed if path in now_mine}
    else:
        now_mine = frozenset(path for path in mine | changed if path in after)
        taken = changed
    settled = [
        replace(one, paths=frozenset(p for p in one.paths if p in after and p not in taken))
        for one in owners
        if one.writer != writer
    ]
    was = next((one for one in owners if one.writer == writer), None)
    is_same = was is not None and was.paths == now_mine and not changed
    settled.append(_Owner(writer, now_mine, was.time if was and is_same else time))
    settled.sort(key=lambda one: (one.writer.operation, one.writer.name, one.writer.subresource))
    return [_entry(one) for one in settled if one.paths]


def _raise_conflicts(others: Sequence[_Owner], changed: set[Path]) -> None:
    causes: list[Obj] = []
    for one in others:
        for path in sorted(one.paths & changed):
            by = f'"{one.writer.name}"'
            if one.writer.subresource:
                by += f' with subresource "{one.writer.subresource}"'
            told = f"conflict with {by} using {one.writer.api_version}"
            causes.append({"reason": "FieldManagerConflict", "message": told, "field": shown(path)})
    if not causes:
        return
    places = "".join(
        f"\n- {one['message'].removeprefix('conflict with ')}: {one['field']}" for one in causes
    )
    if len(causes) == 1:
        told = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        told = f"{len(causes)} conflicts: conflicts with{places}"
    raise ApiError(409, "Conflict", f"Apply failed with {told}", details={"causes": causes})


def _load(obj: Obj) -> list[_Owner]:
    entries = obj.get("metadata", {}).get("managedFields") or []
    return [
        _Owner(
            Writer(one["manager"], one["operation"], one["apiVersion"], one.get("subresource", "")),
            frozenset(decode(one["fieldsV1"])),
            one["time"],
        )
        for one in entries
    ]


def _entry(owner: _Owner) -> Obj:
    entry: Obj = {
        "manager": owner.writer.name,
        "operation": owner.writer.operation,
        "apiVersion": owner.writer.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": encode(owner.paths),
    }
    if owner.writer.subresource:
        entry["subresource"] = owner.writer.subresource
    return entry
