"""A world by chance for the laws of the core: grids, jobs, and all that may happen to them."""

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gridloom.base.codec import decode, encode
from gridloom.core.explain import ever_fits
from gridloom.core.laws_step import Laws, StepLaws
from gridloom.core.machine import Machine
from gridloom.core.state import State, live_tasks
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction
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
    TaskEnded,
    TaskReady,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import HOLDING, OVER, Attempt, Job, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import POLICIES, Policy, Preemption, combined
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

LIVE_MAX = 14
"""Jobs that wait or run, at most: more of them make a step slow and teach nothing new."""

FAILURES = (
    Why.EXITED,
    Why.KILLED,
    Why.PEER_LOST,
    Why.SUPERVISOR_LOST,
    Why.CONFIG,
    Why.STOP_REQUESTED,
)
LEVELS: tuple[tuple[str, ...], ...] = ((), ("rack",), ("spine", "rack"))
NAMES = (*POLICIES, *(name for name in POLICIES if POLICIES[name].preemption.order))
QUEUES: tuple[tuple[tuple[Queue, ...], tuple[Cohort, ...]], ...] = (
    ((), ()),
    ((), ()),
    ((Queue(name="x", order="strict"), Queue(name="y", weight=2.0)), ()),
    (
        (
            Queue(name="x", cohort="all", nominal={"cpu": 6, "gpu": 4}),
            Queue(name="y", cohort="all", nominal={"cpu": 2}, borrow_max={"cpu": 4}),
        ),
        (Cohort(name="all", nominal={"cpu": 2}),),
    ),
    (
        (
            Queue(name="x", cohort="left", nominal={"cpu": 4}, accelerator_hours=0.2),
            Queue(name="y", cohort="right", nominal={"cpu": 4, "gpu": 4}, lend_max={"cpu": 2}),
        ),
        (
            Cohort(name="left", parent="top"),
            Cohort(name="right", parent="top", borrow_max={"cpu": 3}),
            Cohort(name="top", nominal={"cpu": 4, "gpu": 4}),
        ),
    ),
)


def site_by_chance(rng: random.Random, name: str) -> Site:
    levels = rng.choice(LEVELS)
    kind = rng.choice(("cpu", "cpu", "cpu", "gpu"))
    count = rng.choice((2, 4, 4, 8))
    nodes = tuple(
        Node(
            name=f"n{number}",
            address=f"{name}{number}",
            accelerator=kind,
            count=count if rng.random() < 0.8 else rng.choice((1, 3)),
            island=rng.choice((0, 0, 2)),
            memory_bytes=rng.choice((0, 0, 40)),
            path=tuple(f"{level}{rng.randrange(2)}" for level in levels),
            labels=rng.choice(({}, {"disk": "nvme"})),
            resources={"cpus": 6},
        )
        for number in range(rng.randint(1, 4))
    )
    return Site(
        name=name,
        kind="local",
        nodes=nodes,
        levels=levels,
        queues=rng.choice(((), (), (), ("x", ""))),
        price_per_accelerator_hour=rng.choice((0.0, 1.0, 3.0)),
        carbon_g_per_kwh=rng.choice((0.0, 200.0)),
    )


def policy_by_chance(rng: random.Random) -> Policy:
    words = [rng.choice(NAMES)]
    words += [word for word in ("elastic", "defragment") if rng.random() < 0.35]
    policy = combined("+".join(words))
    preemption = Preemption(
        priority=rng.random() < 0.8,
        reclaim=rng.random() < 0.8,
        order=policy.preemption.order or rng.random() < 0.1,
        min_run_s=rng.choice((0.0, 0.0, 5.0)),
        cooldown_s=rng.choice((0.0, 20.0, 600.0)),
    )
    return replace(
        policy,
        order=rng.choice((policy.order, policy.order, policy.order, "deadline")),
        preemption=preemption,
        patience_s=rng.choice((0.0, 10.0)),
        promises_max=rng.choice((3, 256)),
        ageing_per_hour=rng.choice((0.0, 0.0, 600.0)),
        attained_steps_s=(20.0, 100.0),
        resize_s_min=rng.choice((0.0, 10.0)),
        slot_hold_s=rng.choice((0.0, 15.0)),
        failures_max=rng.choice((0, 2)),
        taint_s=30.0,
    )


