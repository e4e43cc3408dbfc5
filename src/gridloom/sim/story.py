"""A story made ready to be played: jobs, faults and wishes in the world's time."""

import math
from dataclasses import dataclass, field

from gridloom.core.turn import LeaseTerms
from gridloom.model.booking import Booking
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    NodeMarked,
    ResumeRequested,
    SignalChanged,
    StopRequested,
)
from gridloom.model.inventory import Inventory
from gridloom.sim.faults import Fault, Kind
from gridloom.sim.story_jobs import arrivals
from gridloom.sim.terms import SimTerms
from gridloom.sim.workload_nouns import Arrival
from gridloom.wire.stories import AT_FIRST, StoryFile
from gridloom.wire.story_document import EventDocument, TermsDocument
from gridloom.wire.story_expect import ExpectDocument
from gridloom.wire.story_names import Places, names_like

ORIGIN_S = 700 * 30 * 86400.0
"""When stories begin, in the world's time: a beginning of the usual period of 30 days, and far from
0, which in many places stands for no time at all."""

_AFTER_S = 400 * 86400.0
"""How long a story goes on after the last thing that it names, if something keeps happening."""

_AFTER_BEATS_S = 3600.0
"""The same where signs of life, or checkpoints, never cease."""

_TOUCH_S = 1e-3
_Request = type[CancelRequested | StopRequested | ResumeRequested | EvictRequested]
_REQUESTS: dict[str, _Request] = {
    "cancel": CancelRequested,
    "stop": StopRequested,
    "resume": ResumeRequested,
    "preempt": EvictRequested,
}
_MARKS = ("drain", "cordon", "taint")


@dataclass(frozen=True)
class End:
    """Programs end, well or not.

    Attributes:
        at_s: When, in the story's time.
        job_ids: Whose.
        exit_code: 0 for well.
    """

    at_s: float
    job_ids: tuple[str, ...]
    exit_code: int = 0


@dataclass(frozen=True)
class Story:
    """A story that can be played.

    Attributes:
        name: What it is called.
        about: What goes wrong where it does not hold.
        inventory: The grid at the beginning.
        places: Its nodes and sites by name.
        arrivals: Its jobs, in order.
        faults: What happens to nodes and sites without anybody's will.
        wishes: What users and operators hand in, in the world's time.
        ends: Programs that end when the story says so.
        expects: What must hold, each with its line.
        terms: How the world runs.
        until_s: When it ends, in the story's time; nothing: when nothing is left to happen.
        limit_s: When it ends in any case.
    """

    name: str
    about: str
    inventory: Inventory
    places: Places
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...]
    wishes: tuple[tuple[float, AnyEvent], ...]
    ends: tuple[End, ...]
    expects: tuple[tuple[int, ExpectDocument], ...]
    terms: SimTerms
    until_s: float | None
    limit_s: float


def prepare(file: StoryFile, name: str) -> Story:
    """Return the story of a file, which is called ``name`` unless it says otherwise."""
    document = file.document
    maker = _Maker(Places(file.inventories.values()))
    for i, event in sorted(enumerate(document.events), key=lambda pair: (pair[1].at, pair[0])):
        if event.submit is not None:
            job = event.submit.over(document.defaults)
            maker.names += job.names
            maker.arrivals += arrivals(
                job,
                ORIGIN_S + event.at,
                ORIGIN_S,
                places=maker.places,
                earlier=[one for one in maker.names if one not in job.names],
            )
        maker.take(event, file.inventories.get(i))
    terms = _terms(document.terms)
    last_s = max([event.at for event in document.events] + [_last_s(e) for e in document.expect])
    beats = document.terms.leases or any(_never_ceases(one) for one in maker.arrivals)
    after_s = _AFTER_BEATS_S if beats else _AFTER_S
    return Story(
        name=document.name or name,
        about=document.about,
        inventory=file.inventories[AT_FIRST],
        places=maker.places,
        arrivals=tuple(maker.arrivals),
        faults=tuple(maker.faults()),
        wishes=tuple(maker.wishes),
        ends=tuple(maker.ends),
        expects=tuple(zip(file.lines, document.expect, strict=True)),
        terms=terms,
        until_s=document.until,
        limit_s=last_s + after_s,
    )


