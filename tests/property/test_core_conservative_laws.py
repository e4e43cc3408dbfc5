"""Conservative backfill: as a small counted pool says; promises never get later; nobody delays one.

The reference is Feitelson's conservative backfill with compression on one pool of devices, written
down once more without any of the core's parts.
"""

import bisect
import heapq
import math
import random
from collections.abc import Iterator

import pytest
from tests.examples import seeds

from gridloom.base.codec import decode, encode
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    TaskEnded,
)
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import HOLDING, Job, JobState, Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Policy, Preemption
from gridloom.model.reason import Why
from gridloom.model.spec import Forecast, GroupNeed, JobSpec, Option, Program

Row = tuple[float, float, float, int]
"""When a job comes, how long it is predicted to run, how long it runs, devices."""

TERMS = LeaseTerms(lease_s=1e9)
POLICY = Policy(blocked="conservative", preemption=Preemption(priority=False))


# --- the reference


def free_at(now: float, total: int, claims: list[tuple[float, float, int]], start: float) -> int:
    return total - sum(n for begin, end, n in claims if begin <= start < end)


def earliest(
    now: float, total: int, claims: list[tuple[float, float, int]], run_s: float, need: int
) -> float:
    """Return the first time at which ``need`` devices are free for the whole run."""
    for start in sorted({now, *(end for _, end, _ in claims if end > now)}):
        inside = [begin for begin, _, _ in claims if start < begin < start + run_s]
        if all(free_at(now, total, claims, at) >= need for at in (start, *inside)):
            return start
    raise AssertionError("nobody holds anything for ever")


def reference(total: int, rows: list[Row]) -> dict[int, float]:
    """Return when each job starts; those that end early let the others, in order, come earlier."""
    coming = [(row[0], 1, number) for number, row in enumerate(rows)]
    heapq.heapify(coming)
    running: dict[int, tuple[float, float, int]] = {}
    promised: dict[int, tuple[float, float, int]] = {}
    starts: dict[int, float] = {}
    while coming:
        now, kind, number = heapq.heappop(coming)
        freed = False
        if kind == 1:
            _, run_s, _, need = rows[number]
            claims = [*running.values(), *promised.values()]
            start = earliest(now, total, claims, run_s, need)
            promised[number] = (start, start + run_s, need)
        else:
            freed = running.pop(number)[1] > now
        while freed:
            freed = False
            for other in sorted(promised, key=lambda n: (rows[n][0], n)):
                others = [c for n, c in promised.items() if n != other]
                _, run_s, _, need = rows[other]
                start = earliest(now, total, [*running.values(), *others], run_s, need)
                if start < promised[other][0]:
                    promised[other] = (start, start + run_s, need)
                    freed = True
        for other in [n for n, claim in promised.items() if claim[0] == now]:
            need = promised[other][2]
            if sum(claim[2] for claim in running.values()) + need <= total:
                running[other] = promised.pop(other)
                starts[other] = now
                heapq.heappush(coming, (now + rows[other][2], 0, other))
    return starts


# --- the core, driven by a small loop


class World:
    """A machine and what happens to what it starts."""

    def __init__(self, inventory: Inventory, runs_s: dict[str, float], *, restore: bool) -> None:
        self.machine = Machine(terms=TERMS)
        self.runs_s, self.restore = runs_s, restore
        self.rng = random.Random(0)
        self.heap: list[tuple[float, int, int, AnyEvent]] = []
        self.count = 0
        self.now = 0.0
        self.starts: dict[str, float] = {}
        self.machine.step([InventoryChanged(inventory=inventory)], 0.0, self.rng)

    @property
    def state(self) -> State:
        return self.machine.state

    def at(self, at_s: float, event: AnyEvent, urgency: int = 1) -> None:
        self.count += 1
        heapq.heappush(self.heap, (at_s, urgency, self.count, event))

    def events(self) -> Iterator[list[AnyAction]]:
        """Let all happen, one after the other; timers too."""
        while self.heap:
            timer_s = self.machine.next_timer_s() or math.inf
            if timer_s < self.heap[0][0]:
                self.now = timer_s
                yield self.step([])
                continue
            self.now, _, _, event = heapq.heappop(self.heap)
            yield self.step([event])

    def step(self, events: list[AnyEvent]) -> list[AnyAction]:
        again = Machine(decode(encode(self.state), State), TERMS) if self.restore else None
        actions = self.machine.step(events, self.now, self.rng)
        if again is not None:
            assert again.step(events, self.now, self.rng) == actions
            assert encode(again.state) == encode(self.state)
            assert again.next_timer_s() == self.machine.next_timer_s()
            assert again.step([], self.now, self.rng) == []
            assert encode(again.state) == encode(self.state)
        laws.check(self.state)
        for action in actions:
            if isinstance(action, StartAttempt):
                self.starts[action.job_id] = self.now
                for task in action.placement.tasks:
                    self.ends(action, task.domain, Why.COMPLETED, self.runs_s[action.job_id])
            elif isinstance(action, StopTask):
                self.ends(action, action.domain, Why.STOP_REQUESTED, 0.0)
        return actions

    def ends(self, action: StartAttempt | StopTask, domain: str, code: Why, in_s: float) -> None:
        ended = TaskEnded(
            job_id=action.job_id,
            attempt=action.attempt,
            epoch=action.epoch,
            domain=domain,
            outcome=Outcome(code=code, sentence=code.value),
        )
        self.at(self.now + in_s, ended, urgency=0)

    def waiting(self) -> dict[str, Job]:
        jobs = self.state.jobs.items()
        return {job_id: job for job_id, job in jobs if job.state is JobState.QUEUED}


