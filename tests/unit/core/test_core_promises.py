"""Promises for everybody, where quotas, hours, sick nodes and scattered places get in the way."""

from tests.unit.core.bed import Bed, pool
from tests.unit.core.grids import shape, site

from gridloom.model.booking import Booking
from gridloom.model.event import (
    BookingMade,
    TaskEnded,
)
from gridloom.model.life import JobState, Outcome
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import GroupNeed


def test_a_queue_that_may_not_have_both_starts_one_of_two_that_are_due() -> None:
    bed = pool(4, queues=[Queue(name="q", nominal={"cpu": 2})])
    bed.asks("x", 2, 10.0, queue="q")
    bed.asks("y", 2, 10.0, queue="q")
    bed.asks("z", 2, 10.0, queue="q")
    assert bed.ends("x", at=5.0) == ["y"]
    assert bed.ends("y", at=15.0) == ["z"]


def test_accelerator_hours_are_asked_for_job_by_job() -> None:
    bed = pool(4, queues=[Queue(name="q", accelerator_hours=1.0, period_s=1e6)])
    assert bed.asks("long", 1, 3600.0, queue="q") == ["long"]
    assert bed.asks("more", 1, 1800.0, queue="q") == []
    bed.ends("long", at=1800.0)
    assert bed.job("more").state is JobState.STARTING
    assert bed.asks("again", 1, 900.0, queue="q") == []
    reason = bed.machine.reason("again")
    assert reason is not None
    assert reason.code is Why.ACCELERATOR_HOURS


def test_a_shape_that_the_quota_does_not_allow_any_more_is_promised_no_longer() -> None:
    bed = pool(5, queues=[Queue(name="q", nominal={"cpu": 4}), Queue(name="free")])
    bed.asks("x", 4, 100.0, queue="free")
    bed.asks("y", 4, 10.0, queue="q", options=(shape(4), shape(2)))
    assert bed.where("y") == "a/n0:4"
    assert bed.asks("z", 1, 500.0, queue="q") == ["z"]
    assert bed.where("y") == "a/n0:2"
    assert bed.ends("x", at=50.0) == ["y"]


def test_as_the_allowance_shrinks_a_smaller_shape_is_promised_and_then_none() -> None:
    """A job of unknown duration uses more and more of the hour; also a restored machine sees it."""
    hours = Queue(name="q", accelerator_hours=1.0, period_s=1e6)
    bed = pool(5, queues=[hours, Queue(name="free")])
    bed.asks("used", 1, 0.0, queue="q")
    bed.asks("x", 4, 4000.0, queue="free")
    bed.asks("y", 4, 500.0, queue="q", options=(shape(4), shape(2)))
    assert bed.where("y") == "a/n0:4"
    bed.step(at=1700.0)
    bed.asks("late", 1, 1.0, queue="free", priority=-1)
    assert bed.where("y") == "a/n0:2"
    bed.step(at=2700.0)
    bed.asks("later", 1, 1.0, queue="free", priority=-1)
    assert bed.job("y").promised is None


def test_on_a_node_that_failed_the_last_job_only_if_there_is_no_other() -> None:
    bed = Bed(site("a", "1", "1"))
    bed.asks("x", 1, 10.0)
    attempt = bed.job("x").attempts[-1]
    (domain,) = attempt.tasks
    lost = Outcome(code=Why.SUPERVISOR_LOST, sentence="gone")
    bed.step(
        TaskEnded(job_id="x", attempt=1, epoch=attempt.epoch, domain=domain, outcome=lost), at=1.0
    )
    bed.asks("y", 1, 10.0, priority=1)
    bed.asks("z", 1, 10.0, priority=1)
    held = [next(iter(bed.job(name).attempts[-1].tasks)) for name in ("y", "z")]
    assert held[0] != domain
    assert held[1] == domain


def test_a_gang_cannot_come_earlier_as_long_as_what_is_free_is_scattered() -> None:
    bed = Bed(site("a", "2", "2", "1"))
    bed.asks("x0", 1, 100.0, nodes=("a/n0",))
    bed.asks("x1", 1, 100.0, nodes=("a/n1",))
    bed.asks("y", 1, 500.0, nodes=("a/n2",))
    pair = shape(2, groups=(GroupNeed(ranks=2, level="node"),))
    bed.asks("pair", 2, 50.0, options=(pair,))
    assert bed.promised("pair") == [100.0]
    bed.ends("y", at=10.0)
    assert bed.promised("pair") == [100.0]
    assert bed.ends("x1", at=20.0) == ["pair"]


def test_what_opens_too_late_before_a_promise_is_no_start() -> None:
    bed = Bed(site("a", "2", "2"))
    bed.asks("x0", 1, 100.0, nodes=("a/n0",))
    bed.asks("x1", 1, 120.0, nodes=("a/n1",))
    bed.asks("wide", 4, 100.0, priority=1)
    pair = shape(2, groups=(GroupNeed(ranks=2, level="node"),))
    bed.asks("pair", 2, 50.0, options=(pair,))  # two are free at once, but scattered
    assert bed.promised("wide", "pair") == [120.0, 220.0]
    bed.asks("brief", 2, 20.0, options=(pair,))
    assert bed.promised("brief") == [100.0]


def test_the_third_of_which_nothing_is_known_holds_nothing_where_nothing_is_left() -> None:
    bed = Bed(site("a", "2", "2"), patience_s=10.0)
    bed.asks("x0", 1, 0.0, nodes=("a/n0",))
    bed.asks("x1", 1, 0.0, nodes=("a/n1",))
    pair = (shape(2, groups=(GroupNeed(ranks=2, level="node"),)),)
    for name in ("one", "two", "three"):
        bed.asks(name, 2, 10.0, options=pair)
    bed.step(at=20.0)
    assert bed.asks("short", 1, 1.0, priority=-1) == []
    assert bed.ends("x0", at=30.0) == ["one", "short"]  # by now the others follow one
    assert bed.promised("three", "two") == [40.0, 50.0]


def test_what_stands_in_the_way_is_told_of_the_places_in_question_only() -> None:
    """Neither a booking elsewhere nor a promise elsewhere is in the way."""
    bed = Bed(site("a", "2"), site("b", "2"), site("c", "1"))
    bed.step(
        BookingMade(booking=Booking(name="far", start_s=50.0, end_s=60.0, nodes=("c",))),
        BookingMade(booking=Booking(name="near", start_s=200.0, end_s=300.0, nodes=("a/n0",))),
    )
    bed.asks("x", 1, 100.0, sites=("b",))
    bed.asks("there", 2, 50.0, sites=("b",))
    assert bed.asks("long", 2, 500.0, sites=("a",)) == []
    reasons = bed.machine.told().jobs
    long, there = reasons["long"].reason, reasons["there"].reason
    assert long is not None
    assert there is not None
    assert long.code is Why.BOOKED
    assert "booking near begins in 3m 20s" in long.sentence
    assert there.code is Why.TOO_FEW_FREE
    assert bed.machine.reason("long") == long


def test_who_is_not_among_those_that_are_promised_something_waits_though_there_is_room() -> None:
    bed = Bed(site("a", "2", "2"), promises_max=1)
    bed.asks("x", 3, 100.0)
    bed.asks("wide", 4, 50.0)
    assert bed.asks("small", 1, 10.0, priority=-1) == []
    assert bed.job("small").promised is None
    told = bed.machine.told().jobs
    assert told["small"].reason is not None
    assert told["small"].reason == bed.machine.reason("small")
    assert bed.ends("x", at=20.0) == ["wide"]
    assert bed.ends("wide", at=30.0) == ["small"]
