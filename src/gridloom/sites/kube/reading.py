"""What all readers of the API's answers share: conversion, metadata, conditions (pure)."""

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

from gridloom.base.errors import SiteError
from gridloom.sites.kube.quantity import parse_quantity

T = TypeVar("T")


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of everything that is read: fields as the API spells them, unknown ones passed over."""


class Metadata(Part, frozen=True, kw_only=True):
    """What every object says of itself."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: datetime | None = None


class Condition(Part, frozen=True, kw_only=True):
    """One thing that is so, is not, or is unknown, and why."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


def convert(data: object, type_: type[T]) -> T:
    """Return ``data``, an object of the API as plain data, as a ``type_``.

    Raises:
        SiteError: It is none; the object and the field are named.
    """
    try:
        return msgspec.convert(_without_nulls(data), type_, dec_hook=_decode)
    except msgspec.ValidationError as bad:
        raise SiteError(f"the cluster's answer cannot be read: {_title(data)}: {bad}") from bad


def items(answer: object) -> list[object]:
    """Return the objects of a list that the API answered, or of several objects.

    Raises:
        SiteError: It is no list of objects.
    """
    found = answer.get("items", None) if isinstance(answer, dict) else answer
    if isinstance(answer, dict) and found is None and str(answer.get("kind")).endswith("List"):
        return []  # an empty list of a server that leaves out what is empty
    if not isinstance(found, list):
        raise SiteError(f"the cluster's answer cannot be read: {_title(answer)}: it has no items")
    return found


def condition(conditions: Sequence[Condition], type_: str) -> Condition | None:
    """Return the condition of a type, or nothing when there is none."""
    return next((one for one in conditions if one.type == type_), None)


def holding(conditions: Sequence[Condition], type_: str) -> Condition | None:
    """Return the condition of a type if it is true, or nothing."""
    found = condition(conditions, type_)
    return found if found is not None and found.status == "True" else None


def seconds(moment: datetime | None) -> float:
    """Return seconds since the epoch; 0 for never."""
    return moment.timestamp() if moment else 0.0


def said(*parts: str) -> str:
    """Return what the cluster said, in one line: of each part what it has, with ``: `` between."""
    return ": ".join(" ".join(part.split()) for part in parts if part.strip())


def _title(data: object) -> str:
    if not isinstance(data, dict):
        return type(data).__name__
    metadata = data.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return " ".join(str(part) for part in (data.get("kind", "object"), name) if part)


def _without_nulls(data: Any) -> Any:
    """Leave out nulls, which the API writes for empty lists and unset times."""
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(value) for value in data if value is not None]
    return data


def _decode(_: type[Any], value: object) -> Fraction:
    """Quantities are the only fields of a type that JSON does not have."""
    return parse_quantity(value)
