"""Whatever happens, in whatever order and however often, the laws hold and history repeats."""

import hashlib
import os
import random
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gridloom.base.codec import decode, encode
from gridloom.core import laws, order
from gridloom.core.capacity import Capacity
from gridloom.core.fit import ever_fits, survey
from gridloom.core.gang import usable
from gridloom.core.machine import Machine
from gridloom.core.state import State, live_tasks
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, RenewLease, StartAttempt
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    CheckpointSaved,
    InventoryChanged,
    JobSubmitted,
    ResumeRequested,
    StepReported,
    StopRequested,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import OVER, Attempt, Job, JobState, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Budget, JobSpec, Option, Program, RetryPolicy

CODES = (
    Why.COMPLETED,
    Why.EXITED,
    Why.KILLED,
    Why.PEER_LOST,
    Why.SUPERVISOR_LOST,
    Why.CONFIG,
    Why.IO,
    Why.STOP_REQUESTED,
)
KINDS = ("running", "ended", "refused", "ready", "step", "checkpoint")
JOB_IDS = ("e", "c", "a", "d", "b")
TERMS = LeaseTerms()
What = tuple[Why, int]  # a cause, and a training step or rank
DRAIN_ROUNDS_MAX = 300


class Step(msgspec.Struct, frozen=True):
    """One call of the door, as a journal would keep it."""

    events: list[AnyEvent]
    now: float
    seed: int


class Guard:
    """What the outside sees of leases: who may still be running, from facts and grants alone."""

    def __init__(self) -> None:
        self.epoch = 0
        self.attempts: dict[int, tuple[str, int]] = {}
        self.until_s: dict[tuple[int, str], float] = {}
        self.devices: dict[tuple[int, str], tuple[int, ...]] = {}

    def watch(self, events: list[AnyEvent], actions: list[AnyAction], now: float) -> None:
        """See that only what lives is renewed, and that no start meets what may still run."""
        for action in actions:
            if isinstance(action, RenewLease):
                key = (action.epoch, action.domain)
                assert key in self.until_s, "a lease is renewed for a task that had ended"
                assert now < self.until_s[key] + TERMS.kill_margin_s
                self.until_s[key] = action.lease_until_s
        for event in events:
            if isinstance(event, TaskEnded | TaskRefused):
                about = (event.job_id, event.attempt)
                if self.attempts.get(event.epoch) == about:
                    self.until_s.pop((event.epoch, event.domain), None)
        for action in actions:
            if isinstance(action, StartAttempt):
                self._start(action, now)

    def _start(self, start: StartAttempt, now: float) -> None:
        assert start.epoch > self.epoch, "an epoch was given twice"
        self.epoch = start.epoch
        alive = [k for k, until_s in self.until_s.items() if now < until_s + TERMS.kill_margin_s]
        for epoch, domain in alive:
            assert self.attempts[epoch][0] != start.job_id, "two attempts of one job at a time"
            for task in start.placement.tasks:
                if task.domain == domain:
                    assert not set(task.devices) & set(self.devices[epoch, domain])
        self.attempts[start.epoch] = (start.job_id, start.attempt)
        for task in start.placement.tasks:
            self.until_s[start.epoch, task.domain] = start.lease_until_s
            self.devices[start.epoch, task.domain] = task.devices


