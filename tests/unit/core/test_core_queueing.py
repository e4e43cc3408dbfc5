"""What a job that cannot start means for those behind it, policy by policy."""

from typing import Any

import pytest
from tests.unit.core.grids import shape, site
from tests.unit.core.yard import START_S, Yard

from gridloom.model.inventory import Site
from gridloom.model.life import JobState
from gridloom.model.policy import Preemption
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Budget, Speed

CALM = Preemption(priority=False, reclaim=False)


def pool(*sizes: str, **more: Any) -> Yard:
    return Yard(site("a", *(sizes or ("4",))), **({"preemption": CALM} | more))


# --- stop, skip, strict queues


def test_where_a_blocked_job_stops_all_nobody_passes_it() -> None:
    yard = pool(blocked="stop")
    yard.asks("x", 2)
    yard.asks("wide", 4)
    assert yard.asks("small", 1, 1.0) == []
    reason = yard.reason("small")
    assert reason.code is Why.BEHIND_STRICT
    assert reason.sentence == (
        "waits behind wide, which comes first and cannot start; nobody may pass it here"
    )
    assert yard.asks("alike", 4) == []
    assert yard.why("alike") is Why.TOO_FEW_FREE  # one of its like comes first
    assert yard.why("wide") is Why.TOO_FEW_FREE
    assert yard.ends("x") == ["wide"]
    assert yard.ends("wide") == ["small"]


def test_where_blocked_jobs_are_skipped_everybody_passes() -> None:
    yard = pool(blocked="skip")
    yard.asks("x", 2)
    assert yard.asks("wide", 4) == []
    assert yard.asks("small", 1) == ["small"]


def test_a_strict_queue_holds_up_its_own_jobs_only() -> None:
    yard = pool(queues=[Queue(name="s", order="strict"), Queue(name="other")])
    yard.asks("x", 2, queue="other")
    assert yard.asks("wide", 4, queue="s") == []
    assert yard.asks("small", 1, queue="s") == []
    assert yard.why("small") is Why.BEHIND_STRICT
    assert yard.asks("free", 1, queue="other") == ["free"]


def test_a_job_that_lacks_quota_holds_up_a_strict_queue_too() -> None:
    queue = Queue(name="s", order="strict", nominal={"cpu": 2})
    yard = pool(queues=[queue])
    yard.asks("x", 1, queue="s")
    assert yard.asks("wide", 2, queue="s") == []
    assert yard.asks("small", 1, queue="s") == []
    assert yard.why("wide") is Why.QUOTA
    assert yard.why("small") is Why.BEHIND_STRICT


def test_a_job_that_lacks_quota_keeps_nothing_from_others() -> None:
    yard = pool(blocked="stop", queues=[Queue(name="q", nominal={"cpu": 2}), Queue(name="free")])
    yard.asks("x", 2, queue="q")
    assert yard.asks("more", 1, queue="q") == []
    assert yard.asks("free", 1, queue="free") == ["free"]


# --- which shape


def test_of_comparable_shapes_the_best_place_wins_and_not_the_first() -> None:
    yard = pool("4", "4")
    fast, slow = shape(2, step_s=1.0), shape(4, step_s=0.5)
    assert yard.asks("x", options=(fast, slow)) == ["x"]
    assert yard.where("x") == "a/n0:4"
    assert yard.asks("y", options=(slow, fast)) == ["y"]
    assert yard.where("y") == "a/n1:4"


def test_a_shape_that_the_quota_forbids_is_passed_over() -> None:
    yard = pool("4", queues=[Queue(name="q", nominal={"cpu": 2})])
    yard.asks("x", options=(shape(4), shape(2)), queue="q")
    assert yard.where("x") == "a/n0:2"
    yard.asks("y", options=(shape(2), shape(1)), queue="q")
    reason = yard.reason("y")
    assert reason.code is Why.QUOTA
    assert "the job needs 2" in reason.sentence


