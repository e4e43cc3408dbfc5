"""Running jobs that grow into what is idle, shrink for others, and move to join what is free."""

from typing import Any

import pytest
from tests.unit.core.grids import must, shape, site
from tests.unit.core.yard import Yard

from gridloom.model.event import EvictRequested
from gridloom.model.life import JobState
from gridloom.model.policy import Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why

CALM = Preemption(priority=False, reclaim=False)
WHOLE = (shape(4, groups=(must(4, "node"),)),)
"""Four ranks on one node."""


def elastic(*sizes: str, **more: Any) -> Yard:
    settings: dict[str, Any] = {"elastic": True, "resize_s_min": 100.0, "preemption": CALM}
    return Yard(site("a", *(sizes or ("4",))), **(settings | more))


def tidy(*sizes: str, **more: Any) -> Yard:
    settings: dict[str, Any] = {"defragment": True, "resize_s_min": 100.0, "preemption": CALM}
    return Yard(site("a", *(sizes or ("4", "4"))), **(settings | more))


def of(*ranks: int, **more: Any) -> dict[str, Any]:
    """Return an elastic job that may take these shapes, the first the best."""
    return {"options": tuple(shape(count, **more) for count in ranks), "elastic": True}


def half_full(yard: Yard) -> None:
    """Let two jobs of two run, each on a node of its own, for long enough to be moved."""
    yard.asks("one", 2, nodes=("a/n0",))
    yard.asks("two", 2, nodes=("a/n1",))


# --- growing


def test_a_job_grows_into_what_is_idle_and_keeps_it_while_it_saves_its_state() -> None:
    yard = elastic()
    yard.asks("other", 2)
    assert yard.asks("e", **of(4, 2)) == ["e"]
    assert yard.where("e") == "a/n0:2"
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.told() == {"e": Why.RESIZED}
    assert yard.said("e") == "goes on with 4 cpu instead of 2, as nobody waits for what is idle"
    assert yard.kept("e") == "a/n0:4"
    assert yard.asks("late", 2) == []  # not even now that two are free
    assert yard.goes("e", at=110.0) == ["e"]
    assert yard.where("e") == "a/n0:4"
    assert yard.job("e").restarts == 0


def test_it_grows_only_when_it_has_run_for_a_while() -> None:
    yard = elastic()
    yard.asks("other", 2)
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.ends("other", at=50.0)
    assert yard.told() == {}
    assert yard.timer() == 100.0
    yard.step(at=100.0)
    assert yard.told() == {"e": Why.RESIZED}


def test_it_does_not_grow_before_it_is_up() -> None:
    yard = elastic()
    yard.asks("other", 2)
    yard.asks("e", **of(4, 2))
    yard.ends("other", at=200.0)
    assert yard.job("e").state is JobState.STARTING
    assert yard.told() == {}


def test_nobody_grows_while_anybody_waits() -> None:
    yard = elastic("4", "1")
    yard.asks("other", 2)
    yard.asks("e", **of(4, 2))
    yard.asks("waits", 3, nodes=("a/n0",), priority=-1)
    yard.runs("e")
    assert yard.ends("other", at=100.0) == []
    assert yard.told() == {}


def test_without_the_policy_nobody_grows() -> None:
    yard = elastic(elastic=False)
    yard.asks("other", 2)
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.told() == {}


def test_a_job_that_cannot_save_within_its_grace_is_not_changed() -> None:
    yard = elastic()
    yard.asks("other", 2)
    yard.asks("e", **of(4, 2), grace_s=10.0, checkpoint_s=20.0)
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.told() == {}


@pytest.mark.parametrize(("run_s", "grows"), [(240.0, False), (2000.0, True)])
def test_a_change_must_pay(run_s: float, grows: bool) -> None:
    """On twice the devices half of what is left is saved; 100 seconds are lost at the change."""
    yard = elastic()
    yard.asks("other", 2)
    yard.asks("e", run_s=run_s, **of(4, 2), checkpoint_s=20.0, restart_s=80.0)
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert bool(yard.told()) == grows


def test_a_larger_shape_that_is_slower_is_not_taken() -> None:
    yard = elastic()
    options = (shape(2, step_s=1.0), shape(4, step_s=1.5), shape(3, step_s=0.8))
    yard.asks("other", 2)
    yard.asks("e", options=options, elastic=True)
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.told() == {"e": Why.RESIZED}
    assert yard.kept("e") == "a/n0:3"