@dataclass
class _Maker:
    """Turns events into what the simulation takes, in order of time."""

    places: Places
    names: list[str] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    wishes: list[tuple[float, AnyEvent]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _open: dict[str, list[Fault]] = field(default_factory=dict)

    def take(self, event: EventDocument, inventory: Inventory | None) -> None:
        """Take one event in; a job that it hands in was taken already."""
        at_s = event.at
        for field_, request in _REQUESTS.items():
            for name in self._jobs(getattr(event, field_)):
                self._wish(at_s, request(job_id=name))
        for mark in _MARKS:
            for domain in self._domains(getattr(event, mark)):
                self._wish(at_s, _marked(domain, mark))
        for domain in self._domains(event.lose):
            self._wish(at_s, NodeMarked(domain=domain, mark="lost"))
        if event.finish:
            self.ends.append(End(at_s, self._jobs(event.finish)))
        if event.fail is not None:
            self.ends.append(End(at_s, self._jobs(event.fail.job), event.fail.exit))
        if inventory is not None:
            self._wish(at_s, InventoryChanged(inventory=inventory))
        self._signals(event)
        self._book(event)
        self._fault(event)

    def faults(self) -> list[Fault]:
        """Return all faults; those that nobody has ended last for ever."""
        return self._faults + [fault for faults in self._open.values() for fault in faults]

    def _signals(self, event: EventDocument) -> None:
        for site, price in event.price.items():
            self._wish(event.at, SignalChanged(site=site, price_per_accelerator_hour=price))
        for site, grams in event.carbon.items():
            self._wish(event.at, SignalChanged(site=site, carbon_g_per_kwh=grams))

    def _book(self, event: EventDocument) -> None:
        if event.unbook is not None:
            self._wish(event.at, BookingDropped(name=event.unbook))
        if (said := event.book) is None:
            return
        booking = Booking(
            name=said.name,
            start_s=ORIGIN_S + said.start,
            end_s=ORIGIN_S + said.end,
            nodes=self._domains(said.nodes),
            queues=said.queues,
        )
        self._wish(event.at, BookingMade(booking=booking))

    def _fault(self, event: EventDocument) -> None:
        for domain in self._domains(event.silence):
            self._begin(event.at, domain, "down" if "/" in domain else "cut")
        for domain in self._domains(event.refuse):
            self._begin(event.at, domain, "refuse")
        for domain in self._domains(event.kill):
            self._faults.append(Fault(at_s=ORIGIN_S + event.at, kind="kill", domain=domain))
        if event.slow is not None:
            (domain,) = self._domains((event.slow.where,))
            self._begin(event.at, domain, "slow", factor=event.slow.factor)
        if event.partition:
            self._begin(event.at, "|".join(event.partition), "cut")
        for domain in self._domains((*event.restore, *event.undrain)):
            self._restore(event.at, domain)

    def _begin(self, at_s: float, domain: str, kind: Kind, factor: float = 1.0) -> None:
        fault = Fault(at_s=ORIGIN_S + at_s, kind=kind, domain=domain, factor=factor)
        self._open.setdefault(domain, []).append(fault)

    def _restore(self, at_s: float, domain: str) -> None:
        ended = 0
        for place in [p for p in self._open if domain in (p, *p.split("|"))]:
            for fault in self._open.pop(place):
                duration_s = max(ORIGIN_S + at_s - fault.at_s, _TOUCH_S)
                self._faults.append(
                    Fault(
                        at_s=fault.at_s,
                        kind=fault.kind,
                        domain=fault.domain,
                        duration_s=duration_s,
                        factor=fault.factor,
                    )
                )
                ended += 1
        if not ended:
            self._wish(at_s, NodeMarked(domain=domain, mark=""))

    def _wish(self, at_s: float, event: AnyEvent) -> None:
        self.wishes.append((ORIGIN_S + at_s, event))

    def _jobs(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        found = [name for pattern in patterns for name in names_like(pattern, self.names)]
        return tuple(dict.fromkeys(found))

    def _domains(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(domain for name in names if (domain := self.places.domain(name)))


def _marked(domain: str, mark: str) -> NodeMarked:
    return NodeMarked(domain=domain, mark=mark)  # type: ignore[arg-type] # one of _MARKS


def _terms(said: TermsDocument) -> SimTerms:
    return SimTerms(
        start_s=said.start,
        checkpoint_stall=0.0,
        report_checkpoints=True,
        heartbeat_s=said.heartbeat if said.leases else 0.0,
        lease=LeaseTerms(lease_s=said.lease, kill_margin_s=said.margin),
        detect_s=said.lease + said.margin if said.leases else said.detect,
    )


def _never_ceases(arrival: Arrival) -> bool:
    """Return whether a job goes on saving its state for ever."""
    return math.isinf(arrival.work_s) and arrival.spec.forecast.checkpoint_every_s > 0


def _last_s(expect: ExpectDocument) -> float:
    return max(expect.at or 0.0, expect.end or 0.0, expect.start or 0.0)


def window(expect: ExpectDocument) -> tuple[float, float]:
    """Return from when to when an expectation over time counts, in the story's time."""
    end_s = float("inf") if expect.end is None else expect.end
    return expect.start or 0.0, end_s
