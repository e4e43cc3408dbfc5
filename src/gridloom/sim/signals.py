"""Prices and carbon of sites over time: series to facts, and the exact integral of what they cost.

An electricity price is one part of an accelerator-hour's: see ``accelerator_price``.
"""

import csv
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gridloom.base.errors import InputError, Problem
from gridloom.model.event import SignalChanged
from gridloom.model.inventory import Site
from gridloom.wire.documents_values import did_you_mean, found

HOUR_S = 3600.0
_JOULES_PER_KWH = 3.6e6
_COLUMNS = ("at_s", "site", "price_per_accelerator_hour", "carbon_g_per_kwh")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one site, each in force for ``step_s`` seconds, the last one for ever.

    Attributes:
        site: Its name.
        start_s: From when the first value is in force.
        step_s: From one value to the next.
        prices: Of an accelerator-hour, in the grid's currency; empty: they do not change.
        carbon: Grams of CO2 a kWh; empty: they do not change.
        repeat: The values begin anew when they are through.
    """

    site: str
    start_s: float = 0.0
    step_s: float = HOUR_S
    prices: tuple[float, ...] = ()
    carbon: tuple[float, ...] = ()
    repeat: bool = False


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A signal and when it changed."""

    at_s: float
    event: SignalChanged


def accelerator_price(usd_per_mwh: float, power_w: float, base_per_hour: float = 0.0) -> float:
    """Return the price of an accelerator-hour: a base, and its electricity at a market price."""
    return base_per_hour + usd_per_mwh * power_w / 1e6


def changes(signals: Sequence[Series | Change]) -> Iterator[Change]:
    """Return what changes, in order of time, then of site; endless where a series repeats.

    A value that is as it was before is no change.
    """
    single = sorted(
        (one for one in signals if isinstance(one, Change)),
        key=lambda one: (one.at_s, one.event.site),
    )
    series = [_changes_of(one) for one in signals if isinstance(one, Series)]
    return heapq.merge(single, *series, key=_by_time)


def _by_time(change: Change) -> tuple[float, str]:
    return change.at_s, change.event.site


def _changes_of(series: Series) -> Iterator[Change]:
    count = max(len(series.prices), len(series.carbon))
    price: float | None = None
    carbon: float | None = None
    step = 0
    while step < count or (series.repeat and count > 1):
        new_price = _value(series.prices, step, series) if series.prices else None
        new_carbon = _value(series.carbon, step, series) if series.carbon else None
        if (new_price, new_carbon) != (price, carbon):
            yield Change(
                at_s=series.start_s + step * series.step_s,
                event=SignalChanged(
                    site=series.site,
                    price_per_accelerator_hour=new_price if new_price != price else None,
                    carbon_g_per_kwh=new_carbon if new_carbon != carbon else None,
                ),
            )
            price, carbon = new_price, new_carbon
        step += 1


def _value(values: tuple[float, ...], step: int, series: Series) -> float:
    return values[step % len(values) if series.repeat else min(step, len(values) - 1)]


def parse_signals(text: str, file: str = "", sites: Sequence[str] = ()) -> tuple[Change, ...]:
    """Return the changes that a CSV lists, in order of time.

    Args:
        text: Columns ``at_s``, ``site`` and one or both of ``price_per_accelerator_hour`` and
            ``carbon_g_per_kwh``; an empty cell changes nothing.
        file: Its name, as the user gave it.
        sites: Those that there are; empty for any.

    Raises:
        InputError: With every line that cannot be used.
    """
    lines = [(n, row) for n, row in enumerate(csv.reader(text.splitlines()), 1) if any(row)]
    if not lines:
        raise InputError([Problem("the file is empty", f"begin with {','.join(_COLUMNS)}", file)])
    header = [name.strip() for name in lines[0][1]]
    problems = _header_problems(header, file, lines[0][0])
    if problems:
        raise InputError(problems)
    read = []
    for line, cells in lines[1:]:
        change = _Line(file, line, dict(zip(header, cells, strict=False)), problems).change(sites)
        if len(cells) != len(header):
            message = f"found {len(cells)} cells under {len(header)} columns"
            problems.append(Problem(message, "", file, line))
        elif change is not None:
            read.append(change)
    if problems:
        raise InputError(problems)
    return tuple(sorted(read, key=lambda one: (one.at_s, one.event.site)))


