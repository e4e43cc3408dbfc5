"""What facts of the grid and of other jobs change: marks, signals, dependencies, requests."""

import random
from typing import Literal

import pytest
from msgspec.structs import replace
from tests.unit.core.grids import shape, site, spec
from tests.unit.core.yard import Yard

from gridloom.core.machine import Machine
from gridloom.model.action import CloseJob
from gridloom.model.event import (
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    SignalChanged,
    StopRequested,
)
from gridloom.model.inventory import Inventory
from gridloom.model.life import JobState
from gridloom.model.policy import Preemption, Weights
from gridloom.model.reason import Why
from gridloom.model.spec import Budget, Dependency

Kind = Literal["afterok", "afterany", "afternotok", "after"]


def after(job_id: str, kind: Kind = "afterok") -> tuple[Dependency, ...]:
    return (Dependency(job_id=job_id, kind=kind),)


# --- marks


def test_a_cordoned_node_takes_no_new_work_and_keeps_what_runs() -> None:
    yard = Yard(site("a", "1", "1"))
    yard.asks("x", 1, nodes=("a/n0",))
    yard.marks("a/n0", "cordon", "new fans")
    assert yard.told() == {}
    yard.asks("y", 2)
    assert yard.why("y") is Why.TOO_FEW_FREE
    (node,) = [r for r in yard.reason("y").refusals if r.domain == "a/n0"]
    assert node.sentence == "a/n0 is cordoned: new fans"
    yard.ends("x")
    assert yard.asks("z", 1) == ["z"]
    assert yard.where("z") == "a/n1:1"


@pytest.mark.parametrize("mark", ["drain", "taint"])
def test_what_runs_on_a_drained_node_moves_with_its_state(mark: str) -> None:
    yard = Yard(site("a", "2", "2", "2"), slot_hold_s=0.0)
    yard.asks("x", 2, nodes=("a/n0", "a/n1"), grace_s=15.0)
    yard.asks("other", 2, nodes=("a/n2",))
    yard.runs("x", "other")
    yard.marks("a/n0", mark, "hot")
    assert yard.told() == {"x": Why.DRAINED}
    assert yard.said("x") == "a/n0 is drained: hot"
    assert yard.goes("x", at=3.0) == ["x"]
    assert yard.where("x") == "a/n1:2"
    assert yard.job("x").restarts == 0


def test_a_whole_site_can_be_drained() -> None:
    yard = Yard(site("a", "1", "1"), site("b", "1"), slot_hold_s=0.0)
    yard.asks("x", 2, sites=("a",))
    yard.asks("y", 1, sites=("b",))
    yard.marks("a", "drain")
    assert yard.told() == {"x": Why.DRAINED}
    assert yard.said("x") == "a is drained"
    assert yard.goes("x") == []
    assert yard.marks("a", "") == ["x"]


def test_what_ran_on_a_lost_node_is_over_and_its_peers_are_killed() -> None:
    yard = Yard(site("a", "1", "1", "1"))
    yard.asks("x", 2, nodes=("a/n0", "a/n1"))
    yard.asks("other", 1)
    yard.marks("a/n0", "lost", "no power")
    assert yard.told() == {"x": Why.PEER_LOST}
    assert yard.said("x") == "a/n0 ended, and the others with it: a/n0 is lost: no power"
    assert yard.attempt("x").grace_until_s == yard.now
    yard.ends("x", code=Why.PEER_LOST)
    assert yard.job("x").state is JobState.QUEUED
    assert yard.job("x").restarts == 1


def test_a_drained_job_keeps_its_places_for_a_while_if_nothing_else_is_free() -> None:
    yard = Yard(site("a", "2"), slot_hold_s=60.0)
    yard.asks("x", 2)
    yard.marks("a/n0", "drain")
    yard.goes("x", at=5.0)
    assert yard.kept("x") == "a/n0:2"
    assert yard.asks("y", 2, priority=1) == []
    assert yard.marks("a/n0", "") == ["x"]


# --- signals


def test_prices_of_the_moment_decide_where_the_next_job_goes() -> None:
    sites = [site(name, "2", price_per_accelerator_hour=2.0) for name in "ab"]
    yard = Yard(*sites, weights=Weights(fragmentation=0.0))
    yard.asks("x", 1)
    yard.step(SignalChanged(site="a", price_per_accelerator_hour=8.0))
    yard.asks("y", 1)
    assert (yard.where("x"), yard.where("y")) == ("a/n0:1", "b/n0:1")
    assert yard.attempt("y").placement.price_per_hour == 2.0


