"""What time brings: bookings that are cleared and waited for, taints that lapse, new allowances."""

from typing import Any

import pytest
from tests.unit.core.grids import site
from tests.unit.core.yard import START_S, Yard

from gridloom.model.booking import Booking
from gridloom.model.event import BookingDropped, BookingMade
from gridloom.model.life import JobState
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import RetryPolicy

QUEUES = (Queue(name="crew"), Queue(name="rest"))


def books(yard: Yard, start_s: float, end_s: float, *nodes: str, **more: Any) -> list[str]:
    times = {"start_s": START_S + start_s, "end_s": START_S + end_s}
    settings: dict[str, Any] = {"name": "b"} | times | more
    return yard.step(BookingMade(booking=Booking(nodes=nodes, **settings)))


# --- bookings


def test_who_runs_into_a_booking_does_not_start_and_is_told_so() -> None:
    yard = Yard(site("a", "2"))
    books(yard, 100.0, 200.0, "a/n0")
    assert yard.asks("long", 2, 150.0) == []
    reason = yard.reason("long")
    assert reason.code is Why.BOOKED
    assert reason.sentence == ("would run into what is spoken for: booking b begins in 1m 40s")
    assert reason.remedy == "a shorter predicted duration would let it pass"
    assert yard.asks("short", 2, 100.0) == ["short"]  # of the same shape, behind it
    yard.ends("short", at=100.0)
    assert yard.reason("long").sentence.endswith("booking b begins now")
    assert yard.timer() == 200.0
    assert yard.step(at=200.0) == ["long"]
    assert yard.machine.state.bookings == {}


def test_a_job_of_unknown_duration_starts_beside_the_booked_nodes_only() -> None:
    yard = Yard(site("a", "2", "2"))
    books(yard, 100.0, 200.0, "a/n0")
    assert yard.asks("one", 2) == ["one"]
    assert yard.where("one") == "a/n1:2"
    assert yard.asks("two", 2) == []
    assert yard.why("two") is Why.BOOKED


def test_a_booking_is_cleared_early_enough_to_save_the_state() -> None:
    yard = Yard(site("a", "2"), site("b", "2"))
    yard.asks("on", 2, grace_s=30.0, sites=("a",))
    yard.asks("off", 2, sites=("b",))
    yard.runs("on", "off")
    books(yard, 100.0, 200.0, "a", sentence="new disks")
    assert yard.told() == {}
    assert yard.timer() == 70.0
    yard.step(at=70.0)
    assert yard.told() == {"on": Why.BOOKED}
    assert yard.said("on") == "makes room for booking b for new disks"
    yard.goes("on", at=80.0)
    assert yard.job("on").state is JobState.QUEUED
    assert yard.job("on").restarts == 0
    assert yard.step(at=200.0) == ["on"]


def test_a_booking_that_begins_at_once_clears_at_once_without_a_word_if_there_is_none() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("on", 2)
    books(yard, 0.0, 200.0, "a/n0")
    assert yard.said("on") == "makes room for booking b"


def test_those_for_whom_it_is_booked_stay_and_start() -> None:
    yard = Yard(site("a", "2"), queues=QUEUES)
    yard.asks("crew1", 1, queue="crew")
    yard.asks("rest1", 1, queue="rest")
    books(yard, 0.0, 200.0, "a/n0", queues=("crew",))
    assert yard.told() == {"rest1": Why.BOOKED}
    assert yard.goes("rest1") == []
    assert yard.why("rest1") is Why.BOOKED
    assert yard.asks("crew2", 1, queue="crew") == ["crew2"]


def test_a_booking_that_is_off_lets_the_jobs_start() -> None:
    yard = Yard(site("a", "2"))
    books(yard, 0.0, 200.0, "a/n0")
    assert yard.asks("x", 2) == []
    assert yard.step(BookingDropped(name="b")) == ["x"]
    assert yard.step(BookingDropped(name="b")) == []


