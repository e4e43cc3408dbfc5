"""What follows from the state, as jobs come, run and go."""

import math
from typing import Any

import pytest
from tests.unit.core.grids import grid, node, shape, site, spec

from gridloom.base.errors import BrokenError
from gridloom.core.bucket import Bucket, Shape
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.order import key
from gridloom.core.state import Mark, Signals, State
from gridloom.core.topology import Tree
from gridloom.model.inventory import Inventory
from gridloom.model.life import (
    JOB_TRANSITIONS,
    OVER,
    Attempt,
    Job,
    JobState,
    Placement,
    Task,
    TaskPlacement,
)
from gridloom.model.policy import Policy
from gridloom.model.quota import Cohort, Queue
from gridloom.model.spec import Budget, Dependency, Forecast, Option

GRID = grid(site("a", "4:2", "2"), site("b", "3"))


def job(job_id: str = "j", state: JobState = JobState.QUEUED, **more: Any) -> Job:
    of_job = {
        name: more.pop(name)
        for name in ("submitted_s", "not_before_s", "attempts", "reservation")
        if name in more
    }
    settings: dict[str, Any] = {"submitted_s": 0.0} | of_job
    options = more.pop("options", (shape(1),))
    return Job(job_id=job_id, spec=spec(*options, **more), state=state, **settings)


def places(*parts: tuple[str, tuple[int, ...]], option: Option | None = None) -> Placement:
    tasks = tuple(
        TaskPlacement(site=name.split("/")[0], node=name.split("/")[1], address="", devices=devices)
        for name, devices in parts
    )
    return Placement(option=option or shape(1), tasks=tasks)


def running(job_id: str, *parts: tuple[str, tuple[int, ...]], epoch: int = 1, **more: Any) -> Job:
    ranks = sum(len(devices) for _, devices in parts)
    option = shape(ranks)
    attempt = Attempt(
        number=1,
        epoch=epoch,
        placement=places(*parts, option=option),
        tasks={},
        started_s=0.0,
    )
    return job(job_id, JobState.RUNNING, attempts=[attempt], options=(option,), **more)


def index(*jobs: Job, inventory: Inventory | None = GRID, **more: Any) -> Index:
    return Index(State(inventory=inventory, jobs={one.job_id: one for one in jobs}, **more))


def waiting(some: Index) -> dict[str, list[str]]:
    """Return the waiting jobs of each queue, in the order of each shape."""
    found: dict[str, list[str]] = {}
    for bucket in some.buckets.values():
        found.setdefault(bucket.queue, []).extend(one.job_id for _, one in bucket.jobs())
    return found


# --- shapes and buckets


def test_a_shape_knows_which_of_its_options_could_ever_be_placed() -> None:
    options = (shape(9), shape(2, accelerator="tpu"), shape(6), shape(3))
    made = Shape(spec(*options), Tree(GRID))
    assert [demand.option for demand in made.demands] == list(options)
    assert [demand.option for demand in made.possible] == list(options[2:])
    assert made.eligible.tolist() == [True] * 4


def test_jobs_that_ask_alike_share_a_shape() -> None:
    some = index(inventory=grid(site("a", "4"), site("b", "4", queues=("x",))))
    alike = spec(shape(2), labels={"b": "2", "a": "1"})
    assert some.shape(alike) is some.shape(spec(shape(2), labels={"a": "1", "b": "2"}, priority=9))
    others: list[dict[str, Any]] = [
        {"sites": ("a",)},
        {"min_sites": 2, "max_sites": 2},
        {"max_sites": 2},
        {"queue": "x"},
        {"nodes": ("a/n0",)},
        {"ranks_per_node_max": 1},
        {"data_sites": ("a",)},
        {"data_required": True},
        {},
    ]
    shapes = {id(some.shape(spec(shape(2), **more))) for more in others}
    assert len(shapes | {id(some.shape(alike)), id(some.shape(spec(shape(3))))}) == len(others) + 2


def test_where_no_site_is_closed_the_queue_is_no_part_of_a_shape() -> None:
    some = index()
    assert some.shape(spec(shape(2), queue="x")) is some.shape(spec(shape(2)))


def bucket(*jobs: Job) -> Bucket:
    made = Bucket("", Shape(spec(shape(1), shape(2, step_s=1.0)), Tree(GRID)))
    for one in jobs:
        made.push(key(one, Policy(), 0.0), one)
    return made