def _header_problems(header: list[str], file: str, line: int) -> list[Problem]:
    problems = [
        Problem(f"unknown column `{name}`", did_you_mean(name, [*_COLUMNS]), file, line)
        for name in header
        if name not in _COLUMNS
    ]
    problems += [
        Problem(f"the column `{name}` is missing", "add it to the first line", file, line)
        for name in _COLUMNS[:2]
        if name not in header
    ]
    if not problems and len(header) < 3:
        message = "no column holds a signal"
        problems.append(Problem(message, f"add {_COLUMNS[2]} or {_COLUMNS[3]}", file, line))
    return problems


@dataclass(frozen=True)
class _Line:
    """One line of a file, and where its problems go."""

    file: str
    line: int
    cells: dict[str, str]
    problems: list[Problem]

    def change(self, sites: Sequence[str]) -> Change | None:
        before = len(self.problems)
        at_s, site = self._number("at_s"), self.cells.get("site", "").strip()
        price, carbon = self._number(_COLUMNS[2]), self._number(_COLUMNS[3])
        if at_s is None and not self.cells.get("at_s", "").strip():
            self._wrong("at_s", "no time is given", "write seconds")
        if not site or (sites and site not in sites):
            remedy = did_you_mean(site, [*sites]) if site else "write the name of a site"
            self._wrong("site", f"unknown site {site!r}" if site else "no site is given", remedy)
        if len(self.problems) > before or at_s is None:
            return None
        event = SignalChanged(site=site, price_per_accelerator_hour=price, carbon_g_per_kwh=carbon)
        return Change(at_s=at_s, event=event)

    def _number(self, column: str) -> float | None:
        text = self.cells.get(column, "").strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self._wrong(column, found(text), "write a number")
            return None
        return value

    def _wrong(self, column: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(message, remedy, self.file, self.line, column))


class Bill:
    """What devices cost: money, energy and CO2.

    Attributes:
        cost: In the grid's currency.
        energy_kwh: Of busy devices.
        co2_kg: Of that energy.
    """

    __slots__ = ("co2_kg", "cost", "energy_kwh")

    def __init__(self, cost: float = 0.0, energy_kwh: float = 0.0, co2_kg: float = 0.0) -> None:
        self.cost, self.energy_kwh, self.co2_kg = cost, energy_kwh, co2_kg


class Meter:
    """The price and carbon of one site, and their integrals over time.

    A reading taken at the start of an attempt is billed at its end: the difference of two
    integrals is exact whatever changed between, at the same cost for one change and for thousands.
    """

    __slots__ = ("_carbon", "_carbon_area", "_price", "_price_area", "_since_s", "power_w")

    def __init__(self, site: Site, now_s: float) -> None:
        self.power_w = site.power_w_per_accelerator
        self._price = site.price_per_accelerator_hour
        self._carbon = site.carbon_g_per_kwh
        self._since_s = now_s
        self._price_area = self._carbon_area = 0.0

    def change(self, now_s: float, price: float | None, carbon: float | None) -> None:
        """Let another price, or carbon, be in force from now on; nothing: as before."""
        self._price_area, self._carbon_area = self.reading(now_s)[1:]
        self._since_s = now_s
        self._price = self._price if price is None else price
        self._carbon = self._carbon if carbon is None else carbon

    def begin(self, now_s: float) -> None:
        """Count from now on."""
        self._since_s = now_s

    def reading(self, now_s: float) -> tuple[float, float, float]:
        """Return the time and the two integrals, in price-seconds and carbon-seconds."""
        passed_s = now_s - self._since_s
        return (
            now_s,
            self._price_area + self._price * passed_s,
            self._carbon_area + self._carbon * passed_s,
        )

    def bill(
        self, devices: int, since: tuple[float, float, float], now_s: float, into: Bill
    ) -> None:
        """Add to ``into`` what ``devices`` devices cost since an earlier reading."""
        _, price_area, carbon_area = self.reading(now_s)
        kwh = self.power_w * devices * (now_s - since[0]) / _JOULES_PER_KWH
        grams = self.power_w * devices * (carbon_area - since[2]) / _JOULES_PER_KWH
        into.cost += devices * (price_area - since[1]) / HOUR_S
        into.energy_kwh += kwh
        into.co2_kg += grams / 1000
