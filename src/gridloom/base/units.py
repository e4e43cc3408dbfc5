"""Durations, byte counts, bit rates and money: read from what people write, and written back."""

import math
import re
from collections.abc import Mapping
from fractions import Fraction

_NUMBER = r"(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|s|m|min|h|d)\b")
_DURATION_S = {"us": Fraction(1, 10**6), "ms": Fraction(1, 1000)} | {
    unit: Fraction(seconds)
    for unit, seconds in {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}.items()
}
_BYTES = {
    "b": 1,
    **{f"{p}b": 1000**i for i, p in enumerate("kmgtp", start=1)},
    **{f"{p}ib": 1024**i for i, p in enumerate("kmgtp", start=1)},
    **{p: 1024**i for i, p in enumerate("kmgtp", start=1)},  # as Slurm and Kubernetes' Mi/Gi say
}
_BITS = {"bit/s": 1, **{f"{p}bit/s": 1000**i for i, p in enumerate("kmgtp", start=1)}}
_WATTS = {"w": 1, "kw": 1000, "mw": 10**6}
_COUNT = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def parse_duration_s(text: str) -> float:
    """Return seconds for ``90``, ``1.5h``, ``20ms``, ``1h30m`` or ``2-12:30:00`` as Slurm writes.

    Raises:
        ValueError: ``text`` is none of these.
    """
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        return float(_parse(text, {"s": 1}, "a duration", default="s"))
    if (slurm := _slurm_time_s(text)) is not None:
        return slurm
    parts = _DURATION_PART.findall(re.sub(r"(?<=[a-z])(?=\d)", " ", text))
    if not parts or re.sub(r"\s", "", "".join(n + u for n, u in parts)) != re.sub(r"\s", "", text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(_parse(n + u, _DURATION_S, "a duration", default=None)) for n, u in parts)


def parse_bytes(text: str) -> int:
    """Return bytes for ``512``, ``80GB`` (powers of 1000), ``80GiB`` or ``80G`` (powers of 1024).

    Raises:
        ValueError: ``text`` is none of these.
    """
    return round(_parse(text, _BYTES, "a number of bytes", default="b"))


def parse_bit_rate(text: str) -> float:
    """Return bits per second for ``100Mbit/s``, ``10 Gbit/s``, ``10Gbps`` or ``10gbit``.

    Raises:
        ValueError: ``text`` is none of these.
    """
    spelled = re.sub(r"(?:bps|(?i:bit))\s*$", "bit/s", text.strip())  # GBps would mean bytes
    return float(_parse(spelled, _BITS, "a bandwidth", default=None))


def parse_power_w(text: str) -> float:
    """Return watts for ``15``, ``15W``, ``0.7 kW`` or ``1.2MW``.

    Raises:
        ValueError: ``text`` is none of these.
    """
    return float(_parse(text, _WATTS, "a power", default="w"))


def parse_count(text: str) -> int:
    """Return an integer for ``2000000``, ``2_000_000``, ``2M`` or ``1.5B``.

    Raises:
        ValueError: ``text`` is none of these, or not whole.
    """
    value = _parse(text.replace("_", ""), _COUNT, "a count", default="")
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def format_duration(duration_s: float) -> str:
    """Return at most two units: ``850ms``, ``42s``, ``3m 20s``, ``2h 05m``, ``3d 04h``."""
    if duration_s < 0.9995:
        return f"{duration_s * 1000:.0f}ms"
    seconds = round(duration_s)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}h"
    if hours:
        return f"{hours}h {minute:02d}m"
    return f"{minutes}m {second:02d}s" if minutes else f"{second}s"


def format_bytes(count: float) -> str:
    """Return ``count`` bytes with a decimal prefix: ``0 B``, ``1.5 kB``, ``3.2 GB``."""
    return _prefixed(count, "B")


def format_bit_rate(bits_per_s: float) -> str:
    """Return a bandwidth with a decimal prefix: ``100 Mbit/s``."""
    return _prefixed(bits_per_s, "bit/s")


def format_count(count: float) -> str:
    """Return a count with a short scale: ``950``, ``1.5k``, ``2.1M``, ``7.0B``."""
    for limit, suffix in ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "B")):
        text = f"{count / limit:.1f}" if suffix else f"{count:.0f}"
        if float(text) < 1000:  # as rounded, so that 999 999 is 1.0M
            return text + suffix
    return f"{count / 1e12:.1f}T"


def _prefixed(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            digits = 0 if prefix == "" or float(value).is_integer() else 1
            return f"{value:.{digits}f} {prefix}{unit}"
        value /= 1000
    return f"{value:.1f} P{unit}"


def _slurm_time_s(text: str) -> float | None:
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9}):(\d{2})(?::(\d{2}))?", text)
    if match is None:
        return None
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[4] is None and match[1] is None:  # MM:SS
        return float(first * 60 + second)
    return float(days * 86400 + first * 3600 + second * 60 + third)


def _parse(
    text: str, table: Mapping[str, int | Fraction], kind: str, *, default: str | None
) -> Fraction:
    """Return the exact value: integers beyond 2**53 do not pass through a float."""
    match = re.fullmatch(_NUMBER + r"\s*(?P<unit>[A-Za-z/]*)", text.strip())
    unit = match["unit"].lower() if match else ""
    if match is None or (not unit and default is None) or (unit or default) not in table:
        raise ValueError(f"{text!r} is not {kind}")
    factor = table[unit or (default or "")]
    if not math.isfinite(float(match["number"]) * factor):  # also keeps `1e999999` from filling us
        raise ValueError(f"{text!r} is too large for {kind}")
    return Fraction(match["number"]) * factor
