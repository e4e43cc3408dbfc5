"""Who is evicted for whom: the least set that helps, on the grounds that the policy knows."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.core.grids import must, node, shape, site
from tests.unit.core.yard import START_S, Yard

from gridloom.model.event import EvictRequested, InventoryChanged, StopRequested
from gridloom.model.life import JobState
from gridloom.model.policy import Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why


def pool(*sizes: str, **more: Any) -> Yard:
    return Yard(site("a", *(sizes or ("4",))), **more)


# --- priority


def test_a_higher_priority_takes_the_places_once_their_holder_has_saved_its_state() -> None:
    yard = pool()
    assert yard.asks("low", 4, grace_s=20.0) == ["low"]
    yard.runs("low")
    assert yard.asks("high", 3, priority=1) == []
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


def test_nobody_goes_as_long_as_one_of_those_needed_has_just_started() -> None:
    yard = pool("2", "2", preemption=Preemption(min_run_s=60.0))
    yard.asks("old", 2)
    yard.step(at=50.0)
    yard.asks("young", 2)
    yard.step(at=100.0)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}
    yard.step(at=110.0)
    assert yard.told() == {"old": Why.PREEMPTED, "young": Why.PREEMPTED}


def test_who_has_aged_beyond_a_higher_priority_is_not_evicted_for_it() -> None:
    yard = pool(ageing_per_hour=1.0)
    yard.asks("low", 4)
    yard.step(at=2 * 3600.0)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}
    yard.asks("highest", 4, priority=3)
    assert yard.told() == {"low": Why.PREEMPTED}