def pool(total: int, policy: Policy = POLICY) -> Inventory:
    node = Node(name="n", address="", accelerator="gpu", count=total)
    return Inventory(sites=(Site(name="a", kind="local", nodes=(node,)),), policy=policy)


def asks(option: Option, predicted_s: float, **more: float) -> JobSpec:
    return JobSpec(
        name="j",
        program=Program(argv=("train",), workdir="/"),
        options=(option,),
        forecast=Forecast(duration_s=predicted_s, **more),
        max_sites=2,
    )


def submitted(number: int, at_s: float, spec: JobSpec) -> JobSubmitted:
    return JobSubmitted(job_id=f"j{number:04d}", spec=spec, submitted_s=at_s)


def random_rows(rng: random.Random, count: int, total: int, exact: float) -> list[Row]:
    rows = []
    at_s = 0.0
    for _ in range(count):
        at_s += rng.choice((0.0, rng.expovariate(0.1), float(rng.randrange(20))))
        predicted_s = rng.choice((rng.uniform(1, 90), float(rng.randrange(1, 60))))
        true_s = predicted_s if rng.random() < exact else predicted_s * rng.uniform(0.05, 1.0)
        rows.append((at_s, predicted_s, true_s, rng.randrange(1, rng.choice((3, total)) + 1)))
    return rows


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_one_pool_is_scheduled_as_the_reference_does(seed: int) -> None:
    rng = random.Random(seed)
    total = rng.randrange(3, 17)
    rows = random_rows(rng, 80, total, exact=(1.0, 0.7, 0.0)[seed % 3])
    world = World(pool(total), {f"j{n:04d}": row[2] for n, row in enumerate(rows)}, restore=False)
    for number, (at_s, predicted_s, _, need) in enumerate(rows):
        option = Option(accelerator="gpu", plan=ParallelPlan(data=need))
        world.at(at_s, submitted(number, at_s, asks(option, predicted_s)))
    for _ in world.events():
        pass
    want = reference(total, rows)
    assert world.starts == {f"j{number:04d}": start for number, start in want.items()}
    assert len(want) == len(rows)


def topology(rng: random.Random) -> Inventory:
    """Return two sites of racks of nodes, some of them with islands and little of a host."""
    sites = tuple(
        Site(
            name=name,
            kind="local",
            levels=("rack",),
            nodes=tuple(
                Node(
                    name=f"n{i}",
                    address="",
                    accelerator="gpu",
                    count=rng.choice((2, 4)),
                    island=rng.choice((0, 2)),
                    path=(rng.choice("pq"),),
                    resources={"cpus": rng.choice((4, 16))},
                )
                for i in range(rng.randrange(1, 5))
            ),
        )
        for name in "ab"
    )
    return Inventory(sites=sites, policy=POLICY)


def shaped(rng: random.Random) -> Option:
    plan = ParallelPlan(
        tensor=rng.choice((1, 2)), pipeline=rng.choice((1, 1, 2)), data=rng.randrange(1, 4)
    )
    level = rng.choice(("node", "rack", "site"))
    need = GroupNeed(ranks=plan.world_size, level=level, required=rng.random() < 0.5)
    return Option(
        accelerator="gpu",
        plan=plan,
        groups=rng.choice(((), (need,))),
        rank_resources=rng.choice(((), (("cpus", 2),))),
    )


def promises(world: World) -> dict[str, float]:
    return {job_id: job.promised_s for job_id, job in world.waiting().items() if job.promised}


