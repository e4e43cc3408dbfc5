"""The agenda: time, then urgency, then entry; what is cancelled does not happen."""

import math
import random
from typing import Any

import pytest

from gridloom.base.errors import BrokenError
from gridloom.sim.engine import NEVER_S, Agenda, Urgency


def all_of(agenda: Agenda) -> None:
    while (at_s := agenda.next_s()) is not None:
        agenda.run_until(at_s)


def test_order_is_time_then_urgency_then_entry() -> None:
    agenda, seen = Agenda(), list[Any]()
    entries = [(t, u, i) for t in (3.0, 1.0, 2.0) for u in reversed(Urgency) for i in range(3)]
    random.Random(0).shuffle(entries)
    for entry in entries:
        agenda.put(entry[0], entry[1], seen.append, entry)
    all_of(agenda)
    assert [one[:2] for one in seen] == sorted(one[:2] for one in entries)
    for instant in {one[:2] for one in entries}:
        assert [e for e in seen if e[:2] == instant] == [e for e in entries if e[:2] == instant]


def test_what_is_added_for_the_same_instant_happens_in_it() -> None:
    agenda, seen = Agenda(), list[str]()

    def first(_: object) -> None:
        seen.append("first")
        agenda.put(agenda.now_s, Urgency.END, seen.append, "added")
        agenda.put(agenda.now_s - 5, Urgency.BEAT, seen.append, "late")

    agenda.put(1.0, Urgency.START, first)
    agenda.put(1.0, Urgency.BEAT, seen.append, "second")
    agenda.run_until(1.0)
    assert seen == ["first", "added", "second", "late"]
    assert agenda.next_s() is None


def test_cancelled_entries_do_not_happen_and_are_not_waited_for() -> None:
    agenda, seen = Agenda(), list[int]()
    entries = [agenda.put(float(i), Urgency.END, seen.append, i) for i in range(5000)]
    for entry in entries[::2]:
        agenda.cancel(entry)
        agenda.cancel(entry)
    assert agenda.waiting == 2500
    assert agenda.next_s() == 1.0
    for entry in entries[1:4001:2]:  # enough for the heap to be rebuilt without them
        agenda.cancel(entry)
    agenda.put(4500.5, Urgency.END, seen.append, -1)
    agenda.put(4000.5, Urgency.FAULT, seen.append, -2)
    agenda.cancel(agenda.put(4000.5, Urgency.END, seen.append, -3))
    agenda.run_until(4500.5)
    assert seen == [-2, *range(4001, 4500, 2), -1]
    agenda.cancel(entries[4001])  # it has happened
    assert agenda.waiting == 250
    all_of(agenda)
    assert agenda.waiting == 0


def test_entries_nobody_waits_for_are_not_counted() -> None:
    agenda = Agenda()
    agenda.put(1.0, Urgency.SIGNAL, print, waited=False)
    assert (agenda.waiting, agenda.next_s()) == (0, 1.0)


def test_never_is_no_entry() -> None:
    agenda = Agenda()
    agenda.cancel(agenda.put(math.inf, Urgency.END, print))
    agenda.put(NEVER_S, Urgency.END, print)
    assert (agenda.waiting, agenda.next_s()) == (0, None)


def test_time_does_not_go_back_and_is_a_number() -> None:
    agenda = Agenda()
    agenda.run_until(5.0)
    with pytest.raises(BrokenError, match="time went back from 5"):
        agenda.run_until(4.0)
    with pytest.raises(BrokenError, match="not a number"):
        agenda.put(math.nan, Urgency.END, print)