def grid_by_chance(rng: random.Random) -> Inventory:
    queues, cohorts = rng.choice(QUEUES)
    sites = tuple(site_by_chance(rng, name) for name in "abc"[: rng.choice((1, 1, 2, 3))])
    return Inventory(sites=sites, queues=queues, cohorts=cohorts, policy=policy_by_chance(rng))


def options_by_chance(rng: random.Random, *, elastic: bool) -> tuple[Option, ...]:
    tensor, pipeline = rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2))
    kind = rng.choice(("cpu", "cpu", "cpu", "gpu"))
    most = rng.choice((1, 1, 2, 2, 4))
    sizes = [most] if not elastic else [n for n in (4, 2, 1) if n <= most * 2]
    level = rng.choice(("island", "node", "rack", "spine", "site"))
    required, whole = rng.random() < 0.5, rng.random() < 0.5
    grouped = rng.random() < 0.35
    speeds = (
        Speed(level="node", step_s=1.0),
        Speed(level="rack", step_s=1.5, replica="node"),
        Speed(level="site", step_s=2.0),
    )
    fast = rng.choice((0.0, 1.0, 3.0))
    told = rng.choice(((), (), speeds))
    resources = rng.choice(((), (), (("cpus", 2),)))
    per_rank = rng.choice((1, 1, 1, 2))
    memory = rng.choice((0, 0, 50))
    made = []
    for data in sizes:
        plan = ParallelPlan(tensor=tensor, pipeline=pipeline, data=data)
        ranks = plan.world_size if whole else plan.replica_ranks
        need = GroupNeed(ranks=ranks, level=level, required=required)
        made.append(
            Option(
                accelerator=kind,
                plan=plan,
                memory_bytes=memory,
                step_s=fast * sizes[0] / data,
                groups=(need,) if grouped else (),
                speeds=told if len(sizes) == 1 else (),
                rank_devices=per_rank,
                rank_resources=resources,
            )
        )
    return tuple(made)


def spec_by_chance(rng: random.Random, now: float) -> JobSpec:
    elastic = rng.random() < 0.3
    return JobSpec(
        name="j",
        program=Program(argv=("train",), workdir="/"),
        options=options_by_chance(rng, elastic=elastic),
        sites=rng.choice(((), (), (), ("a",), ("b", "a"))),
        min_sites=rng.choice((1, 1, 1, 1, 2)),
        max_sites=rng.choice((1, 2, 2)) if rng.random() < 0.5 else 3,
        priority=rng.choice((0, 0, 0, 1, 2)),
        grace_s=rng.choice((0.0, 3.0, 20.0)),
        retry=RetryPolicy(
            max_restarts=rng.randint(0, 3),
            on=rng.choice(("lost", "any")),
            backoff_s=rng.choice((0.0, 2.0)),
        ),
        budget=Budget(
            run_s_max=rng.choice((0.0, 0.0, 0.0, 60.0)),
            cost_max=rng.choice((0.0, 0.0, 0.0, 0.05)),
        ),
        forecast=Forecast(
            duration_s=rng.choice((0.0, 10.0, 30.0, 120.0)),
            spread=rng.choice((0.0, 0.0, 0.5)),
            checkpoint_s=rng.choice((0.0, 2.0)),
            restart_s=rng.choice((0.0, 1.0)),
        ),
        queue=rng.choice(("", "", "x", "y", "y")),
        deadline_s=rng.choice((0.0, 0.0, now + 60.0)),
        elastic=elastic,
        preemptible=rng.random() < 0.85,
        spares=rng.choice((0, 0, 0, 0, 1)),
        on_loss=rng.choice(("restart", "restart", "shrink", "wait")),
        nodes=rng.choice(((), (), (), (), ("a/n0", "a/n1"))),
        labels=rng.choice(({}, {}, {}, {"disk": "nvme"})),
        ranks_per_node_max=rng.choice((0, 0, 0, 2)),
        data_sites=rng.choice(((), (), ("a",))),
        data_required=rng.random() < 0.2,
    )