def test_of_several_shapes_that_are_blocked_the_most_telling_cause_is_told() -> None:
    yard = Yard(*two_prices(), preemption=CALM)
    yard.asks("x", 2, sites=("cheap",))
    options = (shape(4), shape(2))
    yard.asks("y", 0, 3600.0, options=options, sites=("cheap", "dear"), budget=Budget(cost_max=5.0))
    assert yard.why("y") is Why.OVER_BUDGET


# --- budgets


def two_prices() -> tuple[Site, Site]:
    """Return two sites: an accelerator-hour costs 1 at the one, 10 at the other."""
    return (
        site("cheap", "2", price_per_accelerator_hour=1.0),
        site("dear", "2", price_per_accelerator_hour=10.0),
    )


def test_a_site_that_a_job_cannot_afford_is_passed_over_and_another_waited_for() -> None:
    yard = Yard(*two_prices(), preemption=CALM)
    yard.asks("x", 2, sites=("cheap",))
    assert yard.asks("y", 2, 3600.0, budget=Budget(cost_max=5.0)) == []
    reason = yard.reason("y")
    assert reason.code is Why.OVER_BUDGET
    assert reason.sentence == (
        "waits for a cheaper site: elsewhere it would cost more than the 5.00 USD"
        " that are left of its budget"
    )
    assert yard.asks("rich", 2, 3600.0, budget=Budget(cost_max=20.0)) == ["rich"]
    assert yard.where("rich") == "dear/n0:2"
    assert yard.ends("x") == ["y"]
    assert yard.where("y") == "cheap/n0:2"


def test_where_no_site_is_cheap_enough_it_runs_until_the_budget_is_spent() -> None:
    yard = Yard(*two_prices(), preemption=CALM)
    assert yard.asks("x", 2, 36000.0, budget=Budget(cost_max=5.0)) == ["x"]
    assert yard.where("x") == "cheap/n0:2"
    yard.runs("x")
    yard.step(at=9000.0)
    assert yard.told() == {"x": Why.BUDGET_SPENT}


def test_of_unknown_duration_nothing_is_too_dear() -> None:
    yard = Yard(*two_prices(), preemption=CALM)
    yard.asks("x", 2, sites=("cheap",))
    assert yard.asks("y", 2, budget=Budget(cost_max=5.0)) == ["y"]
    assert yard.where("y") == "dear/n0:2"


# --- promised starts


def test_others_pass_as_far_as_the_promised_start_is_not_delayed() -> None:
    yard = pool(blocked="easy")
    yard.asks("x", 3, 100.0)
    assert yard.asks("wide", 4, 100.0) == []
    assert yard.job("wide").promised_s == START_S + 100.0
    assert yard.asks("long", 1, 101.0) == []
    reason = yard.reason("long")
    assert reason.code is Why.WOULD_DELAY
    assert reason.sentence == ("would run into what is spoken for: wide is to start in 1m 40s")
    assert yard.asks("short", 1, 100.0) == ["short"]  # of long's shape
    assert "starts in 1m 40s at the latest" in yard.reason("wide").sentence
    assert yard.ends("short", "x", at=100.0) == ["wide"]


def test_what_the_promised_job_leaves_is_free_for_all_but_once() -> None:
    yard = pool(blocked="easy")
    yard.asks("x", 2, 100.0)
    yard.asks("wide", 3, 100.0)
    assert yard.asks("long", 1, 500.0) == ["long"]  # beside wide
    assert yard.asks("longer", 1, 600.0) == []
    assert yard.why("longer") is Why.WOULD_DELAY


def test_those_that_start_in_one_cycle_share_what_is_left_beside_a_promise() -> None:
    yard = pool(blocked="easy")
    yard.asks("x", 4, 50.0)
    yard.asks("y", 3, 100.0)
    yard.asks("wide", 4, 100.0, priority=-1)
    yard.asks("one", 1, 100.0, priority=-2)
    yard.asks("two", 1, 1000.0, priority=-3)
    assert yard.ends("x", at=50.0) == ["y", "one"]  # two would run into wide
    assert yard.why("two") is Why.IN_USE


