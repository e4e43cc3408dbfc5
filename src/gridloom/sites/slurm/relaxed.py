"""A site's access without what is wrong in it, so that all else can be looked at, too (pure)."""

from collections.abc import Collection

from msgspec.structs import replace

from gridloom.model.inventory import SlurmAccess

NARROWING = frozenset({"reservation", "features"})
"""Checks of settings without which a job only has more nodes to choose from."""

_SETTINGS = {
    "account": "account",
    "qos": "qos",
    "reservation": "reservation",
    "features": "constraint",
}
"""What a job can be handed in without, by the check that it fails."""


def relaxed(access: SlurmAccess, failed: Collection[str]) -> SlurmAccess:
    """Return the access without the settings that failed their checks."""
    return replace(access, **dict.fromkeys(left_out(access, failed), ""))


def left_out(access: SlurmAccess, failed: Collection[str]) -> tuple[str, ...]:
    """Return the settings, as the grid file calls them, that ``relaxed`` leaves out."""
    return tuple(
        setting
        for check, setting in _SETTINGS.items()
        if check in failed and getattr(access, setting)
    )