def test_a_bucket_gives_its_jobs_in_order() -> None:
    jobs = [job("c", submitted_s=1.0), job("b"), job("a"), job("d", priority=1)]
    some = bucket(*jobs)
    assert len(some) == 4
    assert [one.job_id for _, one in some.jobs()] == ["d", "a", "b", "c"]
    head = some.head()
    assert head is not None
    assert head[1] is jobs[3]
    some.drop(jobs[3])
    some.drop(jobs[1])
    assert [one.job_id for _, one in some.jobs()] == ["a", "c"]
    some.drop(jobs[2])
    some.drop(jobs[0])
    assert (len(some), some.head()) == (0, None)


def test_the_first_behind_another_that_is_short_enough() -> None:
    jobs = [
        job(name, forecast=Forecast(duration_s=duration_s))
        for name, duration_s in (("a", 50.0), ("b", 5.0), ("c", 9.0), ("d", 0.0))
    ]
    some = bucket(*jobs)
    keys = {one.job_id: key(one, Policy(), 0.0) for one in jobs}
    found = some.shorter(keys["a"], 9.0)
    assert found == (keys["b"], jobs[1])
    assert some.shorter(keys["b"], 9.0) == (keys["c"], jobs[2])
    assert some.shorter(keys["c"], 99.0) is None  # nobody knows how long the last will run
    assert some.shorter(keys["a"], 4.0) is None
    for one in jobs:
        some.drop(one)
    assert some.shorter(keys["a"], 99.0) is None


def test_a_job_none_of_whose_shapes_is_possible_may_run_for_ever() -> None:
    made = Bucket("", Shape(spec(shape(99)), Tree(GRID)))
    one = job("a", forecast=Forecast(duration_s=1.0))
    made.push(key(one, Policy(), 0.0), one)
    assert made.shorter((-9.0, 0.0, 0.0, "", ""), 1e12) is None


# --- built from a state


def test_without_an_inventory_there_is_nothing() -> None:
    some = index(job("a"), inventory=None)
    assert some.tree.domains == ()
    assert waiting(some) == {"": ["a"]}


def test_an_index_is_built_from_what_the_jobs_hold() -> None:
    some = index(
        running("x", ("a/n0", (0, 2)), ("b/n0", (1,)), epoch=7, queue="q"),
        running("y", ("a/n1", (0,)), epoch=3, priority=5),
        job("w", JobState.STOPPED),
        job("z"),
    )
    assert some.capacity.free.tolist() == [1, 1, 1, 2]
    assert list(some.holdings) == ["y", "x"]  # as they were started
    assert some.ledger.use("q", "cpu") == 3
    assert some.running_at == {0: 1, 5: 1}
    assert waiting(some) == {"": ["z"]}
    assert some.dirty
    assert {job_id for _, job_id in some.due()} == {"x", "y"}  # nothing is ever due for the other


def test_jobs_are_looked_at_when_something_may_be_due_for_them() -> None:
    paid = Budget(cost_max=1.0)
    held = running("x", ("a/n0", (0,)), budget=paid)
    leased = running("y", ("a/n0", (2,)))
    lapses = {"a/n0": 9.0, "b/n0": 7.0}
    leased.attempts[0].tasks = {
        domain: Task(placement=leased.attempts[0].placement.tasks[0], lease_until_s=until_s)
        for domain, until_s in lapses.items()
    }
    backing_off = job("u", not_before_s=3.0)
    some = index(held, leased, backing_off, job("v", budget=paid), job("w"))
    assert sorted(some.due()) == [(0.0, "v"), (0.0, "x"), (3.0, "u"), (7.0, "y")]


def test_what_the_inventory_says_of_queues_and_policy_is_taken_over() -> None:
    inventory = grid(
        site("a", "4", price_per_accelerator_hour=2.0),
        queues=(Queue(name="x", order="strict"), Queue(name="y", nominal={"cpu": 1}, cohort="c")),
        cohorts=(Cohort(name="c"),),
        policy=Policy(blocked="stop"),
    )
    some = index(inventory=inventory, signals=Signals(prices={"a": 3.0}))
    assert some.strict == {"x"}
    assert sorted(some.queues) == ["x", "y"]
    assert some.reclaims
    assert not index().reclaims
    assert some.policy.blocked == "stop"
    assert some.ranker.prices == {"a": 3.0}
    some.dirty = False
    some.state.signals.prices.clear()
    some.reprice()
    assert some.ranker.prices == {"a": 2.0}
    assert some.dirty


def test_marked_nodes_and_sites_take_nothing_new() -> None:
    mark = Mark(mark="cordon", sentence="", since_s=0.0)
    some = index(marks={"a/n0": mark, "b": mark})
    assert some.capacity.openings().tolist() == [False, False, True, False]
    some.state.marks.clear()
    some.dirty = False
    some.reopen()
    assert some.capacity.openings().all()
    assert some.dirty