def test_jobs_that_could_never_take_the_promised_places_get_promises_of_their_own() -> None:
    yard = pool("2", "2", blocked="easy")
    yard.asks("x", 2, 100.0, nodes=("a/n0",))
    yard.asks("y", 2, 200.0, nodes=("a/n1",))
    yard.asks("first", 2, 50.0, nodes=("a/n0",))
    yard.asks("second", 1, 50.0, nodes=("a/n0",))
    yard.asks("third", 2, 50.0, nodes=("a/n1",))
    promised = [yard.job(name).promised_s for name in ("first", "second", "third")]
    assert promised == [START_S + 100.0, 0.0, START_S + 200.0]


def test_jobs_that_start_elsewhere_leave_a_promise_as_it_is() -> None:
    yard = pool("2", "2", blocked="easy")
    yard.asks("x", 1, 100.0, nodes=("a/n0",))
    yard.asks("wide", 2, 50.0, nodes=("a/n0",))
    assert yard.asks("free", 2, 1e6) == ["free"]
    assert yard.where("free") == "a/n1:2"
    assert yard.asks("long", 1, 1e6, nodes=("a/n0",)) == []
    assert yard.ends("x", at=100.0) == ["wide"]


def test_a_better_place_that_is_promised_is_left_for_another() -> None:
    """The best place would run into the promise; a worse one does not."""
    yard = pool("2", "4", blocked="easy")
    yard.asks("x", 1, 100.0, nodes=("a/n0",))
    yard.asks("wide", 2, 50.0, nodes=("a/n0",))
    assert yard.asks("long", 1, 1e6) == ["long"]
    assert yard.where("long") == "a/n1:1"


def test_who_is_told_to_go_and_would_have_ended_before_a_promise_leaves_nothing_more_for_it() -> (
    None
):
    yard = Yard(site("a", "2", "2"), blocked="easy")
    yard.asks("x", 2, 100.0, nodes=("a/n0",), priority=5)
    yard.asks("low", 2, 50.0, nodes=("a/n1",), priority=-1)
    yard.runs("x", "low")
    yard.asks("wide", 3, 100.0, priority=1)
    assert yard.job("wide").promised_s == START_S + 100.0
    yard.asks("urgent", 2, 10.0, nodes=("a/n1",))
    assert yard.told() == {"low": Why.PREEMPTED}
    assert yard.goes("low", at=1.0) == ["urgent"]  # it ends before, too
    assert yard.asks("long", 2, 500.0, nodes=("a/n1",)) == []
    assert yard.ends("urgent", at=20.0) == ["low"]  # long, which comes before, would delay wide


# --- holding where no start can be promised


def test_nodes_are_kept_for_a_job_only_after_a_while() -> None:
    yard = pool("2", "2", "2", blocked="hold", patience_s=60.0)
    yard.asks("x", 1, nodes=("a/n0",))
    yard.asks("y", 1, nodes=("a/n1",))
    assert yard.asks("wide", 6) == []
    assert yard.asks("early", 1, nodes=("a/n2",)) == ["early"]
    yard.step(at=60.0)
    assert yard.asks("late", 1) == []
    assert yard.why("late") is Why.HELD_FOR_EARLIER_JOB


def test_where_nobody_knows_the_ends_easy_holds_too() -> None:
    yard = pool(blocked="easy", patience_s=60.0)
    yard.asks("x", 2)
    yard.asks("wide", 4)
    assert yard.asks("one", 1) == ["one"]
    yard.step(at=60.0)
    assert yard.asks("two", 1) == []
    assert yard.reason("two").sentence == (
        "waits for 1 cpu at one site: a has 1 of 4 free (kept for wide, which comes first)"
    )


# --- shares


