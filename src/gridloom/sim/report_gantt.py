"""Who was where and when, as rectangles: of single jobs, or of shares where there are too many."""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

import msgspec

from gridloom.model.inventory import Inventory
from gridloom.sim.faults import Fault
from gridloom.sim.record import Span

ROWS_MAX = 200
BARS_MAX = 5000
_SHADES = 8
_CELLS_MIN, _CELLS_MAX = 20, 240

Paint = Callable[[str], tuple[int, str]]
"""Returns the colour of a job, by its number, and what is said of it."""


class Lane(msgspec.Struct, frozen=True):
    """One row.

    Attributes:
        name: Of its domain.
        devices: That are in it.
    """

    name: str
    devices: int


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One rectangle.

    Attributes:
        lane: Number of its row.
        start_s: From when.
        end_s: Until when.
        low: Share of the row's height at which it begins, from above.
        high: At which it ends.
        colour: Number of its colour.
        shade: How dense it is, up to 1.
        says: For a person; empty for nothing.
    """

    lane: int
    start_s: float
    end_s: float
    low: float = 0.0
    high: float = 1.0
    colour: int = 0
    shade: float = 1.0
    says: str = ""


class Gantt(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture.

    Attributes:
        lanes: Rows, from above.
        level: What a row is: ``node``, a level of the sites, or ``site``.
        bars: Of jobs, or of the share of a row's devices that were held.
        single: Bars are single jobs.
        marks: Where and while something went wrong.
        start_s: Its left end.
        end_s: Its right end.
    """

    lanes: tuple[Lane, ...]
    level: str
    bars: tuple[Bar, ...]
    single: bool
    marks: tuple[Bar, ...]
    start_s: float
    end_s: float


def gantt_of(
    spans: Sequence[Span],
    inventory: Inventory,
    faults: Sequence[Fault],
    times_s: tuple[float, float],
    paint: Paint,
) -> Gantt:
    """Return the picture of some stays.

    Args:
        spans: Who was where.
        inventory: The grid.
        faults: What went wrong.
        times_s: Left and right end of the picture.
        paint: Tells the colour of a job.
    """
    level, lane_of, lanes = _lanes(inventory)
    stays = [span for span in spans if span.domain in lane_of and span.end_s > span.start_s]
    single = level == "node" and len(stays) <= BARS_MAX
    if single:
        bars = tuple(_jobs(stays, lanes, lane_of, paint))[: 2 * BARS_MAX]
    else:
        bars = tuple(_shares(stays, lanes, lane_of, times_s))
    return Gantt(
        lanes=lanes,
        level=level,
        bars=bars,
        single=single,
        marks=tuple(_marks(faults, lane_of, times_s)),
        start_s=times_s[0],
        end_s=times_s[1],
    )


def _lanes(inventory: Inventory) -> tuple[str, dict[str, int], tuple[Lane, ...]]:
    """Return the finest level with few enough rows, the row of each node, and the rows."""
    depth = max((len(site.levels) for site in inventory.sites), default=0)
    cut, (devices, names) = depth + 1, _cut_at(inventory, None)
    while len(devices) > ROWS_MAX and cut > 0:
        cut -= 1
        devices, names = _cut_at(inventory, cut)
    numbers = {name: number for number, name in enumerate(devices)}
    lanes = tuple(Lane(name, count) for name, count in devices.items())
    level = "node" if cut > depth else _level_name(inventory, cut)
    return level, {domain: numbers[name] for domain, name in names.items()}, lanes


def _cut_at(inventory: Inventory, cut: int | None) -> tuple[dict[str, int], dict[str, str]]:
    """Return the devices of each domain of a level, and the domain of each node."""
    devices: dict[str, int] = {}
    names: dict[str, str] = {}
    for site in inventory.sites:
        for node in site.nodes:
            inner = (*node.path, node.name) if cut is None else node.path[:cut]
            name = "/".join((site.name, *inner))
            devices[name] = devices.get(name, 0) + node.count
            names[f"{site.name}/{node.name}"] = name
    return devices, names


def _level_name(inventory: Inventory, cut: int) -> str:
    named = (site.levels[cut - 1] for site in inventory.sites if len(site.levels) >= cut)
    return next(named, "site") if cut else "site"