def test_who_has_the_largest_shape_stays() -> None:
    yard = elastic("8")
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.step(at=100.0)
    assert yard.told() == {}


def test_who_may_take_one_shape_only_stays() -> None:
    yard = elastic("8")
    yard.asks("e", options=(shape(2),), elastic=True)
    yard.asks("rigid", 1)
    yard.runs("e", "rigid")
    yard.step(at=100.0)
    yard.asks("news", 1)
    assert yard.told() == {}


def test_a_job_grows_no_further_than_there_is_room() -> None:
    yard = elastic()
    yard.asks("stays", 1)
    yard.asks("other", 1)
    yard.asks("e", **of(4, 3, 2))
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.kept("e") == "a/n0:3"


def test_a_job_does_not_grow_beyond_its_quota() -> None:
    yard = elastic("8", queues=[Queue(name="q", nominal={"cpu": 3})])
    yard.asks("other", 1, queue="q")
    yard.asks("e", **of(4, 3, 2), queue="q")
    yard.runs("e")
    yard.ends("other", at=100.0)
    assert yard.kept("e") == "a/n0:3"


def test_who_comes_first_grows_first() -> None:
    yard = elastic("6")
    yard.asks("other", 2)
    yard.asks("pad", 2)
    yard.asks("second", **of(4, 2))
    yard.ends("pad")
    yard.asks("first", **of(4, 2), priority=1)
    yard.runs("first", "second")
    yard.ends("other", at=100.0)
    assert yard.told() == {"first": Why.RESIZED}


# --- shrinking


def test_a_job_shrinks_for_one_that_waits_and_both_run() -> None:
    yard = elastic()
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.step(at=100.0)
    assert yard.asks("waits", 2) == []
    assert yard.told() == {"e": Why.RESIZED}
    assert yard.said("e") == "goes on with 2 cpu instead of 4, to make room for waits"
    assert yard.kept("waits") == "a/n0:2"
    assert yard.kept("e") == "a/n0:2"
    assert yard.why("waits") is Why.HOLDING_PLACES
    assert sorted(yard.goes("e", at=110.0)) == ["e", "waits"]


def test_it_gives_up_no_more_than_it_can() -> None:
    yard = elastic()
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 3)
    assert yard.told() == {}
    assert yard.kept("waits") == "nothing"


def test_it_shrinks_to_the_largest_shape_that_leaves_enough() -> None:
    yard = elastic()
    yard.asks("e", **of(4, 1, 3, 2))
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 1)
    assert yard.kept("e") == "a/n0:3"


def test_the_fewest_shrink_those_with_most_to_give_first() -> None:
    yard = elastic("8")
    yard.asks("little", **of(3, 2))
    yard.asks("much", **of(5, 1))
    yard.runs("little", "much")
    yard.step(at=100.0)
    yard.asks("waits", 3)
    assert yard.told() == {"much": Why.RESIZED}


def test_two_shrink_where_one_alone_would_leave_no_room_for_the_other() -> None:
    yard = elastic("8")
    yard.asks("one", **of(4, 2))
    yard.asks("two", **of(4, 2))
    yard.runs("one", "two")
    yard.step(at=100.0)
    yard.asks("waits", 4)
    assert yard.told() == {"one": Why.RESIZED, "two": Why.RESIZED}
    assert (yard.kept("one"), yard.kept("two")) == ("a/n0:2", "a/n0:2")


def test_it_shrinks_for_the_shape_that_the_quota_allows() -> None:
    yard = elastic(queues=[Queue(name="q", nominal={"cpu": 1}), Queue(name="free")])
    yard.asks("e", **of(4, 2), queue="free")
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", options=(shape(2), shape(1)), queue="q")
    assert yard.told() == {"e": Why.RESIZED}
    assert yard.kept("waits") == "a/n0:1"


@pytest.mark.parametrize("more", [{"priority": 1}, {"preemptible": False}, {"grace_s": 1.0}])
def test_who_may_not_be_asked_does_not_shrink(more: dict[str, Any]) -> None:
    yard = elastic()
    yard.asks("e", **of(4, 2), checkpoint_s=2.0, **more)
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 2)
    assert yard.told() == {}