def test_when_running_jobs_will_end() -> None:
    some = index(
        running("x", ("a/n0", (0,)), epoch=1, forecast=Forecast(duration_s=50.0)),
        running("y", ("a/n0", (1,)), epoch=2, forecast=Forecast(duration_s=20.0)),
        running("z", ("a/n0", (2,)), epoch=3),
    )
    assert some.ends == [(20.0, "y"), (50.0, "x")]
    one = some.state.jobs["x"]
    one.attempts[-1].stop_sent, one.attempts[-1].grace_until_s = True, 10.0
    some.retime(one)
    assert some.ends == [(10.0, "x"), (20.0, "y")]
    some.move(one, JobState.STOPPING)
    some.move(one, JobState.STOPPED)
    assert some.ends == [(20.0, "y")]


# --- moves


@pytest.mark.parametrize("before", JobState)
@pytest.mark.parametrize("after", JobState)
def test_only_legal_moves_are_made(before: JobState, after: JobState) -> None:
    moved = running("j", ("a/n0", (0,)))
    moved.state = before
    some = index(moved)
    if after in JOB_TRANSITIONS[before]:
        some.move(moved, after)
        assert moved.state is after
        assert (some.bucket(moved) is not None) == (after is JobState.QUEUED)
    else:
        with pytest.raises(BrokenError, match=f"from {before} to {after}"):
            some.move(moved, after)
        assert moved.state is before


def test_a_job_that_leaves_gives_back_all_it_had() -> None:
    one = running("x", ("a/n0", (0, 2)), queue="q", priority=3)
    some = index(one)
    changes = some.moment
    some.dirty = False
    some.move(one, JobState.STOPPING)
    assert "x" in some.holdings
    assert not some.dirty
    some.move(one, JobState.QUEUED)
    assert some.holdings == {}
    assert some.running_at == {}
    assert some.ledger.use("q", "cpu") == 0
    assert some.capacity.free.tolist() == [2, 2, 2, 3]
    assert waiting(some) == {"q": ["x"]}
    assert some.moment != changes
    assert some.dirty


def test_two_jobs_of_one_priority_are_counted_one_by_one() -> None:
    one, two = running("x", ("a/n0", (0,))), running("y", ("a/n0", (1,)), epoch=2)
    some = index(one, two)
    some.move(one, JobState.STOPPING)
    some.move(one, JobState.FAILED)
    assert some.running_at == {0: 1}


def test_a_job_that_backs_off_is_not_in_line_until_its_time() -> None:
    one = job("x", not_before_s=5.0)
    some = index(one, now_s=4.0)
    assert some.bucket(one) is None
    some.requeue(one)
    assert some.bucket(one) is None
    some.state.now_s = 5.0
    some.requeue(one)
    found = some.bucket(one)
    assert found is not None
    some.requeue(one)
    assert len(found) == 1
    some.move(one, JobState.CANCELLED)
    some.requeue(one)
    assert some.bucket(one) is None


# --- dependencies

KINDS = ("afterok", "afterany", "afternotok", "after")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", JobState)
def test_what_a_job_waits_for(kind: Any, state: JobState) -> None:
    first = running("x", ("a/n0", (0,)))
    first.state = state
    last = job("y", after=(Dependency(job_id="x", kind=kind),))
    some = index(first, last)
    met = {
        "after": True,  # it has an attempt
        "afterany": state in OVER,
        "afterok": state is JobState.SUCCEEDED,
        "afternotok": state in OVER - {JobState.SUCCEEDED},
    }[kind]
    assert (some.bucket(last) is not None) == met
    assert unmet_dependencies(some.state, last) == ([] if met else ["x"])
    assert some.followers(first) == ([] if met else [last])


def test_a_job_that_nobody_knows_any_more_is_not_waited_for() -> None:
    assert index(one := job("y", after=(Dependency(job_id="x"),))).bucket(one) is not None


def test_followers_get_in_line_when_the_other_starts_or_ends() -> None:
    first, other = job("x"), job("w")
    after = job("a", after=(Dependency(job_id="x", kind="after"),))
    both = job("b", after=(Dependency(job_id="x", kind="afterany"), Dependency(job_id="w")))
    some = index(first, other, after, both)
    assert {one.job_id for one in some.followers(first)} == {"a", "b"}
    first.attempts.append(running("x", ("a/n0", (0,))).attempts[0])
    some.move(first, JobState.STARTING)
    some.occupy(first)
    assert some.bucket(after) is not None
    some.move(first, JobState.STOPPING)
    some.move(first, JobState.SUCCEEDED)
    assert some.bucket(both) is None
    other.attempts.append(running("w", ("a/n0", (1,))).attempts[0])
    some.move(other, JobState.STARTING)
    some.occupy(other)
    some.move(other, JobState.STOPPING)
    del some.state.jobs["a"]  # forgotten meanwhile
    some.move(other, JobState.SUCCEEDED)
    assert some.bucket(both) is not None


