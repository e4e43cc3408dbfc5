"""Errors of the Kubernetes API: an HTTP code, a machine-readable reason, and a Status object."""

import marshal
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

Obj = dict[str, Any]
"""A JSON object as it travels."""
_Json = TypeVar("_Json")


def copied(value: _Json) -> _Json:
    """Return a copy of a JSON value that shares nothing with it."""
    copy: _Json = marshal.loads(marshal.dumps(cast(Any, value)))  # much faster than copy.deepcopy
    return copy


class ApiError(Exception):
    """What the server answers instead of an object.

    Attributes:
        code: HTTP status code.
        reason: ``metav1.StatusReason``, as ``AlreadyExists``.
        details: ``status.details``: name, group, kind, causes, retryAfterSeconds.
        headers: Further headers of the answer, as ``Retry-After``.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Obj | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = details or {}, dict(headers or {})

    def body(self) -> Obj:
        """Return the Status object."""
        status: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


def about(group: str, plural: str, name: str) -> Obj:
    """Return ``details`` that name one object; ``kind`` holds the plural, as real servers do."""
    return {
        key: value
        for key, value in zip(("name", "group", "kind"), (name, group, plural), strict=True)
        if value
    }


def qualified(group: str, plural: str) -> str:
    """Return ``jobs.batch`` or ``pods``."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    """The object is not there."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, details=about(group, plural, name))


def no_such_path() -> ApiError:
    """Neither the resource nor the path is served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """An object of this name is there already."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=about(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """Somebody else changed the object, or it is not the one that was meant."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=about(group, plural, name))


def bad_request(message: str) -> ApiError:
    """The request cannot be read."""
    return ApiError(400, "BadRequest", message)


def invalid(group: str, kind: str, name: str, causes: Sequence[Obj]) -> ApiError:
    """The object can be read and says what may not be; each cause names its field."""
    told = [f"{cause['field']}: {cause['message']}" for cause in causes]
    joined = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    whole = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": list(causes)}
    return ApiError(422, "Invalid", f'{whole} "{name}" is invalid: {joined}', details=details)


def expired(message: str) -> ApiError:
    """The version that was asked for is no longer kept."""
    return ApiError(410, "Expired", message)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """The user may not do this."""
    shown = f' "{name}"' if name else ""
    message = f"{qualified(group, plural)}{shown} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details=about(group, plural, name))


def cause(field: str, message: str, reason: str = "FieldValueInvalid") -> Obj:
    """Return one cause of an `invalid`."""
    return {"reason": reason, "message": message, "field": field}


def required(field: str, why: str = "") -> Obj:
    """Return the cause that a field is missing."""
    return cause(field, "Required value" + (f": {why}" if why else ""), "FieldValueRequired")


def unsupported(field: str, value: object, allowed: Sequence[str]) -> Obj:
    """Return the cause that a value is none of those that may be."""
    names = ", ".join(f'"{one}"' for one in sorted(allowed))
    message = f'Unsupported value: "{value}": supported values: {names}'
    return cause(field, message, "FieldValueNotSupported")
