"""Queues and cohorts as they are when nothing is said of them."""

from gridloom.base.codec import decode, encode
from gridloom.model.inventory import Inventory
from gridloom.model.quota import Cohort, Queue


def test_a_queue_of_which_nothing_is_said_has_no_limits_and_takes_back_what_it_lends() -> None:
    queue = Queue(name="q")
    assert queue.nominal is None
    assert queue.borrow_max is None
    assert queue.lend_max is None
    assert queue.accelerator_hours == 0
    assert queue.reclaim
    assert queue.order == "policy"


def test_no_nominal_is_another_thing_than_a_nominal_of_nothing() -> None:
    for queue in (Queue(name="q"), Queue(name="q", nominal={})):
        assert decode(encode(queue), Queue) == queue
    assert Queue(name="q") != Queue(name="q", nominal={})


def test_an_allowance_is_renewed_every_thirty_days() -> None:
    assert Queue(name="q").period_s == 30 * 24 * 3600


def test_queues_and_cohorts_are_written_down_with_the_grid() -> None:
    inventory = Inventory(
        sites=(),
        queues=(Queue(name="q", cohort="c", nominal={"h100": 8}, weight=2.0, order="strict"),),
        cohorts=(Cohort(name="c", parent="root", lend_max={"h100": 4}), Cohort(name="root")),
    )
    assert decode(encode(inventory), Inventory) == inventory