def test_so_does_the_carbon_of_the_moment_and_what_is_not_said_stays() -> None:
    sites = [site(name, "2", power_w_per_accelerator=100.0, carbon_g_per_kwh=50.0) for name in "ab"]
    yard = Yard(*sites, weights=Weights(fragmentation=0.0, carbon=1.0))
    yard.step(SignalChanged(site="a", carbon_g_per_kwh=400.0))
    yard.asks("x", 1)
    assert yard.where("x") == "b/n0:1"
    yard.step(SignalChanged(site="a", price_per_accelerator_hour=1.0))
    assert yard.machine.state.signals.carbon == {"a": 400.0}
    yard.step(SignalChanged(site="a"))
    assert yard.machine.state.signals.prices == {"a": 1.0}


def test_a_lower_price_lets_a_job_start_that_could_not_afford_the_place() -> None:
    yard = Yard(
        site("cheap", "2", price_per_accelerator_hour=1.0),
        site("dear", "2", price_per_accelerator_hour=10.0),
    )
    yard.asks("x", 2, sites=("cheap",))
    assert yard.asks("y", 2, 3600.0, budget=Budget(cost_max=5.0)) == []
    assert yard.step(SignalChanged(site="dear", price_per_accelerator_hour=2.5)) == ["y"]
    assert yard.attempt("y").placement.price_per_hour == 5.0


# --- the inventory


def test_an_inventory_that_says_the_same_leaves_promises_as_they_are() -> None:
    yard = Yard(site("a", "2"), blocked="conservative", preemption=Preemption(priority=False))
    yard.asks("x", 2, 100.0)
    yard.asks("y", 2, 100.0)
    promised = yard.job("y").promised
    assert promised is not None
    yard.step(InventoryChanged(inventory=yard.grid))
    assert yard.job("y").promised == promised
    yard.step(InventoryChanged(inventory=replace(yard.grid, sites=(site("a", "1"),))))
    assert yard.job("y").promised is None


# --- dependencies


def test_a_job_waits_until_the_one_it_follows_has_succeeded() -> None:
    yard = Yard(site("a", "4"))
    yard.asks("x", 1)
    assert yard.asks("y", 1, after=after("x")) == []
    assert yard.why("y") is Why.DEPENDENCY
    assert yard.reason("y").sentence == "waits for x"
    assert yard.ends("x") == ["y"]


def test_who_waits_for_a_job_that_was_stopped_is_told_so() -> None:
    yard = Yard(site("a", "4"))
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x"))
    yard.step(StopRequested(job_id="x"))
    yard.ends("x", code=Why.STOP_REQUESTED)
    assert yard.reason("y").sentence == "waits for x (stopped)"
    assert yard.reason("y").remedy.startswith("`gridloom resume x`")


def test_it_is_not_before_others_while_it_waits_for_another_job() -> None:
    yard = Yard(site("a", "1"), blocked="stop")
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x"), priority=9)
    yard.asks("z", 1)
    assert yard.ends("x") == ["y"]
    assert yard.ends("y") == ["z"]


@pytest.mark.parametrize(
    ("kind", "code", "starts"),
    [
        ("afterok", Why.COMPLETED, True),
        ("afterok", Why.EXITED, False),
        ("afternotok", Why.EXITED, True),
        ("afternotok", Why.COMPLETED, False),
        ("afterany", Why.COMPLETED, True),
        ("afterany", Why.EXITED, True),
    ],
)
def test_how_the_other_ended_decides(kind: Kind, code: Why, starts: bool) -> None:
    yard = Yard(site("a", "4"))
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x", kind))
    assert yard.ends("x", code=code) == (["y"] if starts else [])
    if not starts:
        assert yard.job("y").state is JobState.FAILED
        assert yard.why("y") is Why.DEPENDENCY_FAILED
        wanted = "to succeed and failed" if kind == "afterok" else "to fail and succeeded"
        assert yard.reason("y").sentence == f"was to start after x, which had {wanted}"


