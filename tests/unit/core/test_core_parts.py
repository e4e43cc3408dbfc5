"""The small parts: the state and its moves, orders, capacity, budgets."""

import math
from typing import Any

import pytest

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError
from gridloom.core import budget, order
from gridloom.core.capacity import Capacity
from gridloom.core.state import State, live_tasks, move, tasks_of
from gridloom.model.inventory import Inventory, Node
from gridloom.model.life import (
    JOB_TRANSITIONS,
    Attempt,
    Job,
    JobState,
    Placement,
    Task,
    TaskPlacement,
    TaskState,
)
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import Budget, JobSpec, Option, Program

OPTION = Option(accelerator="cpu", plan=ParallelPlan())


def job(job_id: str = "j", state: JobState = JobState.QUEUED, **more: Any) -> Job:
    of_job = {name: more.pop(name) for name in ("run_s", "cost", "not_before_s") if name in more}
    submitted_s = more.pop("submitted_s", 0.0)
    program = Program(argv=(), workdir="/")
    spec = JobSpec(name="j", program=program, options=(OPTION,), **more)
    return Job(job_id=job_id, spec=spec, submitted_s=submitted_s, state=state, **of_job)


def placement(*devices: int, price: float = 0.0) -> Placement:
    task = TaskPlacement(site="s", node="n", address="", devices=devices)
    return Placement(option=OPTION, tasks=(task,), price_per_hour=price)


def attempt(price: float = 0.0, started_s: float = 10.0) -> Attempt:
    held = placement(0, price=price)
    tasks = {"s/n": Task(placement=held.tasks[0])}
    return Attempt(number=1, epoch=1, placement=held, tasks=tasks, started_s=started_s)


# --- state


@pytest.mark.parametrize("before", JobState)
@pytest.mark.parametrize("after", JobState)
def test_only_legal_moves_are_made(before: JobState, after: JobState) -> None:
    moved = job(state=before)
    if after in JOB_TRANSITIONS[before]:
        move(moved, after)
        assert moved.state is after
    else:
        with pytest.raises(BrokenError, match=f"from {before} to {after}"):
            move(moved, after)
        assert moved.state is before


def test_a_snapshot_is_the_state() -> None:
    running = job("b", JobState.RUNNING)
    running.attempts.append(attempt(price=0.1))
    state = State(
        inventory=Inventory(sites=()), jobs={"b": running, "a": job("a")}, epoch=7, now_s=0.1
    )
    again = decode(encode(state), State)
    assert again == state
    assert encode(again) == encode(state)


def test_tasks_stand_in_rank_order_also_after_a_snapshot() -> None:
    placed = tuple(
        TaskPlacement(site=site, node="n", address="", devices=(0,)) for site in ("z", "a")
    )
    tasks = {place.domain: Task(placement=place) for place in placed}
    tasks["z/n"].state = TaskState.ENDED
    held = Placement(option=OPTION, tasks=placed)
    run = Attempt(number=1, epoch=1, placement=held, tasks=tasks, started_s=0.0)
    for one in (run, decode(encode(run), Attempt)):
        assert [task.placement.domain for task in tasks_of(one)] == ["z/n", "a/n"]
        assert [task.placement.domain for task in live_tasks(one)] == ["a/n"]


# --- order


def test_the_order_is_total() -> None:
    jobs = [
        job("d", submitted_s=5.0),
        job("c", submitted_s=1.0),
        job("b", submitted_s=5.0),
        job("a", submitted_s=9.0, priority=1),
    ]
    assert [one.job_id for one in order.in_order(jobs)] == ["a", "c", "b", "d"]
    assert order.in_order(reversed(jobs)) == order.in_order(jobs)


def test_jobs_are_told_apart_by_what_they_wait_for() -> None:
    jobs = [job(state.value, state) for state in JobState] + [job("later", not_before_s=5.0)]

    def ids(some: list[Job]) -> list[str]:
        return [one.job_id for one in some]

    assert ids(order.queued(jobs)) == ["later", "queued"]
    assert ids(order.ready(jobs, 4.9)) == ["queued"]
    assert ids(order.ready(jobs, 5.0)) == ["later", "queued"]
    assert ids(order.holding(jobs)) == ["running", "starting", "stopping"]


# --- capacity

NODE = Node(name="n", address="", accelerator="cpu", count=4)


def test_what_is_taken_is_not_free_until_it_is_given_back() -> None:
    capacity = Capacity()
    capacity.take(placement(1), "x")
    before = capacity.free("s/n", NODE)
    capacity.take(placement(0, 3), "y")
    assert capacity.free("s/n", NODE) == (2,)
    assert capacity.users("s/n") == ("x", "y")
    capacity.give_back(placement(0, 3))
    assert capacity.free("s/n", NODE) == before == (0, 2, 3)
    assert capacity.users("s/n") == ("x",)
    assert capacity.users("s/other") == ()


def test_nothing_is_given_twice() -> None:
    capacity = Capacity()
    capacity.take(placement(1), "x")
    with pytest.raises(BrokenError, match="device 1 of s/n is used by x and cannot go to y"):
        capacity.take(placement(1), "y")


def test_a_node_is_kept_for_the_first_that_asks() -> None:
    capacity = Capacity()
    capacity.hold("s/n", "x")
    capacity.hold("s/n", "y")
    assert capacity.held_for("s/n") == "x"
    assert capacity.held_for("s/m") == ""


def test_jobs_that_hold_devices_leave_the_rest() -> None:
    running, over = job("x", JobState.RUNNING), job("y", JobState.STOPPED)
    running.attempts.append(attempt())
    over.attempts.append(attempt())
    assert Capacity.left_by([running, over]).free("s/n", NODE) == (1, 2, 3)


# --- budget


@pytest.mark.parametrize(
    ("limits", "price", "due_s"),
    [
        (Budget(), 900.0, math.inf),
        (Budget(run_s_max=5.0), 0.0, 13.0),  # two were used before
        (Budget(cost_max=5.0), 0.0, math.inf),  # what is free never costs too much
        (Budget(cost_max=5.0), 3600.0, 14.0),  # one was paid before
        (Budget(cost_max=5.0, run_s_max=5.0), 3600.0, 13.0),
        (Budget(cost_max=5.0, run_s_max=9.0), 3600.0, 14.0),
        (Budget(cost_max=1.0, run_s_max=9.0), 3600.0, 10.0),
    ],
)
def test_a_budget_is_spent_when_it_is_due(limits: Budget, price: float, due_s: float) -> None:
    running = job(state=JobState.RUNNING, budget=limits, run_s=2.0, cost=1.0)
    running.attempts.append(attempt(price))
    assert budget.due_s(running) == due_s
    assert not budget.is_spent(running, due_s - 0.001 if due_s < math.inf else 1e12)
    assert budget.is_spent(running, due_s)


def test_what_was_used_includes_the_present_attempt() -> None:
    running = job(state=JobState.RUNNING, run_s=2.0, cost=1.0)
    assert budget.used(job(run_s=2.0, cost=1.0), 15.0) == (2.0, 1.0)
    running.attempts.append(attempt(3600.0))
    assert budget.used(running, 15.0) == (7.0, 6.0)


def test_a_queued_job_has_spent_its_budget_when_nothing_is_left() -> None:
    limits = Budget(run_s_max=5.0)
    assert not budget.is_spent(job(budget=limits, run_s=4.5), 100.0)
    assert budget.is_spent(job(budget=limits, run_s=5.0), 0.0)
