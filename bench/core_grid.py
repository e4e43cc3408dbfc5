"""A made grid and a driver of the scheduler's door, for ``bench/core.py``."""

import gc
import random
import resource
import time
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gridloom.core.laws_step import Laws
from gridloom.core.machine import Machine
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, CloseJob, StartAttempt, StopTask
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted, TaskEnded, TaskRunning
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import Outcome
from gridloom.model.parallel import ParallelPlan
from gridloom.model.policy import Policy
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Forecast, GroupNeed, JobSpec, Option, Program

LEVELS = ("spine", "leaf", "rack")
"""Between site and node, so that there are five in all: 512, 64 and 4 nodes."""

SIZES = (1, 1, 1, 1, 1, 2, 4, 8, 8, 16, 16, 32, 64, 128, 256, 512)
"""Devices of a job, drawn evenly: small jobs are the most, large ones have most of the devices."""

KIND = "h100"
NODE_DEVICES = 8
_PROGRAM = Program(argv=(), workdir="/")
_DONE = Outcome(code=Why.COMPLETED, sentence="")
_GONE = Outcome(code=Why.STOP_REQUESTED, sentence="")
_FOR_EVER_S = 1e12


def grid(nodes: int, *, policy: Policy, levels: bool = True, queues: int = 0) -> Inventory:
    """Return eight sites with that many nodes of eight devices in all.

    Args:
        nodes: Of the whole grid.
        policy: By which jobs are placed.
        levels: Whether there is anything between site and node.
        queues: How many own equal shares of three quarters of it, in cohorts of five.
    """
    sites = min(8, nodes)
    each, rest = divmod(nodes, sites)
    return Inventory(
        sites=tuple(
            _site(number, each + (number < rest), levels=levels) for number in range(sites)
        ),
        policy=policy,
        queues=tuple(
            Queue(
                name=f"q{number:02d}",
                cohort=f"c{number // 5}",
                nominal={KIND: 6 * nodes // queues},
                weight=1.0 + number % 3,
            )
            for number in range(queues)
        ),
        cohorts=(
            Cohort(name="all", nominal={KIND: 2 * nodes}),
            *(Cohort(name=f"c{number}", parent="all") for number in range(-(-queues // 5))),
        )
        if queues
        else (),
    )


def _site(number: int, nodes: int, *, levels: bool) -> Site:
    return Site(
        name=f"site{number}",
        kind="local",
        nodes=tuple(
            Node(
                name=f"n{i}",
                address="",
                accelerator=KIND,
                count=NODE_DEVICES,
                path=(f"s{i // 512}", f"l{i // 64}", f"r{i // 4}") if levels else (),
            )
            for i in range(nodes)
        ),
        levels=LEVELS if levels else (),
        price_per_accelerator_hour=2 + number / 10,
    )


class Jobs:
    """Makes jobs: shapes are shared, so that as many are distinct as are wanted.

    Args:
        seed: Of the draw.
        kinds: Of every size, how many shapes that differ in what they ask of the topology.
        queues: How many queues they go to in turn.
        needs: Whether they ask anything of the topology.
        sizes: Devices, drawn evenly.
        prefix: What their ids begin with.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        kinds: int = 1,
        queues: int = 0,
        needs: bool = True,
        sizes: Sequence[int] = SIZES,
        prefix: str = "j",
    ) -> None:
        self._rng = random.Random(seed)
        self._queues, self._sizes, self._prefix = queues, sizes, prefix
        self._shapes = {
            size: [_options(size, kind, needs=needs) for kind in range(kinds)]
            for size in set(sizes)
        }
        self._count = 0
        self._bare = JobSpec(name="j", program=_PROGRAM, options=self._shapes[sizes[0]][0])

    def next(self, now_s: float) -> JobSubmitted:
        """Return the next job."""
        rng, self._count = self._rng, self._count + 1
        queue = f"q{rng.randrange(self._queues):02d}" if self._queues else ""
        spec = replace(
            self._bare,
            options=rng.choice(self._shapes[rng.choice(self._sizes)]),
            queue=queue,
            priority=rng.choice((0, 0, 0, 0, 1, 2)) if self._queues else 0,
            forecast=Forecast(duration_s=rng.lognormvariate(9, 1.5)),
        )
        return JobSubmitted(job_id=f"{self._prefix}{self._count:07d}", submitted_s=now_s, spec=spec)


def _options(size: int, kind: int, *, needs: bool) -> tuple[Option, ...]:
    """Return the only option of a shape; its kind says which levels it wants, and how much."""
    tensor = min(NODE_DEVICES, size) >> (kind & 1 and size >= 2)
    data = size // tensor
    pipeline = 2 if kind & 2 and data % 2 == 0 else 1
    plan = ParallelPlan(tensor=tensor, pipeline=pipeline, data=data // pipeline)
    groups: list[GroupNeed] = []
    if needs:
        level = ("leaf", "rack", "spine")[kind // 4 % 3]
        groups.append(GroupNeed(ranks=size, level=level, required=False))
        if plan.replica_ranks < size:
            inner = ("rack", "leaf")[kind // 12 % 2]
            groups.append(GroupNeed(ranks=plan.replica_ranks, level=inner, required=False))
    memory_bytes = kind // 24 * 10**9
    return (Option(accelerator=KIND, plan=plan, groups=tuple(groups), memory_bytes=memory_bytes),)


class Drive:
    """The scheduler's door, with a clock on it; what it starts runs until ``end`` is called.

    Attributes:
        machine: The scheduler.
        running: What runs, in no order.
        seconds: CPU seconds that each timed step took.
        starts: How many jobs were started, all in all.
        now_s: The time of the last step.
        chance: Where the scheduler's comes from.
        last: What it wanted done in the last step.
        laws: Checked after each step, as a part of it; nothing by default.
    """

    def __init__(self, inventory: Inventory, *, seed: int = 1) -> None:
        terms = LeaseTerms(lease_s=_FOR_EVER_S, forget_over=True)
        self.machine = Machine(terms=terms)
        self.running: dict[str, StartAttempt] = {}
        self.seconds: list[float] = []
        self.starts = 0
        self.now_s = 0.0
        self.last: Sequence[AnyAction] = ()
        self.laws: Laws | None = None
        self.chance = random.Random(seed)
        self._choice = random.Random(seed)
        self._order: list[str] = []
        self.step([InventoryChanged(inventory=inventory)])

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self.machine.state.jobs) - len(self.running)

    def step(self, events: Sequence[AnyEvent], *, timed: bool = False) -> int:
        """Hand facts in a second later; return how many jobs that started."""
        self.now_s += 1.0
        begin_s = time.thread_time()
        actions = self.machine.step(events, self.now_s, self.chance)
        if self.laws is not None:
            self.laws.observe(events, actions, self.now_s)
        if timed:
            self.seconds.append(time.thread_time() - begin_s)
        self.last = actions
        return self._carry_out(actions)

    def end(self, count: int = 1) -> list[AnyEvent]:
        """Return the facts that some running jobs, drawn evenly, have ended."""
        facts: list[AnyEvent] = []
        for _ in range(count):
            job_id = self._drawn()
            facts += _ended(self.running.pop(job_id))
        return facts

    def _drawn(self) -> str:
        """Return a running job; those that were told to go may still be in the list."""
        while True:
            place = self._choice.randrange(len(self._order))
            self._order[place], self._order[-1] = self._order[-1], self._order[place]
            if (job_id := self._order.pop()) in self.running:
                return job_id

    def _carry_out(self, actions: Iterable[AnyAction]) -> int:
        """Let what is to start run; what is to stop ends in a step of its own."""
        starts = 0
        told: dict[str, None] = {}
        for action in actions:
            match action:
                case StartAttempt():
                    starts += 1
                    self.running[action.job_id] = action
                    self._order.append(action.job_id)
                case StopTask():
                    told[action.job_id] = None
                case CloseJob():
                    self.running.pop(action.job_id, None)
                case _:
                    pass
        self.starts += starts
        running = self.running
        ended = [fact for one in told if one in running for fact in _ended(running[one], _GONE)]
        for one in told:
            self.running.pop(one, None)
        if ended:
            starts += self.step(ended)
        return starts


def _ended(start: StartAttempt, outcome: Outcome = _DONE) -> list[AnyEvent]:
    return [
        TaskEnded(
            job_id=start.job_id,
            attempt=start.attempt,
            epoch=start.epoch,
            domain=task.domain,
            outcome=outcome,
        )
        for task in start.placement.tasks
    ]


def heard(start: StartAttempt) -> list[AnyEvent]:
    """Return the facts that all tasks of a job run."""
    return [
        TaskRunning(
            job_id=start.job_id, attempt=start.attempt, epoch=start.epoch, domain=task.domain
        )
        for task in start.placement.tasks
    ]


def filled(inventory: Inventory, jobs: Jobs, *, waiting: int) -> Drive:
    """Return a grid on which so many jobs wait for a place, submitted in batches."""
    drive = Drive(inventory)
    while drive.waiting < waiting:
        count = min(1000, waiting - drive.waiting)
        drive.step([jobs.next(drive.now_s) for _ in range(count)])
    gc.collect()
    gc.freeze()
    return drive


def share(seconds: Sequence[float], part: float) -> float:
    """Return what ``part`` of the values do not exceed."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def peak_bytes() -> int:
    """Return the most memory that this process ever had, as far as it was resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
