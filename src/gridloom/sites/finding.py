"""What a look at a site came to: findings, each with its cause and what helps (pure)."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gridloom.base.units import format_duration

State = Literal["ok", "warn", "fail"]

_SKEW_MAX_S = 2.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Attributes:
        check: What, in a word or two; several findings may be of one check.
        state: ``ok``; ``warn``: worth knowing; ``fail``: jobs will not run, or not as meant.
        found: What was found, and of what is wrong why.
        remedy: What helps; empty when nothing is wrong.
    """

    check: str
    state: State
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, state="ok", found=found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Return what is worth knowing."""
    return Finding(check=check, state="warn", found=found, remedy=remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Return what must be mended."""
    return Finding(check=check, state="fail", found=found, remedy=remedy)


def clock(whose: str, told_s: float, asked_s: tuple[float, float]) -> Finding:
    """Return whether a clock, which tells whole seconds cut off, agrees with ours.

    Args:
        whose: As ``Slurm's clock``.
        told_s: What it showed.
        asked_s: Ours before and after that.
    """
    before_s, after_s = asked_s
    ahead_s = max(told_s - after_s, 0.0) - max(before_s - told_s - 1.0, 0.0)
    if abs(ahead_s) <= _SKEW_MAX_S:
        return ok("clock", f"{whose} and ours agree")
    way = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        "clock",
        f"{whose} is {format_duration(abs(ahead_s))} {way} ours",
        "let both take their time from NTP: what is told of starts and ends is wrong by that much",
    )


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether something must be mended."""
    return any(finding.state == "fail" for finding in findings)


def few(names: Iterable[str], most: int = 6) -> str:
    """Return names as one text; beyond ``most`` of them they are counted."""
    listed = [*names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
