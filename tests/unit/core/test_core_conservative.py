"""Conservative backfill: who is promised what, when that moves, what others may do meanwhile."""

import pytest
from tests.unit.core.bed import Bed, pool
from tests.unit.core.grids import node, shape, site

from gridloom.core.outlook import LATE_S
from gridloom.model.booking import Booking
from gridloom.model.event import (
    BookingDropped,
    BookingMade,
    CancelRequested,
    InventoryChanged,
    NodeMarked,
    SignalChanged,
    TaskEnded,
)
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import JobState, Outcome
from gridloom.model.policy import Policy, Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Budget, GroupNeed, Speed


def test_everybody_is_promised_a_start_and_holes_are_filled() -> None:
    bed = pool(4)
    assert bed.asks("a", 3, 100.0) == ["a"]
    assert bed.asks("b", 4, 50.0) == []
    assert bed.asks("c", 2, 10.0) == []
    assert bed.asks("d", 1, 100.0) == ["d"]  # it ends as b starts
    assert bed.asks("e", 2, 10.0) == []
    assert bed.promised("b", "c", "e") == [100.0, 150.0, 150.0]
    reason = bed.machine.reason("c")
    assert reason is not None
    assert "starts in 2m 30s at the latest" in reason.sentence


def test_who_would_delay_anybody_waits_where_easy_lets_it_pass() -> None:
    bed = pool(4)
    bed.asks("a", 3, 100.0)
    bed.asks("b", 2, 50.0)
    bed.asks("c", 3, 50.0)
    assert bed.promised("b", "c") == [100.0, 150.0]
    assert bed.asks("d", 1, 150.0) == ["d"]  # beside b all the time, gone when c starts
    easy = pool(4, blocked="easy")
    for name, ranks, run_s in (("a", 3, 100.0), ("b", 2, 50.0), ("c", 3, 50.0)):
        easy.asks(name, ranks, run_s)
    assert easy.asks("d", 1, 400.0) == ["d"]  # c was promised nothing
    assert pool(4).asks("d", 1, 400.0) == ["d"]
    bed.asks("e", 1, 400.0)
    assert bed.promised("e") == [100.0]
    bed.asks("f", 2, 10.0)
    assert bed.promised("f") == [200.0]
    told = bed.machine.reason("e")
    assert told is not None
    assert told.code is Why.IN_USE


def test_what_ends_early_lets_all_come_earlier_in_order() -> None:
    bed = pool(4)
    bed.asks("a", 4, 100.0)
    bed.asks("b", 3, 50.0)
    bed.asks("c", 2, 50.0)
    bed.asks("d", 1, 20.0)
    assert bed.promised("b", "c", "d") == [100.0, 150.0, 100.0]
    assert bed.ends("a", at=40.0) == ["b", "d"]
    assert bed.promised("c") == [90.0]
    assert bed.step(CancelRequested(job_id="b"), at=50.0) == []
    assert bed.ends("b", at=50.0) == ["c"]


def test_on_time_nothing_moves_and_who_is_due_starts() -> None:
    bed = pool(2)
    bed.asks("a", 2, 30.0)
    bed.asks("b", 2, 30.0)
    places = bed.job("b").promised
    bed.asks("c", 1, 30.0)
    assert bed.job("b").promised is places
    assert bed.ends("a", at=30.0) == ["b"]
    assert bed.job("b").promised is None
    assert bed.promised("b", "c") == [0.0, 60.0]


def test_news_that_are_late_break_no_promise_until_they_are_very_late() -> None:
    bed = pool(2)
    bed.asks("a", 2, 30.0)
    bed.asks("b", 2, 30.0)
    bed.asks("c", 2, 30.0)
    assert bed.machine.next_timer_s() == 30.0
    bed.step(at=30.0)
    assert bed.promised("b", "c") == [30.0, 60.0]
    assert bed.machine.next_timer_s() == 30.0 + LATE_S
    bed.step(at=30.0 + LATE_S)
    assert bed.promised("b", "c") == [50.0, 80.0]  # two thirds more: a tenth, but 20 s at least
    assert bed.ends("a", at=45.0) == ["b"]
    assert bed.promised("c") == [75.0]
    assert bed.ends("b", at=77.0) == ["c"]