class World:
    """A machine, what runs in it, and the laws after each step."""

    def __init__(self, grid: Inventory | None, *, mode: Any = "full") -> None:
        self.terms = LeaseTerms(lease_s=30.0, kill_margin_s=4.0)
        self.machine = Machine(terms=self.terms)
        self.laws = self._watch(mode)
        self.mode = mode
        self.now, self.steps, self.count = 100.0, 0, 0
        self.history: list[tuple[list[AnyEvent], float, int]] = []
        self.actions: list[list[AnyAction]] = []
        if grid is not None:
            self.step([InventoryChanged(inventory=grid)])

    @property
    def state(self) -> State:
        return self.machine.state

    def _watch(self, mode: Any) -> Laws:
        laws = Laws(mode, self.machine)
        laws._steps = StepLaws(self.machine, reason_every=5)
        return laws

    def step(self, events: Sequence[AnyEvent], later_s: float = 0.0) -> list[AnyAction]:
        self.now = max(self.now + later_s, self.state.now_s)
        self.steps += 1
        given = list(events)
        actions = self.machine.step(given, self.now, random.Random(self.steps))
        self.history.append((given, self.now, self.steps))
        self.actions.append(actions)
        self.laws.observe(given, actions, self.now)
        return actions

    def restart(self) -> None:
        """Go on with a machine that was read back from a snapshot."""
        self.machine = Machine(decode(encode(self.state), State), self.terms)
        self.laws = self._watch(self.mode)

    # --- what happens

    def submit(self, rng: random.Random) -> None:
        """Let jobs come: one, or an array of three."""
        alive = sum(job.state not in OVER for job in self.state.jobs.values())
        if alive >= LIVE_MAX:
            self.end(rng)
            return
        spec = spec_by_chance(rng, self.now)
        for _ in range(4):  # most of what is drawn fits no grid at all, which is soon told
            if self.state.inventory is None or ever_fits(spec, self.state.inventory) is None:
                break
            spec = spec_by_chance(rng, self.now)
        known = sorted(self.state.jobs)[-8:]
        if known and rng.random() < 0.15:
            kind: Any = rng.choice(("afterok", "afterany", "afternotok", "after"))
            spec = replace(spec, after=(Dependency(job_id=rng.choice(known), kind=kind),))
        events: list[AnyEvent] = []
        for part in range(rng.choice((1, 1, 1, 3))):
            job_id = f"j{self.count}-{part}"
            events.append(JobSubmitted(job_id=job_id, spec=spec, submitted_s=self.now))
        self.count += 1
        self.step(events, rng.choice((0.0, 1.0)))

    def beat(self, rng: random.Random) -> None:
        """Let all tasks give a sign of life, or all but those of one job."""
        silent = rng.choice([job.job_id for job in self.holding()] or [""])
        spared = silent if rng.random() < 0.1 else ""
        self.step(
            [
                TaskRunning(**self.about(job, domain))
                for job in self.holding()
                if job.job_id != spared
                for domain in live_domains(job)
            ],
            rng.choice((1.0, 5.0, 20.0)),
        )

    def end(self, rng: random.Random) -> None:
        """Let one attempt end: well, badly, or one task of it only."""
        if (job := self.one(rng)) is None:
            self.step([], 1.0)
            return
        domains = live_domains(job)
        if rng.random() < 0.15:
            domains = [rng.choice(domains)]
        code = Why.COMPLETED if rng.random() < 0.6 else rng.choice(FAILURES)
        outcome = Outcome(code=code, sentence=code.value, ended_s=self.now)
        self.step([TaskEnded(**self.about(job, d), outcome=outcome) for d in domains], 0.5)

    def leave(self, rng: random.Random) -> None:
        """Let those who were told to stop be gone."""
        outcome = Outcome(code=Why.STOP_REQUESTED, sentence="stopped", ended_s=self.now)
        stopping = [job for job in self.holding() if job.attempts[-1].stop_sent]
        told = stopping[: rng.randint(1, 3)]
        self.step(
            [
                TaskEnded(**self.about(job, domain), outcome=outcome)
                for job in told
                for domain in live_domains(job)
            ],
            rng.choice((0.0, 2.0)),
        )

    def report(self, rng: random.Random) -> None:
        """Let a task be refused or ready, tell of a training step or of a checkpoint."""
        if (job := self.one(rng)) is None:
            self.step([], 1.0)
            return
        about = self.about(job, rng.choice(live_domains(job)))
        kind, step = rng.randrange(8), rng.randint(1, 9)
        event: AnyEvent
        if kind == 0:
            event = TaskRefused(**about, reason=Reason(code=Why.IN_USE, sentence="no"))
        elif kind < 4:
            step = job.checkpoint_step
            event = TaskReady(**about, resumed_step=step, independent_sites=rng.random() < 0.7)
        elif kind == 4:
            event = StepReported(**about, step=step)
        else:
            event = CheckpointSaved(**about, step=step)
        self.step([event], 1.0)

    def mark(self, rng: random.Random) -> None:
        """Let a node or a site be marked, or be well again."""
        marked = sorted(self.state.marks)
        if marked and rng.random() < 0.6:
            self.step([NodeMarked(domain=rng.choice(marked), mark="")], 1.0)
            return
        mark: Any = rng.choice(("cordon", "drain", "taint", "lost"))
        self.step([NodeMarked(domain=self.domain(rng), mark=mark, sentence="smoke")], 1.0)

    def book(self, rng: random.Random) -> None:
        """Book a node or a site, or drop a booking."""
        name = rng.choice("pq")
        if name in self.state.bookings and rng.random() < 0.6:
            self.step([BookingDropped(name=name)], 1.0)
            return
        start_s = self.now + rng.choice((0.0, 5.0, 60.0))
        booking = Booking(
            name=name,
            start_s=start_s,
            end_s=start_s + rng.choice((5.0, 50.0)),
            nodes=(self.domain(rng),),
            queues=rng.choice(((), ("x",))),
        )
        self.step([BookingMade(booking=booking)], 1.0)

    def signal(self, rng: random.Random) -> None:
        self.step(
            [
                SignalChanged(
                    site=rng.choice("abz"),
                    price_per_accelerator_hour=rng.choice((None, 0.0, 3.0)),
                    carbon_g_per_kwh=rng.choice((None, 100.0)),
                )
            ],
            1.0,
        )

    def wish(self, rng: random.Random) -> None:
        """Let a user or an operator want something of a job."""
        names = sorted(self.state.jobs)[-12:]
        if names:
            kinds = (StopRequested, CancelRequested, ResumeRequested, EvictRequested)
            kind: Any = rng.choice((*kinds, ResumeRequested, EvictRequested))
            self.step([kind(job_id=rng.choice(names))], 1.0)

    def regrid(self, rng: random.Random) -> None:
        """Let the grid become another one, or only its policy."""
        grid = grid_by_chance(rng)
        known = self.state.inventory
        if known is not None and rng.random() < 0.5:
            grid = replace(known, policy=grid.policy)
        self.step([InventoryChanged(inventory=grid)], 1.0)

    def wait(self, rng: random.Random) -> None:
        """Let time pass until something is due."""
        timer_s = self.machine.next_timer_s()
        self.step([], 1.0 if timer_s is None else timer_s - self.now + rng.choice((0.0, 0.1)))

    # --- who is there

    def holding(self) -> list[Job]:
        jobs = self.state.jobs
        return [jobs[name] for name in sorted(jobs) if jobs[name].state in HOLDING]

    def one(self, rng: random.Random) -> Job | None:
        holding = self.holding()
        return rng.choice(holding) if holding else None

    def domain(self, rng: random.Random) -> str:
        sites = self.state.inventory.sites if self.state.inventory else ()
        nodes = [f"{site.name}/{node.name}" for site in sites for node in site.nodes]
        if not nodes or rng.random() < 0.2:
            return rng.choice("ab")
        return rng.choice(nodes)

    def about(self, job: Job, domain: str) -> dict[str, Any]:
        attempt = job.attempts[-1]
        return {
            "job_id": job.job_id,
            "attempt": attempt.number,
            "epoch": attempt.epoch,
            "domain": domain,
            "life": attempt.tasks[domain].life,
        }


def live_domains(job: Job) -> list[str]:
    attempt: Attempt = job.attempts[-1]
    return [task.placement.domain for task in live_tasks(attempt)]


HAPPENS = (
    *("submit",) * 6,
    *("beat",) * 3,
    *("end",) * 5,
    *("leave",) * 3,
    *("wait",) * 3,
    *("report",) * 2,
    "mark",
    "book",
    "signal",
    "wish",
    "regrid",
)
"""What happens, each as often as it stands here."""
