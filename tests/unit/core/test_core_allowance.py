"""Accelerator-hours by example: what is held, what is settled, when there is more."""

import pytest
from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.core.allowance import Account, Allowance, next_period_s, period_start_s
from gridloom.core.shortage import Shortage
from gridloom.model.quota import Queue
from gridloom.model.reason import Why

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
QUEUE = Queue(name="a", accelerator_hours=100.0, period_s=10 * DAY_S)


def asks(
    allowance: Allowance, *, devices: int, hours: float, now_h: float, queue: Queue = QUEUE
) -> Shortage | None:
    return allowance.shortage(
        queue, devices=devices, predicted_s=hours * HOUR_S, now=now_h * HOUR_S
    )


def running(*, devices: int, hours: float, since_h: float) -> Allowance:
    allowance = Allowance()
    allowance.hold(QUEUE, "j/1", devices=devices, predicted_s=hours * HOUR_S, now=since_h * HOUR_S)
    return allowance


def test_a_start_holds_what_it_is_predicted_to_use() -> None:
    allowance = running(devices=8, hours=5, since_h=1)
    assert allowance.claimed_s(QUEUE, 1 * HOUR_S) == (40 * HOUR_S, 0.0)
    assert allowance.claimed_s(QUEUE, 2 * HOUR_S) == (40 * HOUR_S, 0.0)
    assert allowance.used_s(QUEUE, 2 * HOUR_S) == 8 * HOUR_S
    assert asks(allowance, devices=6, hours=10, now_h=2) is None
    found = asks(allowance, devices=8, hours=10, now_h=2)
    assert found == Shortage(
        code=Why.ACCELERATOR_HOURS,
        limiting="queue `a`",
        sentence=(
            "queue `a` has used 8 of its 100 accelerator-hours, and what runs keeps 32 more;"
            " the job needs 80 before the period ends in 9d 22h"
        ),
        wanted=80,
        found=60,
    )


def test_an_end_gives_back_what_was_not_used() -> None:
    allowance = running(devices=8, hours=5, since_h=1)
    allowance.settle(QUEUE, "j/1", 2.55 * HOUR_S)
    assert allowance.claimed_s(QUEUE, 3 * HOUR_S) == pytest.approx((12.4 * HOUR_S, 0.0))
    found = asks(allowance, devices=10, hours=9, now_h=3)
    assert found
    assert found.sentence.startswith("queue `a` has used 12.4 of its 100 accelerator-hours; the")
    assert (found.wanted, found.found, found.remedy) == (90, 87, "")


def test_what_runs_longer_than_predicted_holds_what_it_uses() -> None:
    allowance = running(devices=8, hours=5, since_h=0)
    assert allowance.claimed_s(QUEUE, 7 * HOUR_S) == (56 * HOUR_S, 0.0)


def test_a_job_of_unknown_duration_needs_something_to_be_left() -> None:
    allowance = running(devices=10, hours=0, since_h=0)
    assert allowance.claimed_s(QUEUE, 0.0) == (0.0, 0.0)
    assert asks(allowance, devices=99, hours=0, now_h=9) is None
    found = asks(allowance, devices=1, hours=0, now_h=10)
    assert found
    assert found.sentence == (
        "queue `a` has used 100 of its 100 accelerator-hours;"
        " none is left before the period ends in 9d 14h"
    )
    assert (found.wanted, found.found) == (0, 0)


def test_a_period_counts_what_is_used_in_it() -> None:
    allowance = running(devices=2, hours=40, since_h=230)
    assert allowance.claimed_s(QUEUE, 230 * HOUR_S) == (20 * HOUR_S, 60 * HOUR_S)
    assert allowance.claimed_s(QUEUE, 250 * HOUR_S) == (60 * HOUR_S, 0.0)
    allowance.settle(QUEUE, "j/1", 260 * HOUR_S)
    assert allowance.claimed_s(QUEUE, 261 * HOUR_S) == (40 * HOUR_S, 0.0)
    assert allowance.claimed_s(QUEUE, 480 * HOUR_S) == (0.0, 0.0)


def test_two_ends_in_one_period_add_up() -> None:
    allowance = running(devices=2, hours=1, since_h=0)
    allowance.hold(QUEUE, "k/1", devices=3, predicted_s=HOUR_S, now=0.0)
    allowance.settle(QUEUE, "j/1", HOUR_S)
    allowance.settle(QUEUE, "k/1", HOUR_S)
    assert allowance.used_s(QUEUE, 2 * HOUR_S) == 5 * HOUR_S