def test_who_is_elsewhere_does_not_shrink() -> None:
    yard = elastic("4", "4")
    yard.asks("e", **of(4, 2), nodes=("a/n0",))
    yard.asks("rigid", 4, nodes=("a/n1",))
    yard.runs("e", "rigid")
    yard.step(at=100.0)
    yard.asks("waits", 2, nodes=("a/n1",))
    assert yard.told() == {}


def test_who_goes_already_is_not_asked_to_shrink() -> None:
    yard = elastic()
    yard.asks("e", **of(4, 2))
    yard.runs("e")
    yard.step(EvictRequested(job_id="e"), at=100.0)
    yard.asks("waits", 2)
    assert yard.told() == {}


def test_nobody_shrinks_for_what_the_quota_forbids() -> None:
    yard = elastic(queues=[Queue(name="q", nominal={"cpu": 1}), Queue(name="free")])
    yard.asks("e", **of(4, 2), queue="free")
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 1, queue="q")
    assert yard.told() == {"e": Why.RESIZED}
    yard.goes("e", at=101.0)
    yard.runs("e")
    yard.step(at=300.0)
    yard.asks("more", 1, queue="q")
    assert yard.told() == {}
    assert yard.why("more") is Why.QUOTA


def test_a_shrink_must_pay_for_who_waits() -> None:
    """One device that waits for 100 seconds at most is not worth 4 times 90 seconds."""
    yard = elastic()
    yard.asks("e", **of(4, 2), restart_s=90.0)
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 1)
    assert yard.told() == {}
    cheap = elastic()
    cheap.asks("e", **of(4, 2), restart_s=10.0)
    cheap.runs("e")
    cheap.step(at=100.0)
    cheap.asks("waits", 1)
    assert cheap.told() == {"e": Why.RESIZED}


def test_who_is_to_start_soon_anyway_gets_nobody_to_shrink() -> None:
    yard = elastic(blocked="easy")
    yard.asks("soon", 2, 110.0)
    yard.asks("e", **of(4, 2), restart_s=10.0)
    yard.runs("soon", "e")
    yard.step(at=99.0)
    yard.asks("waits", 2)
    assert yard.job("waits").promised_s > 0
    yard.step(at=100.0)
    assert yard.told() == {}


def test_a_job_shrinks_before_anybody_is_evicted() -> None:
    yard = elastic(preemption=Preemption())
    yard.asks("rigid", 2)
    yard.asks("e", **of(4, 2))
    yard.runs("rigid", "e")
    yard.step(at=50.0)
    yard.asks("early", 2, priority=1)
    assert yard.told() == {"e": Why.PREEMPTED}  # it may not shrink yet
    later = elastic("6", preemption=Preemption())
    later.asks("rigid", 2)
    later.asks("e", **of(4, 2))
    later.runs("rigid", "e")
    later.step(at=100.0)
    later.asks("high", 2, priority=1)
    assert later.told() == {"e": Why.RESIZED}


def test_what_did_not_help_is_not_tried_again_until_something_changes() -> None:
    yard = elastic(preemption=Preemption())
    yard.asks("e", **of(4, 2), preemptible=False)
    yard.runs("e")
    yard.step(at=100.0)
    yard.asks("waits", 2, priority=1)
    assert yard.told() == {}
    yard.asks("another", 3)
    assert yard.told() == {}
    yard.ends("e")
    assert yard.job("waits").state is JobState.STARTING


# --- moving


def test_a_job_moves_so_that_a_gang_has_a_node_of_its_own() -> None:
    yard = tidy()
    yard.asks("one", 2, nodes=("a/n0",), restart_s=20.0)
    yard.asks("two", 2)
    yard.asks("filler", 2, nodes=("a/n1",))
    yard.asks("wide", 1)
    assert (yard.where("two"), yard.where("wide")) == ("a/n0:2", "a/n1:1")
    yard.ends("filler")
    yard.runs("one", "two", "wide")
    yard.step(at=100.0)
    yard.asks("whole", options=WHOLE)
    assert yard.told() == {}  # one must stay on n0, and there is no room for wide
    yard.ends("two", at=101.0)
    assert yard.told() == {"wide": Why.MOVED}
    assert yard.said("wide") == "moves to other nodes, to make room for whole"
    assert yard.kept("whole") == "a/n1:4"
    assert yard.kept("wide") == "a/n0:1"
    assert sorted(yard.goes("wide", at=110.0)) == ["whole", "wide"]
    assert yard.where("wide") == "a/n0:1"


