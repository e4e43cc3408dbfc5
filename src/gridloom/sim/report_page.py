"""What a page tells of one run: its figures, its curves, who was where, who waited and why."""

from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from itertools import pairwise

import msgspec

from gridloom.base.units import format_duration
from gridloom.model.inventory import Inventory
from gridloom.sim.faults import Fault
from gridloom.sim.record import JobRow, Point, SimRecord, Span
from gridloom.sim.report import SIZES, Summary, size_class
from gridloom.sim.report_gantt import Gantt, gantt_of
from gridloom.sim.waits import Told

_POINTS = 400
_WAITS = 15
_FAULTS_MAX = 200
_COLOURS = 6

Line = tuple[tuple[float, float], ...]
"""Points of a curve: seconds since the first submission, and a value."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waited long.

    Attributes:
        row: Its row.
        told: What the scheduler said of it, when it was asked.
    """

    row: JobRow
    told: Told | None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        summary: Its figures.
        start_s: The first submission.
        gantt: Who was where.
        legend: Names of the colours in it.
        in_use: Share of the available devices that attempts held.
        waiting_jobs: Jobs that waited.
        waiting_devices: Devices that these wanted.
        waits: Jobs that waited longest.
        faults: What went wrong, the first of it.
        faults_in_all: How much.
    """

    summary: Summary
    start_s: float
    gantt: Gantt
    legend: tuple[str, ...]
    in_use: Line
    waiting_jobs: Line
    waiting_devices: Line
    waits: tuple[Wait, ...]
    faults: tuple[Fault, ...]
    faults_in_all: int


def section_of(
    record: SimRecord,
    summary: Summary,
    *,
    inventory: Inventory,
    faults: Sequence[Fault],
    told: Mapping[str, Told],
    running: Sequence[Span] = (),
) -> Section:
    """Return what a page tells of a run.

    Args:
        record: What the run left behind, its spans included.
        summary: Its figures.
        inventory: Its grid.
        faults: What went wrong in it.
        told: What the scheduler said of waiting jobs.
        running: Stays that had not ended yet, up to the end.
    """
    points = record.curve()
    start_s = points[0].at_s if points else 0.0
    end_s = start_s + max(summary.simulated_s, 1.0)
    queues = [queue for queue in summary.by_queue if queue]
    by_queue = 1 < len(queues) <= _COLOURS
    legend = tuple(queues) if by_queue else tuple(name for name, _ in SIZES)

    def paint(job_id: str) -> tuple[int, str]:
        row = record.job(job_id)
        name = row.queue if by_queue else size_class(row.devices)
        colour = legend.index(name) if name in legend else len(legend)
        queue = f", queue {row.queue}" if row.queue else ""
        waited = format_duration(row.wait_s)
        return colour, f"{job_id}: {row.devices} devices{queue}, waited {waited}"

    spans = [*record.spans(), *running]
    waits = nlargest(_WAITS, record.jobs(), key=lambda row: (row.wait_s, row.job_id))
    return Section(
        summary=summary,
        start_s=start_s,
        gantt=gantt_of(spans, inventory, faults, (start_s, end_s), paint),
        legend=legend,
        in_use=_line(points, end_s, lambda point: point.used / max(point.available, 1)),
        waiting_jobs=_line(points, end_s, lambda point: point.waiting_jobs),
        waiting_devices=_line(points, end_s, lambda point: point.waiting_devices),
        waits=tuple(Wait(row=row, told=told.get(row.job_id)) for row in waits if row.wait_s > 0),
        faults=tuple(faults[:_FAULTS_MAX]),
        faults_in_all=len(faults),
    )


def _line(points: Sequence[Point], end_s: float, value: Callable[[Point], float]) -> Line:
    """Return means over equal stretches of time: a value holds from one point to the next."""
    if not points:
        return ()
    start_s = points[0].at_s
    width_s = (end_s - start_s) / _POINTS
    sums, spans = [0.0] * _POINTS, [0.0] * _POINTS
    for now, later_s in _stretches(points, end_s):
        held, at_s = value(now), now.at_s
        place = min(int((at_s - start_s) / width_s), _POINTS - 1)
        while at_s < later_s and place < _POINTS:
            until_s = min(later_s, start_s + (place + 1) * width_s)
            sums[place] += held * max(until_s - at_s, 0.0)
            spans[place] += max(until_s - at_s, 0.0)
            at_s, place = until_s, place + 1
    return tuple(
        ((place + 0.5) * width_s, total / span)
        for place, (total, span) in enumerate(zip(sums, spans, strict=True))
        if span > 0
    )


def _stretches(points: Sequence[Point], end_s: float) -> list[tuple[Point, float]]:
    pairs = [(now, later.at_s) for now, later in pairwise(points)]
    return [*pairs, (points[-1], end_s)]
