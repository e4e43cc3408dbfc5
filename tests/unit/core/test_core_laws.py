"""Every law catches the fault that it is there for."""

from collections.abc import Callable
from typing import Any

import pytest

from gridloom.base.errors import BrokenError
from gridloom.core import laws
from gridloom.core.state import State
from gridloom.model.life import (
    Attempt,
    Job,
    JobState,
    Outcome,
    Placement,
    Task,
    TaskPlacement,
    TaskState,
)
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import JobSpec, Option, Program

PLAN = ParallelPlan(tensor=2, pipeline=2, data=2)
DONE = Outcome(code=Why.KILLED, sentence="")


def attempt(number: int, epoch: int, started_s: float, **more: Any) -> Attempt:
    """Return an attempt of eight ranks: four at each of two sites."""
    shares = more.pop("shares", {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)})
    placed = tuple(
        TaskPlacement(site=site, node="n", address="", devices=devices)
        for site, devices in shares.items()
    )
    state = TaskState.ENDED if "ended_s" in more else TaskState.RUNNING
    outcome = DONE if "ended_s" in more else None
    return Attempt(
        number=number,
        epoch=epoch,
        placement=Placement(option=Option(accelerator="cpu", plan=PLAN), tasks=placed),
        tasks={
            p.domain: Task(placement=p, state=state, outcome=outcome, lease_until_s=50.0)
            for p in placed
        },
        started_s=started_s,
        **more,
    )


def job(job_id: str, state: JobState, *attempts: Attempt) -> Job:
    spec = JobSpec(
        name="j", program=Program(argv=(), workdir="/"), options=(), min_sites=2, max_sites=2
    )
    return Job(job_id=job_id, spec=spec, submitted_s=0.0, state=state, attempts=list(attempts))


def sound() -> State:
    """Return a state that keeps every law: one job in its second attempt, one over."""
    jobs = [
        job(
            "x",
            JobState.RUNNING,
            attempt(1, 1, 10.0, ended_s=20.0),
            attempt(2, 3, 20.0),
        ),
        job("y", JobState.FAILED, attempt(1, 2, 15.0, ended_s=16.0)),
        job("z", JobState.QUEUED),
    ]
    return State(jobs={one.job_id: one for one in jobs}, epoch=3, now_s=30.0)


def test_a_sound_state_passes() -> None:
    laws.check(sound())
    laws.check(State())


Fault = Callable[[dict[str, Job]], None]


def shares(**devices: tuple[int, ...]) -> Fault:
    def fault(jobs: dict[str, Job]) -> None:
        jobs["x"].attempts[1] = attempt(2, 3, 20.0, shares=devices)

    return fault


def hold_twice(jobs: dict[str, Job]) -> None:
    jobs["w"] = job("w", JobState.RUNNING, attempt(1, 3, 20.0))


def lose_a_task(jobs: dict[str, Job]) -> None:
    del jobs["x"].attempts[1].tasks["b/n"]


def live_after_the_end(jobs: dict[str, Job]) -> None:
    jobs["x"].state = JobState.FAILED


def no_live_task(jobs: dict[str, Job]) -> None:
    for task in jobs["x"].attempts[1].tasks.values():
        task.state = TaskState.ENDED


def live_in_an_earlier_attempt(jobs: dict[str, Job]) -> None:
    jobs["x"].attempts[0].tasks["a/n"].state = TaskState.RUNNING


def setting(index: int, **values: Any) -> Fault:
    def fault(jobs: dict[str, Job]) -> None:
        for name, value in values.items():
            setattr(jobs["x"].attempts[index], name, value)

    return fault


def end_without_outcome(jobs: dict[str, Job]) -> None:
    jobs["x"].attempts[0].tasks["a/n"].outcome = None


def idle_wish(jobs: dict[str, Job]) -> None:
    jobs["z"].wanted = "stop"


def too_many_restarts(jobs: dict[str, Job]) -> None:
    jobs["z"].restarts = 4


def reserve_while_running(jobs: dict[str, Job]) -> None:
    jobs["x"].reservation = jobs["x"].attempts[1].placement


def spare_after_the_end(jobs: dict[str, Job]) -> None:
    jobs["y"].spares = ("a/n",)


def lease_from_before(jobs: dict[str, Job]) -> None:
    for task in jobs["x"].attempts[1].tasks.values():
        task.lease_until_s = 19.0


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (hold_twice, "no device is held twice: device 0 of a/n"),
        (shares(a=(0, 1, 2, 3), b=(0,)), "a gang is whole or not there"),
        (lose_a_task, "a gang is whole or not there"),
        (shares(a=(0, 1, 2), b=(0, 1, 2, 3, 4)), "groups are never split: .* tensor"),
        (shares(a=(0, 1), b=(0, 1, 2, 3, 4, 5)), "groups are never split: .* replica"),
        (shares(a=(0, 1, 2, 3, 4, 5, 6, 7)), "groups are never split: .* 1 sites"),
        (live_after_the_end, "exactly the current attempt .*: attempt 2 of x"),
        (no_live_task, "exactly the current attempt .*: attempt 2 of x"),
        (live_in_an_earlier_attempt, "exactly the current attempt .*: attempt 1 of x"),
        (setting(1, epoch=2), "epochs only grow and never repeat: attempt 2 of x .* and what"),
        (setting(1, epoch=4), r"epochs only grow and never repeat: attempt 2 of x \(epoch 4\)$"),
        (setting(0, epoch=0), r"epochs only grow and never repeat: attempt 1 of x \(epoch 0\)$"),
        (setting(1, started_s=12.0), "epochs only grow and never repeat: attempt 1 of y .* and"),
        (setting(1, number=3), "attempts are numbered from 1 without gaps: x"),
        (setting(0, ended_s=21.0), "an attempt starts after the one before it has ended"),
        (setting(0, ended_s=9.0), "an attempt starts after the one before it has ended: .* 1 of x"),
        (end_without_outcome, "an attempt starts after the one before it has ended"),
        (idle_wish, "wishes are for jobs that hold devices: z is queued and stop is wanted"),
        (too_many_restarts, "no job is restarted more often than its policy allows: z after 4"),
        (reserve_while_running, "places are kept for whoever waits .*: x is running and has a res"),
        (spare_after_the_end, "places are kept for whoever waits .*: y is failed and has spares"),
        (setting(1, started_s=31.0), "nothing starts later than now, .*: attempt 2 of x .* at 31"),
        (lease_from_before, "leases begin with the attempt: attempt 2 of x .* from before it"),
    ],
)
def test_each_fault_is_named(fault: Fault, law: str) -> None:
    state = sound()
    fault(state.jobs)
    with pytest.raises(BrokenError, match=law):
        laws.check(state)
