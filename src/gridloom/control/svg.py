"""Curves and stacked areas as SVG text (pure)."""

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 14, 40
_BAR, _BAR_LEFT = 26, 150
_TICKS = 5
_POINTS_MAX = 600
"""More points than pixels cannot be seen; they are thinned to this many."""
_VALUE_MAX = 1e100
"""What is larger, or not a number, is no measurement and is not drawn."""

Points = Sequence[tuple[float, float]]


def line_chart(
    series: Mapping[str, Points], *, title: str, y_label: str, from_zero: bool = False
) -> str:
    """Return curves over the training step, one a name, as an ``<svg>`` element.

    Args:
        series: Points by name.
        title: Of the figure.
        y_label: What is measured, in which unit.
        from_zero: Whether the axis begins at 0: of what is compared by its ratio it should.
    """
    series = {name: _drawable(line) for name, line in series.items()}
    points = [point for line in series.values() for point in line]
    axes = _Axes(points, from_zero=from_zero)
    shapes = []
    for index, line in enumerate(series.values()):
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in _thinned(line))
        shapes.append(f'<polyline class="line c{index}" points="{path}"/>')
    return _chart(axes, shapes, list(series), title=title, y_label=y_label)


def stacked_chart(series: Mapping[str, Points], *, title: str, y_label: str) -> str:
    """Return areas that add up, the first name lowest; all series share their x values."""
    names = list(series)
    columns = [_thinned([(x, _finite(y)) for x, y in series[name]]) for name in names]
    sums = [[0.0] * len(columns[0])] if columns else []
    for column in columns:
        sums.append([base + y for base, (_, y) in zip(sums[-1], column, strict=True)])
    xs = [x for x, _ in columns[0]] if columns else []
    axes = _Axes(
        [(x, y) for x, y in zip(xs, sums[-1], strict=True)] if sums else [], from_zero=True
    )
    shapes = []
    for index in range(len(names)):
        upper = zip(xs, sums[index + 1], strict=True)
        lower = zip(reversed(xs), reversed(sums[index]), strict=True)
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in [*upper, *lower])
        shapes.append(f'<polygon class="area c{index}" points="{path}"/>')
    return _chart(axes, shapes, names, title=title, y_label=y_label)


def share_bars(bars: Mapping[str, Mapping[str, float]], *, title: str) -> str:
    """Return a bar a row, cut into the shares of its parts, as a ``<figure>`` with a legend.

    Args:
        bars: By the row's name, shares that add up to 1, by the name of the part.
        title: Of the figure.
    """
    names = list(dict.fromkeys(name for bar in bars.values() for name in bar))
    height = _BAR * len(bars)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for row, (label, bar) in enumerate(bars.items()):
        top, left = _BAR * row, float(_BAR_LEFT)
        parts.append(
            f'<text x="{_BAR_LEFT - 6}" y="{top + _BAR / 2 + 4:g}" text-anchor="end">'
            f"{escape(label)}</text>"
        )
        for name, share in bar.items():
            width = share * (_WIDTH - _BAR_LEFT - _RIGHT)
            parts.append(
                f'<rect class="area c{names.index(name)}" x="{left:.1f}" y="{top + 3}" '
                f'width="{width:.1f}" height="{_BAR - 6}"/>'
            )
            left += width
    return f"<figure><h2>{escape(title)}</h2>{''.join(parts)}</svg>{_legend(names)}</figure>"


class _Axes:
    """Maps values to pixels and knows round tick values."""

    def __init__(self, points: Points, *, from_zero: bool) -> None:
        xs = [x for x, _ in points] or [0.0]
        ys = [y for _, y in points] or [0.0]
        self.x_ticks = _ticks(min(xs), max(xs))
        self.y_ticks = _ticks(0.0 if from_zero else min(ys), max(ys))
        self._x_range = (min(xs), max(max(xs), min(xs) + 1e-9))
        low, high = min(self.y_ticks[0], *ys), max(self.y_ticks[-1], *ys)
        self._y_range = (0.0 if from_zero else low, max(high, low + 1e-9))

    def x(self, value: float) -> float:
        low, high = self._x_range
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._y_range
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _chart(
    axes: _Axes, shapes: Sequence[str], names: Sequence[str], *, title: str, y_label: str
) -> str:
    base = _HEIGHT - _BOTTOM
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in axes.y_ticks:
        y = axes.y(tick)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(tick)}</text>'
        )
    for tick in axes.x_ticks:
        x = axes.x(tick)
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{base + 17}" text-anchor="middle">{_label(tick)}</text>'
        )
    parts.extend(shapes)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">training step</text>')
    parts.append(
        f'<text transform="translate(14 {(_TOP + base) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    return f"<figure><h2>{escape(title)}</h2>{''.join(parts)}{_legend(names)}</figure>"


def _legend(names: Sequence[str]) -> str:
    """Return which colour is whose, where there is something to tell apart."""
    legend = "".join(
        f'<span><i class="c{index}"></i>{escape(name)}</span>' for index, name in enumerate(names)
    )
    return f"<figcaption>{legend if len(names) > 1 else ''}</figcaption>"


def _drawable(line: Points) -> Points:
    return [(x, y) for x, y in line if y == _finite(y)]


def _finite(value: float) -> float:
    return value if abs(value) <= _VALUE_MAX else 0.0  # false for NaN, too


def _thinned(line: Points) -> Points:
    stride = max(1, math.ceil(len(line) / _POINTS_MAX))
    thinned = list(line[::stride])
    return thinned if not line or thinned[-1] == line[-1] else [*thinned, line[-1]]


def _ticks(low: float, high: float) -> list[float]:
    """Round values that span the range: steps of 1, 2 or 5 times a power of ten."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return [low]
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    digits = 1 - math.floor(math.log10(step))
    return [round(index * step, digits) for index in range(first, last + 1)] or [low]


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
