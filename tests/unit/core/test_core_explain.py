"""Why a job waits, or can never run: one reason for every rule that can stand in its way."""

from typing import Any

import pytest
from tests.unit.core.grids import grid, must, node, shape, site, spec
from tests.unit.core.yard import Yard

from gridloom.core import explain
from gridloom.core.index import Index
from gridloom.core.state import State
from gridloom.model.booking import Booking
from gridloom.model.event import BookingMade, InventoryChanged
from gridloom.model.life import Job, JobState
from gridloom.model.policy import Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Budget

CALM = Preemption(priority=False)


def pool(*sizes: str, **more: Any) -> Yard:
    return Yard(site("a", *sizes), **({"preemption": CALM} | more))


# --- never


@pytest.mark.parametrize(
    ("asks", "remedy"),
    [
        ({"options": (shape(3),), "max_sites": 1}, "let it use up to 2 sites"),
        ({"options": (shape(2),), "min_sites": 3, "max_sites": 3}, "let it run at 2 sites"),
        ({"options": (shape(1),), "sites": ("nowhere",)}, "let it use every site"),
        ({"options": (shape(1),), "nodes": ("a/n9",)}, "let it use every node"),
        ({"options": (shape(1),), "labels": {"zone": "x"}}, "let it use nodes with other labels"),
        (
            {"options": (shape(1),), "data_required": True, "data_sites": ("c",)},
            "let it run away from its data",
        ),
        (
            {"options": (shape(1, memory_bytes=10**12),)},
            "cut the model further, so that a rank needs less memory",
        ),
        (
            {"options": (shape(2, groups=(must(2, "node"),)),), "max_sites": 1},
            "let its groups sit further apart",
        ),
        (
            {"options": (shape(1, rank_resources=(("cpus", 64),)),)},
            "ask for less of the host for each rank",
        ),
        (
            {"options": (shape(2),), "nodes": ("b/n0",), "ranks_per_node_max": 1},
            "let it use every node",
        ),
        ({"options": (shape(9),), "max_sites": 2}, "ask for at most 4 cpu"),
        (
            {"options": (shape(1, accelerator="h100"),)},
            "add nodes with h100; the grid has cpu",
        ),
    ],
)
def test_the_smallest_change_that_helps_is_the_remedy(asks: dict[str, Any], remedy: str) -> None:
    sized: dict[str, Any] = {"memory_bytes": 10**9, "resources": {"cpus": 8}}
    inventory = grid(
        site("a", node("1", 0, **sized), node("1", 1, **sized)), site("b", node("2", 0, **sized))
    )
    if remedy.startswith("let its groups"):
        inventory = grid(site("a", node("1", 0, **sized), node("1", 1, **sized)))
    more = {name: value for name, value in asks.items() if name != "options"}
    reason = explain.ever_fits(spec(*asks["options"], **more), inventory)
    assert reason is not None
    assert reason.code is Why.NEVER_FITS
    assert reason.remedy == remedy


def test_what_fits_has_no_reason_never_to_run() -> None:
    assert explain.ever_fits(spec(shape(2)), grid(site("a", "2"))) is None


def test_a_job_without_a_shape_never_runs() -> None:
    reason = explain.ever_fits(spec(), grid(site("a", "2")))
    assert reason is not None
    assert reason.sentence == "has no shape that could be placed"


def test_on_a_grid_without_nodes_nothing_runs() -> None:
    reason = explain.ever_fits(spec(shape(1)), grid())
    assert reason is not None
    assert reason.remedy == "add nodes with cpu; the grid has no nodes"


def test_quotas_say_what_never_runs() -> None:
    yard = pool("4", queues=[Queue(name="q", nominal={"cpu": 2})])
    yard.asks("x", 4, queue="q")
    assert yard.job("x").state is JobState.FAILED
    assert yard.reason("x").sentence == (
        "queue `q` owns 2 cpu and has no cohort to borrow from; the job needs 4"
    )
    yard.asks("y", 1, queue="unheard")
    assert yard.reason("y").sentence == "the grid has no queue `unheard`"
    assert yard.asks("z", options=(shape(4), shape(2)), queue="q") == ["z"]  # one of them may


def test_who_fitted_before_the_grid_shrank_is_told_that_it_never_fits() -> None:
    yard = pool("4")
    yard.asks("x", 4)
    yard.asks("y", 4)
    yard.step(InventoryChanged(inventory=grid(site("a", "2"))))
    assert yard.job("y").state is JobState.QUEUED
    assert yard.why("y") is Why.NEVER_FITS


# --- waiting


