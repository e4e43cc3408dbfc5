"""What all readers of logs share: text to rows, cells to numbers and times, rows to arrivals."""
# house: public 14 because the cells' readers are small and belong together

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gridloom.base.errors import InputError, Problem
from gridloom.model.spec import Dependency, Forecast, JobSpec, Program
from gridloom.sim.workload_nouns import Arrival, Dropped, End, ReadOptions, Workload
from gridloom.sim.workload_shapes import Needs, Shapes, Steps

R = TypeVar("R")

STATES: dict[str, End] = {
    "completed": "completed", "succeeded": "completed", "pass": "completed", "failed": "failed",
    "timeout": "failed", "node_fail": "failed", "out_of_memory": "failed", "boot_fail": "failed",
    "deadline": "failed", "cancelled": "cancelled", "canceled": "cancelled", "killed": "cancelled",
}  # fmt: skip
"""What logs call the end of a job; what was stopped by its limit or its node has failed."""

_PROGRAM = Program(argv=(), workdir="/")
_QUOTE = '"'
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
_GZIP = b"\x1f\x8b"
_DEVICES_MAX = 10_000_000
_TIME_S_MAX = 1e11  # 3000 years: beyond it a cell holds something else, as milliseconds


class RowError(Exception):
    """One row cannot be a job; becomes a `Dropped`."""

    def __init__(self, why: str, sentence: str, field: str = "") -> None:
        self.why, self.sentence, self.field = why, sentence, field
        super().__init__(sentence)


class Draft(msgspec.Struct, kw_only=True, gc=False):
    """A job as a row states it.

    Attributes:
        row: Where it stands in the log.
        job_id: As the log calls it.
        submit_s: By the log's clock.
        work_s: Seconds that it ran.
        steps: Numbers of devices, as submitted first, with step times.
        kinds: Kinds of device that the log names.
        needs: What it needs of its hosts besides.
        forecast_s: How long it was predicted to run; 0 when the log does not say.
        state: How it ended.
        fail_after_s: When in its run it failed; 0 for at its end, where it did.
        user: Whose it is.
        queue: Where it waits.
        priority: Higher goes first.
        after: Jobs that must have ended first.
        twin: What makes it equal to another row; nothing for never.
    """

    row: int
    job_id: str
    submit_s: float
    work_s: float
    steps: Steps
    kinds: tuple[str, ...] = ()
    needs: Needs = ()
    forecast_s: float = 0.0
    state: End = ""
    fail_after_s: float = 0.0
    user: str = ""
    queue: str = ""
    priority: int = 0
    after: tuple[Dependency, ...] = ()
    twin: object = None