def test_queues_start_by_turns_when_each_start_changes_their_share() -> None:
    queues = [Queue(name="a"), Queue(name="b")]
    yard = pool("4", order="share", queues=queues)
    yard.asks("x", 4, queue="a")
    for number in range(3):
        yard.asks(f"a{number}", 1, queue="a")
        yard.asks(f"b{number}", 1, queue="b")
    started = yard.ends("x")
    assert len([name for name in started if name.startswith("a")]) == 2
    assert started[0][0] != started[1][0]


def test_a_start_puts_the_other_shapes_of_its_queue_behind_too() -> None:
    yard = pool("4", order="share", queues=[Queue(name="a"), Queue(name="b")])
    yard.asks("x", 4, queue="b")
    yard.asks("a1", 1, queue="a")
    yard.asks("a2", 2, queue="a")
    yard.asks("b1", 1, queue="b")
    assert yard.ends("x") == ["a1", "b1", "a2"]


def test_weights_and_cohorts_say_who_is_next() -> None:
    queues = [
        Queue(name="a", cohort="c", nominal={"cpu": 1}, weight=3.0),
        Queue(name="b", cohort="c", nominal={"cpu": 1}),
    ]
    yard = pool("6", order="share", queues=queues, cohorts=[Cohort(name="c", nominal={"cpu": 4})])
    yard.asks("x", 6, queue="a")
    for number in range(6):
        yard.asks(f"a{number}", 1, queue="a")
        yard.asks(f"b{number}", 1, queue="b")
    started = yard.ends("x")
    assert len([name for name in started if name.startswith("a")]) == 4
    assert len(started) == 6


# --- lost places


def test_one_that_waits_for_its_places_does_not_start_elsewhere() -> None:
    yard = pool("2", "2", slot_hold_s=100.0)
    yard.asks("x", 2, on_loss="wait")
    yard.marks("a/n0", "lost")
    assert yard.job("x").state is JobState.QUEUED
    assert yard.step(at=50.0) == []
    assert yard.why("x") is Why.HOLDING_PLACES
    assert yard.reason("x").sentence == (
        "waits for its places on a/n0, which are kept for it for 50s more"
    )
    assert yard.asks("alike", 2, on_loss="wait") == ["alike"]  # its like may pass
    yard.ends("alike")
    assert yard.step(at=100.0) == ["x"]
    assert yard.where("x") == "a/n1:2"


def test_one_that_waits_for_its_places_starts_when_they_are_back() -> None:
    yard = pool("2", "2", slot_hold_s=100.0)
    yard.asks("x", 2, on_loss="wait")
    yard.marks("a/n0", "lost", "a fuse")
    assert yard.attempt("x").outcome is not None
    yard.step(at=50.0)
    assert yard.marks("a/n0", "") == ["x"]
    assert yard.where("x") == "a/n0:2"
    assert yard.kept("x") == "nothing"


@pytest.mark.parametrize("on_loss", ["restart", "shrink"])
def test_others_start_anew_on_other_places_at_once(on_loss: str) -> None:
    yard = pool("2", "2", slot_hold_s=100.0)
    yard.asks("x", 2, on_loss=on_loss)
    yard.marks("a/n0", "lost")
    assert yard.step(at=2.0) == ["x"]
    assert yard.where("x") == "a/n1:2"


def test_the_speed_of_a_place_decides_whether_it_runs_into_a_promise() -> None:
    yard = Yard(site("a", "r0/2", "r1/2", levels="rack"), preemption=CALM, blocked="easy")
    yard.asks("x", 1, 100.0, nodes=("a/n0",))
    yard.asks("wide", 4, 50.0)
    speeds = (Speed(level="node", step_s=1.0),)
    pair = shape(2, step_s=2.0, speeds=speeds)
    assert yard.asks("slow", options=(pair,), run_s=201.0, nodes=("a/n1",)) == []
    assert yard.asks("fast", options=(pair,), run_s=200.0, nodes=("a/n1",)) == ["fast"]
