"""Values of documents that name moments: from when to when, and until when at the latest."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gridloom.base.units import parse_duration_s
from gridloom.wire.documents_devices import DURATION_PATTERN
from gridloom.wire.documents_values import Value, found, wrong

_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_TIME = re.compile(rf"{_DATE}{_CLOCK}\s*(Z|[+-]\d\d:?\d\d)")
_ZONELESS = re.compile(rf"{_DATE}({_CLOCK})?")
_EXAMPLE = "`2030-03-01T08:00Z` or `2030-03-01T09:00+01:00`"
_TIME_SCHEMA = {"type": "string", "pattern": f"^{_TIME.pattern}$"}


@dataclass(frozen=True)
class TimeValue(Value):
    """A moment: ISO 8601 with its zone, or seconds since the epoch."""

    @property
    def right(self) -> str:
        """The forms."""
        return f"a time with its zone, as {_EXAMPLE}, or seconds since 1970"

    def parse(self, value: object) -> float:
        """Return seconds since the epoch."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11:
            return float(value)
        moment = _moment(value)
        if moment is None:
            raise self.refuse(value)
        return moment

    def schema(self) -> dict[str, Any]:
        """Text with a zone, or a number."""
        return {"anyOf": [_TIME_SCHEMA, {"type": "number", "minimum": 0}]}


@dataclass(frozen=True)
class Deadline:
    """When a job should be done; one of the two is 0.

    Attributes:
        at_s: Seconds since the epoch.
        after_s: Seconds since the job was handed in.
    """

    at_s: float = 0.0
    after_s: float = 0.0

    def resolved_s(self, submitted_s: float) -> float:
        """Return seconds since the epoch for a job that was handed in at ``submitted_s``."""
        return self.at_s or submitted_s + self.after_s


@dataclass(frozen=True)
class DeadlineValue(Value):
    """A moment, or a duration from the time when the job is handed in."""

    @property
    def right(self) -> str:
        """The forms."""
        return f"a time with its zone, as {_EXAMPLE}, or a duration with its unit, as `8h`"

    def parse(self, value: object) -> Deadline:
        """Return the deadline; a bare number could be either and is refused."""
        moment = _moment(value)
        if moment:
            return Deadline(at_s=moment)
        try:
            after_s = parse_duration_s(value) if isinstance(value, str) else 0.0
        except (ValueError, OverflowError):
            after_s = 0.0
        if not 0 < after_s < 1e11 or not re.search("[a-z:]", str(value)):
            raise self.refuse(value)
        return Deadline(after_s=after_s)

    def schema(self) -> dict[str, Any]:
        """Text with a zone, or a duration."""
        return {"anyOf": [_TIME_SCHEMA, {"type": "string", "pattern": DURATION_PATTERN}]}


def _moment(value: object) -> float | None:
    """Return the moment in seconds since the epoch; nothing when ``value`` is of no such form."""
    text = value.strip() if isinstance(value, str) else ""
    if _ZONELESS.fullmatch(text):
        raise wrong(f"{found(value)}, a time without a zone", f"write it as {_EXAMPLE}")
    if not _TIME.fullmatch(text):
        return None
    try:
        moment_s = datetime.fromisoformat(re.sub(r"\s+(?=Z|[+-])", "", text)).timestamp()
    except (ValueError, OverflowError) as error:
        raise wrong(f"{found(value)}, which is not in the calendar", "correct it") from error
    if moment_s < 0:
        raise wrong(f"{found(value)}, a time before 1970", "write a later one")
    return moment_s