def test_the_cheapest_move_is_made() -> None:
    yard = tidy("4", "4", "4")
    yard.asks("dear", 2, restart_s=20.0, labels={})
    yard.asks("fill0", 2)
    yard.asks("cheap", 2, restart_s=5.0)
    yard.asks("fill1", 2)
    yard.asks("mid", 2, restart_s=10.0)
    yard.asks("fill2", 2)
    yard.ends("fill0", "fill1", "fill2")
    yard.runs("dear", "cheap", "mid")
    assert [yard.where(name)[:4] for name in ("dear", "cheap", "mid")] == ["a/n0", "a/n1", "a/n2"]
    yard.step(at=100.0)
    yard.asks("whole", options=WHOLE)
    assert yard.told() == {"cheap": Why.MOVED}
    assert yard.kept("whole") == "a/n1:4"


@pytest.mark.parametrize(("size", "second", "moves"), [("5", 2, ["two"]), ("4", 1, ["one", "two"])])
def test_nobody_moves_whose_places_nobody_needs(size: str, second: int, moves: list[str]) -> None:
    yard = tidy(size, "3")
    yard.asks("filler", 3, nodes=("a/n1",))
    yard.asks("one", 1)
    yard.asks("two", second)
    yard.ends("filler")
    yard.runs("one", "two")
    yard.step(at=100.0)
    yard.asks("whole", options=WHOLE)
    assert sorted(yard.told()) == moves


def test_without_the_policy_nobody_moves() -> None:
    yard = tidy(defragment=False)
    yard.asks("one", 2)
    yard.asks("fill", 2)
    yard.asks("two", 2)
    yard.ends("fill")
    yard.runs("one", "two")
    yard.step(at=100.0)
    yard.asks("whole", options=WHOLE)
    assert yard.told() == {}


def test_a_move_that_only_shifts_the_gap_is_not_made() -> None:
    yard = tidy()
    half_full(yard)
    yard.runs("one", "two")
    yard.step(at=100.0)
    yard.asks("whole", options=WHOLE)
    assert yard.told() == {}  # each must stay on its node


def test_nobody_moves_where_a_job_would_only_change_places_with_itself() -> None:
    yard = tidy("4")
    yard.asks("one", 2)
    yard.runs("one")
    yard.step(at=100.0)
    yard.asks("waits", 4)
    assert yard.told() == {}


def test_for_a_job_whose_lost_places_may_come_back_nobody_moves() -> None:
    yard = tidy("4", "4", "2", slot_hold_s=500.0)
    yard.asks("fill", 2, nodes=("a/n2",))
    yard.asks("whole", options=WHOLE, nodes=("a/n0", "a/n1"))
    assert yard.where("whole") == "a/n0:4"
    yard.asks("two", 2)
    assert yard.where("two") == "a/n1:2"
    yard.ends("fill")
    yard.runs("whole", "two")
    yard.marks("a/n0", "lost")
    yard.step(at=200.0)
    assert yard.why("whole") is Why.HOLDING_PLACES
    assert yard.told() == {}
    yard.step(at=500.0)  # the hold is over: it need not be that node any more
    assert yard.told() == {"two": Why.MOVED}
    assert yard.kept("two") == "a/n2:2"


def test_who_begins_to_train_can_change_for_who_waits_already() -> None:
    yard = elastic(blocked="easy", resize_s_min=0.0, preemption=Preemption(min_run_s=1000.0))
    yard.asks("e", run_s=1e5, **of(4, 2))
    yard.asks("waits", 2, priority=1)
    assert yard.told() == {}  # the other only starts, and cannot save its state
    yard.runs("e")
    yard.asks("late", 2)
    assert yard.told() == {"e": Why.RESIZED}
    assert yard.kept("waits") == "a/n0:2"


def test_nobody_moves_for_a_job_behind_those_that_get_promises() -> None:
    """It would fit as things are, so others cannot help it."""
    yard = tidy("4", "4", blocked="conservative", promises_max=1, resize_s_min=1.0)
    yard.asks("one", 2, 1e6, nodes=("a/n0", "a/n1"))
    yard.runs("one")
    yard.step(at=5.0)
    yard.asks("first", 8, 10.0, preemptible=False)
    assert yard.asks("behind", run_s=10.0, options=WHOLE) == []
    assert yard.told() == {}
