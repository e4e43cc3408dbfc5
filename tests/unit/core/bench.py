"""One job on a grid of two sites, driven through the core's door: for the tests of its life."""

import random
from collections.abc import Sequence
from typing import Any

from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.model.action import AnyAction, CloseJob, RenewLease, StopTask
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StopRequested,
    TaskEnded,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Job, JobState, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Why
from gridloom.model.spec import JobSpec, Option, Program

A, B = "a/n0", "b/n0"
STOP = StopRequested(job_id="x")
CANCEL = CancelRequested(job_id="x")
RESUME = ResumeRequested(job_id="x")

GRID = InventoryChanged(
    inventory=Inventory(
        sites=tuple(
            Site(
                name=name,
                kind="local",
                nodes=(Node(name="n0", address="", accelerator="cpu", count=2),),
                price_per_accelerator_hour=900.0,  # a quarter a second
            )
            for name in "ab"
        ),
        currency="EUR",
    )
)


def asks(ranks: int = 4, **more: Any) -> JobSubmitted:
    """Return a job of one task at each of two sites."""
    settings: dict[str, Any] = {"min_sites": 2, "max_sites": 2, "grace_s": 20.0} | more
    spec = JobSpec(
        name="j",
        program=Program(argv=(), workdir="/"),
        options=(Option(accelerator="cpu", plan=ParallelPlan(data=ranks)),),
        **settings,
    )
    return JobSubmitted(job_id="x", spec=spec, submitted_s=1.0)


class Bench:
    """A machine with one job ``x``; laws are checked after every step."""

    def __init__(self, grid: InventoryChanged = GRID, **more: Any) -> None:
        self.machine = Machine()
        self.rng = random.Random(0)
        self.now = 100.0
        self.step(grid, asks(**more))

    def step(self, *events: AnyEvent, after: float = 0.0) -> list[AnyAction]:
        self.now += after
        actions = self.machine.step(events, self.now, self.rng)
        laws.check(self.machine.state)
        return actions

    @property
    def job(self) -> Job:
        return self.machine.state.jobs["x"]

    @property
    def why(self) -> Why | None:
        reason = self.machine.reason("x")
        return reason.code if reason else None

    def about(self, domain: str) -> dict[str, Any]:
        attempt = self.job.attempts[-1]
        ids = {"job_id": "x", "attempt": attempt.number, "epoch": attempt.epoch}
        return ids | {"domain": domain}

    def runs(self, *domains: str) -> list[AnyEvent]:
        return [TaskRunning(**self.about(domain)) for domain in domains]

    def ends(self, code: Why, *domains: str, **more: Any) -> list[AnyEvent]:
        outcome = Outcome(code=code, sentence=f"it {code.value}", remedy="mend it", **more)
        return [TaskEnded(**self.about(domain), outcome=outcome) for domain in domains]

    def fails(self, code: Why, after: float = 0.0) -> list[AnyAction]:
        return self.step(*self.ends(code, A, B), after=after)


def stops(actions: Sequence[AnyAction]) -> list[tuple[str, float, Why]]:
    return [(a.domain, a.grace_s, a.reason.code) for a in actions if isinstance(a, StopTask)]


def closed(actions: Sequence[AnyAction]) -> list[JobState]:
    return [a.state for a in actions if isinstance(a, CloseJob)]


def renewed(actions: Sequence[AnyAction]) -> list[tuple[str, float]]:
    return [(a.domain, a.lease_until_s) for a in actions if isinstance(a, RenewLease)]
