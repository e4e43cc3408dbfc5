"""What the parts of a story must be to each other, checked on whatever could be read."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from gridloom.model.inventory import Inventory
from gridloom.wire.documents_check import Document, Finding
from gridloom.wire.source_tree import Path
from gridloom.wire.story_check_expect import expect_findings
from gridloom.wire.story_document import (
    EVENTS,
    JOB_EVENTS,
    PLACE_EVENTS,
    EventDocument,
    TermsDocument,
)
from gridloom.wire.story_expect import ExpectDocument
from gridloom.wire.story_job import JobFieldsDocument, NeedDocument, SubmitDocument
from gridloom.wire.story_names import Places, names_like, unknown_name

D = TypeVar("D", bound=Document)

_GUESSED = 100
"""Jobs that an array is taken for when it cannot be read."""

_APART_MAX = 10_000
"""Jobs that `gang: false` makes of one, at most; an array has no more."""

_BEATS_MAX = 1_000_000
"""Signs of life of one task, at most; each is a step of the story."""

_SAVES_MAX = 1_000_000
"""Checkpoints of one job, at most; the scheduler is told of each."""


def check_story(data: Mapping[str, Any], inventories: Mapping[int, Inventory]) -> list[Finding]:
    """Return what does not fit together in a story.

    Args:
        data: Its plain data.
        inventories: The grids that could be read, that of the beginning as -1, else by the number
            of their event.
    """
    events = _read(EventDocument, data.get("events"))
    expects = _read(ExpectDocument, data.get("expect"))
    defaults = _read(JobFieldsDocument, [data.get("defaults") or {}]).get(0) or JobFieldsDocument()
    checker = _Checker(Places(inventories.values()), events, defaults)
    checker.guess(data.get("events"))
    findings = [*checker.findings()]
    if not data.get("expect"):
        findings.append((("expect",), "nothing is expected", "write what must hold, and when"))
    findings += _signs_of_life(data, events)
    for i, expect in expects.items():
        findings += expect_findings(("expect", i), expect, [*checker.jobs], checker.places)
    return findings


class _Checker:
    """Looks at the events."""

    def __init__(
        self, places: Places, events: Mapping[int, EventDocument], defaults: JobFieldsDocument
    ) -> None:
        self.places, self._events, self._defaults = places, events, defaults
        self.jobs: dict[str, tuple[int, float]] = {}
        self._twice: list[Finding] = []
        for i, event in events.items():
            if event.submit is None:
                continue
            for name in event.submit.over(defaults).names:
                if name in self.jobs:
                    here = ("events", i, "submit", "name")
                    self._twice.append((here, f"two jobs are called `{name}`", "name them apart"))
                self.jobs.setdefault(name, (i, event.at))

    def guess(self, raw: Any) -> None:
        """Know the names of jobs of which something else is wrong, so that nobody misses them."""
        for i, event in enumerate(raw if isinstance(raw, list) else ()):
            job = event.get("submit") if isinstance(event, dict) and i not in self._events else None
            name = job.get("name") if isinstance(job, dict) else None
            if isinstance(name, str):
                array = isinstance(job, dict) and ("array" in job or "gang" in job)
                names = [f"{name}[{k}]" for k in range(_GUESSED)] if array else [name]
                self.jobs |= {one: (i, 0.0) for one in names if one not in self.jobs}

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, event by event."""
        yield from self._twice
        for i, event in self._events.items():
            here: Path = ("events", i)
            said = [name for name in EVENTS if name in event.model_fields_set]
            if not said:
                yield here, "nothing happens", f"write one of {', '.join(EVENTS)}"
            elif len(said) > 1:
                message = f"both `{said[0]}` and `{said[1]}` happen"
                yield (*here, said[1]), message, "write two events with the same time"
            if event.submit is not None:
                place: Path = (*here, "submit")
                job = event.submit.over(self._defaults)
                yield from self._submit(place, job)
                yield from self._waits_for(place, job, self._before(i, event))
            yield from self._jobs_named(here, event)
            yield from self._places_named(here, event)

    def _submit(self, here: Path, job: SubmitDocument) -> Iterator[Finding]:
        if job.array and not job.gang:
            yield (*here, "gang"), "`array` and `gang: false` are both given", "keep one"
        if not job.gang and len(job.tasks) > 1:
            yield (*here, "tasks"), "an elastic job is a gang", "remove `gang: false`"
        if not job.gang and job.tasks[0] > _APART_MAX:
            message = f"{job.tasks[0]:,} jobs, each of its own"
            yield (*here, "tasks"), message, f"write at most {_APART_MAX:,} with `gang: false`"
        yield from _devices(here, job)
        yield from self._groups(here, job)
        yield from self._where(here, job)
        if job.fails_after and job.duration and job.fails_after > job.duration:
            message = f"it ends after {job.duration:g} s already"
            yield (*here, "fails_after"), message, "let it fail earlier"
        saves = self._span_s(job) / job.checkpoint_every if job.checkpoint_every else 0.0
        if saves > _SAVES_MAX:
            message = f"it saves its state more than {_SAVES_MAX:,} times"
            yield (*here, "checkpoint_every"), message, "write a longer time between two"

    def _waits_for(self, here: Path, job: SubmitDocument, earlier: list[str]) -> Iterator[Finding]:
        for name, _ in job.after:
            if not names_like(name, earlier):
                message, remedy = unknown_name("job", name, earlier)
                yield (*here, "after"), f"{message} until then", remedy

    def _span_s(self, job: SubmitDocument) -> float:
        """Return how long a job runs, without a duration until the last event at least."""
        return job.duration or max(event.at for event in self._events.values())

    def _before(self, number: int, event: EventDocument) -> list[str]:
        """Return the jobs that are handed in before one: of an instant, those written before."""
        return [other for other, (i, at) in self.jobs.items() if (at, i) < (event.at, number)]

    def _where(self, here: Path, job: SubmitDocument) -> Iterator[Finding]:
        for place, names in (("sites", job.sites), ("data", job.data)):
            for name in names:
                if name not in self.places.sites:
                    yield (*here, place), *unknown_name("site", name, self.places.sites)
        yield from self._domains((*here, "pin"), job.pin)
        for name in job.pin:
            if name in self.places.sites:
                yield (*here, "pin"), f"`{name}` is a site", f"write `sites: {name}`"
        if job.queue is not None and job.queue not in self.places.queues:
            yield (*here, "queue"), *unknown_name("queue", job.queue, self.places.queues)

    def _groups(self, here: Path, job: SubmitDocument) -> Iterator[Finding]:
        for field in ("together", "prefer"):
            for level, ranks in (getattr(job, field) or {}).items():
                if level not in self.places.levels:
                    yield (*here, field), *unknown_name("level", level, self.places.levels)
                if ranks and not any(tasks % ranks == 0 for tasks in _task_counts(job)):
                    message = f"{ranks} tasks together, and {job.tasks[0]} tasks in all"
                    yield (*here, field), message, "write a divisor of the tasks"
        if job.within is not None and job.within not in self.places.levels:
            yield (*here, "within"), *unknown_name("level", job.within, self.places.levels)

    def _jobs_named(self, here: Path, event: EventDocument) -> Iterator[Finding]:
        named = {field: getattr(event, field) for field in JOB_EVENTS}
        if event.fail is not None:
            named["fail"] = event.fail.job
        for field, names in named.items():
            for name in names:
                earlier = [other for other, (_, at) in self.jobs.items() if at <= event.at]
                if not names_like(name, earlier):
                    message, remedy = unknown_name("job", name, earlier)
                    yield (*here, field), f"{message} until then", remedy

    def _places_named(self, here: Path, event: EventDocument) -> Iterator[Finding]:
        for field in PLACE_EVENTS:
            yield from self._domains((*here, field), getattr(event, field))
        if event.slow is not None:
            yield from self._domains((*here, "slow", "where"), (event.slow.where,))
        if event.book is not None:
            yield from self._domains((*here, "book", "nodes"), event.book.nodes)
            if event.book.end <= event.book.start:
                yield (*here, "book", "to"), "it ends before it begins", "write a later time"
        booked = [e.book.name for e in self._events.values() if e.book and e.at <= event.at]
        if event.unbook is not None and event.unbook not in booked:
            message, remedy = unknown_name("booking", event.unbook, booked)
            yield (*here, "unbook"), f"{message} until then", remedy
        sites = [*event.partition, *event.price, *event.carbon]
        field = next((f for f in ("partition", "price", "carbon") if getattr(event, f)), "")
        for name in sites:
            if name not in self.places.sites:
                yield (*here, field), *unknown_name("site", name, self.places.sites)
        if event.partition and (len(event.partition) != 2 or len(set(event.partition)) != 2):
            remedy = "write `partition: [north, south]`"
            yield (*here, "partition"), "a partition is between two different sites", remedy

    def _domains(self, here: Path, names: tuple[str, ...]) -> Iterator[Finding]:
        for name in names:
            if wrong := self.places.wrong(name):
                yield here, *wrong


