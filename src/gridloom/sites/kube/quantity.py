"""Kubernetes' resource quantities (``1500m``, ``80Gi``, ``2e3``), exactly, and back (pure)."""

import math
import re
from fractions import Fraction

_POWERS = "kMGTPE"
_SUFFIXES = {
    "": Fraction(1),
    **{unit: Fraction(1, 1000**i) for i, unit in enumerate("mun", start=1)},
    **{unit: Fraction(1000**i) for i, unit in enumerate(_POWERS, start=1)},
    **{f"{unit.upper()}i": Fraction(1024**i) for i, unit in enumerate(_POWERS, start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,3}))?",
    re.ASCII,
)


def parse_quantity(value: object) -> Fraction:
    """Return the exact value of a quantity, as JSON carries it: a string or a number.

    Raises:
        ValueError: It is none.
    """
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    match = _QUANTITY.fullmatch(str(value)) if plain else None
    if match is None:
        raise ValueError(f"{value!r} is not a quantity, as 8, 1500m or 80Gi")
    scale = _SUFFIXES[match["suffix"] or ""] * Fraction(10) ** int(match["exponent"] or 0)
    return Fraction(match["number"]) * scale


def amount(resource: str, quantity: Fraction) -> int:
    """Return a quantity as quotas count it: thousandths of a core for ``cpu``, else whole units.

    Memory is in bytes, accelerators are devices. Fractions are rounded up, as Kueue rounds them.
    """
    return math.ceil(quantity * 1000) if resource == "cpu" else math.ceil(quantity)


def cpu_quantity(millicores: int) -> str:
    """Return thousandths of a core as a quantity: ``2`` or ``1500m``."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def bytes_quantity(count: int) -> str:
    """Return bytes as a quantity with the largest binary unit that loses nothing: ``80Gi``."""
    power = 0
    while power < len(_POWERS) and count and count % 1024 == 0:
        count //= 1024
        power += 1
    return f"{count}{_POWERS[power - 1].upper()}i" if power else str(count)


def amount_text(resource: str, amount: int) -> str:
    """Return an amount, as ``amount`` counts it, for people."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    if resource in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.5g}Gi"
    return str(amount)