def test_a_late_start_takes_precedence_by_order() -> None:
    bed = pool(3)
    bed.asks("a", 2, 30.0)
    bed.asks("b", 3, 20.0)
    bed.asks("c", 1, 30.0)  # beside a, until b comes
    bed.asks("d", 3, 10.0)
    assert bed.job("c").state is JobState.STARTING
    assert bed.promised("b", "d") == [30.0, 50.0]
    bed.ends("a", at=32.0)
    assert bed.ends("c", at=33.0) == ["b"]
    assert bed.promised("d") == [53.0]


def test_a_backfiller_that_comes_late_gets_another_start() -> None:
    bed = pool(4)
    bed.asks("a", 3, 30.0)
    bed.asks("z", 1, 100.0)
    bed.asks("b", 4, 20.0)
    bed.asks("c", 2, 70.0)  # exactly between a and b
    assert bed.promised("b", "c") == [100.0, 30.0]
    assert bed.ends("a", at=31.0) == []
    assert bed.promised("b", "c") == [100.0, 120.0]


def test_a_job_that_comes_before_takes_promises_of_those_behind() -> None:
    bed = pool(2)
    bed.asks("a", 2, 30.0)
    bed.asks("b", 2, 30.0)
    bed.asks("c", 1, 10.0, priority=1)
    assert bed.promised("c", "b") == [30.0, 40.0]


def test_unknown_ends_are_no_ends() -> None:
    bed = pool(4, patience_s=60.0)
    bed.asks("a", 2, 0.0)
    bed.asks("b", 1, 50.0)
    bed.asks("c", 3, 10.0)  # nobody knows when a ends
    assert bed.job("c").promised is None
    assert bed.asks("d", 1, 0.0) == ["d"]  # c is not protected yet
    bed.ends("b", at=50.0)
    assert bed.machine.next_timer_s() == 60.0
    bed.step(at=60.0)
    assert bed.asks("e", 1, 10.0) == []
    assert bed.job("e").promised is None
    assert bed.ends("a", at=70.0) == ["c"]


def test_a_job_of_unknown_duration_needs_its_places_for_ever() -> None:
    bed = pool(4)
    bed.asks("a", 3, 30.0)
    bed.asks("b", 4, 30.0)
    assert bed.asks("bb", 1, 0.0) == []
    bed.asks("c", 3, 10.0)
    bed.asks("d", 4, 10.0)
    assert bed.promised("b", "bb", "c") == [30.0, 60.0, 60.0]
    assert bed.job("d").promised is None


def test_topology_is_respected_and_hosts_are_counted() -> None:
    nodes = [node("r0/4", 0, resources={"cpus": 8}), node("r1/4", 1, resources={"cpus": 8})]
    bed = Bed(site("a", *nodes, levels="rack"))
    must = {"groups": (GroupNeed(ranks=4, level="node"),)}
    bed.asks("a", 2, 30.0)
    bed.asks("b", 4, 30.0, shaped=must)
    assert bed.job("b").state is JobState.STARTING
    bed.asks("c", 4, 20.0, shaped=must)  # four are free at 30, but not on one node before
    assert bed.promised("c") == [30.0]
    assert bed.asks("d", 1, 40.0, shaped={"rank_resources": (("cpus", 9),)}) == []
    assert bed.job("d").state is JobState.FAILED
    assert bed.asks("e", 1, 10.0, shaped={"rank_resources": (("cpus", 8),)}) == ["e"]
    bed.asks("f", 1, 10.0, shaped={"rank_resources": (("cpus", 1),)})
    assert bed.promised("f") == [10.0]