def _signs_of_life(
    data: Mapping[str, Any], events: Mapping[int, EventDocument]
) -> Iterator[Finding]:
    terms = _read(TermsDocument, [data.get("terms") or {}]).get(0)
    until = data.get("until")
    span_s = max([event.at for event in events.values()], default=0.0)
    if isinstance(until, int | float):
        span_s = float(until)
    if terms is not None and terms.leases and span_s / terms.heartbeat > _BEATS_MAX:
        message = f"a task gives more than {_BEATS_MAX:,} signs of life until the end"
        yield ("terms", "heartbeat"), message, "write a longer time between two"


def _devices(here: Path, job: SubmitDocument) -> Iterator[Finding]:
    remedy = "write `gpus: 8`, `cpus: 4`, `devices: h100:8` or `options`"
    if not job.options:
        yield from _one_device(here, job, remedy)
        return
    for field in ("gpus", "cpus", "devices"):
        if getattr(job, field) is not None:
            yield (*here, field), "stands beside `options`", "move it into each of them"
    for i, option in enumerate(job.options):
        yield from _one_device((*here, "options", i), option, remedy)


def _one_device(here: Path, need: NeedDocument, remedy: str) -> Iterator[Finding]:
    if need.gpus is None and need.devices is None and need.cpus is None:
        yield here, "it needs no device", remedy
    elif need.gpus is not None and need.devices is not None:
        yield (*here, "devices"), "both `gpus` and `devices` are given", "keep one"
    if need.step is not None and need.steps:
        yield (*here, "steps"), "both `step` and `steps` are given", "keep one"


def _task_counts(job: SubmitDocument) -> tuple[int, ...]:
    counts = [option.tasks or job.tasks[0] for option in job.options]
    return tuple(counts) or job.tasks


def _read(model: type[D], raw: Any) -> dict[int, D]:
    """Return the items of a list that can be read, by their number."""
    items: dict[int, D] = {}
    for i, item in enumerate(raw if isinstance(raw, list) else ()):
        try:
            items[i] = model.model_validate(item)
        except ValidationError:
            continue
    return items