class Collector:
    """Takes drafts and faults in the order of the log, and makes a workload of them.

    Args:
        source: Name of the format.
        file: Name of the file, for errors.
        options: What the log leaves open.
        items: Rows are the items of a document, not lines.
    """

    def __init__(
        self, source: str, file: str, options: ReadOptions, *, items: bool = False
    ) -> None:
        self.source, self.file, self.options = source, file, options
        self._items = items
        self.notes: list[str] = []
        self._arrivals: list[Arrival] = []
        self.dropped: list[Dropped] = []
        self._shapes = Shapes(options)
        self._seen: dict[str, int] = {}
        self._twins: dict[object, int] = {}
        self._twins_kept = 0

    def read(self, rows: Iterable[tuple[int, R]], make: Callable[[int, R], Draft | None]) -> None:
        """Add the drafts that ``make`` makes of rows, and note what was wrong with the others."""
        for row, content in rows:
            try:
                draft = make(row, content)
                if draft is not None:
                    self._add(draft)
            except RowError as error:
                self.drop(row, error)

    def arrive(self, arrival: Arrival) -> None:
        """Add a job whose specification the log holds."""
        self._seen[arrival.job_id] = arrival.row
        self._arrivals.append(arrival)

    def drop(self, row: int, error: RowError) -> None:
        """Note that no job was made of a row."""
        self.dropped.append(
            Dropped(row=row, why=error.why, sentence=error.sentence, field=error.field)
        )

    def has(self, job_id: str) -> bool:
        """Return whether a job of that name was added."""
        return job_id in self._seen

    def workload(
        self, *, origin_s: float = 0.0, rebase: bool = False, devices: int = 0
    ) -> Workload:
        """Return what was collected.

        Args:
            origin_s: The log's zero in seconds since the epoch, when it has one.
            rebase: Times of the log are seconds since the epoch: the first submission is zero.
            devices: Of the log's machine, when it says.

        Raises:
            InputError: No row is usable.
        """
        if not self._arrivals:
            raise self._nothing()
        ordered = sorted(self._arrivals, key=lambda arrival: (arrival.submit_s, arrival.row))
        notes = [*self._order_notes(), *self.notes]
        if rebase:
            origin_s = ordered[0].submit_s
            ordered = [_moved(arrival, -origin_s) for arrival in ordered]
        return Workload(
            arrivals=tuple(ordered),
            dropped=tuple(sorted(self.dropped, key=lambda dropped: dropped.row)),
            notes=tuple(notes),
            format=self.source,
            origin_s=origin_s,
            devices=devices,
        )

    def _add(self, draft: Draft) -> None:
        _check(draft)
        earlier = self._seen.setdefault(draft.job_id, draft.row)
        if earlier != draft.row:
            raise RowError("duplicate", f"{draft.job_id} is already in row {earlier}")
        if draft.twin is not None:
            earlier = self._twins.setdefault(draft.twin, draft.row)
            if earlier != draft.row and self.options.twins == "drop":
                raise RowError("duplicate", f"equal to row {earlier} in all but the id")
            self._twins_kept += earlier != draft.row
        self._arrivals.append(self._arrival(draft))

    def _arrival(self, draft: Draft) -> Arrival:
        options = self._shapes.of(draft.steps, draft.kinds, draft.needs)
        failed = draft.state == "failed"
        return Arrival(
            job_id=draft.job_id,
            submit_s=draft.submit_s,
            spec=JobSpec(
                name=draft.job_id,
                program=_PROGRAM,
                options=options,
                priority=draft.priority,
                queue=draft.queue,
                user=draft.user,
                forecast=Forecast(duration_s=draft.forecast_s or draft.work_s),
                after=draft.after,
                elastic=len(draft.steps) > 1,
            ),
            work_s=draft.work_s,
            state=draft.state,
            fail_after_s=(draft.fail_after_s or draft.work_s) if failed else 0.0,
            row=draft.row,
        )

    def _order_notes(self) -> Iterator[str]:
        moved = sum(
            earlier.submit_s > later.submit_s
            for earlier, later in zip(self._arrivals, self._arrivals[1:], strict=False)
        )
        if moved:
            yield f"{moved} rows were out of time order and were sorted"
        if self._twins_kept:
            yield (
                f"{self._twins_kept} rows equal an earlier one in all but the id; "
                "they were kept as jobs of their own"
            )

    def _nothing(self) -> InputError:
        if not self.dropped:
            return InputError(
                (Problem("has no jobs", f"write one a row, as in {self.source}", file=self.file),)
            )
        first = min(self.dropped, key=lambda dropped: dropped.row)
        counts = Workload(arrivals=(), dropped=tuple(self.dropped)).dropped_by_reason()
        causes = ", ".join(f"{count} {why}" for why, count in counts.items())
        return InputError(
            (
                Problem(
                    f"no row is usable ({causes}); the first: {first.sentence}",
                    _REMEDIES.get(first.why, "correct the row, or read it as another format"),
                    file=self.file,
                    line=0 if self._items else first.row,
                    field=f"items[{first.row - 1}]" if self._items else first.field,
                ),
            )
        )