def test_a_longer_run_in_a_slower_place_is_what_counts() -> None:
    bed = Bed(site("a", "2", "2"))
    speeds = (Speed(level="node", step_s=1.0), Speed(level="site", step_s=3.0))
    bed.asks("a", 1, 100.0)
    bed.asks("z", 1, 100.0, nodes=("a/n1",))
    bed.asks("b", 4, 50.0)
    assert bed.promised("b") == [100.0]
    assert bed.asks("c", 2, 50.0, shaped={"speeds": speeds}) == []  # 150 s on two nodes
    assert bed.promised("c") == [150.0]
    assert bed.asks("d", 2, 30.0, shaped={"speeds": speeds}) == ["d"]


def test_closed_nodes_break_promises_and_come_back() -> None:
    bed = Bed(site("a", "2", "2"))
    bed.asks("a", 2, 30.0, nodes=("a/n0",))
    bed.asks("z", 2, 90.0, nodes=("a/n1",))
    bed.asks("b", 2, 30.0)
    assert bed.promised("b") == [30.0]
    bed.step(NodeMarked(domain="a/n0", mark="cordon"))
    assert bed.promised("b") == [90.0]
    bed.step(NodeMarked(domain="a/n0", mark=""))
    assert bed.promised("b") == [30.0]
    assert bed.where("b") == "a/n0:2"
    bed.step(InventoryChanged(inventory=Inventory(sites=(site("a", "1"),), policy=Policy())))
    assert bed.job("b").promised is None


def test_bookings_are_kept_clear() -> None:
    bed = pool(2, queues=(Queue(name="x"), Queue(name="y")))
    bed.step(
        BookingMade(
            booking=Booking(name="p", start_s=50.0, end_s=80.0, nodes=("a/n0",), queues=("x",))
        )
    )
    assert bed.asks("a", 1, 60.0, queue="y") == []
    assert bed.promised("a") == [80.0]
    told = bed.machine.reason("a")
    assert told is not None
    assert told.code is Why.BOOKED
    assert bed.asks("b", 1, 60.0, queue="x") == ["b"]
    assert bed.asks("c", 2, 30.0, queue="y") == []
    assert bed.promised("c") == [140.0]
    assert bed.machine.next_timer_s() == 60.0 + LATE_S
    bed.ends("b", at=60.0)
    assert bed.step(at=80.0) == ["a"]


def test_quota_comes_before_promises() -> None:
    bed = pool(4, queues=(Queue(name="x", nominal={"cpu": 2}), Queue(name="y")))
    bed.asks("a", 2, 50.0, queue="x")
    bed.asks("b", 1, 10.0, queue="x")
    assert bed.job("b").promised is None
    told = bed.machine.reason("b")
    assert told is not None
    assert told.code is Why.QUOTA
    assert bed.asks("c", 2, 90.0, queue="y") == ["c"]
    assert bed.ends("a", at=50.0) == ["b"]


def test_a_strict_queue_keeps_its_order() -> None:
    bed = pool(4, queues=(Queue(name="x", order="strict"), Queue(name="y")))
    bed.asks("a", 3, 50.0, queue="x")
    bed.asks("b", 4, 10.0, queue="x")
    bed.asks("c", 1, 10.0, queue="x")
    assert bed.promised("b", "c") == [50.0, 60.0]
    told = bed.machine.reason("c")
    assert told is not None
    assert told.code is Why.BEHIND_STRICT
    assert bed.asks("d", 1, 10.0, queue="y") == ["d"]
    bed.ends("d", at=10.0)
    assert bed.ends("a", at=20.0) == ["b"]
    assert bed.promised("c") == [30.0]


def test_shares_order_promises() -> None:
    bed = pool(4, order="share", queues=(Queue(name="x"), Queue(name="y")))
    bed.asks("a", 4, 50.0, queue="x")
    bed.asks("b", 4, 10.0, queue="x")
    bed.asks("c", 4, 10.0, queue="y")
    assert bed.promised("c", "b") == [50.0, 60.0]


