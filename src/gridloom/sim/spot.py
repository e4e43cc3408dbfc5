"""Measured spot capacity to faults: how many nodes a cloud gave over time, as reclaims of nodes.

Two public layouts are read, both as CSV: Bamboo's logs of spot instances (uclasystem/bamboo, MIT),
a line of which is a time and a number of nodes, and SkyPilot's traces (skypilot-org/spot-traces) in
runs, where a value holds from one tick to the next and -1 ends the series.
"""

import csv
from collections.abc import Iterator, Sequence

from gridloom.base.errors import InputError, Problem
from gridloom.sim.faults import Fault, in_order
from gridloom.wire.documents_values import did_you_mean, found

Capacity = tuple[tuple[float, int], ...]
"""Times in seconds, ascending, each with the number of nodes that there are from then on."""

NOTICE_S = 120.0
"""Of AWS, before it takes a spot instance back ("Spot instance interruption notices", EC2 User
Guide); other clouds give 30 s."""

_BAMBOO = ("series", "line")
_RUNS = ("kind", "nodes", "campaign", "zone_instance", "gap_s", "tick", "value")
_END = -1


def reclaims(
    capacity: Capacity, nodes: Sequence[str], *, from_s: float = 0.0, notice_s: float = NOTICE_S
) -> tuple[Fault, ...]:
    """Return the faults under which as many of ``nodes`` are there as the capacity says.

    The last of the nodes go first and come back last. A series that ends leaves things as they
    are.

    Args:
        capacity: How many there are over time; more than ``nodes`` count as all of them.
        nodes: As ``site/node``.
        from_s: When the series begins.
        notice_s: How long before each loss it is announced.
    """
    faults: list[Fault] = []
    gone_s: list[float] = []  # of the nodes from the end of the list, since when they are gone

    def back(at_s: float | None) -> None:
        began_s = gone_s.pop()
        domain = nodes[len(nodes) - 1 - len(gone_s)]
        lasts_s = 0.0 if at_s is None else at_s - began_s
        if at_s is None or lasts_s > 0:
            fault = Fault(
                at_s=began_s, kind="reclaim", domain=domain, duration_s=lasts_s, notice_s=notice_s
            )
            faults.append(fault)

    for at_s, count in capacity:
        missing = len(nodes) - min(count, len(nodes))
        while len(gone_s) > missing:
            back(from_s + at_s)
        gone_s.extend([from_s + at_s] * (missing - len(gone_s)))
    while gone_s:
        back(None)
    return in_order(faults)


def parse_capacity(text: str, file: str = "", series: str = "", unit_s: float = 1.0) -> Capacity:
    """Return one series of a file.

    Args:
        text: The file.
        file: Its name, as the user gave it.
        series: Which: Bamboo's name, or SkyPilot's as ``kind/nodes/campaign/zone_instance``;
            empty for the first.
        unit_s: Seconds of a unit of time, for Bamboo's logs; some are in hours.

    Raises:
        InputError: The layout is neither, or a line, or the name of the series, cannot be used.
    """
    rows = csv.reader(text.splitlines())
    header = tuple(next(rows, ()))
    read = {_BAMBOO: _bamboo, _RUNS: _runs}.get(header)
    if read is None:
        layouts = f"`{','.join(_BAMBOO)}` or `{','.join(_RUNS)}`"
        raise InputError(
            [Problem("the columns are of neither layout", f"begin with {layouts}", file, 1)]
        )
    capacity = _one(list(read(rows, file)), file, series)
    unit_s = unit_s if read is _bamboo else 1.0
    return tuple((at * unit_s, count) for at, count in capacity)


_Row = tuple[str, float, int]
"""Name of the series, time, number of nodes."""


def _one(rows: list[_Row], file: str, series: str) -> Capacity:
    names = list(dict.fromkeys(name for name, _, _ in rows))
    name = series or (names[0] if names else "")
    if name not in names:
        remedy = did_you_mean(name, names) or f"it has {', '.join(names) or 'none'}"
        raise InputError([Problem(f"there is no series `{name}`", remedy, file)])
    counts = {at: count for one, at, count in rows if one == name and count != _END}
    return tuple(sorted(counts.items()))  # of several lines at one time the last one counts


def _bamboo(rows: Iterator[list[str]], file: str) -> Iterator[_Row]:
    for line, cells in enumerate(rows, 2):
        at, _, count = cells[-1].partition(",")
        yield cells[0], _time(at, file, line), _count(count, file, line)


def _runs(rows: Iterator[list[str]], file: str) -> Iterator[_Row]:
    for line, cells in enumerate(rows, 2):
        if len(cells) != len(_RUNS):
            message = f"found {len(cells)} cells under {len(_RUNS)} columns"
            raise InputError([Problem(message, "", file, line)])
        gap_s, tick = (_time(cells[place], file, line) for place in (4, 5))
        yield "/".join(cells[:4]), gap_s * tick, _count(cells[6], file, line)


def _time(text: str, file: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"{found(text)} where a time should be"
        raise InputError([Problem(message, "write a number", file, line)]) from None


def _count(text: str, file: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"{found(text)} where a number of nodes should be"
        raise InputError([Problem(message, "write a whole number", file, line)]) from None