def test_a_booking_that_is_moved_replaces_the_old_one() -> None:
    yard = Yard(site("a", "2"))
    books(yard, 0.0, 200.0, "a/n0")
    assert yard.asks("x", 2, 100.0) == []
    assert books(yard, 300.0, 400.0, "a/n0") == ["x"]


def test_the_first_of_two_bookings_limits_and_the_later_one_lets_others_pass() -> None:
    yard = Yard(site("a", "2"))
    books(yard, 100.0, 200.0, "a/n0", name="early")
    books(yard, 300.0, 400.0, "a/n0", name="late")
    assert yard.asks("x", 2, 150.0) == []
    assert yard.step(at=200.0) == []
    assert yard.reason("x").sentence.endswith("booking late begins in 1m 40s")
    assert yard.step(at=400.0) == ["x"]


def test_kept_places_are_not_taken_into_a_booking() -> None:
    """The holder goes, but the one that waited for its places would run into the booking."""
    yard = Yard(site("a", "2"))
    yard.asks("low", 2)
    yard.asks("high", 2, 50.0, priority=1)
    assert yard.told() == {"low": Why.PREEMPTED}
    books(yard, 20.0, 100.0, "a/n0")
    assert yard.goes("low", at=1.0) == []
    assert yard.step(at=100.0) == ["high"]


# --- taints


def test_a_node_that_fails_job_after_job_is_left_alone_for_a_while() -> None:
    yard = Yard(site("a", "1"), failures_max=3, taint_s=1000.0)
    for number in range(3):
        assert yard.machine.state.marks == {}
        yard.asks(f"x{number}", retry=RetryPolicy(max_restarts=0))
        yard.ends(f"x{number}", code=Why.SUPERVISOR_LOST, at=float(number))
    mark = yard.machine.state.marks["a/n0"]
    assert (mark.mark, mark.by_core) == ("taint", True)
    assert mark.sentence == "3 jobs in a row failed there, the last: it supervisor_lost"
    assert yard.asks("y") == []
    assert yard.why("y") is Why.NODE_AWAY
    assert yard.step(at=1001.9) == []
    assert yard.step(at=1002.0) == ["y"]
    assert yard.machine.state.marks == {}


def test_the_same_job_again_and_again_speaks_against_the_job() -> None:
    yard = Yard(site("a", "1"), failures_max=2)
    yard.asks("x")
    for number in range(4):
        yard.ends("x", code=Why.LEASE_LAPSED, at=number * 100.0)
        yard.step(at=number * 100.0 + 99.0)
    assert yard.machine.state.marks == {}
    assert yard.machine.state.failures == {"a/n0": ["x"]}


def test_success_clears_a_node_and_other_failures_say_nothing_of_it() -> None:
    yard = Yard(site("a", "1"), failures_max=2)
    yard.asks("x")
    yard.ends("x", code=Why.SUPERVISOR_LOST)
    yard.asks("y", priority=1)
    yard.ends("y", code=Why.EXITED)
    assert yard.machine.state.failures == {"a/n0": ["x"]}
    yard.asks("z", priority=1)
    yard.ends("z")
    assert yard.machine.state.failures == {}


def test_a_node_that_failed_the_last_job_is_used_only_if_there_is_no_other() -> None:
    yard = Yard(site("a", "1", "1"))
    yard.asks("x")
    assert yard.where("x") == "a/n0:1"
    yard.ends("x", code=Why.SUPERVISOR_LOST)
    yard.asks("y", priority=1)
    assert yard.where("y") == "a/n1:1"
    yard.asks("z", priority=1)
    assert yard.where("z") == "a/n0:1"


