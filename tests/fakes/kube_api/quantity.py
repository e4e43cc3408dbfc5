"""Resource quantities, as ``500m``, ``2Gi`` and ``8``."""

from fractions import Fraction

_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": 1000,
    **{letter: 1000**power for power, letter in enumerate("MGTPE", start=2)},
}


def quantity(text: str | float) -> Fraction:
    """Return the exact value of a quantity.

    Raises:
        ValueError: It is none.
    """
    text = str(text)
    for suffix, factor in {**_BINARY, **_DECIMAL}.items():
        if text.endswith(suffix):
            return Fraction(text[: -len(suffix)]) * Fraction(factor)
    return Fraction(text)


def shown(value: Fraction) -> str:
    """Return a quantity in whole units, or in thousandths where it has a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{-(-value * 1000 // 1)}m"