def overdrawn(world: World) -> str:
    """Return what node is promised, or used, beyond what it has; by plain counting."""
    inventory = world.state.inventory
    assert inventory is not None
    have = {f"{s.name}/{n.name}": n for s in inventory.sites for n in s.nodes}
    spans = []
    for job in world.state.jobs.values():
        places = job.attempts[-1].placement if job.state in HOLDING else job.promised
        if places is None:
            continue
        start = job.attempts[-1].started_s if job.state in HOLDING else job.promised_s
        end = start + job.spec.forecast.duration_s
        if job.state is JobState.STOPPING:
            end = world.now
        cpus = dict(places.option.rank_resources).get("cpus", 0)
        spans += [
            (start, end, task.domain, len(task.devices), cpus * len(task.devices))
            for task in places.tasks
        ]
    for at, _, domain, _, _ in spans:
        now = [s for s in spans if s[2] == domain and s[0] <= at < s[1]]
        if sum(s[3] for s in now) > have[domain].count:
            return f"devices of {domain} at {at}"
        if sum(s[4] for s in now) > have[domain].resources["cpus"]:
            return f"cpus of {domain} at {at}"
    return ""


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_promises_never_get_later_and_are_never_too_many(seed: int) -> None:
    rng = random.Random(seed)
    inventory = topology(rng)
    exact = seed % 2 == 0
    runs_s: dict[str, float] = {}
    world = World(inventory, runs_s, restore=True)
    at_s = 0.0
    for number in range(30):
        at_s += rng.choice((0.0, rng.expovariate(0.2)))
        predicted_s = float(rng.randrange(5, 80))
        runs_s[f"j{number:04d}"] = predicted_s * (1 if exact else rng.uniform(0.1, 1))
        world.at(at_s, submitted(number, at_s, asks(shaped(rng), predicted_s)))
        if rng.random() < 0.1:
            world.at(at_s + 30, CancelRequested(job_id=f"j{rng.randrange(number + 1):04d}"))
    first: dict[str, float] = {}
    before: dict[str, float] = {}
    for _ in world.events():
        present = promises(world)
        for job_id, start_s in present.items():
            first.setdefault(job_id, start_s)
            assert start_s <= before.get(job_id, start_s)
            assert start_s >= world.now
        before = present
        assert overdrawn(world) == ""
        over = (JobState.CANCELLED, JobState.FAILED)
        for job_id, job in world.waiting().items():
            assert job.promised is not None, (job_id, job)
        assert all(
            job.attempts or job.state in over or job.promised for job in world.state.jobs.values()
        )
    assert first, "nobody ever waited"
    for job_id, start_s in first.items():
        if job_id in world.starts:
            assert world.starts[job_id] <= start_s


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_a_restored_machine_decides_the_same_whatever_happens(seed: int) -> None:
    """Predictions fail both ways, nodes go and come back, jobs of unknown duration hold all."""
    rng = random.Random(seed)
    inventory = topology(rng)
    domains = [f"{site.name}/{node.name}" for site in inventory.sites for node in site.nodes]
    runs_s: dict[str, float] = {}
    world = World(inventory, runs_s, restore=True)
    at_s = 0.0
    for number in range(40):
        at_s += rng.expovariate(0.2)
        predicted_s = rng.choice((0.0, 10.0, 30.0, 50.0))
        runs_s[f"j{number:04d}"] = (predicted_s or 20.0) * rng.uniform(0.3, 1.8)
        spec = asks(shaped(rng), predicted_s, spread=rng.choice((0.0, 0.3)))
        world.at(at_s, submitted(number, at_s, spec))
        if rng.random() < 0.2:
            domain = rng.choice(domains)
            world.at(at_s + 1, NodeMarked(domain=domain, mark="cordon"))
            world.at(at_s + 40, NodeMarked(domain=domain, mark=""))
    for _ in world.events():
        held = [job for job in world.state.jobs.values() if job.promised is not None]
        assert all(job.state is JobState.QUEUED for job in held)
    assert len(world.starts) > 20
    assert not world.waiting()


def test_the_reference_finds_the_hole() -> None:
    claims = [(0.0, 10.0, 2), (12.0, 20.0, 2), (0.0, 4.0, 1)]
    assert earliest(0.0, 3, claims, 4.0, 1) == 4.0
    assert earliest(0.0, 3, claims, 2.0, 3) == 10.0
    assert earliest(0.0, 3, claims, 3.0, 3) == 20.0
    assert bisect.bisect([0.0], free_at(0.0, 3, claims, 10.0)) == 1