@pytest.mark.parametrize("failures_max", [0, 2])
def test_no_taint_where_none_is_wanted_and_none_over_the_mark_of_an_operator(
    failures_max: int,
) -> None:
    yard = Yard(site("a", "2"), failures_max=failures_max)
    yard.asks("x")
    yard.asks("y")
    if failures_max:
        yard.marks("a/n0", "cordon", "to be looked at")
    yard.ends("x", "y", code=Why.SUPERVISOR_LOST)
    marks = {name: mark.mark for name, mark in yard.machine.state.marks.items()}
    assert marks == ({"a/n0": "cordon"} if failures_max else {})


def test_what_an_operator_marked_does_not_lapse() -> None:
    yard = Yard(site("a", "1"), taint_s=10.0)
    yard.marks("a/n0", "taint", "hot")
    yard.asks("x")
    yard.step(at=1e5)
    assert "a/n0" in yard.machine.state.marks
    assert yard.marks("a/n0", "") == ["x"]


def test_a_node_that_was_declared_well_starts_with_a_clean_slate() -> None:
    yard = Yard(site("a", "1"))
    yard.asks("x")
    yard.ends("x", code=Why.SUPERVISOR_LOST)
    yard.marks("a/n0", "")
    assert yard.machine.state.failures == {}
    yard.marks("a/n0", "")
    assert yard.machine.state.marks == {}


# --- accelerator-hours


def test_an_allowance_is_held_at_the_start_and_settled_at_the_end() -> None:
    queue = Queue(name="q", accelerator_hours=2.0, period_s=10_000.0)
    yard = Yard(site("a", "4"), queues=[queue])
    assert yard.asks("x", 2, 1800.0, queue="q") == ["x"]
    assert yard.asks("y", 2, 3600.0, queue="q") == []  # one hour of the two is held
    reason = yard.reason("y")
    assert reason.code is Why.ACCELERATOR_HOURS
    assert reason.sentence.startswith(
        "waits for quota: queue `q` has used 0 of its 2 accelerator-hours,"
        " and what runs keeps 1 more; the job needs 2 before the period ends in"
    )
    assert yard.asks("z", 1, 3600.0, queue="q") == ["z"]
    yard.ends("x", "z", at=900.0)  # half of x, a quarter of z: 0.75 hours
    assert yard.machine.state.allowance.accounts["q"].holds == {}
    assert yard.machine.state.allowance.accounts["q"].spent_s == 2700.0
    assert yard.job("y").state is JobState.QUEUED
    assert yard.asks("w", 1, 4500.0, queue="q") == ["w"]  # the rest


def test_the_next_period_brings_a_new_allowance() -> None:
    queue = Queue(name="q", accelerator_hours=1.0, period_s=START_S)
    yard = Yard(site("a", "1"), queues=[queue])
    yard.asks("x", 1, 3600.0, queue="q")
    yard.ends("x", at=3600.0)
    assert yard.asks("y", 1, 3600.0, queue="q") == []
    assert yard.timer() == START_S
    assert yard.step(at=START_S) == ["y"]


def test_a_job_of_unknown_duration_holds_what_it_used() -> None:
    queue = Queue(name="q", accelerator_hours=1.0, period_s=START_S)
    yard = Yard(site("a", "2"), queues=[queue])
    assert yard.asks("x", queue="q") == ["x"]
    assert yard.machine.state.allowance.accounts["q"].holds["x/1"].predicted_s == 0.0
    yard.step(at=3600.0)
    assert yard.asks("y", queue="q") == []
    assert yard.why("y") is Why.ACCELERATOR_HOURS


def test_a_job_that_needs_more_than_any_period_has_never_starts() -> None:
    yard = Yard(site("a", "2"), queues=[Queue(name="q", accelerator_hours=1.0)])
    assert yard.asks("x", 2, 3600.0, queue="q") == []
    assert yard.job("x").state is JobState.FAILED
    assert yard.why("x") is Why.NEVER_FITS
    assert yard.reason("x").remedy == (
        "raise `accelerator_hours` of queue `q` to 2, or ask for less"
    )
