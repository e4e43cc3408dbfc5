"""What a simulation leaves behind: a row for each job, curves of the grid, and who was where."""

import math
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gridloom.model.life import JobState
from gridloom.sim.signals import Bill


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one job.

    Attributes:
        job_id: Unique in the record.
        submit_s: When it was handed in.
        first_start_s: When its first attempt was placed; not a number when none was.
        end_s: When it was over; not a number when it is not.
        attempts: How many were placed.
        wait_s: From submission to the first start, or to the end when there was none.
        running_s: Seconds that its attempts held devices.
        device_s: Device-seconds that they held.
        useful_device_s: Of those, training that a checkpoint or the job's own end kept.
        lost_device_s: Training that nothing kept: it was done again, or was for nothing.
        overhead_device_s: The rest: starting, restarting, saving, standing still.
        preemptions: Attempts that ended because the scheduler wanted the devices.
        cost: In the grid's currency.
        energy_kwh: Of its devices while it held them.
        co2_kg: Of that energy.
        state: Where it is in its life.
        queue: Where it waited.
        devices: Of its last placement; before there was any, of its first option.
        sites: Of its last placement, in rank order.
    """

    job_id: str
    submit_s: float
    first_start_s: float
    end_s: float
    attempts: int
    wait_s: float
    running_s: float
    device_s: float
    useful_device_s: float
    lost_device_s: float
    overhead_device_s: float
    preemptions: int
    cost: float
    energy_kwh: float
    co2_kg: float
    state: JobState
    queue: str
    devices: int
    sites: tuple[str, ...]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's stay on one node.

    Attributes:
        job_id: The job.
        domain: ``site/node``.
        devices: How many of the node's.
        start_s: From when.
        end_s: Until when.
    """

    job_id: str
    domain: str
    devices: int
    start_s: float
    end_s: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The grid after one instant.

    Attributes:
        at_s: When.
        used: Devices that attempts hold.
        available: Devices that are there, and those that are gone while an attempt still holds
            them.
        waiting_jobs: Jobs that hold nothing and are not over.
        waiting_devices: Devices of their first options.
        fragmentation: What the gauge said; not a number without one.
    """

    at_s: float
    used: int
    available: int
    waiting_jobs: int
    waiting_devices: int
    fragmentation: float = math.nan


class Tally(Bill):
    """What a job has used so far, over all of its attempts; fields as in ``JobRow``."""

    __slots__ = ("device_s", "lost_device_s", "overhead_device_s", "running_s", "useful_device_s")

    def __init__(self) -> None:
        self.cost = self.energy_kwh = self.co2_kg = 0.0
        self.running_s = self.device_s = 0.0
        self.useful_device_s = self.lost_device_s = self.overhead_device_s = 0.0

    def copy(self) -> "Tally":
        """Return another one that says the same."""
        other = Tally()
        for name in (*Bill.__slots__, *Tally.__slots__):
            setattr(other, name, getattr(self, name))
        return other


class SimRecord:
    """Columns, not objects: a million jobs take about 200 bytes each.

    Attributes:
        used_device_s: Integral of the devices that attempts held, exact.
        available_device_s: Integral of the devices that were available, exact.
        steps: Calls of the scheduler's door.
    """

    def __init__(self, *, spans: bool, curve_points_max: int) -> None:
        self.used_device_s = self.available_device_s = 0.0
        self.steps = 0
        self.keeps_spans = spans
        self._ids: dict[str, int] = {}
        self._rows = bytearray()
        self._words: dict[object, int] = {}
        self._word_list: list[object] = []
        self._curve = _Curve(curve_points_max)
        self._spans = _Spans()

    def __len__(self) -> int:
        """Return the number of jobs that were submitted."""
        return len(self._ids)

    def add(self, job_id: str) -> int | None:
        """Make a row for a new job and return its number; nothing when there is one already."""
        if job_id in self._ids:
            return None
        number = self._ids[job_id] = len(self._ids)
        if number * _ROW.size == len(self._rows):
            self._rows.extend(bytes(_ROW.size * _BLOCK_ROWS))
        return number

    def write(self, number: int, row: JobRow) -> None:
        """Fill, or overwrite, a row."""
        _, *values = msgspec.structs.astuple(row)
        words = self._words
        for place in _WORDS:
            word = words.get(values[place])
            values[place] = self._new_word(values[place]) if word is None else word
        _ROW.pack_into(self._rows, number * _ROW.size, *values)

    def job(self, job_id: str) -> JobRow:
        """Return the row of a job; ``KeyError`` when there is none."""
        return self._row(job_id, self._ids[job_id])

    def jobs(self) -> Iterator[JobRow]:
        """Return all rows, in order of submission."""
        for job_id, number in self._ids.items():
            yield self._row(job_id, number)

    def column(self, name: str) -> list[float]:
        """Return one numeric column of all rows, in order of submission."""
        place = _FIELDS.index(name)
        values = memoryview(self._rows).cast("B").cast("d" if _CODES[place] == "d" else "q")
        return [float(one) for one in values[place :: len(_FIELDS)][: len(self)]]

    def curve(self) -> list[Point]:
        """Return the points of the curves, in order; values hold from one to the next."""
        return self._curve.points()

    def spans(self) -> list[Span]:
        """Return who was where, in order of the ends; empty when that is not kept."""
        return self._spans.all()

    def stayed(
        self, job_id: str, domain: str, *, devices: int, start_s: float, end_s: float
    ) -> None:
        """Note a stay that has ended; as in ``Span``."""
        self._spans.add(job_id, domain, (devices, start_s, end_s))

    def sample(self, point: Point, gauge: Callable[[], float] | None = None) -> None:
        """Note the grid after an instant; ``gauge`` is read only if the point is kept."""
        last = self._curve.last
        if last is not None:
            passed_s = point.at_s - last.at_s
            self.used_device_s += last.used * passed_s
            self.available_device_s += last.available * passed_s
        self._curve.add(point, gauge)

    def _new_word(self, value: object) -> int:
        number = self._words[value] = len(self._word_list)
        self._word_list.append(value)
        return number

    def device_s(self, now_s: float) -> tuple[float, float]:
        """Return the device-seconds that were held and that were available, up to a time."""
        last = self._curve.last
        passed_s = 0.0 if last is None else max(now_s - last.at_s, 0.0)
        used, available = (0, 0) if last is None else (last.used, last.available)
        return self.used_device_s + used * passed_s, self.available_device_s + available * passed_s

    def _row(self, job_id: str, number: int) -> JobRow:
        values: list[Any] = list(_ROW.unpack_from(self._rows, number * _ROW.size))
        for place in _WORDS:
            values[place] = self._word_list[values[place]]
        return JobRow(job_id=job_id, **dict(zip(_FIELDS, values, strict=True)))


_FIELDS = JobRow.__struct_fields__[1:]
_CODES = "".join("d" if JobRow.__annotations__[name] is float else "q" for name in _FIELDS)
_ROW = struct.Struct(f"={_CODES}")
_WORDS = tuple(_FIELDS.index(name) for name in ("state", "queue", "sites"))
_BLOCK_ROWS = 1024


class _Curve:
    """Points in order, thinned by half whenever there are too many."""

    def __init__(self, points_max: int) -> None:
        self.last: Point | None = None
        self._points_max = max(points_max, 2)
        self._gap_s = 0.0
        self._points: list[Point] = []

    def add(self, point: Point, gauge: Callable[[], float] | None) -> None:
        last, self.last = self.last, point
        points = self._points
        passed_s = math.inf if last is None else point.at_s - points[-1].at_s
        if 0 < passed_s < self._gap_s:
            return
        if gauge is not None:
            point = msgspec.structs.replace(point, fragmentation=gauge())
        if passed_s == 0:
            points[-1] = point
            return
        points.append(point)
        if len(points) > self._points_max:
            span_s = point.at_s - points[0].at_s
            self._gap_s = max(2 * self._gap_s, 2 * span_s / self._points_max)
            self._points = _thinned(points, self._gap_s)

    def points(self) -> list[Point]:
        points = list(self._points)
        if self.last is not None and self.last.at_s > points[-1].at_s:
            points.append(self.last)
        return points


def _thinned(points: list[Point], gap_s: float) -> list[Point]:
    kept = [points[0]]
    for point in points[1:]:
        if point.at_s - kept[-1].at_s >= gap_s:
            kept.append(point)
    return kept


class _Spans:
    """Stays in columns; ids and domains are shared with those who made them."""

    def __init__(self) -> None:
        self._job_ids: list[str] = []
        self._domains: list[str] = []
        self._devices = array("q")
        self._starts_s = array("d")
        self._ends_s = array("d")

    def add(self, job_id: str, domain: str, stay: tuple[int, float, float]) -> None:
        devices, start_s, end_s = stay
        self._job_ids.append(job_id)
        self._domains.append(domain)
        self._devices.append(devices)
        self._starts_s.append(start_s)
        self._ends_s.append(end_s)

    def all(self) -> list[Span]:
        columns = (self._job_ids, self._domains, self._devices, self._starts_s, self._ends_s)
        return [
            Span(job_id=job_id, domain=domain, devices=devices, start_s=start_s, end_s=end_s)
            for job_id, domain, devices, start_s, end_s in zip(*columns, strict=True)
        ]