def _jobs(
    stays: Sequence[Span], lanes: Sequence[Lane], lane_of: dict[str, int], paint: Paint
) -> Iterator[Bar]:
    """Yield a bar for each stay, as high as its share of the node's devices."""
    shelves = [_Shelf(lane.devices) for lane in lanes]
    for span in sorted(stays, key=lambda one: (one.start_s, one.end_s, one.job_id)):
        number = lane_of[span.domain]
        height = lanes[number].devices or 1
        colour, says = paint(span.job_id)
        for low, high in shelves[number].put(span):
            yield Bar(
                lane=number,
                start_s=span.start_s,
                end_s=span.end_s,
                low=low / height,
                high=high / height,
                colour=colour,
                says=says,
            )


class _Shelf:
    """Devices of one row, from 0, with those that are free as runs in order."""

    def __init__(self, devices: int) -> None:
        self._free = [(0, devices)] if devices else []
        self._held: list[tuple[float, list[tuple[int, int]]]] = []

    def put(self, span: Span) -> list[tuple[int, int]]:
        """Return the runs that the stay takes: one if any is long enough."""
        while self._held and self._held[0][0] <= span.start_s:
            for run in heappop(self._held)[1]:
                self._give_back(run)
        taken = self._take(span.devices)
        heappush(self._held, (span.end_s, taken))
        return taken

    def _take(self, devices: int) -> list[tuple[int, int]]:
        for place, (low, high) in enumerate(self._free):
            if high - low >= devices:
                self._cut(place, devices)
                return [(low, low + devices)]
        taken, left = [], devices
        while left and self._free:
            low, high = self._free[0]
            part = min(left, high - low)
            self._cut(0, part)
            taken.append((low, low + part))
            left -= part
        return taken

    def _cut(self, place: int, devices: int) -> None:
        low, high = self._free[place]
        if low + devices == high:
            del self._free[place]
        else:
            self._free[place] = (low + devices, high)

    def _give_back(self, run: tuple[int, int]) -> None:
        insort(self._free, run)
        joined: list[tuple[int, int]] = []
        for low, high in self._free:
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        self._free = joined


def _shares(
    stays: Sequence[Span],
    lanes: Sequence[Lane],
    lane_of: dict[str, int],
    times_s: tuple[float, float],
) -> Iterator[Bar]:
    """Yield for each row the share of its devices that were held, in steps of time."""
    start_s, end_s = times_s
    cells = min(_CELLS_MAX, max(_CELLS_MIN, BARS_MAX // max(len(lanes), 1)))
    width_s = (end_s - start_s) / cells or 1.0
    held = [[0.0] * (cells + 1) for _ in lanes]
    for span in stays:
        _pour(held[lane_of[span.domain]], span, start_s, width_s)
    for number, row in enumerate(held):
        full = lanes[number].devices * width_s or 1.0
        shades = [round(min(value / full, 1.0) * _SHADES) for value in row[:cells]]
        first = 0
        for place in range(1, cells + 1):
            if place < cells and shades[place] == shades[first]:
                continue
            if shades[first]:
                yield Bar(
                    lane=number,
                    start_s=start_s + first * width_s,
                    end_s=start_s + place * width_s,
                    shade=shades[first] / _SHADES,
                )
            first = place


def _pour(row: list[float], span: Span, start_s: float, width_s: float) -> None:
    """Add a stay's device-seconds to the cells that it lies in."""
    last = len(row) - 2
    first = min(max(int((span.start_s - start_s) / width_s), 0), last)
    end = min(max(int((span.end_s - start_s) / width_s), 0), last)
    for place in range(first, end + 1):
        low_s = max(span.start_s, start_s + place * width_s)
        high_s = min(span.end_s, start_s + (place + 1) * width_s)
        row[place] += span.devices * max(high_s - low_s, 0.0)


def _marks(
    faults: Sequence[Fault], lane_of: dict[str, int], times_s: tuple[float, float]
) -> Iterator[Bar]:
    """Yield a mark for each fault in each row that it concerns; links have none."""
    start_s, end_s = times_s
    for fault in faults:
        if fault.domain in lane_of:
            rows = [lane_of[fault.domain]]
        else:
            inside = (n for domain, n in lane_of.items() if domain.startswith(f"{fault.domain}/"))
            rows = list(dict.fromkeys(inside))
        over_s = fault.at_s + fault.duration_s if fault.duration_s else end_s
        for row in rows:
            if fault.at_s < end_s and over_s > start_s:
                yield Bar(
                    lane=row,
                    start_s=max(fault.at_s, start_s),
                    end_s=min(over_s, end_s),
                    says=f"{fault.kind} {fault.domain}",
                )
