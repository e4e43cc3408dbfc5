"""Promised starts: the earliest that what runs allows, and what is left beside it."""

import pytest
from tests.unit.core.grids import must, shape, site
from tests.unit.core.yard import START_S, Yard

from gridloom.model.policy import Preemption
from gridloom.model.reason import Why


def pool(*sizes: str) -> Yard:
    return Yard(site("a", *sizes), blocked="easy", preemption=Preemption(priority=False))


def promised(yard: Yard, job_id: str) -> float:
    """Return the promised start, in seconds from the beginning; -START_S for none."""
    return yard.job(job_id).promised_s - START_S


@pytest.mark.parametrize(("ranks", "start_s"), [(1, 10.0), (3, 30.0), (5, 50.0), (7, 70.0)])
def test_a_start_is_promised_for_when_enough_will_have_ended(ranks: int, start_s: float) -> None:
    yard = pool("8")
    for number in range(1, 9):
        yard.asks(f"x{number}", 1, 10.0 * number)
    yard.asks("waits", ranks)
    assert promised(yard, "waits") == start_s


def test_enough_devices_are_not_enough_where_groups_must_sit_together() -> None:
    yard = pool("2", "2", "2")
    for number, run_s in enumerate((10.0, 20.0, 30.0, 60.0, 50.0, 40.0)):
        yard.asks(f"x{number}", 1, run_s, nodes=(f"a/n{number % 3}",))
    yard.asks("pair", options=(shape(2, groups=(must(2, "node"),)),))
    assert promised(yard, "pair") == 40.0  # two have ended at 20, but on two nodes


def test_of_two_shapes_the_one_that_can_start_first_is_promised() -> None:
    yard = pool("4")
    yard.asks("x", 1, 10.0)
    yard.asks("y", 3, 50.0)
    yard.asks("waits", options=(shape(4), shape(1)))
    assert promised(yard, "waits") == 10.0
    other = pool("4")
    other.asks("x", 1, 10.0)
    other.asks("y", 3, 50.0)
    other.asks("waits", options=(shape(1), shape(4)))
    assert promised(other, "waits") == 10.0


def test_what_else_ends_at_that_moment_is_left_to_others() -> None:
    yard = pool("5")
    yard.asks("x", 2, 100.0)
    yard.asks("y", 2, 100.0)
    yard.asks("wide", 3, 50.0)
    assert promised(yard, "wide") == 100.0
    assert yard.asks("long", 1, 1e6) == ["long"]  # two of the five are free when wide runs
    assert yard.ends("x", at=100.0) == []
    assert yard.ends("y") == ["wide"]


def test_what_outlives_its_prediction_is_taken_to_need_a_tenth_more() -> None:
    yard = pool("4")
    yard.asks("x", 3, 100.0)
    yard.asks("other", 1, 500.0)
    yard.step(at=200.0)
    yard.asks("waits", 3, 10.0)
    assert promised(yard, "waits") == pytest.approx(220.0)


def test_where_nobody_knows_the_ends_nothing_is_promised() -> None:
    yard = pool("4")
    yard.asks("x", 4)
    yard.asks("waits", 2)
    assert promised(yard, "waits") == -START_S
    assert yard.why("waits") is Why.IN_USE


def test_what_is_marked_does_not_count_as_given_back() -> None:
    yard = pool("2", "2")
    yard.asks("x", 2, 10.0, nodes=("a/n0",))
    yard.asks("y", 2, 50.0, nodes=("a/n1",))
    yard.marks("a/n0", "cordon")
    yard.asks("waits", 2)
    assert promised(yard, "waits") == 50.0