def test_who_would_start_at_the_next_step_has_no_reason_to_wait() -> None:
    """Such a state is one that was written down before anybody looked at who may start."""
    asked = {"x": spec(shape(2)), "y": spec(shape(4)), "z": spec(shape(2))}
    jobs = {name: Job(job_id=name, spec=made, submitted_s=0.0) for name, made in asked.items()}
    index = Index(State(inventory=grid(site("a", "2", "2")), jobs=jobs))
    assert explain.reason(index, jobs["x"]) is None
    assert explain.reasons(index).keys() <= {"z"}
    index.dirty = False  # it was looked at, and what was decided after x has left it a place
    told = explain.reasons(index)
    assert told.keys() == {"x", "y", "z"}
    assert told["x"] is not None
    assert told["x"].sentence.startswith("may start when the scheduler looks again")


def test_those_of_one_like_are_told_alike_and_the_others_not() -> None:
    yard = pool("4")
    yard.asks("x", 4)
    for name in ("one", "two", "three"):
        yard.asks(name, 2)
    yard.asks("other", 3)
    told = explain.reasons(yard.machine.index)
    assert told["one"] == told["two"] == told["three"] != told["other"]
    assert yard.reason("two") == told["two"]
    assert yard.reason("other") == told["other"]


def test_of_its_like_the_one_with_a_reservation_is_told_of_its_places() -> None:
    yard = Yard(site("a", "2", "2"))
    yard.asks("x", 2)
    yard.asks("y", 2)
    yard.asks("high", 2, priority=1)
    yard.asks("low", 2, priority=-1)
    assert yard.why("high") is Why.HOLDING_PLACES
    assert yard.why("low") is Why.IN_USE
    told = explain.reasons(yard.machine.index)
    assert told["low"] == yard.reason("low")


def test_one_behind_its_like_may_hold_places_too() -> None:
    yard = pool("2", "2", slot_hold_s=100.0)
    yard.asks("x", 2, on_loss="wait")
    yard.asks("other", 2)
    yard.asks("before", 2, priority=1)
    yard.marks("a/n0", "lost")
    yard.step(at=5.0)
    assert yard.why("before") is Why.IN_USE
    assert yard.reason("x").sentence.startswith("waits for its places on a/n0, which are kept")
    told = explain.reasons(yard.machine.index)
    assert told["x"] == yard.reason("x")


def test_under_promises_a_job_is_told_its_start_and_what_it_would_run_into() -> None:
    yard = pool("4", blocked="conservative")
    yard.asks("x", 3, 100.0)
    yard.asks("wide", 4, 100.0)
    yard.asks("long", 1, 500.0)
    assert yard.why("wide") is Why.TOO_FEW_FREE
    assert "starts in 1m 40s at the latest" in yard.reason("wide").sentence
    reason = yard.reason("long")
    assert reason.code is Why.WOULD_DELAY
    assert "wide is to start in 1m 40s" in reason.sentence
    assert "starts in 3m 20s at the latest" in reason.sentence


def test_under_promises_bookings_and_shortages_are_told_too() -> None:
    queues = [
        Queue(name="q", nominal={"cpu": 1}),
        Queue(name="crew"),
        Queue(name="s", order="strict"),
    ]
    yard = pool("4", blocked="conservative", queues=queues)
    start_s = yard.now + 50.0
    booking = Booking(
        name="b", start_s=start_s, end_s=start_s + 50.0, nodes=("a",), queues=("crew",)
    )
    far = Booking(name="far", start_s=start_s + 1e6, end_s=start_s + 2e6, nodes=("a",))
    yard.step(BookingMade(booking=booking), BookingMade(booking=far))
    assert yard.asks("x", 1, 1e3, queue="q") == []
    assert yard.why("x") is Why.BOOKED
    assert yard.asks("crew", 3, 100.0, queue="crew") == ["crew"]
    yard.asks("crew2", 1, 100.0, queue="q")
    yard.asks("s1", 2, 40.0, queue="s")
    yard.asks("s2", 1, 40.0, queue="s")
    assert yard.why("s2") is Why.BEHIND_STRICT
    yard.asks("short", 1, 40.0, queue="q", priority=1)
    assert yard.why("x") is Why.QUOTA


def test_a_budget_under_easy_promises() -> None:
    cheap = site("cheap", "2", price_per_accelerator_hour=1.0)
    dear = site("dear", "2", price_per_accelerator_hour=10.0)
    yard = Yard(cheap, dear, blocked="easy", preemption=CALM)
    yard.asks("x", 2, 3600.0, sites=("cheap",))
    yard.asks("y", 2, 3600.0, budget=Budget(cost_max=5.0))
    assert yard.why("y") is Why.OVER_BUDGET
    assert yard.ends("x") == ["y"]
