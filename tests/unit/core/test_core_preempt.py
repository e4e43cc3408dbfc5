"""Who is evicted for whom: the least set that helps, on the grounds that the policy knows."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.core.grids import must, node, shape, site
from tests.unit.core.yard import START_S, Yard

from gridloom.model.event import EvictRequested, InventoryChanged, StopRequested
from gridloom.model.life import JobState
from gridloom.model.policy import Preemption
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Why

ORDER = Preemption(order=True, cooldown_s=100.0)


def pool(*sizes: str, **more: Any) -> Yard:
    return Yard(site("a", *(sizes or ("4",))), **more)


def tenants(*, reclaim: bool = True, **more: Any) -> Yard:
    """Return four devices of which two queues own two each, and may borrow the others."""
    queues = (
        Queue(name="ours", cohort="all", nominal={"cpu": 2}, reclaim=reclaim),
        Queue(name="theirs", cohort="all", nominal={"cpu": 2}),
    )
    return Yard(site("a", "4"), queues=queues, cohorts=[Cohort(name="all")], **more)


# --- priority


def test_a_higher_priority_takes_the_places_once_their_holder_has_saved_its_state() -> None:
    yard = pool()
    assert yard.asks("low", 4, grace_s=20.0) == ["low"]
    yard.runs("low")
    assert yard.asks("high", 3, priority=1, queue="") == []
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.said("low") == "makes room for high (priority 1)"
    assert yard.attempt("low").grace_until_s == START_S + 20.0
    assert yard.kept("high") == "a/n0:3"
    assert yard.why("high") is Why.HOLDING_PLACES
    assert yard.asks("late", 1, priority=9) == []  # nothing is free yet
    assert yard.goes("low", at=5.0) == ["high", "late"]
    assert yard.where("high") == "a/n0:3"
    assert yard.job("low").state is JobState.QUEUED
    assert (yard.job("low").evictions, yard.job("low").restarts) == (1, 0)


def test_places_that_are_being_freed_are_kept_from_everybody_else() -> None:
    yard = pool("2", "2")
    yard.asks("one", 2)
    yard.asks("two", 2)
    yard.asks("high", 4, priority=1, grace_s=30.0)
    assert yard.told() == {"one": Why.PREEMPTED, "two": Why.PREEMPTED}
    assert yard.goes("one") == []
    assert yard.asks("small", 1) == []
    assert yard.goes("two") == ["high"]


def test_a_reservation_ends_if_the_victims_take_too_long_to_go() -> None:
    yard = pool()
    yard.asks("low", 4, grace_s=20.0)
    yard.asks("high", 4, priority=1)
    assert yard.kept("high") == "a/n0:4"
    until_s = 20.0 + 4.0 + 60.0  # the grace, the margin of the kill, and a minute
    yard.step(at=until_s - 1.0)
    assert yard.kept("high") == "a/n0:4"
    yard.step(at=until_s)
    assert yard.kept("high") == "nothing"


@pytest.mark.parametrize("priority", [0, 1])
def test_only_those_of_lower_priority_have_to_go(priority: int) -> None:
    yard = pool()
    yard.asks("holder", 4, priority=1)
    yard.asks("other", 4, priority=priority)
    assert yard.told() == {}
    assert yard.why("other") is Why.IN_USE


def test_who_must_not_be_evicted_is_not() -> None:
    yard = pool()
    yard.asks("low", 4, preemptible=False)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}


def test_nobody_is_evicted_when_that_would_not_be_enough() -> None:
    yard = pool("2", "2")
    yard.asks("stays", 1, preemptible=False)
    yard.asks("low", 1)
    yard.asks("low2", 2)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}
    assert yard.kept("high") == "nothing"


def test_where_groups_must_sit_together_the_devices_alone_are_not_enough() -> None:
    yard = Yard(site("a", "2", "2"))
    together = (shape(2, groups=(must(2, "node"),)),)
    yard.asks("stay1", 1, nodes=("a/n0",), preemptible=False)
    yard.asks("stay2", 1, nodes=("a/n1",), preemptible=False)
    yard.asks("low1", 1, nodes=("a/n0",))
    yard.asks("low2", 1, nodes=("a/n1",))
    yard.asks("high", options=together, priority=1)
    assert yard.told() == {}
    assert yard.ends("stay1") == []
    assert yard.told() == {"low1": Why.PREEMPTED}
    assert yard.kept("high") == "a/n0:2"


def test_who_runs_elsewhere_is_no_victim() -> None:
    yard = Yard(site("a", "2"), site("b", "2"))
    yard.asks("here", 2, sites=("a",))
    yard.asks("there", 2, sites=("b",))
    yard.asks("high", 2, sites=("b",), priority=1)
    assert yard.told() == {"there": Why.PREEMPTED}


def test_one_that_goes_anyway_spares_the_others() -> None:
    yard = pool("2", "2")
    yard.asks("one", 2)
    yard.asks("two", 2)
    yard.step(EvictRequested(job_id="one"))
    yard.asks("high", 2, priority=1)
    assert yard.told() == {}
    assert yard.kept("high") == "a/n0:2"  # what one leaves is for it
    assert yard.goes("one") == ["high"]


def test_one_that_a_user_stops_is_no_victim() -> None:
    yard = pool("2", "2")
    yard.asks("one", 2)
    yard.asks("two", 2)
    yard.step(StopRequested(job_id="one"))
    yard.asks("high", 2, priority=1)
    assert yard.told() == {"two": Why.PREEMPTED}


def test_what_ran_on_nodes_that_are_gone_is_no_victim() -> None:
    yard = pool("2", "2")
    yard.asks("away", 2, nodes=("a/n1",))
    yard.asks("here", 2)
    yard.step(InventoryChanged(inventory=replace(yard.grid, sites=(site("a", "2"),))))
    yard.asks("high", 2, priority=1)
    assert yard.told() == {"here": Why.PREEMPTED}


def test_who_waits_for_accelerator_hours_gets_nobody_evicted() -> None:
    yard = pool(queues=[Queue(name="q", accelerator_hours=1.0), Queue(name="other")])
    yard.asks("low", 4, queue="other")
    yard.asks("high", 4, 900.0, queue="q", priority=1)
    assert yard.told() == {"low": Why.PREEMPTED}
    yard.goes("low")
    yard.ends("high", at=900.0)  # the hour is used up
    yard.asks("higher", 4, 900.0, queue="q", priority=2)
    assert yard.told() == {}
    assert yard.why("higher") is Why.ACCELERATOR_HOURS


def test_the_lowest_priority_goes_first() -> None:
    yard = pool("2", "2")
    yard.asks("mid", 2, priority=1)
    yard.asks("low", 2)
    yard.asks("high", 2, priority=2)
    assert yard.told() == {"low": Why.PREEMPTED}


def test_of_equals_the_set_that_loses_the_least_work_goes() -> None:
    yard = pool("2", "2")
    yard.asks("large", 2, restart_s=100.0)
    yard.asks("small1", 1, restart_s=10.0)
    yard.asks("small2", 1, restart_s=10.0)
    yard.asks("high", 2, priority=1)
    assert yard.told() == {"small1": Why.PREEMPTED, "small2": Why.PREEMPTED}


def test_one_large_victim_spares_several_small_ones_that_would_lose_more() -> None:
    yard = pool("2", "2")
    yard.asks("small1", 1, restart_s=100.0)
    yard.asks("small2", 1, restart_s=100.0)
    yard.asks("large", 2, restart_s=10.0)
    yard.asks("high", 2, priority=1)
    assert yard.told() == {"large": Why.PREEMPTED}


def test_who_cannot_save_in_its_grace_loses_all_since_its_checkpoint() -> None:
    yard = pool("2", "2")
    yard.asks("slow", 2, 1e5, grace_s=10.0, checkpoint_s=20.0)
    yard.asks("quick", 2, 1e5, grace_s=30.0, checkpoint_s=20.0)
    yard.runs("slow", "quick")
    yard.step(at=15.0)
    yard.asks("first", 2, priority=1)
    assert yard.told() == {"slow": Why.PREEMPTED}  # 15 seconds of work against 20 to save it
    later = pool("2", "2")
    later.asks("slow", 2, 1e5, grace_s=10.0, checkpoint_s=20.0)
    later.asks("quick", 2, 1e5, grace_s=30.0, checkpoint_s=20.0)
    later.runs("slow", "quick")
    later.step(at=500.0)
    later.asks("first", 2, priority=1)
    assert later.told() == {"quick": Why.PREEMPTED}


def test_no_more_are_evicted_than_are_needed() -> None:
    yard = pool("1", "1", "1", "1", "4")
    for number in range(4):
        yard.asks(f"low{number}", 1, nodes=(f"a/n{number}",), restart_s=10.0)
    yard.asks("mid", 4, priority=1)
    yard.asks("high", 3, priority=2)
    assert len(yard.told()) == 3
    assert "mid" not in yard.told()
    assert yard.why("high") is Why.HOLDING_PLACES


def test_what_is_free_already_is_used_and_only_the_rest_is_taken() -> None:
    yard = pool("4", "2")
    yard.asks("low1", 2, nodes=("a/n0",))
    yard.asks("low2", 1, nodes=("a/n1",))
    yard.asks("high", 4, priority=1, options=(shape(4, groups=(must(4, "node"),)),))
    assert yard.told() == {"low1": Why.PREEMPTED}


def test_a_gang_of_two_sites_has_victims_at_both() -> None:
    yard = Yard(site("a", "2"), site("b", "2"))
    yard.asks("low1", 2)
    yard.asks("low2", 2)
    yard.asks("high", 4, min_sites=2, max_sites=2, priority=1)
    assert yard.told() == {"low1": Why.PREEMPTED, "low2": Why.PREEMPTED}
    assert yard.goes("low1", "low2") == ["high"]


def test_host_resources_that_victims_hold_count_too() -> None:
    sized = [node("2", n, resources={"cpus": 8}) for n in range(2)]
    yard = Yard(site("a", *sized))
    hungry = (shape(1, rank_resources=(("cpus", 8),)),)
    modest = (shape(1, rank_resources=(("cpus", 4),)),)
    yard.asks("one", options=hungry, nodes=("a/n0",), restart_s=50.0)
    yard.asks("two", options=modest, nodes=("a/n1",))
    yard.asks("stays", options=modest, nodes=("a/n1",), preemptible=False)
    yard.asks("high", options=hungry, priority=1)
    assert yard.told() == {"one": Why.PREEMPTED}  # without two there are no 8 cores on n1
    yard.asks("never", options=hungry, nodes=("a/n1",), priority=1)
    assert yard.told() == {}


def test_of_victims_with_host_resources_only_those_needed_go() -> None:
    yard = Yard(site("a", node("4", resources={"cpus": 8})))
    modest = (shape(1, rank_resources=(("cpus", 2),)),)
    for name in ("one", "two", "three", "four"):
        yard.asks(name, options=modest)
    yard.asks("high", options=(shape(1, rank_resources=(("cpus", 4),)),), priority=1)
    assert yard.told() == {"three": Why.PREEMPTED, "four": Why.PREEMPTED}  # the youngest
    assert yard.goes("three", "four") == ["high"]


def test_with_host_resources_too_few_devices_are_never_enough() -> None:
    yard = Yard(site("a", node("4", resources={"cpus": 8})))
    modest = (shape(1, rank_resources=(("cpus", 2),)),)
    for name in ("one", "two", "three", "four"):
        yard.asks(name, options=modest)
    yard.asks("high", options=(shape(2, rank_resources=(("cpus", 1),)),), priority=1)
    assert yard.told() == {"four": Why.PREEMPTED, "three": Why.PREEMPTED}


def test_room_is_made_for_one_after_the_other() -> None:
    yard = pool("2", "2")
    yard.asks("low1", 2)
    yard.asks("low2", 2)
    yard.asks("high1", 2, priority=1)
    yard.asks("high2", 2, priority=1)
    assert yard.job("high1").reservation is not None
    assert yard.job("high2").reservation is not None
    assert yard.goes("low1", "low2") == ["high1", "high2"]


def test_who_started_a_moment_ago_is_left_alone_until_it_has_run_for_long_enough() -> None:
    yard = pool(preemption=Preemption(min_run_s=60.0))
    yard.asks("low", 4)
    yard.step(at=10.0)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}
    assert yard.timer() == 60.0
    yard.step(at=60.0)
    assert yard.told() == {"low": Why.PREEMPTED}


def test_the_domain_is_cleared_where_that_costs_least() -> None:
    yard = pool("2", "2", "2")
    for number, lost_s in enumerate((30.0, 10.0, 20.0)):
        yard.asks(f"low{number}", 2, nodes=(f"a/n{number}",), restart_s=lost_s)
    yard.asks("high", options=(shape(2, groups=(must(2, "node"),)),), priority=1)
    assert yard.told() == {"low1": Why.PREEMPTED}
    assert yard.kept("high") == "a/n1:2"


def test_devices_that_are_enough_but_scattered_are_added_to_until_groups_fit() -> None:
    yard = pool(*["2"] * 8)
    for layer in range(2):
        for number in range(8):
            yard.asks(f"low{layer}{number}", 1, nodes=(f"a/n{number}",))
    pairs = (shape(4, groups=(must(2, "node"),)),)
    yard.asks("high", options=pairs, priority=1)
    told = yard.told()
    assert len(told) == 4  # the first four of the youngest would be one of each node
    assert {name[-1] for name in told} == {"6", "7"}
    assert yard.kept("high") == "a/n6:2 a/n7:2"


# --- what was lent


def test_a_queue_takes_back_what_it_lent_and_no_more() -> None:
    yard = tenants()
    for number in range(4):
        yard.asks(f"t{number}", 1, queue="theirs")
    yard.asks("o", 2, queue="ours")
    assert yard.told() == {"t3": Why.PREEMPTED, "t2": Why.PREEMPTED}  # the youngest
    assert yard.said("t3") == "makes room for o of queue ours (priority 0)"
    assert yard.goes("t2", "t3") == ["o"]
    yard.asks("more", 1, queue="ours")
    assert yard.told() == {}
    assert yard.why("more") in {Why.QUOTA, Why.IN_USE}


def test_a_job_that_is_more_than_was_lent_gets_nobody_evicted() -> None:
    yard = tenants()
    for number in range(4):
        yard.asks(f"t{number}", 1, queue="theirs")
    yard.asks("o", 3, queue="ours")
    assert yard.told() == {}


def test_one_gang_that_borrows_goes_as_a_whole() -> None:
    yard = tenants()
    yard.asks("t", 4, queue="theirs")
    yard.asks("o", 1, queue="ours")
    assert yard.told() == {"t": Why.PREEMPTED}
    assert yard.goes("t") == ["o"]


@pytest.mark.parametrize("priority", [0, 1])
def test_a_queue_that_may_not_reclaim_evicts_nobody_of_another(priority: int) -> None:
    yard = tenants(reclaim=False)
    yard.asks("t", 4, queue="theirs")
    yard.asks("o", 1, queue="ours", priority=priority)
    assert yard.told() == {}


def test_where_nobody_reclaims_a_higher_priority_takes_back_what_was_lent() -> None:
    rule = Preemption(reclaim=False)
    yard = tenants(preemption=rule)
    yard.asks("t", 4, queue="theirs")
    yard.asks("o", 1, queue="ours")
    assert yard.told() == {}
    yard.asks("urgent", 1, queue="ours", priority=1)
    assert yard.told() == {"t": Why.PREEMPTED}


def test_what_a_tenant_has_of_its_own_is_safe_whatever_the_priorities() -> None:
    yard = tenants()
    yard.asks("t", 2, queue="theirs")
    yard.asks("o", 2, queue="ours")
    yard.asks("urgent", 1, queue="ours", priority=9)
    assert yard.told() == {"o": Why.PREEMPTED}  # of its own queue


def test_a_borrower_with_two_kinds_of_hosts_returns_only_what_it_borrows() -> None:
    """Also where host resources decide, so that victims are given back one by one."""
    queues = (
        Queue(name="ours", cohort="all", nominal={"cpu": 2}),
        Queue(name="theirs", cohort="all", nominal={"cpu": 2}),
    )
    sized = node("4", resources={"cpus": 8})
    yard = Yard(site("a", sized), queues=queues, cohorts=[Cohort(name="all")])
    modest = (shape(1, rank_resources=(("cpus", 2),)),)
    for number in range(4):
        yard.asks(f"t{number}", options=modest, queue="theirs")
    yard.asks("o", options=(shape(1, rank_resources=(("cpus", 6),)),), queue="ours")
    assert yard.told() == {}  # three would have to go, and only two are lent
    yard.asks("p", options=(shape(1, rank_resources=(("cpus", 4),)),), queue="ours")
    assert yard.told() == {"t3": Why.PREEMPTED, "t2": Why.PREEMPTED}


def test_quota_and_place_must_come_from_the_same_victims() -> None:
    """Where a job without a quota would leave a place, that is no use without what was lent."""
    queues = (
        Queue(name="ours", cohort="all", nominal={"cpu": 2}),
        Queue(name="theirs", cohort="all", nominal={"cpu": 0}),
        Queue(name="free"),
    )
    sized = [node("2", n, resources={"cpus": 4}) for n in range(2)]
    for resources in ((), (("cpus", 2),)):
        yard = Yard(site("a", *sized), queues=queues, cohorts=[Cohort(name="all")])
        yard.asks("loose", 2, queue="free", nodes=("a/n0",), restart_s=1.0)
        yard.asks("lent", 2, queue="theirs", nodes=("a/n1",), restart_s=99.0)
        pair = shape(2, groups=(must(2, "node"),), rank_resources=resources)
        yard.asks("o", options=(pair,), queue="ours", priority=1)
        assert yard.told() == {"lent": Why.PREEMPTED}
        assert yard.kept("o") == "a/n1:2"


def test_a_large_borrower_is_no_victim_where_it_leaves_too_little() -> None:
    queues = (
        Queue(name="ours", cohort="all", nominal={"cpu": 2}),
        Queue(name="theirs", cohort="all", nominal={"cpu": 2}),
    )
    yard = Yard(site("a", "3", "1"), queues=queues, cohorts=[Cohort(name="all")])
    yard.asks("t1", 1, queue="theirs", nodes=("a/n0",))
    yard.asks("t2", 1, queue="theirs", nodes=("a/n0",))
    yard.asks("wide", 2, queue="theirs")
    assert yard.where("wide") == "a/n0:1 a/n1:1"
    yard.asks("o", 2, queue="ours", nodes=("a/n0",))
    assert yard.told() == {"t2": Why.PREEMPTED, "t1": Why.PREEMPTED}


# --- the policy's order


def test_the_shorter_remaining_job_goes_before_the_longer() -> None:
    yard = pool(order="remaining", preemption=ORDER)
    yard.asks("long", 4, 1000.0)
    yard.runs("long")
    yard.asks("alike", 4, 950.0)
    assert yard.told() == {}  # not clearly shorter
    yard.asks("short", 4, 100.0)
    assert yard.told() == {"long": Why.PREEMPTED}
    assert yard.goes("long", at=10.0) == ["short"]


def test_what_the_running_job_has_done_counts_for_it() -> None:
    yard = pool(order="remaining", preemption=ORDER)
    yard.asks("long", 4, 1000.0)
    yard.runs("long")
    yard.step(at=950.0)
    yard.asks("other", 4, 100.0)
    assert yard.told() == {}


def test_who_was_just_evicted_is_spared_by_equals_for_a_while() -> None:
    yard = pool(order="remaining", preemption=ORDER)
    yard.asks("long", 4, 1000.0)
    yard.runs("long")
    yard.asks("short1", 4, 100.0)
    yard.goes("long", at=10.0)
    yard.ends("short1", at=50.0)
    assert yard.job("long").state is JobState.STARTING
    yard.asks("short2", 4, 100.0)
    assert yard.told() == {}
    assert yard.step(at=100.0) == []
    assert yard.told() == {"long": Why.PREEMPTED}
    yard.goes("long", at=101.0)
    yard.ends("short2", at=102.0)
    yard.asks("urgent", 4, priority=1)
    assert yard.told() == {"long": Why.PREEMPTED}  # a higher priority need not wait


def test_who_has_had_less_goes_before_who_has_had_more() -> None:
    yard = pool(order="attained", preemption=ORDER, attained_steps_s=(400.0, 800.0))
    yard.asks("old", 4)
    yard.asks("new", 4)
    assert yard.told() == {}
    assert yard.timer() == 100.0  # four devices by then had 400 seconds
    yard.step(at=100.0)
    assert yard.told() == {"old": Why.PREEMPTED}
    assert yard.goes("old", at=101.0) == ["new"]
    yard.step(at=201.0)  # old had its 404, new now 400: old is not before it
    assert yard.told() == {}


def test_in_the_last_class_nobody_is_evicted_for_having_had_more() -> None:
    yard = pool(order="attained", preemption=ORDER, attained_steps_s=(40.0,))
    yard.asks("old", 4)
    yard.asks("new", 4)
    yard.step(at=10.0)
    yard.goes("old", at=20.0)
    yard.step(at=1000.0)
    assert yard.told() == {}


def test_an_earlier_deadline_goes_before_a_later() -> None:
    yard = pool(order="deadline", preemption=ORDER)
    yard.asks("later", 4, 100.0, deadline_s=START_S + 1000.0)
    yard.asks("never", 4, 100.0)
    assert yard.told() == {}
    yard.asks("soon", 4, 100.0, deadline_s=START_S + 500.0)
    assert yard.told() == {"later": Why.PREEMPTED}


def test_an_order_that_never_changes_evicts_nobody() -> None:
    yard = pool(order="submit", preemption=ORDER)
    yard.asks("one", 4)
    yard.asks("two", 4)
    assert yard.told() == {}


def test_a_queue_with_less_than_its_share_evicts_of_one_with_more() -> None:
    queues = [Queue(name="big"), Queue(name="small")]
    yard = pool("4", queues=queues, order="share", preemption=ORDER)
    for number in range(4):
        yard.asks(f"b{number}", 1, queue="big")
    yard.asks("again", 1, queue="big")
    assert yard.told() == {}  # not for its own queue
    yard.asks("s1", 1, queue="small")
    assert len(yard.told()) == 1
    (victim,) = yard.told()
    assert yard.goes(victim) == ["s1"]
    yard.asks("s2", 1, queue="small")
    (victim,) = yard.told()
    assert yard.goes(victim) == ["s2"]
    yard.asks("s3", 1, queue="small")
    assert yard.told() == {}  # two and two are fair


def test_a_gang_gets_no_more_victims_than_leave_the_other_queue_its_share() -> None:
    queues = [Queue(name="big"), Queue(name="small")]
    yard = pool("4", queues=queues, order="share", preemption=ORDER)
    for number in range(4):
        yard.asks(f"b{number}", 1, queue="big")
    yard.asks("s", 3, queue="small")
    assert yard.told() == {}
    yard.asks("t", 2, queue="small")
    assert len(yard.told()) == 2