def test_a_follower_that_was_forgotten_is_not_looked_for() -> None:
    first, last = job("x"), job("y", after=(Dependency(job_id="x"),))
    some = index(first, last)
    del some.state.jobs["y"]
    assert some.followers(first) == []
    some.move(first, JobState.CANCELLED)
    assert waiting(some) == {"": []}


# --- reservations and spares


def test_places_are_reserved_for_a_job_until_it_gives_them_up() -> None:
    one = job("x")
    some = index(one)
    some.unreserve(one)
    some.reserve(one, places(("a/n0", (0, 3)), ("b/n0", (2,))), 9.0)
    assert (one.reserved_until_s, some.capacity.available.tolist()) == (9.0, [1, 1, 2, 2])
    assert Index(some.state).capacity.available.tolist() == [1, 1, 2, 2]
    some.dirty = False
    some.unreserve(one)
    assert (one.reservation, one.reserved_until_s) == (None, 0.0)
    assert some.capacity.available.tolist() == [2, 2, 2, 3]
    assert some.dirty


def test_spare_nodes_are_kept_whole_beside_what_is_reserved() -> None:
    one = job("x")
    some = index(one)
    some.spare(one, ("a/n0",))
    assert some.capacity.available.tolist() == [0, 0, 2, 3]
    some.reserve(one, places(("a/n0", (0,)), ("a/n1", (0,))), 9.0)
    assert some.capacity.available.tolist() == [0, 0, 1, 3]
    assert Index(some.state).capacity.available.tolist() == [0, 0, 1, 3]
    some.dirty = False
    some.spare(one, ("a/n0",))
    assert not some.dirty  # as it was
    some.unreserve(one)
    assert some.capacity.available.tolist() == [0, 0, 2, 3]
    some.spare(one, ())
    assert some.capacity.available.tolist() == [2, 2, 2, 3]
    assert list(some.capacity.keepers()) == []


# --- placing


def test_a_placement_says_which_level_it_reaches() -> None:
    some = index()
    demand = some.shape(spec(shape(2, step_s=3.0))).possible[0]
    spot = Finder(demand, some.capacity, some.capacity.available).best(some.ranker)
    assert spot is not None
    placement, held = some.place(spot)
    assert (placement.level, placement.step_s) == ("island", 3.0)
    assert held.devices.sum() == 2


# --- times


def test_times_at_which_all_is_looked_at_anew() -> None:
    some = index()
    assert some.next_again_s(0.0) == math.inf
    for at_s in (7.0, 3.0, 7.0):
        some.again(at_s)
    some.dirty = False
    moment = some.moment
    assert some.next_again_s(2.9) == 3.0
    assert (some.dirty, some.moment) == (False, moment)
    assert some.next_again_s(3.0) == 7.0
    assert (some.dirty, some.moment == moment) == (True, False)
    some.again(3.0)
    assert some.next_again_s(99.0) == math.inf


def test_a_change_of_the_inventory_derives_all_anew() -> None:
    one = running("x", ("a/n0", (0,)), ("b/n0", (0,)))
    two = job("y", options=(shape(5),))
    some = index(one, two)
    found = some.bucket(two)
    assert found is not None
    assert [demand.devices for demand in found.shape.possible] == [5]
    some.state.inventory = grid(site("a", node("2:1")))
    some.rebuild()
    assert some.capacity.free.tolist() == [0, 1]
    found = some.bucket(two)
    assert found is not None
    assert found.shape.possible == ()


def test_jobs_that_cannot_keep_their_deadline_any_more_go_behind() -> None:
    jobs = [
        job("a", deadline_s=50.0, forecast=Forecast(duration_s=20.0)),
        job("b", deadline_s=60.0, forecast=Forecast(duration_s=20.0)),
        job("c", not_before_s=99.0, deadline_s=1.0),
    ]
    some = index(*jobs, inventory=grid(site("a", "2"), policy=Policy(order="deadline")))
    assert waiting(some) == {"": ["a", "b"]}
    assert 30.0 < some.next_again_s(0.0) < 31.0  # the first must start until then
    some.state.now_s = 35.0
    some.reorder()
    assert waiting(some) == waiting(Index(some.state)) == {"": ["b", "a"]}
    plain = index(*jobs[:2])
    plain.state.now_s = 35.0
    plain.reorder()
    assert waiting(plain) == {"": ["a", "b"]}


def test_a_promise_that_is_due_is_looked_at_anew() -> None:
    some = index()
    some.state.promises_due_s = 5.0
    some.dirty = False
    assert some.next_again_s(4.0) == 5.0
    assert some.next_again_s(5.0) == math.inf
    assert some.dirty
