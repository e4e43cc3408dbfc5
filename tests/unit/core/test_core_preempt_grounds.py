"""On which grounds, beside priority, others are evicted: what was lent, the policy's order."""

from typing import Any

import pytest
from tests.unit.core.grids import must, node, shape, site, spec
from tests.unit.core.yard import START_S, Yard

from gridloom.model.booking import Booking
from gridloom.model.event import BookingMade, CheckpointSaved, EvictRequested, JobSubmitted
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
    assert yard.why("more") is Why.QUOTA


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


@pytest.mark.parametrize(("waiting", "running"), [(0, 1), (1, 0)])
def test_the_order_decides_between_equals_in_priority_only(waiting: int, running: int) -> None:
    rule = Preemption(order=True, priority=False)
    yard = pool(order="remaining", preemption=rule)
    yard.asks("long", 4, 1000.0, priority=running)
    yard.asks("short", 4, 10.0, priority=waiting)
    assert yard.told() == {}


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


def test_queues_whose_share_is_of_another_kind_evict_nobody_for_nothing() -> None:
    """Each has half of the gpus, so that one cpu more or less changes no share."""
    queues = [Queue(name="one"), Queue(name="two")]
    yard = pool("4", "2 gpu", queues=queues, order="share", preemption=ORDER)
    for name in ("one", "two"):
        yard.asks(f"{name}-gpu", queue=name, options=(shape(1, accelerator="gpu"),))
    yard.asks("fills", 3, queue="one", preemptible=False)
    yard.asks("first", 1, queue="one")
    yard.asks("second", 1, queue="two")
    assert yard.told() == {"first": Why.PREEMPTED}  # one has all cpus, and two has none
    yard = pool(
        "4", "2 gpu", queues=[*queues, Queue(name="three")], order="share", preemption=ORDER
    )
    for name in ("one", "two"):
        yard.asks(f"{name}-gpu", queue=name, options=(shape(1, accelerator="gpu"),))
    yard.asks("fills", 3, queue="three", preemptible=False)
    yard.asks("first", 1, queue="one")
    yard.asks("second", 1, queue="two")
    assert yard.told() == {}


def test_a_checkpoint_makes_nothing_shorter_than_it_is() -> None:
    """What was done and saved since the start counts once: 100 s are left, and not 50 s."""
    yard = Yard(site("a", "4"), order="remaining", preemption=Preemption(order=True))
    yard.asks("long", 4, 150.0)
    yard.runs("long")
    saved = CheckpointSaved(**yard.about("long", "a/n0"), step=1)
    yard.step(saved, at=50.0)
    yard.asks("short", 4, 80.0)
    assert yard.told() == {"long": Why.PREEMPTED}


def submitted(
    job_id: str, priority: int, later_s: float, ranks: int = 4, **more: Any
) -> JobSubmitted:
    asked = spec(shape(ranks), priority=priority, **more)
    return JobSubmitted(job_id=job_id, spec=asked, submitted_s=START_S + later_s)


@pytest.mark.parametrize(("later_s", "told"), [(0.5, {"old": Why.PREEMPTED}), (1.0, {}), (1.5, {})])
def test_an_age_that_makes_up_for_a_priority_takes_its_claim(
    later_s: float, told: dict[str, Why]
) -> None:
    yard = Yard(site("a", "4"), ageing_per_hour=3600.0)  # one priority a second
    assert yard.step(submitted("old", 0, 0.0)) == ["old"]
    yard.step(submitted("new", 1, later_s))
    assert yard.told() == told


def test_what_is_kept_for_an_older_job_is_not_taken() -> None:
    yard = Yard(site("a", "4"), ageing_per_hour=3600.0)
    yard.step(submitted("low", 0, 0.0, ranks=2))
    yard.step(submitted("mid", 1, 0.5, preemptible=False))
    assert yard.kept("mid") == "a/n0:4"  # of which two are free
    assert yard.step(submitted("high", 2, 5.0, ranks=2)) == []
    assert yard.goes("low") == ["mid"]


def test_what_is_kept_is_given_up_only_to_who_starts() -> None:
    yard = Yard(site("a", "4"))
    yard.asks("low", 2, grace_s=5.0)
    yard.asks("mid", 4, 10.0, priority=1)
    assert yard.kept("mid") == "a/n0:4"
    times = START_S + 500.0, START_S + 600.0
    booking = Booking(name="b", start_s=times[0], end_s=times[1], nodes=("a/n0",))
    yard.step(BookingMade(booking=booking))
    assert yard.asks("high", 2, priority=2) == []  # of unknown length: it runs into the booking
    assert yard.kept("mid") == "a/n0:4"
    assert yard.asks("short", 1, 20.0, priority=2) == ["short"]
    assert yard.kept("mid") == "nothing"


def test_who_leaves_at_a_wish_may_make_an_eviction_worth_while() -> None:
    yard = Yard(site("a", "4"))
    yard.asks("fixed", 2, priority=5, preemptible=False, grace_s=30.0)
    yard.asks("low", 2, grace_s=30.0)
    yard.asks("high", 4, priority=1)
    assert yard.told() == {}
    yard.step(EvictRequested(job_id="fixed"))
    assert yard.told() == {"fixed": Why.PREEMPTED, "low": Why.PREEMPTED}
    assert yard.kept("high") == "a/n0:4"