def test_a_job_must_not_take_the_next_period_from_what_runs() -> None:
    allowance = running(devices=2, hours=40, since_h=230)
    found = asks(allowance, devices=1, hours=52, now_h=239)
    assert found
    assert found.sentence == (
        "the job needs 51 of the 100 accelerator-hours that queue `a` has in the next period;"
        " what runs keeps 60"
    )
    assert (found.wanted, found.found, found.remedy) == (51, 40, "")
    assert asks(allowance, devices=1, hours=41, now_h=239) is None


def test_what_spans_periods_counts_in_each_with_what_it_uses_there() -> None:
    queue = replace(QUEUE, accelerator_hours=240.0)  # of one device all the time
    assert asks(Allowance(), devices=1, hours=1000, now_h=120, queue=queue) is None
    allowance = running(devices=1, hours=1000, since_h=120)
    assert allowance.claimed_s(queue, 130 * HOUR_S) == (120 * HOUR_S, 240 * HOUR_S)
    found = asks(allowance, devices=1, hours=121, now_h=120, queue=queue)
    assert found
    assert (found.wanted, found.found) == (1, 0)
    assert asks(allowance, devices=1, hours=120, now_h=120, queue=queue) is None


def test_a_job_that_is_too_much_for_any_period_is_told_so() -> None:
    found = asks(running(devices=1, hours=10, since_h=0), devices=10, hours=12, now_h=0)
    assert found
    assert found.remedy == "raise `accelerator_hours` of queue `a` to 130, or ask for less"
    found = asks(Allowance(), devices=10, hours=20, now_h=239)
    assert found
    assert found.sentence == (
        "the job needs 190 of the 100 accelerator-hours that queue `a` has in the next period"
    )
    assert found.remedy == "raise `accelerator_hours` of queue `a` to 190, or ask for less"
    richer = replace(QUEUE, accelerator_hours=190.0)
    assert asks(Allowance(), devices=10, hours=20, now_h=239, queue=richer) is None


def test_a_queue_without_a_limit_is_not_counted() -> None:
    free = Queue(name="a")
    allowance = Allowance()
    allowance.hold(free, "j/1", devices=8, predicted_s=HOUR_S, now=0.0)
    assert allowance == Allowance()
    assert asks(allowance, devices=10**6, hours=1e6, now_h=0, queue=free) is None
    allowance.settle(QUEUE, "j/1", HOUR_S)  # it got a limit meanwhile
    assert allowance == Allowance()


def test_other_queues_do_not_matter() -> None:
    allowance = running(devices=10, hours=10, since_h=0)
    assert asks(allowance, devices=1, hours=1, now_h=0)
    assert asks(allowance, devices=1, hours=1, now_h=0, queue=replace(QUEUE, name="b")) is None


def test_another_period_begins_anew_with_what_runs() -> None:
    allowance = running(devices=1, hours=10, since_h=24)
    allowance.settle(QUEUE, "j/1", 30 * HOUR_S)
    allowance.hold(QUEUE, "k/1", devices=1, predicted_s=HOUR_S, now=30 * HOUR_S)
    daily = replace(QUEUE, period_s=DAY_S)
    assert allowance.used_s(QUEUE, 31 * HOUR_S) == 7 * HOUR_S
    assert allowance.used_s(daily, 31 * HOUR_S) == 1 * HOUR_S


def test_it_can_be_written_down() -> None:
    allowance = running(devices=1, hours=10, since_h=24)
    allowance.settle(QUEUE, "other", 25 * HOUR_S)
    assert decode(encode(allowance), Allowance) == allowance
    allowance.settle(QUEUE, "j/1", 25 * HOUR_S)
    assert allowance == Allowance(accounts={"a": Account(since_s=0.0, spent_s=HOUR_S)})


def test_periods_are_counted_from_the_epoch() -> None:
    assert period_start_s(QUEUE, 25 * DAY_S) == 20 * DAY_S
    assert next_period_s(QUEUE, 25 * DAY_S) == 30 * DAY_S
    assert next_period_s(QUEUE, 30 * DAY_S) == 40 * DAY_S


def test_a_period_begins_when_the_one_before_it_ends_even_rounded() -> None:
    queue = replace(QUEUE, period_s=0.1)
    end_s = next_period_s(queue, 0.45)
    assert end_s // 0.1 * 0.1 < end_s  # so that dividing alone would stay in the old one
    assert period_start_s(queue, end_s) == end_s < next_period_s(queue, end_s)


def test_what_began_while_a_queue_had_no_limit_is_not_counted_from_later_on_either() -> None:
    allowance = Allowance()
    allowance.hold(QUEUE, "x/1", devices=1, predicted_s=0.0, now=0.0)
    allowance.delay(QUEUE.name, "y/1", 50.0)
    allowance.delay(QUEUE.name, "x/1", 60.0)
    assert allowance.used_s(QUEUE, 100.0) == 40.0
