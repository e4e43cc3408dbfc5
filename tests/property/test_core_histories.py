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
from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.core import laws, order
from gridloom.core.dependencies import unmet_dependencies
from gridloom.core.explain import ever_fits
from gridloom.core.gang import Finder
from gridloom.core.index import Index
from gridloom.core.machine import Machine
from gridloom.core.state import State, live_tasks
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, RenewLease, StartAttempt
from gridloom.model.booking import Booking
from gridloom.model.event import (
    AnyEvent,
    BookingDropped,
    BookingMade,
    CancelRequested,
    CheckpointSaved,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    ResumeRequested,
    SignalChanged,
    StepReported,
    StopRequested,
    TaskArrived,
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import OVER, Arrival, Attempt, Job, JobState, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Policy, Preemption, Weights
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import (
    Budget,
    Dependency,
    Forecast,
    GroupNeed,
    JobSpec,
    Option,
    Program,
    RetryPolicy,
    Speed,
)

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
KINDS = ("waiting", "arrived", "running", "ended", "refused", "ready", "step", "checkpoint")
MARKS = ("", "", "cordon", "drain", "taint", "lost")
DOMAINS = ("a/n0", "a/n1", "a/n2", "b/n0", "c/n0", "a", "b", "z/z")
JOB_IDS = ("e", "c", "a", "d", "b")
TERMS = LeaseTerms()
What = tuple[Why, int]  # a cause, and a training step or rank
DRAIN_ROUNDS_MAX = 300
MAIL_MAX = 3


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
            for key in self._ended(event):
                self.until_s.pop(key, None)
        for action in actions:
            if isinstance(action, StartAttempt):
                self._start(action, now)

    def _ended(self, event: AnyEvent) -> list[tuple[int, str]]:
        """Return the tasks that surely run no more, as the fact says."""
        if isinstance(event, TaskEnded | TaskRefused):
            told = self.attempts.get(event.epoch) == (event.job_id, event.attempt)
            return [(event.epoch, event.domain)] if told else []
        if isinstance(event, NodeMarked) and event.mark == "lost":
            return [k for k in self.until_s if event.domain in (k[1], k[1].split("/")[0])]
        return []

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


def copied(state: State) -> State:
    """Return the state as a snapshot of it gives it back."""
    return decode(encode(state), State)


def derived(index: Index) -> dict[str, object]:
    """Return all numbers of an index, in a form that can be compared."""
    capacity, ledger = index.capacity, index.ledger
    inventory = index.state.inventory or Inventory(sites=())
    queues = ["", *(queue.name for queue in inventory.queues), "x", "y", "gone"]
    resources = {name for node in index.tree.nodes for name in node.resources}
    return {
        "free": capacity.free.tolist(),
        "total": capacity.total,
        "available": capacity.available.tolist(),
        "open": capacity.openings().tolist(),
        "host": {name: capacity.host(name).tolist() for name in sorted(resources)},
        "keeps": {
            job_id: [part.tolist() for part in capacity.kept(job_id) or ()]
            for job_id in sorted(capacity.keepers())
        },
        "holdings": [
            (job_id, held.units.tolist(), held.devices.tolist(), held.bits, held.ranks.tolist())
            for job_id, held in index.holdings.items()
        ],
        "use": {
            (queue, kind): ledger.use(queue, kind) for queue in queues for kind in ("cpu", "gpu")
        },
        "shares": {queue: ledger.path_share(queue) for queue in queues},
        "waiting": sorted(
            (bucket.queue, [job.job_id for _, job in bucket.jobs()])
            for bucket in index.buckets.values()
            if len(bucket)
        ),
        "prices": index.ranker.prices,
        "strict": index.strict,
        "ends": index.ends,
        "running_at": index.running_at,
    }


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
        rebuilt = Machine(copied(self.state))
        actions = self.machine.step(events, now, random.Random(seed))
        self.actions.append(actions)
        laws.check(self.state)
        self.guard.watch(events, actions, self.state.now_s)
        # By induction: a machine rebuilt at any moment goes on as this one does
        assert rebuilt.step(events, now, random.Random(seed)) == actions
        assert encode(rebuilt.state) == encode(self.state)
        self.what_is_derived_follows_from_the_state()
        self.nobody_was_overtaken(actions)
        self.nothing_is_left_idle_that_somebody_could_have()
        self.a_step_without_news_changes_nothing()
        self.nothing_is_due_before_the_timer()
        self.whoever_waits_is_told_why()

    def what_is_derived_follows_from_the_state(self) -> None:
        fresh = derived(Index(copied(self.state)))
        for name, numbers in derived(self.machine.index).items():
            assert numbers == fresh[name], name

    def a_step_without_news_changes_nothing(self) -> None:
        before = encode(self.state)
        for machine in (self.machine, Machine(decode(before, State))):
            assert machine.step([], self.state.now_s, random.Random(1)) == []
            assert encode(machine.state) == before

    def nothing_is_due_before_the_timer(self) -> None:
        """Whoever is called only when told to misses nothing: not even what time alone allows."""
        timer_s, now = self.machine.next_timer_s(), self.state.now_s
        assert timer_s is None or timer_s > now
        asleep = Machine(copied(self.state))
        later_s = now + 1000.0 if timer_s is None else (now + timer_s) / 2
        assert asleep.step([], later_s, random.Random(1)) == []

    def whoever_waits_is_told_why(self) -> None:
        before = encode(self.state)
        rebuilt = Machine(decode(before, State))
        for job in order.queued(self.state.jobs.values()):
            reason = self.machine.reason(job.job_id)
            assert reason is not None, job.job_id
            assert reason.sentence
            assert reason == rebuilt.reason(job.job_id)
        assert encode(self.state) == before

    def nobody_was_overtaken(self, actions: list[AnyAction]) -> None:
        """Where a blocked job stops all, none behind it started."""
        inventory = self.state.inventory
        if inventory is None or inventory.queues or inventory.policy.preemption.priority:
            return
        policy, index, now = inventory.policy, self.machine.index, self.state.now_s
        if policy.order not in {"submit", "duration"} or policy.blocked != "stop":
            return
        for start in actions:
            if not isinstance(start, StartAttempt):
                continue
            started = self.state.jobs[start.job_id]
            if self.was_reserved(started, start):
                continue
            for job in self.state.jobs.values():
                bucket = index.bucket(job)
                if bucket is None or order.key(job, policy, now) > order.key(started, policy, now):
                    continue
                assert not bucket.shape.possible

    def was_reserved(self, job: Job, start: StartAttempt) -> bool:
        """Return whether the job came back to the places that were kept for it."""
        before = job.attempts[-2].placement if len(job.attempts) > 1 else None
        placed = start.placement
        return before is not None and [task.domain for task in before.tasks] == [
            task.domain for task in placed.tasks
        ]

    def nothing_is_left_idle_that_somebody_could_have(self) -> None:
        """Where jobs may pass each other and nothing limits a queue, whoever fits has started."""
        inventory = self.state.inventory
        if inventory is None or inventory.queues or self.state.bookings:
            return
        if inventory.policy.blocked != "skip":
            return
        index = self.machine.index
        for job in self.state.jobs.values():
            bucket = index.bucket(job)
            known = index.ledger.known(job.spec.queue)
            for demand in bucket.shape.possible if bucket and known else ():
                available = index.capacity.available_to(job.job_id)
                assert not Finder(demand, index.capacity, available).fits(), job.job_id

    def restart(self) -> None:
        self.machine = Machine(copied(self.state))

    def report(self, kind: str, job_id: str, attempt: Attempt, domain: str, what: What) -> AnyEvent:
        about: dict[str, Any] = {
            "job_id": job_id,
            "attempt": attempt.number,
            "epoch": attempt.epoch,
            "domain": domain,
        }
        code, number = what
        match kind:
            case "waiting":
                return TaskWaiting(**about, sentence="Priority", expected_s=float(number))
            case "arrived":
                return TaskArrived(**about, arrival=Arrival(node=f"n{number}", address="n"))
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
        well = [NodeMarked(domain=domain, mark="") for domain in sorted(self.state.marks)]
        free = [BookingDropped(name=name) for name in sorted(self.state.bookings)]
        self.step([*well, *free], self.now)
        for _ in range(DRAIN_ROUNDS_MAX):
            self.step(self.of_all_live_tasks("ended"), self.now)
            timer_s = self.machine.next_timer_s()
            if timer_s is None:
                break
            self.step([], timer_s)
        for job in self.state.jobs.values():
            assert job.state in OVER or (job.state is JobState.QUEUED and self.is_stuck(job))

    def is_stuck(self, job: Job) -> bool:
        """Return whether a job cannot run on the grid as it is, or waits for one that cannot.

        One that was stopped goes on only when it is resumed.
        """
        if job.state is JobState.STOPPED:
            return True
        inventory = self.state.inventory
        if inventory is None or ever_fits(job.spec, inventory) is not None:
            return True
        jobs = self.state.jobs
        if any(self.is_stuck(jobs[other]) for other in unmet_dependencies(self.state, job)):
            return True
        strict = {queue.name for queue in inventory.queues if queue.order == "strict"}
        return job.spec.queue in strict and any(
            other.state is JobState.QUEUED
            and other.spec.queue == job.spec.queue
            and self.key(other) < self.key(job)
            and self.is_stuck(other)
            for other in jobs.values()
        )

    def key(self, job: Job) -> order.Key:
        return order.key(job, self.machine.index.policy, self.state.now_s)

    def replay(self, pause: int) -> None:
        """Play the history again, through a snapshot taken before step ``pause``."""
        machine = Machine()
        for i, (step, actions) in enumerate(zip(self.history, self.actions, strict=True)):
            if i == pause:
                machine = Machine(copied(machine.state))
            again = machine.step(step.events, step.now, random.Random(step.seed))
            assert again == actions
        assert encode(machine.state) == encode(self.state)


# --- what is drawn


LEVELS = ("island", "node", "rack", "site")


def site(name: str, counts: list[int], kind: str = "cpu", **more: Any) -> Site:
    racks = more.pop("racks", None)
    nodes = tuple(
        Node(
            name=f"n{i}",
            address=f"{name}{i}",
            accelerator=kind,
            count=count,
            island=2 if i == 1 else 0,
            path=(racks[i],) if racks else (),
            labels={"disk": "nvme"} if i else {},
            resources={"cpus": 5},
        )
        for i, count in enumerate(counts)
    )
    levels = ("rack",) if racks else ()
    return Site(name=name, kind="local", nodes=nodes, levels=levels, **more)


SITES = (
    (
        site("a", [2, 4, 2], racks="pqp"),
        site("b", [4], price_per_accelerator_hour=1.0),
        site("c", [2, 2], "gpu"),
    ),
    (site("b", [4, 1]), site("a", [4], queues=("x", "")), site("c", [4])),
    (site("a", [2]), site("c", [2, 2], "gpu", price_per_accelerator_hour=2.0)),
    (site("a", [8]), site("b", [4, 4], racks="pq", carbon_g_per_kwh=9.0)),
)
QUEUES: tuple[tuple[tuple[Queue, ...], tuple[Cohort, ...]], ...] = (
    ((), ()),
    ((Queue(name="x", order="strict"), Queue(name="y", weight=2.0)), ()),
    (
        (
            Queue(name="x", cohort="all", nominal={"cpu": 4, "gpu": 2}),
            Queue(name="y", cohort="all", nominal={"cpu": 2}, borrow_max={"cpu": 4}),
        ),
        (Cohort(name="all", nominal={"cpu": 2}),),
    ),
    (
        (
            Queue(name="x", cohort="all", nominal={"cpu": 6}, reclaim=False),
            Queue(name="y", cohort="all", nominal={"cpu": 2, "gpu": 4}, lend_max={"cpu": 0}),
        ),
        (Cohort(name="all"),),
    ),
)


def option_by_chance(rng: random.Random) -> Option:
    plan = ParallelPlan(
        tensor=rng.randint(1, 2), pipeline=rng.choice((1, 1, 2)), data=rng.randint(1, 3)
    )
    sizes = sorted({plan.tensor, plan.replica_ranks, plan.world_size})
    groups = [
        GroupNeed(ranks=ranks, level=rng.choice(LEVELS), required=rng.random() < 0.4)
        for ranks in rng.sample(sizes, rng.choice((0, 0, 1)))
    ]
    speeds = (
        Speed(level="node", step_s=1.0),
        Speed(level="rack", step_s=1.5, replica="node"),
        Speed(level="site", step_s=2.0),
    )
    return Option(
        accelerator=rng.choice(("cpu", "cpu", "gpu")),
        plan=plan,
        step_s=rng.choice((0.0, 3.0)),
        groups=tuple(groups),
        speeds=rng.choice(((), (), speeds)),
        rank_resources=rng.choice(((), (), (("cpus", 2),))),
    )


def spec_by_chance(rng: random.Random) -> JobSpec:
    return JobSpec(
        name="j",
        program=Program(argv=("train",), workdir="/", env={"B": "1", "A": "2"}),
        options=tuple(option_by_chance(rng) for _ in range(rng.choice((1, 1, 2)))),
        sites=rng.choice(((), (), (), ("a",), ("b", "a"))),
        min_sites=rng.choice((1, 1, 1, 2)),
        max_sites=rng.randint(1, 3),
        priority=rng.randint(0, 1),
        grace_s=rng.choice((0.0, 3.0, 20.0)),
        retry=RetryPolicy(
            max_restarts=rng.randint(0, 3),
            on=rng.choice(("lost", "any")),
            backoff_s=rng.choice((0.0, 2.0)),
        ),
        budget=Budget(
            run_s_max=rng.choice((0.0, 0.0, 12.0)), cost_max=rng.choice((0.0, 0.0, 0.02))
        ),
        forecast=Forecast(
            duration_s=rng.choice((0.0, 8.0, 30.0)),
            spread=rng.choice((0.0, 0.5)),
            checkpoint_s=rng.choice((0.0, 5.0)),
            restart_s=rng.choice((0.0, 1.0)),
        ),
        queue=rng.choice(("", "", "x", "y")),
        deadline_s=rng.choice((0.0, 50.0)),
        preemptible=rng.random() < 0.7,
        labels=rng.choice(({}, {}, {}, {"disk": "nvme"})),
        ranks_per_node_max=rng.choice((0, 0, 2)),
        data_sites=rng.choice(((), ("a",))),
        data_required=rng.random() < 0.2,
    )


def grid_by_chance(rng: random.Random) -> Inventory:
    queues, cohorts = rng.choice(QUEUES)
    policy = Policy(
        order=rng.choice(("submit", "duration", "remaining", "attained", "share", "deadline")),
        blocked=rng.choice(("stop", "skip", "hold", "easy", "conservative")),
        patience_s=rng.choice((0.0, 0.0, 5.0)),
        preemption=Preemption(
            priority=rng.random() < 0.5,
            order=rng.random() < 0.5,
            min_run_s=rng.choice((0.0, 3.0)),
            cooldown_s=rng.choice((0.0, 10.0)),
        ),
        weights=Weights(fragmentation=rng.choice((0.0, 1.0)), carbon=1.0),
        ageing_per_hour=rng.choice((0.0, 600.0)),
        attained_steps_s=(10.0, 40.0),
        slot_hold_s=rng.choice((0.0, 6.0)),
        failures_max=rng.choice((0, 2)),
    )
    return Inventory(sites=rng.choice(SITES), queues=queues, cohorts=cohorts, policy=policy)


SEEDS = st.integers(0, 2**32)
SPECS = SEEDS.map(lambda seed: spec_by_chance(random.Random(seed)))
INVENTORIES = SEEDS.map(lambda seed: grid_by_chance(random.Random(seed)))


class Histories(RuleBasedStateMachine):
    """Facts are made, wait in a mailbox, and arrive late, twice and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.mail: list[AnyEvent] = []

    @initialize(grid=st.none() | INVENTORIES, specs=st.lists(SPECS, max_size=len(JOB_IDS) - 1))
    def start(self, grid: Inventory | None, specs: list[JobSpec]) -> None:
        for job_id, spec in zip(JOB_IDS, specs, strict=False):
            self.submit(job_id, spec, None)
        arriving = [InventoryChanged(inventory=grid)] if grid else []
        self.driver.step([*arriving, *self.mail], 1.0)

    def post(self, *events: AnyEvent) -> None:
        """Put facts into the mailbox, which is emptied when it is full."""
        self.mail.extend(events)
        if len(self.mail) >= MAIL_MAX and self.driver.history:
            arriving, self.mail = self.mail, []
            self.driver.step(arriving, self.driver.now + 1.0)

    @rule(
        job_id=st.sampled_from(JOB_IDS),
        spec=SPECS,
        after=st.none()
        | st.builds(
            Dependency,
            job_id=st.sampled_from(JOB_IDS),
            kind=st.sampled_from(("afterok", "afterany", "afternotok", "after")),
        ),
    )
    def submit(self, job_id: str, spec: JobSpec, after: Dependency | None) -> None:
        # Whoever takes jobs in sees to it that the others are known before
        if after is not None and after.job_id in self.driver.state.jobs:
            spec = replace(spec, after=(after,))
        self.post(JobSubmitted(job_id=job_id, spec=spec, submitted_s=self.driver.now))

    @rule(grid=INVENTORIES)
    def change_grid(self, grid: Inventory) -> None:
        self.post(InventoryChanged(inventory=grid))

    @rule(
        job_id=st.sampled_from(JOB_IDS),
        request=st.sampled_from((StopRequested, ResumeRequested, CancelRequested, EvictRequested)),
    )
    def request(self, job_id: str, request: type[Any]) -> None:
        self.post(request(job_id=job_id))

    @rule(domain=st.sampled_from(DOMAINS), mark=st.sampled_from(MARKS))
    def mark(self, domain: str, mark: Any) -> None:
        self.post(NodeMarked(domain=domain, mark=mark, sentence="smoke" if mark else ""))

    @rule(
        name=st.sampled_from("pq"),
        domain=st.sampled_from(DOMAINS),
        in_s=st.sampled_from((0.0, 4.0, 20.0)),
        for_s=st.sampled_from((0.0, 5.0, 50.0)),
        queues=st.sampled_from(((), ("x",))),
    )
    def book(
        self, name: str, domain: str, in_s: float, for_s: float, queues: tuple[str, ...]
    ) -> None:
        start_s = self.driver.now + in_s
        booking = Booking(
            name=name, start_s=start_s, end_s=start_s + for_s, nodes=(domain,), queues=queues
        )
        made = BookingMade(booking=booking)
        self.post(made if for_s else BookingDropped(name=name))

    @rule(
        site=st.sampled_from("abz"),
        price=st.sampled_from((None, 0.0, 3.0)),
        carbon=st.sampled_from((None, 100.0)),
    )
    def signal(self, site: str, price: float | None, carbon: float | None) -> None:
        self.post(
            SignalChanged(site=site, price_per_accelerator_hour=price, carbon_g_per_kwh=carbon)
        )

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
        self.post(msgspec.structs.replace(fact, **wrong))

    @rule(code=st.sampled_from(CODES))
    def end_all(self, code: Why) -> None:
        self.post(*self.driver.of_all_live_tasks("ended", code))

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


def fact_by_chance(rng: random.Random, driver: Driver, number: int) -> AnyEvent:
    domain = rng.choice(DOMAINS)
    match rng.randrange(4):
        case 0:
            mark: Any = rng.choice(("", "cordon", "drain", "taint", "lost"))
            return NodeMarked(domain=domain, mark=mark)
        case 1:
            start_s = driver.now + rng.choice((0.0, 9.0))
            booking = Booking(name="p", start_s=start_s, end_s=start_s + 9.0, nodes=(domain,))
            return BookingMade(booking=booking)
        case 2:
            return SignalChanged(site="a", price_per_accelerator_hour=rng.random())
        case _:
            return EvictRequested(job_id=f"{rng.choice('xyz')}{number - 3}")


def history_by_chance(rng: random.Random) -> Driver:
    """Return a driver after 120 steps in which jobs come, run, fail and end by chance."""
    driver = Driver()
    for number in range(120):
        events = driver.of_all_live_tasks("running")
        if number % 30 == 1:
            events.append(InventoryChanged(inventory=grid_by_chance(rng)))
        if rng.random() < 0.4:
            events.append(
                JobSubmitted(
                    job_id=f"{rng.choice('xyz')}{number}",
                    spec=spec_by_chance(rng),
                    submitted_s=driver.now,
                )
            )
        if rng.random() < 0.3:
            events.append(fact_by_chance(rng, driver, number))
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
