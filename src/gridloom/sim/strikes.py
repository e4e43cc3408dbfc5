"""What faults do to a simulated world, when, and what the scheduler hears of it."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from gridloom.model.booking import Booking
from gridloom.model.event import BookingDropped, BookingMade, NodeMarked
from gridloom.model.reason import Why
from gridloom.sim.attempts import Attempts, outcome
from gridloom.sim.conditions import Mark, add, link_of, subtract
from gridloom.sim.engine import NEVER_S, Urgency
from gridloom.sim.faults import Fault
from gridloom.sim.run import Run

_Place = TypeVar("_Place", str, tuple[str, str])


class Strikes:
    """Carries faults out."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._agenda = attempts, attempts.agenda
        self._floor, self._conditions = attempts.floor, attempts.floor.conditions
        self._terms = attempts.terms
        self._told: dict[str, Mark] = {}
        self._by_hand: dict[str, Mark] = {}
        self._begins: dict[str, Callable[[Fault], None]] = {
            "down": self._down,
            "reclaim": self._reclaim,
            "cut": self._cut,
            "slow": self._slow,
            "maintenance": self._maintenance,
            "kill": self._kill,
            "refuse": self._refuse,
        }

    def plan(self, faults: Sequence[Fault], now_s: float) -> None:
        """Note when faults strike; one that began before now strikes now, if it still lasts."""
        for fault in faults:
            if fault.at_s < now_s and fault.duration_s and _end_s(fault) <= now_s:
                continue
            if fault.notice_s > 0:
                notice_s = max(fault.at_s - fault.notice_s, now_s)
                self._agenda.put(notice_s, Urgency.FAULT, self._announce, fault)
            at_s = max(fault.at_s, now_s)
            self._agenda.put(at_s, Urgency.FAULT, self._begins[fault.kind], fault)

    def by_hand(self, event: NodeMarked) -> None:
        """Let somebody's word on a node or a site be true, and be told."""
        domain, mark = event.domain, event.mark
        before = self._by_hand.pop(domain, None)
        if before is not None:
            if before == "lost":
                self._rise(domain)
            self._conditions.unmark(domain, before)
        if mark:
            self._by_hand[domain] = mark
            self._conditions.mark(domain, mark, event.sentence)
        if mark == "lost":
            self._fall(domain)
        self._tell(domain)
        if mark == "lost":
            self._tell_ends(domain, Why.NODE_LOST, event.sentence or f"{domain} is lost")

    # kinds of faults

    def _announce(self, fault: Fault) -> None:
        if fault.kind == "reclaim":
            self._mark(fault.domain, "drain", _sentence(fault))
        else:
            end_s = _end_s(fault)
            booking = Booking(
                name=_booking(fault),
                start_s=fault.at_s,
                end_s=NEVER_S if math.isinf(end_s) else end_s,
                nodes=(fault.domain,),
                sentence=_sentence(fault),
            )
            self._attempts.facts.append(BookingMade(booking=booking))

    def _down(self, fault: Fault) -> None:
        self._fall(fault.domain)
        known_s = min(fault.at_s + self._terms.detect_s, _end_s(fault))
        self._agenda.put(known_s, Urgency.FAULT, self._loss_known, fault)
        self._plan_end(fault, self._up)

    def _reclaim(self, fault: Fault) -> None:
        self._fall(fault.domain)
        self._loss_known(fault)
        if fault.notice_s > 0:
            self._conditions.unmark(fault.domain, "drain")
        self._plan_end(fault, self._up)

    def _loss_known(self, fault: Fault) -> None:
        self._mark(fault.domain, "lost", _sentence(fault))
        self._tell_ends(fault.domain, Why.NODE_LOST, _sentence(fault))

    def _up(self, fault: Fault) -> None:
        self._tell_ends(fault.domain, Why.NODE_LOST, f"{fault.domain} was away")
        self._rise(fault.domain)
        self._unmark(fault.domain, "lost")

    def _cut(self, fault: Fault) -> None:
        if "|" in fault.domain:
            self._narrow(fault, math.inf)
            return
        site = fault.domain
        add(self._conditions.cut, site)
        self._rerate(self._floor.runs_on(site))
        known_s = fault.at_s + self._terms.detect_s
        if self._terms.heartbeat_s <= 0 and known_s < _end_s(fault):
            self._agenda.put(known_s, Urgency.FAULT, self._silence_known, fault)
        self._plan_end(fault, self._join)

    def _silence_known(self, fault: Fault) -> None:
        """All leases at the site have lapsed: what ran there has stopped itself."""
        site = fault.domain
        for run in self._floor.runs_on(site):
            self._attempts.break_off(run)
        self._mark(site, "lost", _sentence(fault))
        self._tell_ends(
            site, Why.LEASE_LAPSED, f"{site} was not heard from until its leases lapsed"
        )

    def _join(self, fault: Fault) -> None:
        site = fault.domain
        subtract(self._conditions.cut, site)
        self._unmark(site, "lost")
        if site not in self._conditions.cut:
            for run in self._floor.runs_on(site):
                self._attempts.reached(run)

    def _slow(self, fault: Fault) -> None:
        if "|" in fault.domain:
            self._narrow(fault, fault.factor)
            return
        self._conditions.slow.setdefault(fault.domain, []).append(fault.factor)
        self._rerate(self._floor.runs_on(fault.domain))
        self._plan_end(fault, self._quicken)

    def _quicken(self, fault: Fault) -> None:
        _take_from(self._conditions.slow, fault.domain, fault.factor)
        self._rerate(self._floor.runs_on(fault.domain))

    def _narrow(self, fault: Fault, factor: float) -> None:
        link = link_of(*fault.domain.split("|"))
        self._conditions.narrow.setdefault(link, []).append(factor)
        self._rerate(self._floor.runs_over(link))
        self._plan_end(fault, self._widen)

    def _widen(self, fault: Fault) -> None:
        link = link_of(*fault.domain.split("|"))
        factor = math.inf if fault.kind == "cut" else fault.factor
        _take_from(self._conditions.narrow, link, factor)
        self._rerate(self._floor.runs_over(link))

    def _maintenance(self, fault: Fault) -> None:
        self._mark(fault.domain, "drain", _sentence(fault))
        self._plan_end(fault, self._maintained)

    def _maintained(self, fault: Fault) -> None:
        if fault.notice_s > 0:
            self._attempts.facts.append(BookingDropped(name=_booking(fault)))
        self._unmark(fault.domain, "drain")

    def _kill(self, fault: Fault) -> None:
        sentence = "rank 0 was killed by SIGKILL (out of memory is a usual cause)"
        killed = outcome(Why.KILLED, sentence, self._now_s)
        for run in self._floor.runs_on(fault.domain):
            here = [
                domain
                for domain in self._conditions.domains(fault.domain)
                if domain in run.live
                and self._conditions.is_up(domain)
                and self._conditions.is_reachable(domain)
            ]
            if here and run.outcome is None:
                self._attempts.break_off(run)
                self._attempts.end_tasks(run, here, killed)

    def _refuse(self, fault: Fault) -> None:
        add(self._conditions.refusing, fault.domain)
        self._plan_end(fault, self._accept)

    def _accept(self, fault: Fault) -> None:
        subtract(self._conditions.refusing, fault.domain)

    # what they have in common

    def _fall(self, domain: str) -> None:
        """Let nodes be gone, and what runs there break off."""
        for node in self._conditions.domains(domain):
            add(self._conditions.down, node)
        for run in self._floor.runs_on(domain):
            self._attempts.break_off(run)

    def _rise(self, domain: str) -> None:
        for node in self._conditions.domains(domain):
            subtract(self._conditions.down, node)

    def _tell_ends(self, domain: str, code: Why, sentence: str) -> None:
        """Tell that the tasks there have ended."""
        ended = outcome(code, sentence, self._now_s)
        nodes = self._conditions.domains(domain)
        for run in self._floor.runs_on(domain):
            self._attempts.end_tasks(run, [node for node in nodes if node in run.live], ended)

    def _mark(self, domain: str, mark: Mark, sentence: str) -> None:
        self._conditions.mark(domain, mark, sentence)
        self._tell(domain)

    def _unmark(self, domain: str, mark: Mark) -> None:
        self._conditions.unmark(domain, mark)
        self._tell(domain)

    def _tell(self, domain: str) -> None:
        """Tell how a node or a site stands now, and with a site its nodes that were told apart."""
        told = [domain]
        if "/" not in domain:
            told += [node for node in self._conditions.domains(domain) if node in self._told]
        for one in told:
            mark, sentence = self._conditions.standing(one)
            if self._told.get(one, "") == mark and one == domain:
                continue
            self._attempts.facts.append(NodeMarked(domain=one, mark=mark, sentence=sentence))
            self._told.pop(one, None)
            if mark:
                self._told[one] = mark
        for node in self._conditions.domains(domain):
            self._floor.set_off(node, off=bool(self._conditions.standing(node)[0]))

    def _rerate(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._attempts.rerate(run)

    def _plan_end(self, fault: Fault, call: Callable[[Fault], None]) -> None:
        if fault.duration_s:
            self._agenda.put(_end_s(fault), Urgency.FAULT, call, fault)

    @property
    def _now_s(self) -> float:
        return self._agenda.now_s


_WORDS = {
    "down": "is down",
    "reclaim": "is taken back by its owner",
    "cut": "cannot be reached",
    "maintenance": "is in maintenance",
}


def _end_s(fault: Fault) -> float:
    return fault.at_s + fault.duration_s if fault.duration_s else math.inf


def _sentence(fault: Fault) -> str:
    return f"{fault.domain} {_WORDS[fault.kind]}"


def _booking(fault: Fault) -> str:
    return f"maintenance-{fault.domain}-{fault.at_s:.0f}"


def _take_from(factors: dict[_Place, list[float]], place: _Place, factor: float) -> None:
    factors[place].remove(factor)
    if not factors[place]:
        del factors[place]
