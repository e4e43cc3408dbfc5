"""Single values as Slurm writes them, in text and in JSON, to plain ones (pure).

JSON tells a number as itself (to 22.05), or as ``{"set", "infinite", "number"}`` (since 23.02);
text tells it with units. Both mark what is missing in several ways: ``(null)``, ``N/A``,
``Unknown``, ``null``, and the largest numbers of 32 and of 64 bits.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from gridloom.base.units import parse_bytes
from gridloom.sites.slurm.hostlist import expand
from gridloom.sites.slurm.records import ExitCode

_ABSENT = frozenset(
    {"", "(null)", "null", "n/a", "n/s", "none", "unknown", "not_set", "invalid"}
    | {"none assigned", "partition_limit"}
)
_NOT_SET = frozenset({2**32 - 2, 2**64 - 2})
_INFINITE = frozenset({2**32 - 1, 2**64 - 1})
_MIB = 2**20


def text(value: object) -> str:
    """Return a string as told, and nothing for what stands for nothing."""
    if isinstance(value, bool) or value is None or isinstance(value, Mapping | list):
        return ""
    said = str(value).strip()
    return "" if said.lower() in _ABSENT else said


def number(value: object) -> float | None:
    """Return a number of JSON or text, ``math.inf`` for no limit, ``None`` for none told.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        return number(value.get("number")) if value.get("set") else None
    if isinstance(value, str):
        if value.strip().lower() in ("unlimited", "infinite"):
            return math.inf
        if not text(value):
            return None
        try:
            value = int(value) if value.strip().lstrip("-").isdigit() else float(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a number") from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - of what was read
    if value in _NOT_SET:
        return None
    return math.inf if value in _INFINITE else value


def integer(value: object) -> int | None:
    """Return a whole number; ``None`` for none told and for no limit.

    Raises:
        ValueError: It is something else.
    """
    found = number(value)
    return None if found is None or not math.isfinite(found) else int(found)


def count(value: object) -> int:
    """Return a whole number, 0 for none told.

    Raises:
        ValueError: It is something else.
    """
    return integer(value) or 0


def words(value: object) -> tuple[str, ...]:
    """Return the items of a list, or of a string with commas between them."""
    if isinstance(value, list | tuple):
        return tuple(said for item in value if (said := text(item)))
    return tuple(said for item in text(value).split(",") if (said := text(item)))


def hosts(value: object) -> tuple[str, ...]:
    """Return the host names of a host list, or of a list of them.

    Raises:
        ValueError: It is not a host list.
    """
    return expand(",".join(words(value)) if isinstance(value, list) else text(value))


def time_s(value: object) -> float | None:
    """Return seconds since the epoch; ``None`` for none told.

    A time in text without a zone is taken for one of UTC: ask Slurm with ``TZ=UTC``.

    Raises:
        ValueError: It is not a time.
    """
    if isinstance(value, str) and text(value) and not value.strip().isdigit():
        try:
            told = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(f"{value!r} is not a time such as 2026-11-29T13:38:10") from None
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    found = number(value)
    return found if found and math.isfinite(found) else None


def duration_s(value: str) -> float | None:
    """Return seconds for ``30`` (minutes), ``1:30``, ``1-12``, ``2-00:30:00`` or ``UNLIMITED``.

    No number needs two digits.

    Raises:
        ValueError: It is none of these.
    """
    said = value.strip()
    if said.lower() in ("unlimited", "infinite"):
        return math.inf
    if not text(said):
        return None
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9}(?::\d{1,9}){0,2})", said)
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 30, 1:30:00 or 2-00:00:00")
    parts = [float(part) for part in match[2].split(":")]
    # Behind days stand hours first; else what is one or two numbers begins with minutes
    scales = (3600.0, 60.0, 1.0) if match[1] or len(parts) > 2 else (60.0, 1.0)
    seconds = sum(part * scale for part, scale in zip(parts, scales, strict=False))
    return int(match[1] or 0) * 86400.0 + seconds


def minutes_s(value: object) -> float | None:
    """Return seconds for a limit that JSON tells in minutes; -1 is no limit there.

    Raises:
        ValueError: It is not a number.
    """
    found = limit(value)
    return None if found is None else found * 60


def limit(value: object) -> float | None:
    """Return a number whose -1 stands for no limit.

    Raises:
        ValueError: It is not a number.
    """
    found = number(value)
    return math.inf if found == -1 else found


def memory_mib(value: object) -> int | None:
    """Return MiB for ``64G``, ``1.5T``, ``2000`` (MiB); ``None`` for none told or no limit.

    Raises:
        ValueError: It is not an amount of memory.
    """
    said = text(value)
    if re.fullmatch(r"[\d.]+[KMGTPkmgtp][Bb]?", said):
        return parse_bytes(said.rstrip("Bb")) // _MIB
    return integer(value)


def exit_code(value: object) -> ExitCode | None:
    """Return an exit code that is told as ``3:15``, as a wait status, or as an object of JSON.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(value, Mapping):
        signal = value.get("signal")
        ended_by = signal.get("id", signal.get("signal_id")) if isinstance(signal, Mapping) else 0
        return ExitCode(code=count(value.get("return_code")), signal=count(ended_by))
    if isinstance(value, str) and text(value):
        match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", value.strip())
        if match is None:
            raise ValueError(f"{value!r} is not an exit code such as 1:0")
        return ExitCode(code=int(match[1]), signal=int(match[2]))
    status = integer(value)
    return None if status is None else ExitCode(code=status >> 8 & 0xFF, signal=status & 0x7F)
