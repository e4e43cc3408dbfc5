"""The small parts: the state and its snapshots, budgets."""

import math
from typing import Any

import pytest

from gridloom.base.codec import decode, encode
from gridloom.core import budget
from gridloom.core.state import Mark, Signals, State, live_tasks, tasks_of
from gridloom.model.booking import Booking
from gridloom.model.inventory import Inventory
from gridloom.model.life import (
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


def test_a_snapshot_is_the_state() -> None:
    running = job("b", JobState.RUNNING)
    running.attempts.append(attempt(price=0.1))
    state = State(
        inventory=Inventory(sites=()),
        jobs={"b": running, "a": job("a")},
        epoch=7,
        now_s=0.1,
        marks={"s/n": Mark(mark="drain", sentence="hot", since_s=0.1)},
        failures={"s/n": ["a", "b"]},
        bookings={"p": Booking(name="p", start_s=0.1, end_s=0.2, nodes=("s",))},
        signals=Signals(prices={"s": 0.1}, carbon={"s": 0.2}),
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
