"""Nobody leaves, moves or grows for a place that is promised, held, booked, or too dear to have."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.grids import must, shape, site, spec
from tests.unit.core.yard import START_S, Yard

from gridloom.core.capacity import Holding
from gridloom.core.spoken import Later, Rest
from gridloom.model.booking import Booking
from gridloom.model.event import BookingMade, JobSubmitted
from gridloom.model.policy import Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Budget, Forecast, Speed

CALM = Preemption(priority=False, reclaim=False)
HOUR = Queue(name="q", accelerator_hours=1.0, period_s=1e6)
"""3600 device-seconds of a period that is far from over."""

SPEEDS = (Speed(level="node", step_s=1.0), Speed(level="site", step_s=2.0))


def books(yard: Yard, start_s: float, *nodes: str, queues: tuple[str, ...] = ()) -> list[str]:
    begin_s = START_S + start_s
    booking = Booking(name="b", nodes=nodes, queues=queues, start_s=begin_s, end_s=begin_s + 100.0)
    return yard.step(BookingMade(booking=booking))


# --- what others leave


def held(*units: int) -> Holding:
    of = np.array(units, np.int64)
    ones = np.ones(len(units), np.int64)
    return Holding(units=of, devices=ones, bits=(), nodes=of, ranks=ones, resources=())


@pytest.mark.parametrize(
    ("freed", "taken", "want"),
    [
        ({}, (), [1, 0, 2]),
        ({"late": held(0, 1)}, (), [2, 0, 2]),  # what it has later, too, is given up for the job
        ({"soon": held(0)}, (), [1, 0, 2]),  # what is free by then anyway was counted on
        ({"late": held(0)}, (held(0, 2),), [1, 0, 1]),
        ({}, (held(0), held(0)), [0, 0, 2]),
    ],
)
def test_what_is_left(freed: dict[str, Holding], taken: Any, want: list[int]) -> None:
    later = Later(np.array([1, 3, 2]), frozenset({"soon"}))
    rest = Rest(np.array([False, True, False]), (later,))
    assert rest.of(np.array([4, 4, 4]), freed, taken).tolist() == want


def test_two_that_leave_the_same_have_one_key() -> None:
    slack = np.array([1, 2])
    one = Rest(np.array([False, True]), (Later(slack, frozenset("a")),))
    same = Rest(np.array([False, True]), (Later(slack.copy(), frozenset("a")),))
    assert one.key == same.key
    assert one.key != Rest(one.closed, (Later(slack, frozenset("b")),)).key
    assert one.key != Rest(one.closed, ()).key
    assert one.key != Rest(~one.closed, one.later).key


# --- promised or held for those before


def queue_up(yard: Yard, x_runs_s: float) -> None:
    """Let ``first`` wait for n0 and n1, and ``second``, behind it, for n0 or n2."""
    yard.asks("x", 2, x_runs_s, nodes=("a/n1",), preemptible=False)
    yard.asks("low", 2, 1000.0, nodes=("a/n2",))
    yard.asks("first", 4, 50.0, priority=1, nodes=("a/n0", "a/n1"))
    yard.asks("second", 2, 1000.0, priority=1, nodes=("a/n0", "a/n2"))


@pytest.mark.parametrize("blocked", ["easy", "conservative"])
def test_nobody_gets_room_where_another_is_promised_to_start(blocked: str) -> None:
    yard = Yard(site("a", "2", "2", "2"), blocked=blocked)
    queue_up(yard, 100.0)
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.kept("second") == "a/n2:2"
    assert yard.job("first").promised_s == START_S + 100.0
    yard.goes("low")
    assert yard.ends("x", at=100.0) == ["first"]


@pytest.mark.parametrize("blocked", ["easy", "hold"])
def test_nobody_gets_room_on_what_is_held_for_another(blocked: str) -> None:
    yard = Yard(site("a", "2", "2", "2"), blocked=blocked, patience_s=0.0)
    queue_up(yard, 0.0)
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.kept("second") == "a/n2:2"


@pytest.mark.parametrize("blocked", ["easy", "conservative"])
def test_nobody_leaves_if_only_what_is_promised_would_do(blocked: str) -> None:
    yard = Yard(site("a", "2", "2"), blocked=blocked)
    yard.asks("x", 2, 100.0, nodes=("a/n1",), preemptible=False)
    yard.asks("low", 1, 50.0, nodes=("a/n0",))
    yard.asks("first", 4, 50.0, priority=1, preemptible=False)
    yard.asks("second", 2, 1000.0, priority=1)
    yard.asks("third", 2, 1000.0, priority=1)  # all looked at again, with the same outcome
    assert yard.told() == {}
    assert yard.job("first").promised_s == START_S + 100.0
    yard.ends("low", at=50.0)
    assert yard.ends("x", at=100.0) == ["first"]


def test_nobody_moves_to_where_another_is_promised_to_start() -> None:
    yard = Yard(
        site("a", "4", "4", "4"),
        blocked="easy",
        defragment=True,
        resize_s_min=10.0,
        preemption=CALM,
    )
    yard.asks("one", 2, 1e5, nodes=("a/n0", "a/n2"))
    yard.asks("two", 2, 100.0, nodes=("a/n2",), preemptible=False)
    yard.asks("rest", 4, 1e5, nodes=("a/n1",), preemptible=False)
    yard.runs("one", "two", "rest")
    assert yard.where("one") == "a/n0:2"
    yard.asks("first", 4, 50.0, nodes=("a/n2",))
    yard.step(at=20.0)
    yard.asks("second", 4, 1e5, nodes=("a/n0",))
    assert yard.told() == {}  # on n2, where ``first`` is to start, ``one`` would stand in its way
    assert yard.job("first").promised_s == START_S + 100.0


def test_who_starts_first_counts_for_who_comes_behind() -> None:
    yard = Yard(site("a", "2", "2"), blocked="conservative")
    yard.asks("low", 2, 50.0, nodes=("a/n1",))

    def asked(job_id: str, run_s: float, priority: int, *nodes: str) -> JobSubmitted:
        forecast = Forecast(duration_s=run_s)
        made = spec(shape(2), forecast=forecast, priority=priority, nodes=nodes, preemptible=False)
        return JobSubmitted(job_id=job_id, spec=made, submitted_s=START_S)

    started = yard.step(
        asked("first", 1000.0, 3, "a/n0"),
        asked("third", 1000.0, 1, "a/n0", "a/n1"),
        asked("second", 10.0, 2, "a/n0"),
    )
    assert started == ["first"]
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.kept("third") == "a/n1:2"
    assert yard.job("second").promised_s == START_S + 1000.0


# --- booked


def test_nobody_leaves_for_a_place_that_is_booked() -> None:
    yard = Yard(site("a", "2", "2"))
    yard.asks("low", 2, grace_s=5.0, nodes=("a/n0",))
    yard.asks("other", 2, grace_s=5.0, nodes=("a/n1",))
    books(yard, 50.0, "a/n0")
    assert yard.asks("high", 2, 40.0, priority=1, nodes=("a/n0",)) == []
    assert yard.told() == {"low": Why.PREEMPTED}  # it is gone before the booking begins
    assert yard.asks("long", 2, priority=1) == []
    assert yard.told() == {"other": Why.PREEMPTED}
    assert yard.kept("long") == "a/n1:2"


def test_the_graces_count_before_a_booking() -> None:
    yard = Yard(site("a", "2"))
    yard.asks("low", 2, grace_s=11.0)
    books(yard, 50.0, "a/n0", queues=("crew",))
    yard.asks("high", 2, 40.0, priority=1)
    assert yard.told() == {}
    yard = Yard(site("a", "2"))
    yard.asks("low", 2, grace_s=10.0)
    books(yard, 50.0, "a/n0", queues=("crew",))
    yard.asks("high", 2, 40.0, priority=1)
    assert yard.told() == {"low": Why.PREEMPTED}


def test_nobody_moves_to_what_is_booked() -> None:
    yard = Yard(site("a", "4", "4"), defragment=True, resize_s_min=100.0, preemption=CALM)
    yard.asks("one", 2, nodes=("a/n0", "a/n1"))
    yard.asks("two", 2, 1e3, nodes=("a/n1",))
    yard.runs("one", "two")
    assert yard.where("one") == "a/n0:2"
    books(yard, 5000.0, "a/n1")
    yard.step(at=100.0)
    yard.asks("whole", 0, 1e5, options=(shape(4, groups=(must(4, "node"),)),), nodes=("a/n0",))
    assert yard.told() == {}
    assert yard.asks("again", 4, nodes=("a/n0",)) == []  # it would have to go into the booking too


@pytest.mark.parametrize(("booked", "told"), [(True, {}), (False, {"e": Why.RESIZED})])
def test_nobody_grows_into_what_is_booked(booked: bool, told: dict[str, Why]) -> None:
    yard = Yard(site("a", "2"), site("b", "4"), elastic=True, resize_s_min=100.0, preemption=CALM)
    yard.asks("other", 4, 1e3)
    yard.asks("e", options=(shape(4), shape(2)), elastic=True)
    assert (yard.where("other"), yard.where("e")) == ("b/n0:4", "a/n0:2")
    yard.runs("e")
    if booked:
        books(yard, 5000.0, "b")
    yard.ends("other", at=100.0)
    assert yard.told() == told


# --- too dear


def dear(**policy: Any) -> Yard:
    """Return a grid with a cheap site, a dear one, and another where something ends soon."""
    yard = Yard(
        site("a", "2"),
        site("b", "2", price_per_accelerator_hour=1000.0),
        site("c", "1"),
        blocked="easy",
        **policy,
    )
    yard.asks("soon", 1, 10.0, sites=("c",))
    return yard


POOR = {"budget": Budget(cost_max=1.0), "sites": ("a", "b")}


def test_no_start_is_promised_where_a_job_cannot_pay() -> None:
    yard = dear(preemption=CALM)
    yard.asks("x", 2, 100.0, sites=("a",))
    yard.asks("poor", 2, 1000.0, **POOR)
    assert yard.why("poor") is Why.OVER_BUDGET
    assert yard.job("poor").promised_s == START_S + 100.0
    assert yard.asks("rich", 2, sites=("b",)) == ["rich"]  # which is nothing to the other


def test_nothing_is_held_where_a_job_cannot_pay() -> None:
    yard = dear(preemption=CALM, patience_s=0.0)
    yard.asks("x", 2, sites=("a",))
    yard.asks("poor", 2, 1000.0, **POOR)
    assert yard.asks("rich", 2, sites=("b",)) == ["rich"]


def test_nobody_leaves_where_a_job_cannot_pay() -> None:
    yard = dear()
    yard.asks("x", 2, preemptible=False, sites=("a",))
    yard.asks("low", 2, sites=("b",))
    yard.asks("poor", 2, 1000.0, priority=1, **POOR)
    assert yard.told() == {}


@pytest.mark.parametrize(("cost", "told"), [(1.0, {}), (1e6, {"one": Why.MOVED})])
def test_nobody_moves_to_where_it_cannot_pay(cost: float, told: dict[str, Why]) -> None:
    yard = Yard(
        site("a", "4", "2"),
        site("b", "2", price_per_accelerator_hour=1000.0),
        defragment=True,
        resize_s_min=100.0,
        preemption=CALM,
    )
    yard.asks("full", 2, nodes=("a/n1",))
    yard.asks("one", 2, 1e5, budget=Budget(cost_max=cost))
    assert yard.where("one") == "a/n0:2"
    yard.runs("one")
    yard.step(at=100.0)
    yard.asks("whole", 4, 1e5, nodes=("a/n0",))
    assert yard.told() == told


# --- accelerator-hours


def test_a_start_on_reserved_places_keeps_to_the_hours() -> None:
    yard = Yard(site("a", "2", "2"), queues=[HOUR])
    yard.asks("gang", 2, 1500.0, queue="q", nodes=("a/n0",))
    yard.marks("a/n0", "lost")
    assert yard.kept("gang") == "a/n0:2"
    assert yard.asks("thief", 1, 700.0, queue="q", nodes=("a/n1",)) == ["thief"]
    yard.marks("a/n0", "")
    assert yard.step(at=60.0) == []
    assert yard.kept("gang") == "a/n0:2"
    assert yard.ends("thief", at=61.0) == ["gang"]


def test_a_start_on_spares_keeps_to_the_hours() -> None:
    yard = Yard(site("a", "2", "2", "2"), queues=[HOUR], slot_hold_s=0.0)
    yard.asks("gang", 2, 1500.0, queue="q", spares=1, nodes=("a/n0", "a/n1"))
    yard.asks("thief", 1, 200.0, queue="q", nodes=("a/n2",))
    assert yard.job("gang").spares == ("a/n1",)
    yard.marks("a/n0", "lost")
    yard.ends("thief")
    assert yard.asks("more", 1, 700.0, queue="q", nodes=("a/n2",)) == ["more"]
    assert yard.step(at=60.0) == []
    assert yard.ends("more", at=61.0) == ["gang"]


def test_a_slower_place_needs_more_hours() -> None:
    yard = Yard(site("a", "2", "2", "4"), queues=[HOUR])
    yard.asks("x", 4, nodes=("a/n2",))
    asked = {"options": (shape(4, speeds=SPEEDS),), "queue": "q"}
    assert yard.asks("slow", 0, 600.0, **asked) == []  # 2400 device-seconds on one node, here 4800
    assert yard.why("slow") is Why.ACCELERATOR_HOURS
    assert yard.ends("x") == ["slow"]


def test_a_restart_that_is_none_takes_no_hours() -> None:
    yard = Yard(site("a", "4"), queues=[HOUR])
    assert yard.asks("j", 4, 900.0, queue="q", restart_s=100.0) == ["j"]
    hold = yard.machine.state.allowance.accounts["q"].holds["j/1"]
    assert hold.predicted_s == 900.0


def test_nobody_leaves_for_a_shape_that_lacks_hours() -> None:
    yard = Yard(site("a", "4"), queues=[HOUR, Queue(name="r")])
    yard.asks("low", 4, queue="r")
    yard.asks("high", 0, 1000.0, queue="q", priority=1, options=(shape(4), shape(2)))
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.kept("high") == "a/n0:2"


def test_nobody_leaves_for_places_too_slow_for_the_hours() -> None:
    yard = Yard(site("a", "2", "2"), queues=[HOUR, Queue(name="r")])
    yard.asks("one", 2, queue="r")
    yard.asks("two", 2, queue="r")
    yard.asks("high", 0, 600.0, queue="q", priority=1, options=(shape(4, speeds=SPEEDS),))
    assert yard.told() == {}


@pytest.mark.parametrize(
    ("run_s", "options", "told"),
    [
        (1000.0, (shape(4),), {}),  # 4000 device-seconds
        (600.0, (shape(4, speeds=SPEEDS),), {}),  # 4800 where it would be
        (600.0, (shape(4),), {"one": Why.MOVED, "two": Why.MOVED}),
        (1000.0, (shape(4), shape(2, groups=(must(2, "node"),))), {"one": Why.MOVED}),
    ],
)
def test_nobody_moves_for_who_lacks_hours(run_s: float, options: Any, told: dict[str, Why]) -> None:
    yard = Yard(
        site("a", "2", "2", "2"),
        queues=[HOUR, Queue(name="r")],
        defragment=True,
        resize_s_min=100.0,
        preemption=CALM,
    )
    yard.asks("one", 1, queue="r", nodes=("a/n0", "a/n2"), priority=1)
    yard.asks("two", 1, queue="r", nodes=("a/n1", "a/n2"), priority=1)
    yard.runs("one", "two")
    yard.step(at=100.0)
    nodes = ("a/n0", "a/n1")
    yard.asks("j", 0, run_s, queue="q", options=options, nodes=nodes, priority=1)
    assert yard.told() == told


@pytest.mark.parametrize(("hours", "told"), [(1.0, {}), (10.0, {"e": Why.RESIZED})])
def test_nobody_grows_beyond_the_hours(hours: float, told: dict[str, Why]) -> None:
    queue = Queue(name="q", accelerator_hours=hours, period_s=1e6)
    yard = Yard(site("a", "4"), queues=[queue], elastic=True, resize_s_min=10.0, preemption=CALM)
    yard.asks("other", 2, nodes=("a/n0",))
    options = (shape(4, step_s=1.0), shape(2, step_s=1.5))
    yard.asks("e", 0, 1000.0, queue="q", options=options, elastic=True)
    yard.runs("e")
    yard.ends("other", at=10.0)
    assert yard.told() == told