def test_after_waits_only_for_the_start() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("full", 2)
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x", "after"))
    assert yard.why("y") is Why.DEPENDENCY
    assert sorted(yard.ends("full")) == ["x", "y"]


def test_after_a_job_that_never_started_but_is_over_it_may_start_too() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("full", 2)
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x", "after"))
    yard.step(StopRequested(job_id="x"))
    assert yard.ends("full") == ["y"]


def test_a_failure_runs_through_a_chain() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x"))
    yard.asks("z", 1, after=after("y"))
    yard.asks("w", 1, after=after("y", "afternotok"))
    yard.step(CancelRequested(job_id="x"))
    assert yard.ends("x", code=Why.CANCEL_REQUESTED) == ["w"]
    assert [yard.job(name).state for name in "xyz"] == [
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.FAILED,
    ]


def test_a_job_may_follow_several_and_is_told_of_those_that_are_left() -> None:
    yard = Yard(site("a", "6"))
    names = ["one", "two", "three", "four", "five", "six"]
    for name in names:
        yard.asks(name, 1)
    yard.asks("y", 1, after=tuple(Dependency(job_id=name) for name in names))
    assert yard.reason("y").sentence == "waits for one, two, three, four and 2 more"
    yard.ends("one", "two")
    assert yard.reason("y").sentence == "waits for three, four, five, six"
    yard.ends("three", "four", "five")
    assert yard.ends("six") == ["y"]


def test_a_job_that_comes_after_the_end_of_another_is_decided_at_once() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 1)
    yard.ends("x", code=Why.EXITED)
    assert yard.asks("y", 1, after=after("x")) == []
    assert yard.job("y").state is JobState.FAILED
    assert yard.asks("z", 1, after=after("x", "afterany")) == ["z"]
    assert yard.asks("w", 1, after=after("forgotten")) == ["w"]  # nobody knows it any more


def test_who_follows_a_job_that_is_resumed_waits_for_it_again() -> None:
    yard = Yard(site("a", "1"))
    yard.asks("full", 1)
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x", "afterany"))
    yard.step(StopRequested(job_id="x"))
    assert yard.why("y") is not Why.DEPENDENCY
    yard.step(ResumeRequested(job_id="x"))
    assert yard.why("y") is Why.DEPENDENCY
    assert yard.ends("full") == ["x"]
    assert yard.ends("x") == ["y"]


def test_a_stopped_job_keeps_those_behind_it_waiting() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 1)
    yard.asks("y", 1, after=after("x"))
    yard.step(StopRequested(job_id="x"))
    yard.goes("x")
    assert yard.job("x").state is JobState.STOPPED
    assert yard.job("y").state is JobState.QUEUED
    assert yard.step(ResumeRequested(job_id="x")) == ["x"]
    assert yard.ends("x") == ["y"]


# --- an operator's eviction


def test_an_evicted_job_saves_its_state_and_waits_for_its_turn_again() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 2)
    yard.runs("x")
    yard.step(EvictRequested(job_id="x"), EvictRequested(job_id="nobody"))
    assert yard.told() == {"x": Why.PREEMPTED}
    assert yard.said("x") == "was evicted by an operator"
    yard.step(EvictRequested(job_id="x"))
    assert yard.told() == {}
    assert yard.job("x").evictions == 1
    assert yard.goes("x", at=1.0) == ["x"]


def test_who_waits_cannot_be_evicted() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("x", 2)
    yard.asks("y", 2)
    yard.step(EvictRequested(job_id="y"))
    assert yard.job("y").evictions == 0
    assert yard.ends("x") == ["y"]


def test_who_was_to_follow_a_job_that_the_first_grid_dooms_ends_with_it_once() -> None:
    machine = Machine()
    facts = [
        JobSubmitted(job_id=name, submitted_s=0.0, spec=spec(shape(ranks), after=follows))
        for name, ranks, follows in (("first", 9, ()), ("second", 1, after("first")))
    ]
    machine.step(facts, 0.0, random.Random(0))
    told = InventoryChanged(inventory=Inventory(sites=(site("a", "2"),)))
    actions = machine.step([told], 1.0, random.Random(0))
    assert [one.job_id for one in actions if isinstance(one, CloseJob)] == ["first", "second"]
    assert machine.state.jobs["second"].state is JobState.FAILED
