"""What a look at a site came to: findings, each with its cause and what helps (pure)."""

from collections.abc import Iterable
from typing import Literal

import msgspec

State = Literal["ok", "warn", "fail"]


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


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether something must be mended."""
    return any(finding.state == "fail" for finding in findings)


def few(names: Iterable[str], most: int = 6) -> str:
    """Return names as one text; beyond ``most`` of them they are counted."""
    listed = [*names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
