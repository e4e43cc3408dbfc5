"""Values of documents that name devices, ports and durations."""

import re
from dataclasses import dataclass
from typing import Any

from gridloom.base.units import parse_bit_rate, parse_bytes, parse_duration_s, parse_power_w
from gridloom.wire.documents_values import NUMBER_PATTERN, Quantity, Value, found, wrong

PORT_MIN, PORT_MAX = 1024, 65535

KIND_PATTERN = r"[A-Za-z][A-Za-z0-9_.-]*"
_DEVICES = re.compile(rf"({KIND_PATTERN})(?::(\d{{1,7}})(?:(\+)|-(\d{{1,7}}))?)?")
_TOO_MANY = re.compile(rf"{KIND_PATTERN}:\d+(?:\+|-\d+)?")
_MOST = 9_999_999
_PORTS = re.compile(r"(\d{1,5})\s*-\s*(\d{1,5})")


def _pattern(units: str) -> str:
    return rf"^\s*{NUMBER_PATTERN}\s*(?:{units})\s*$"


def _parse_carbon(text: str) -> float:
    """Return grams of CO2 a kWh for ``350`` or ``350 g/kWh``; ``ValueError`` for anything else."""
    return float(text.strip().removesuffix("g/kWh"))


_DURATION = "a duration (`90s`, `20ms`, `1.5h`)"
_DURATION_PART = r"\d+(\.\d+)?\s*(us|ms|s|m|min|h|d)"
DURATION_PATTERN = (
    rf"^\s*({NUMBER_PATTERN}|{_DURATION_PART}(\s*{_DURATION_PART})*|(\d+-)?\d+:\d\d(:\d\d)?)\s*$"
)

DURATION = Quantity(_DURATION, parse_duration_s, DURATION_PATTERN)
DURATION_ABOVE_0 = Quantity(_DURATION, parse_duration_s, DURATION_PATTERN, above=True)
MEMORY = Quantity(
    "an amount of memory (`8GB`, `80GiB`)",
    parse_bytes,
    _pattern("[kKmMgGtTpP]?[iI]?[bB]?"),
    above=True,
    bare=False,
)
BANDWIDTH = Quantity(
    "a bandwidth (`1Gbit/s`)",
    parse_bit_rate,
    _pattern("[kKmMgGtTpP]?([bB]it/s|[bB]it|[bB]ps)"),
    above=True,
    bare=False,
)
CARBON = Quantity("grams of CO2 a kWh (`350`, `350 g/kWh`)", _parse_carbon, _pattern("(g/kWh)?"))
POWER = Quantity("a power (`15W`, `0.7kW`)", parse_power_w, _pattern("([kKmM]?[wW])?"))


@dataclass(frozen=True)
class Devices:
    """How many devices of which kind.

    Attributes:
        kind: As ``h100``, in lower case.
        least: At least so many.
        most: At most so many; 0 means as many as there are.
    """

    kind: str
    least: int
    most: int


@dataclass(frozen=True)
class DevicesValue(Value):
    """``h100``, ``h100:8`` and, where ranges are accepted, ``h100:8+`` and ``h100:4-16``."""

    ranges: bool

    @property
    def right(self) -> str:
        """The forms."""
        forms = "`h100:8`, `h100:8+` or `h100:4-16`" if self.ranges else "`cpu:2` or `h100:8`"
        return f"a kind and a count, as {forms}"

    def parse(self, value: object) -> Devices:
        """Return kind and counts."""
        if isinstance(value, int) and not isinstance(value, bool):
            raise wrong(found(value), f"write the kind before the count, as `cpu:{abs(value)}`")
        if isinstance(value, dict) and len(value) == 1:
            kind, count = next(iter(value.items()))
            if isinstance(count, int | str):
                raise wrong("found a mapping", f"write it without a space, as `{kind}:{count}`")
        match = _DEVICES.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            if isinstance(value, str) and _TOO_MANY.fullmatch(value.strip()):
                raise wrong(f"{found(value)}: the count is too large", f"write at most {_MOST}")
            raise self.refuse(value)
        least = int(match[2] or 1)
        most = 0 if match[3] else int(match[4] or least)
        if not self.ranges and most != least:
            raise wrong(f"{found(value)}, a range", "write how many devices the node has")
        if least < 1:
            raise wrong(f"{found(value)}: no device", "write a count of at least 1")
        if match[4] and most < least:
            raise wrong(f"{found(value)}: the range is empty", "write the smaller number first")
        return Devices(match[1].lower(), least, most)

    def schema(self) -> dict[str, Any]:
        """The forms as one pattern."""
        more = r"(\+|-\d{1,7})?" if self.ranges else ""
        return {"type": "string", "pattern": rf"^\s*{KIND_PATTERN}(:0*[1-9]\d{{0,6}}{more})?\s*$"}


@dataclass(frozen=True)
class PortsValue(Value):
    """A range of ports, as ``29400-29999``, or one port."""

    @property
    def right(self) -> str:
        """The form and its bounds."""
        return f"a range such as `29400-29999`, between {PORT_MIN} and {PORT_MAX}"

    def parse(self, value: object) -> tuple[int, int]:
        """Return the first and the last port."""
        if isinstance(value, int) and not isinstance(value, bool):
            value = f"{value}-{value}"
        match = _PORTS.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise self.refuse(value)
        first, last = int(match[1]), int(match[2])
        if not PORT_MIN <= first <= last <= PORT_MAX:
            raise self.refuse(value)
        return first, last

    def schema(self) -> dict[str, Any]:
        """A range, or one port."""
        return {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*\d{1,5}\s*-\s*\d{1,5}\s*$"},
                {"type": "integer", "minimum": PORT_MIN, "maximum": PORT_MAX},
            ]
        }