class Driver:
    """Hands facts to a machine, keeps the history, and checks what must always hold."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.guard = Guard()
        self.now = 0.0
        self.history: list[Step] = []
        self.actions: list[list[AnyAction]] = []

    @property
    def state(self) -> State:
        return self.machine.state

    def step(self, events: list[AnyEvent], now: float, seed: int = 0) -> None:
        self.now = now
        self.history.append(Step(events, now, seed))
        actions = self.machine.step(events, now, random.Random(seed))
        self.actions.append(actions)
        laws.check(self.state)
        self.guard.watch(events, actions, self.state.now_s)
        self.nobody_was_overtaken(actions)
        self.a_step_without_news_changes_nothing()

    def a_step_without_news_changes_nothing(self) -> None:
        before = encode(self.state)
        timer_s = self.machine.next_timer_s()
        assert timer_s is None or timer_s > self.state.now_s
        for machine in (self.machine, Machine(decode(before, State))):
            assert machine.step([], self.state.now_s, random.Random(1)) == []
            assert encode(machine.state) == before
            assert machine.next_timer_s() == timer_s

    def nobody_was_overtaken(self, actions: list[AnyAction]) -> None:
        """No job started on nodes that one before it waits for."""
        if self.state.inventory is None:
            return
        queue = order.in_order(self.state.jobs.values())
        for start in actions:
            if not isinstance(start, StartAttempt):
                continue
            before = queue[: queue.index(self.state.jobs[start.job_id])]
            taken = {task.domain for task in start.placement.tasks}
            for job in order.ready(before, self.state.now_s):
                assert not taken & wanted_nodes(job, self.state.inventory)

    def restart(self) -> None:
        self.machine = Machine(decode(encode(self.state), State))

    def report(self, kind: str, job_id: str, attempt: Attempt, domain: str, what: What) -> AnyEvent:
        about: dict[str, Any] = {
            "job_id": job_id,
            "attempt": attempt.number,
            "epoch": attempt.epoch,
            "domain": domain,
        }
        code, number = what
        match kind:
            case "running":
                return TaskRunning(**about)
            case "ended":
                outcome = Outcome(code=code, sentence=code.value, ended_s=self.now, rank=number)
                return TaskEnded(**about, outcome=outcome)
            case "refused":
                return TaskRefused(**about, reason=Reason(code=code, sentence="no"))
            case "ready":
                return TaskReady(**about, resumed_step=number, notes=(code.value,))
            case "step":
                return StepReported(**about, step=number)
            case _:
                return CheckpointSaved(**about, step=number)

    def of_all_live_tasks(self, kind: str, code: Why = Why.COMPLETED) -> list[AnyEvent]:
        return [
            self.report(kind, job.job_id, job.attempts[-1], task.placement.domain, (code, 1))
            for job in order.holding(self.state.jobs.values())
            for task in live_tasks(job.attempts[-1])
        ]

    def drain(self) -> None:
        """Let everything that runs complete, until nothing runs or could run."""
        for _ in range(DRAIN_ROUNDS_MAX):
            self.step(self.of_all_live_tasks("ended"), self.now)
            timer_s = self.machine.next_timer_s()
            if timer_s is None:
                break
            self.step([], timer_s)
        inventory = self.state.inventory
        for job in self.state.jobs.values():
            stuck = inventory is None or ever_fits(job.spec, inventory) is not None
            assert job.state in OVER or (job.state is JobState.QUEUED and stuck and job.reason)

    def replay(self, pause: int) -> None:
        """Play the history again, through a snapshot taken before step ``pause``."""
        machine = Machine()
        for i, (step, actions) in enumerate(zip(self.history, self.actions, strict=True)):
            if i == pause:
                machine = Machine(decode(encode(machine.state), State))
            again = machine.step(step.events, step.now, random.Random(step.seed))
            assert again == actions
        assert encode(machine.state) == encode(self.state)


def wanted_nodes(job: Job, inventory: Inventory) -> set[str]:
    return {
        f"{free.site.name}/{node.node.name}"
        for option in job.spec.options
        for free in usable(job.spec, option, survey(job.spec, option, inventory, Capacity()).sites)
        for node in free.nodes
    }


PLANS = st.builds(
    ParallelPlan, tensor=st.integers(1, 2), pipeline=st.integers(1, 2), data=st.integers(1, 3)
)
OPTIONS = st.builds(Option, accelerator=st.sampled_from(("cpu", "cpu", "gpu")), plan=PLANS)
SPECS = st.builds(
    JobSpec,
    name=st.just("j"),
    program=st.just(Program(argv=("train",), workdir="/")),
    options=st.lists(OPTIONS, min_size=1, max_size=2).map(tuple),
    sites=st.sampled_from(((), (), ("a",), ("b", "a"), ("c",))),
    min_sites=st.sampled_from((1, 1, 2)),
    max_sites=st.integers(1, 3),
    priority=st.integers(0, 1),
    grace_s=st.sampled_from((0.0, 3.0, 20.0)),
    retry=st.builds(
        RetryPolicy,
        max_restarts=st.integers(0, 3),
        on=st.sampled_from(("lost", "any")),
        backoff_s=st.sampled_from((0.0, 2.0)),
    ),
    budget=st.builds(
        Budget, run_s_max=st.sampled_from((0.0, 12.0)), cost_max=st.sampled_from((0.0, 0.0, 0.02))
    ),
)


def site(name: str, counts: list[int], kind: str = "cpu", price: float = 0.0) -> Site:
    nodes = tuple(
        Node(name=f"n{i}", address=f"{name}{i}", accelerator=kind, count=count)
        for i, count in enumerate(counts)
    )
    return Site(name=name, kind="local", nodes=nodes, price_per_accelerator_hour=price)


GRIDS = (
    Inventory(sites=(site("a", [2, 4]), site("b", [4], price=1.0), site("c", [2, 2], "gpu"))),
    Inventory(sites=(site("b", [4, 1]), site("a", [4]), site("c", [4]))),
    Inventory(sites=(site("a", [2]), site("c", [2, 2], "gpu", price=2.0))),
    Inventory(sites=(site("a", [8]), site("b", [8]))),
)


class Histories(RuleBasedStateMachine):
    """Facts are made, wait in a mailbox, and arrive late, twice and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.mail: list[AnyEvent] = []

    @initialize(
        grid=st.sampled_from((None, *GRIDS)), specs=st.lists(SPECS, max_size=len(JOB_IDS) - 1)
    )
    def start(self, grid: Inventory | None, specs: list[JobSpec]) -> None:
        for job_id, spec in zip(JOB_IDS, specs, strict=False):
            self.submit(job_id, spec)
        arriving = [InventoryChanged(inventory=grid)] if grid else []
        self.driver.step([*arriving, *self.mail], 1.0)

    @rule(job_id=st.sampled_from(JOB_IDS), spec=SPECS)
    def submit(self, job_id: str, spec: JobSpec) -> None:
        self.mail.append(JobSubmitted(job_id=job_id, spec=spec, submitted_s=self.driver.now))

    @rule(grid=st.sampled_from(GRIDS))
    def change_grid(self, grid: Inventory) -> None:
        self.mail.append(InventoryChanged(inventory=grid))

    @rule(
        job_id=st.sampled_from(JOB_IDS),
        request=st.sampled_from((StopRequested, ResumeRequested, CancelRequested)),
    )
    def request(self, job_id: str, request: type[Any]) -> None:
        self.mail.append(request(job_id=job_id))

    @rule(
        data=st.data(),
        kind=st.sampled_from(KINDS),
        code=st.sampled_from(CODES),
        step=st.integers(1, 9),
        wrong=st.sampled_from(
            ({}, {}, {}, {}, {"epoch": 1}, {"attempt": 1}, {"domain": "z/z"}, {"job_id": "a"})
        ),
    )
    def report(
        self, data: st.DataObject, kind: str, code: Why, step: int, wrong: dict[str, Any]
    ) -> None:
        attempts = [
            (job.job_id, attempt)
            for job in order.in_order(self.driver.state.jobs.values())
            for attempt in job.attempts
        ]
        if not attempts:
            return
        job_id, attempt = data.draw(st.sampled_from(attempts))
        domain = data.draw(st.sampled_from([task.domain for task in attempt.placement.tasks]))
        fact = self.driver.report(kind, job_id, attempt, domain, (code, step))
        self.mail.append(msgspec.structs.replace(fact, **wrong))

    @rule(code=st.sampled_from(CODES))
    def end_all(self, code: Why) -> None:
        self.mail.extend(self.driver.of_all_live_tasks("ended", code))

    @rule(later_s=st.sampled_from((0.0, 1.0, 4.0)))
    def beat(self, later_s: float) -> None:
        self.driver.step(self.driver.of_all_live_tasks("running"), self.driver.now + later_s)

    @rule(
        data=st.data(),
        later_s=st.sampled_from((0.0, 0.5, 3.0, 7.0, 11.0, 100.0, -20.0)),
        seed=st.integers(0, 9),
    )
    def deliver(self, data: st.DataObject, later_s: float, seed: int) -> None:
        arriving = data.draw(st.permutations(self.mail))
        kept = data.draw(st.integers(0, len(arriving)))
        self.mail = arriving[:kept]
        twice = arriving[-1:] if data.draw(st.booleans()) else []
        self.driver.step(arriving[kept:] + twice, self.driver.now + later_s, seed)

    @rule()
    def wait_for_the_timer(self) -> None:
        timer_s = self.driver.machine.next_timer_s()
        if timer_s is not None:
            self.driver.step([], timer_s)

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    def teardown(self) -> None:
        self.driver.step(self.mail, self.driver.now)
        self.driver.drain()
        self.driver.replay(pause=-1)
        self.driver.replay(pause=len(self.driver.history) // 2)


TestHistories = Histories.TestCase


# --- the same in every process

REPLAY = """
import hashlib, random, sys
from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.model.event import AnyEvent
machine, actions = Machine(), []
for events, now, seed in decode(sys.stdin.buffer.read(), list[tuple[list[AnyEvent], float, int]]):
    actions.append(machine.step(events, now, random.Random(seed)))
print(hashlib.sha256(encode(actions) + encode(machine.state)).hexdigest())
"""


def spec_by_chance(rng: random.Random) -> JobSpec:
    plan = ParallelPlan(tensor=rng.choice((1, 2)), data=rng.choice((1, 2, 3)))
    return JobSpec(
        name="j",
        program=Program(argv=("train",), workdir="/", env={"B": "1", "A": "2"}),
        options=(Option(accelerator=rng.choice(("cpu", "gpu")), plan=plan),),
        max_sites=rng.choice((1, 2)),
        priority=rng.choice((0, 1)),
    )


def history_by_chance(rng: random.Random) -> Driver:
    """Return a driver after 120 steps in which jobs come, run, fail and end by chance."""
    driver = Driver()
    for number in range(120):
        events = driver.of_all_live_tasks("running")
        if number % 30 == 1:
            events.append(InventoryChanged(inventory=rng.choice(GRIDS)))
        if rng.random() < 0.4:
            events.append(
                JobSubmitted(
                    job_id=f"{rng.choice('xyz')}{number}",
                    spec=spec_by_chance(rng),
                    submitted_s=driver.now,
                )
            )
        if rng.random() < 0.5:
            events.extend(driver.of_all_live_tasks("ended", rng.choice(CODES))[:3])
        driver.step(events, driver.now + rng.choice((0.5, 2.0, 9.0)), number)
    return driver


@pytest.mark.parametrize("seed", [1, 2])
def test_every_process_decides_alike(seed: int) -> None:
    driver = history_by_chance(random.Random(seed))
    assert sum(len(job.attempts) for job in driver.state.jobs.values()) > 10
    history = encode([(step.events, step.now, step.seed) for step in driver.history])
    want = hashlib.sha256(encode(driver.actions) + encode(driver.state)).hexdigest()
    for hash_seed in ("0", "1"):
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", REPLAY]
        run = subprocess.run(command, input=history, env=env, capture_output=True, check=True)
        assert run.stdout.decode().strip() == want