def test_only_the_first_are_promised_something_on_more_than_one_unit() -> None:
    bed = Bed(site("a", "2", "2"), promises_max=2)
    bed.asks("a", 4, 50.0)
    for name in "bcd":
        bed.asks(name, 2, 10.0)
    bed.asks("e", 1, 10.0)
    assert bed.promised("b", "c", "d", "e") == [50.0, 50.0, 0.0, 0.0]
    assert bed.ends("a", at=50.0) == ["b", "c"]
    assert bed.promised("d", "e") == [60.0, 60.0]
    told = bed.machine.reason("e")
    assert told is not None


def test_the_cheaper_of_two_shapes_wins_where_both_start_at_once() -> None:
    bed = Bed(site("a", "2", "4"))
    fast, slow = shape(4, step_s=1.0), shape(2, step_s=2.0)
    assert bed.asks("a", 0, 50.0, options=(slow, fast)) == ["a"]
    assert bed.job("a").attempts[-1].placement.option == fast
    assert bed.asks("b", 0, 50.0, options=(fast, slow)) == ["b"]
    assert bed.job("b").attempts[-1].placement.option == slow


def test_who_evicts_gets_what_it_was_evicted_for() -> None:
    bed = pool(2, preemption=Preemption())
    bed.asks("a", 2, 50.0, grace_s=5.0)
    bed.asks("b", 2, 50.0)
    assert bed.asks("c", 2, 10.0, priority=1) == []
    assert bed.job("a").state is JobState.STOPPING
    assert bed.job("c").reservation is not None
    assert bed.job("c").promised is None
    assert bed.ends("a", at=4.0) == ["c"]


def test_what_is_reserved_for_one_is_nothing_for_its_like() -> None:
    bed = Bed(site("a", "2", "2", "2", "2", "2"), queues=(Queue(name="x", nominal={"cpu": 4}),))
    bed.asks("a", 4, 50.0, on_loss="wait", queue="x")
    assert lose_a_place(bed) + bed.step(at=20.0) == []
    assert bed.job("a").reservation is not None
    assert bed.asks("b", 4, 10.0, on_loss="wait", queue="x") == []
    told = bed.machine.reason("b")
    assert bed.job("b").promised is None
    assert told is not None
    assert told.code is Why.QUOTA


def test_who_may_not_have_the_time_of_a_slower_place_waits() -> None:
    queue = Queue(name="x", accelerator_hours=2 * 100.0 / 3600.0)
    bed = Bed(site("a", "2", "2"), queues=(queue,))
    bed.asks("a", 1, 100.0, nodes=("a/n0",))
    bed.asks("z", 1, 100.0, nodes=("a/n1",))
    speeds = (Speed(level="node", step_s=1.0), Speed(level="site", step_s=3.0))
    asked = bed.asks("b", 2, 50.0, shaped={"speeds": speeds}, queue="x")
    assert asked == []  # 150 s on two nodes, of 100 s that there are
    assert bed.ends("a", at=60.0) == ["b"]


def lose_a_place(bed: Bed) -> list[str]:
    """Let a node of ``a`` be lost, and what was on the other go with it; return who starts."""
    attempt = bed.job("a").attempts[-1]
    lost, other = sorted(attempt.tasks)
    assert bed.step(NodeMarked(domain=lost, mark="lost"), at=10.0) == []
    killed = Outcome(code=Why.PEER_LOST, sentence="went with it")
    gone = TaskEnded(job_id="a", attempt=1, epoch=attempt.epoch, domain=other, outcome=killed)
    return bed.step(gone, at=11.0)


@pytest.mark.parametrize("on_loss", ["restart", "wait"])
def test_a_gang_that_lost_a_place_goes_elsewhere_or_waits(on_loss: str) -> None:
    bed = Bed(site("a", "2", "2", "2"))
    bed.asks("a", 4, 50.0, on_loss=on_loss, max_sites=1)
    started = lose_a_place(bed) + bed.step(at=20.0)
    assert started == ([] if on_loss == "wait" else ["a"])


