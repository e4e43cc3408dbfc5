"""Curves over simulated time, and who was where, as SVG text."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from gridloom.base.units import format_duration
from gridloom.sim.report_gantt import Bar, Gantt
from gridloom.sim.report_page import Line

COLOURS = 6
"""Colours of the page; more curves than that come back dashed."""

_WIDTH, _HEIGHT = 960, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 36
_LANE_LEFT = 150
_LANES_HEIGHT_MIN, _LANES_HEIGHT_MAX, _LANE_HEIGHT = 220, 800, 18
_LABEL_HEIGHT = 12
_FILLED = 0.92  # of a row's height; the rest keeps rows apart
_NAME_MAX = 22
_TICKS = 8
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_STEPS_S = (
    *(1, 2, 5, 10, 20, 30),
    *(_MINUTE_S * n for n in (1, 2, 5, 10, 20, 30)),
    *(_HOUR_S * n for n in (1, 2, 4, 6, 12)),
    *(_DAY_S * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
"""Distances between ticks of time that a person reads with ease."""


def time_chart(lines: Mapping[str, Line], *, title: str, share: bool = False) -> str:
    """Return curves over time, one a name, as a figure.

    Args:
        lines: Points by name.
        title: What is measured.
        share: Values are shares of 1, and are told in percent.
    """
    end_s = max((x for line in lines.values() for x, _ in line), default=1.0)
    most = max((y for line in lines.values() for _, y in line), default=1.0)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0) if share else _ticks(most)
    top = max(ticks[-1], 0.0 if share else most) or 1.0
    base = _HEIGHT - _BOTTOM

    def y(value: float) -> float:
        return base - min(value / top, 1.0) * (base - _TOP)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ticks:
        said = f"{tick:.0%}" if share else f"{tick:,.0f}" if tick >= 10 else f"{tick:g}"
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(tick):.1f}"'
            f' y2="{y(tick):.1f}"/><text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}"'
            f' text-anchor="end">{said}</text>'
        )
    parts += _time_axis(end_s, _LEFT, base)
    room = _WIDTH - _LEFT - _RIGHT
    for number, line in enumerate(lines.values()):
        path = " ".join(f"{_LEFT + x / end_s * room:.1f},{y(value):.1f}" for x, value in line)
        parts.append(f'<polyline class="line {_class(number)}" points="{path}"/>')
    parts.append("</svg>")
    names = legend(list(lines)) if len(lines) > 1 else ""
    return f"<figure><h3>{escape(title)}</h3>{''.join(parts)}{names}</figure>"


def gantt_chart(gantt: Gantt, names: Sequence[str], title: str) -> str:
    """Return who was where as a figure.

    Args:
        gantt: The picture.
        names: Of its colours.
        title: For those who cannot see it.
    """
    height = min(max(len(gantt.lanes) * _LANE_HEIGHT, _LANES_HEIGHT_MIN), _LANES_HEIGHT_MAX)
    lane = height / max(len(gantt.lanes), 1)
    end_s = gantt.end_s - gantt.start_s
    whole = height + _TOP + _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {whole:.0f}" role="img" aria-label="{escape(title)}">',
        f'<rect class="floor" x="{_LANE_LEFT}" y="{_TOP}" width="{_WIDTH - _LANE_LEFT - _RIGHT}"'
        f' height="{height:.1f}"/>',
    ]
    every = max(1, math.ceil(_LABEL_HEIGHT / lane))
    for number in range(0, len(gantt.lanes), every):
        y = _TOP + (number + 0.5) * lane + 4
        parts.append(
            f'<text x="{_LANE_LEFT - 6}" y="{y:.1f}" text-anchor="end">'
            f"{escape(_short(gantt.lanes[number].name))}</text>"
        )
    kind = "bar edged" if gantt.single else "bar"
    parts += [_rect(bar, gantt, lane, f"{kind} {_class(bar.colour)}") for bar in gantt.bars]
    parts += [_rect(mark, gantt, lane, "mark") for mark in gantt.marks]
    parts += _time_axis(end_s, _LANE_LEFT, _TOP + height)
    parts.append("</svg>")
    if gantt.single:
        shown = sorted({bar.colour for bar in gantt.bars})
        below = legend([names[i] for i in shown if i < len(names)], shown, gantt.marks)
    else:
        below = "<figcaption>The denser, the more of a row's devices were held.</figcaption>"
    return f"<figure>{''.join(parts)}{below}</figure>"


def legend(
    names: Sequence[str], numbers: Sequence[int] | None = None, marks: Sequence[Bar] = ()
) -> str:
    """Return what the colours mean."""
    places = range(len(names)) if numbers is None else numbers
    spans = [
        f'<span><i class="{_class(number)}"></i>{escape(name)}</span>'
        for number, name in zip(places, names, strict=False)
    ]
    spans += ['<span><i class="fault"></i>fault</span>'] if marks else []
    return f"<figcaption>{''.join(spans)}</figcaption>"


def _rect(bar: Bar, gantt: Gantt, lane: float, kind: str) -> str:
    scale = (_WIDTH - _LANE_LEFT - _RIGHT) / ((gantt.end_s - gantt.start_s) or 1.0)
    x = _LANE_LEFT + (bar.start_s - gantt.start_s) * scale
    width = max((bar.end_s - bar.start_s) * scale, 0.4)
    y = _TOP + (bar.lane + bar.low * _FILLED) * lane
    height = (bar.high - bar.low) * lane * _FILLED
    opacity = f' fill-opacity="{bar.shade:g}"' if bar.shade < 1 else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    says = f"><title>{escape(bar.says)}</title></rect>" if bar.says else "/>"
    return f'<rect class="{kind}" {place}{opacity}{says}'


def _time_axis(end_s: float, left: float, base: float) -> list[str]:
    """Return ticks of time from zero to ``end_s``."""
    room = _WIDTH - left - _RIGHT
    step_s = next((step for step in _STEPS_S if end_s / step <= _TICKS), end_s / _TICKS)
    parts = []
    for number in range(int(end_s / step_s + 1e-9) + 1):
        at_s = number * step_s
        x = left + at_s / end_s * room
        anchor = "end" if x > _WIDTH - 3 * _RIGHT else "middle"
        said = _moment(at_s, step_s)
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{base:.1f}" y2="{base + 4:.1f}"/>'
            f'<text x="{x:.1f}" y="{base + 18:.1f}" text-anchor="{anchor}">{said}</text>'
        )
    return parts


def _moment(at_s: float, step_s: float) -> str:
    if not at_s:
        return "0"
    if step_s >= _DAY_S:
        return f"{at_s / _DAY_S:.0f} d"
    hours, rest_s = divmod(round(at_s), _HOUR_S)
    if not rest_s:
        return f"{hours} h"
    if step_s >= _MINUTE_S:
        minutes = rest_s // _MINUTE_S
        return f"{hours} h {minutes:02d}" if hours else f"{minutes} min"
    return format_duration(at_s)


def _class(number: int) -> str:
    dashed = " dashed" if number >= COLOURS else ""
    return f"c{number % COLOURS}{dashed}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"...{name[3 - _NAME_MAX :]}"


def _ticks(most: float) -> tuple[float, ...]:
    """Return round values from 0 on that span the range: steps of 1, 2 or 5 times a power."""
    if most <= 0:
        return (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10(most / 4))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= most / 4)
    return tuple(number * step for number in range(math.ceil(most / step - 1e-9) + 1))
