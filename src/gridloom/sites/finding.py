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
        check: What, in a word or two.
        of: Of which of several, as of which kind of devices; check and this tell findings apart.
        state: ``ok``; ``warn``: worth knowing; ``fail``: jobs will not run, or not as meant.
        found: What was found, and of what is wrong why.
        remedy: What helps; empty when nothing is wrong.
    """

    check: str
    state: State
    found: str
    remedy: str = ""
    of: str = ""


def ok(check: str, found: str, *, of: str = "") -> Finding:
    """Return that all is well."""
    return Finding(check=check, state="ok", found=found, of=of)


def warn(check: str, found: str, remedy: str, *, of: str = "") -> Finding:
    """Return what is worth knowing."""
    return Finding(check=check, state="warn", found=found, remedy=remedy, of=of)


def fail(check: str, found: str, remedy: str, *, of: str = "") -> Finding:
    """Return what must be mended."""
    return Finding(check=check, state="fail", found=found, remedy=remedy, of=of)


def clock(of: str, whose: str, told_s: float, asked_s: tuple[float, float]) -> Finding:
    """Return whether a clock, which tells whole seconds cut off, agrees with ours.

    Args:
        of: Which clock, as ``Slurm``.
        whose: The same in a sentence, as ``Slurm's``.
        told_s: What it showed.
        asked_s: Ours before and after that.
    """
    before_s, after_s = asked_s
    ahead_s = max(told_s - after_s, 0.0) - max(before_s - told_s - 1.0, 0.0)
    if abs(ahead_s) <= _SKEW_MAX_S:
        return ok("clock", f"{whose} clock and ours agree", of=of)
    way = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        "clock",
        f"{whose} clock is {format_duration(abs(ahead_s))} {way} ours",
        "let both take their time from NTP: what is told of starts and ends is wrong by that much",
        of=of,
    )


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether something must be mended."""
    return bool(failed(findings))


def failed(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the checks by which something must be mended."""
    return frozenset(finding.check for finding in findings if finding.state == "fail")


def few(names: Iterable[str], most: int = 6) -> str:
    """Return names as one text; beyond ``most`` of them they are counted."""
    listed = [*names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def without(settings: Iterable[str]) -> str:
    """Return in words that a job went without settings of its site; nothing for none of them."""
    listed = ", ".join(f"`{setting}:`" for setting in settings)
    return f" without {listed}" if listed else ""