def test_a_site_that_is_too_dear_is_not_promised() -> None:
    bed = Bed(
        site("a", "2", price_per_accelerator_hour=3600.0),
        site("b", "2", price_per_accelerator_hour=1.0),
    )
    bed.asks("a", 2, 50.0, sites=("b",))
    assert bed.asks("b", 2, 10.0, budget=Budget(cost_max=5.0)) == []
    assert bed.promised("b") == [50.0]
    assert bed.where("b") == "b/n0:2"


def test_an_inventory_without_nodes_promises_nothing() -> None:
    bed = pool(2)
    bed.asks("a", 2, 50.0)
    bed.asks("b", 2, 50.0)
    empty = Inventory(sites=(Site(name="a", kind="local", nodes=()),), policy=bed.grid.policy)
    bed.step(InventoryChanged(inventory=empty))
    assert bed.job("b").promised is None
    bed.step(InventoryChanged(inventory=bed.grid))
    assert bed.job("b").promised is not None


def test_when_prices_change_who_cannot_pay_is_promised_another_place() -> None:
    bed = Bed(
        site("a", "2", price_per_accelerator_hour=3600.0),
        site("b", "2", price_per_accelerator_hour=1.0),
    )
    bed.asks("a", 2, 50.0, sites=("b",))
    bed.asks("c", 2, 70.0, sites=("a",))
    bed.asks("b", 2, 10.0, budget=Budget(cost_max=5.0))
    assert bed.where("b") == "b/n0:2"
    bed.step(
        SignalChanged(site="a", price_per_accelerator_hour=1.0),
        SignalChanged(site="b", price_per_accelerator_hour=3600.0),
    )
    assert bed.where("b") == "a/n0:2"
    assert bed.promised("b") == [70.0]


def test_who_would_delay_another_is_told_whom() -> None:
    bed = Bed(site("a", "4"), site("b", "4"))
    bed.asks("a", 3, 100.0, sites=("a",))
    bed.asks("b", 4, 50.0, sites=("a",))
    bed.asks("z", 4, 900.0, sites=("b",))
    bed.asks("y", 4, 50.0, sites=("b",))
    assert bed.asks("zz", 1, 200.0, sites=("a",)) == []
    told = bed.machine.reason("zz")
    assert told is not None
    assert told.code is Why.WOULD_DELAY
    assert "b is to start in 1m 40s" in told.sentence
    assert "starts in 2m 30s at the latest" in told.sentence


def test_a_booking_that_is_dropped_lets_all_come_earlier() -> None:
    bed = Bed(site("a", "2", "2"))
    booked = Booking(name="p", start_s=20.0, end_s=80.0, nodes=("a/n0",))
    later = Booking(name="q", start_s=900.0, end_s=990.0, nodes=("a/n1",))
    bed.step(BookingMade(booking=booked), BookingMade(booking=later))
    bed.asks("a", 2, 50.0)
    assert bed.asks("b", 4, 30.0) == []
    assert bed.promised("b") == [80.0]
    bed.step(BookingDropped(name="p"))
    assert bed.promised("b") == [50.0]


def test_two_that_nobody_can_promise_anything_hold_different_nodes() -> None:
    bed = Bed(site("a", "2", "2", "2"), patience_s=0.0)
    for number in range(3):
        bed.asks(f"a{number}", 1, 0.0, nodes=(f"a/n{number}",))
    need = {"groups": (GroupNeed(ranks=2, level="node"),)}
    for name in "bc":
        assert bed.asks(name, 2, 10.0, shaped=need) == []
    assert bed.asks("d", 1, 10.0) == ["d"]
    assert bed.asks("e", 1, 10.0, spread=0.1) == []


def test_a_shape_that_the_grid_has_no_more_is_not_promised() -> None:
    bed = Bed(site("a", "4"), queues=(Queue(name="x", nominal={"cpu": 4}),))
    bed.asks("a", 2, 50.0, queue="x")
    bed.asks("b", 0, 50.0, queue="x", options=(shape(4), shape(3)))
    assert bed.job("b").promised is None
    bed.ends("a", at=9.0)
    assert bed.job("b").state is JobState.STARTING