class Table:
    """Text with one record a line and names of columns in the first.

    A record may not go over a line's end: an unclosed quote costs its own line, not the file.

    Args:
        text: All of it.
        file: Name of the file, for errors.
        delimiter: Between two cells.

    Raises:
        InputError: The text has no line, or the first is none of names.
    """

    def __init__(self, text: str, *, file: str, delimiter: str = ",") -> None:
        self._file, self._delimiter = file, delimiter
        self._lines = numbered(text)
        try:
            self._first, line = next(self._lines)
            self._names = [name.strip().lower() for name in self._cells(line)]
        except (StopIteration, RowError):
            raise InputError((Problem("has no line of column names", file=file),)) from None

    def column(self, *names: str) -> int:
        """Return the place of the first of ``names`` that is a column; -1 when none is."""
        return next((self._names.index(name) for name in names if name in self._names), -1)

    def required(self, *names: str) -> int:
        """Return the place of the first of ``names`` that is a column.

        Raises:
            InputError: None is.
        """
        place = self.column(*names)
        if place < 0:
            others = f" (or {', '.join(names[1:])})" if names[1:] else ""
            problem = Problem(
                f"there is no column {names[0]}{others} among {', '.join(self._names)[:200]}",
                "name it in the first line, or say which format the file has",
                file=self._file,
                line=self._first,
                field=names[0],
            )
            raise InputError((problem,))
        return place

    def rows(self, out: Collector) -> Iterator[tuple[int, list[str]]]:
        """Return lines and their cells, without blanks around; what is no record is dropped."""
        expected = len(self._names)
        for number, line in self._lines:
            try:
                cells = self._cells(line)
            except RowError as error:
                out.drop(number, error)
                continue
            if len(cells) != expected:
                sentence = f"{len(cells)} fields, the header has {expected}"
                out.drop(number, RowError("field_count", sentence))
                continue
            yield number, cells

    def _cells(self, line: str) -> list[str]:
        if self._delimiter != "," or _QUOTE not in line:
            return [cell.strip() for cell in line.split(self._delimiter)]
        try:
            return [cell.strip() for cell in next(csv.reader([line], strict=True))]
        except csv.Error as error:
            raise RowError("malformed", f"not a line of CSV: {error}") from None


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers from 1."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def decoded(data: str | bytes, file: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a log, and notes on how it was decoded.

    Raises:
        InputError: It is compressed, or no text.
    """
    if isinstance(data, str):
        return data.removeprefix("\ufeff"), ()
    if data.startswith(_GZIP):
        raise InputError((Problem("is compressed", "unpack it before reading", file=file),))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # as a shell of Windows redirects
        return data.decode("utf-16", errors="replace").removeprefix("\ufeff"), ()
    text = data.decode("utf-8-sig", errors="replace")
    broken = text.count("\ufffd")
    if "\0" in text[:4096] or broken * 10 > len(text):
        raise InputError((Problem("is not text", "hand in a log as text", file=file),))
    return text, (f"{broken} characters are not UTF-8 and were replaced",) if broken else ()


def number(cell: str, field: str) -> float:
    """Return the finite number that a cell holds.

    Raises:
        RowError: It holds none.
    """
    if not cell:
        raise RowError("missing_field", f"{field} is empty", field)
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in cell:
        raise RowError("not_a_number", f"{field} is {cell[:40]!r}, not a number", field)
    return value


def whole(cell: str, field: str) -> int:
    """Return the whole number that a cell holds, as ``8`` or ``8.0``.

    Raises:
        RowError: It holds none.
    """
    value = number(cell, field)
    if value != int(value):
        raise RowError("not_whole", f"{field} is {cell[:40]}, not a whole number", field)
    return int(value)


def seconds_since_epoch(cell: str, field: str) -> float:
    """Return a time in seconds since the epoch: from ISO 8601, or from such seconds.

    A time without a zone is taken as UTC.

    Raises:
        RowError: The cell holds no time.
    """
    if not cell:
        raise RowError("missing_field", f"{field} is empty", field)
    try:
        if cell.isdecimal():
            return number(cell, field)
        moment = datetime.fromisoformat(cell)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        sentence = f"{field} is {cell[:40]!r}, not a time like 2026-01-31T12:00:00"
        raise RowError("not_a_time", sentence, field) from None


def zoneless(cell: str) -> bool:
    """Return whether a time is neither seconds since the epoch nor has a zone."""
    return not cell.isdecimal() and _ZONE.search(cell) is None


def alone(devices: int) -> Steps:
    """Return the one shape of a job that takes only that many devices."""
    return ((devices, 0.0),)


def _check(draft: Draft) -> None:
    if draft.submit_s < 0:
        raise RowError("negative_time", f"submitted at {draft.submit_s:g} s", "submit")
    if draft.work_s < 0:
        raise RowError("negative_time", f"ran {draft.work_s:g} s", "duration")
    if draft.work_s == 0:
        raise RowError("zero_duration", "ran 0 s", "duration")
    if draft.steps[0][0] < 1:
        raise RowError("no_devices", f"asks for {draft.steps[0][0]} devices", "devices")
    if not draft.job_id:
        raise RowError("missing_field", "has no id", "id")
    most = max(devices for devices, _ in draft.steps)
    if most > _DEVICES_MAX:
        raise RowError("out_of_range", f"asks for {most:.3g} devices", "devices")
    if not (draft.submit_s <= _TIME_S_MAX and draft.work_s <= _TIME_S_MAX):
        sentence = f"submitted at {draft.submit_s:g} s, ran {draft.work_s:g} s"
        raise RowError("out_of_range", sentence, "duration")


def _moved(arrival: Arrival, by_s: float) -> Arrival:
    spec = arrival.spec
    if spec.deadline_s:
        spec = replace(spec, deadline_s=spec.deadline_s + by_s)
    return replace(arrival, submit_s=arrival.submit_s + by_s, spec=spec)


_REMEDIES = {
    "field_count": "give every row as many fields as the header",
    "malformed": "close every quote, and write one record a line",
    "missing_field": "fill it in",
    "not_a_number": "write a number, as 3600",
    "not_whole": "write a whole number, as 8",
    "not_a_time": "write ISO 8601 or seconds since the epoch",
    "negative_time": "write 0 or more seconds",
    "missing_duration": "give jobs that have ended, with their run times",
    "zero_duration": "give jobs that ran for more than 0 s",
    "no_devices": "give jobs with at least one device, or read the log for another kind of device",
    "never_ran": "give jobs that have started",
    "unfinished": "give jobs that have ended",
    "out_of_range": "write seconds, and numbers of devices",
}
