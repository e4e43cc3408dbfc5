"""A driver over a world in which tasks live by themselves: start, train, save, stop, lapse, die."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.fakes.clock import FakeClock
from tests.fakes.journal import Tripwire

from gridloom.base.errors import SiteError
from gridloom.model.event import (
    AnyEvent,
    CheckpointSaved,
    NodeMarked,
    StepReported,
    TaskArrived,
    TaskEnded,
    TaskReady,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.inventory import Site
from gridloom.model.life import Arrival, Outcome
from gridloom.model.reason import Reason, Why
from gridloom.wire.agent import Rendezvous, TaskOrder, TaskRef, who

_HERE = Arrival(node="somewhere", address="10.0.0.9", free_ports=((29400, 29999),))


@dataclass(frozen=True)
class Program:
    """What every job trains.

    Attributes:
        steps: Training steps in all; a resumed attempt goes on from its checkpoint.
        step_s: Seconds a training step.
        checkpoint_every: Training steps between two checkpoints.
        start_s: From the order to the first sign of life.
        save_s: From the request to stop to the end, unless the task hangs.
        killed_at: Step at which attempt 1 loses a rank; 0 for never.
        independent: Sites go on without one another; who comes back has the step of the furthest.
        queue_s: Seconds that a task waits in its site's own queue, where sites choose the nodes;
            nothing: they do not.
    """

    steps: int = 12
    step_s: float = 0.5
    checkpoint_every: int = 2
    start_s: float = 0.3
    save_s: float = 0.3
    killed_at: int = 0
    independent: bool = False
    queue_s: float | None = None


@dataclass(frozen=True)
class Fault:
    """What befalls a domain from ``at_s`` on, for ``for_s`` seconds where that means anything.

    ``kill``: a rank is killed. ``lose``: the supervisor dies without a word. ``cut``: nothing goes
    to the domain or comes from it. ``refuse``: it starts nothing. ``hang``: its tasks save nothing
    and end only when they are killed. ``repeat`` and ``mix``: what is seen of it is seen twice, or
    in another order. ``jump``: the wall clock of all is set by ``by_s``. ``drain``: the site's own
    scheduler keeps the node from work.
    """

    kind: str
    at_s: float
    domain: str = "a/n"
    for_s: float = 0.0
    by_s: float = 0.0


@dataclass
class _Task:
    order: TaskOrder
    lease_until_s: float
    renewed_s: float
    began_s: float
    first: int
    step: int
    reports: list[AnyEvent] = field(default_factory=list)
    live: bool = True
    end_s: float | None = None
    why: Why = Why.STOP_REQUESTED
    beat_s: float = 0.0
    lost: bool = False
    comes_s: float | None = None
    told: Rendezvous | None = None


class World:
    """All tasks that were ever started, and the clock by which they live."""

    def __init__(
        self, clock: FakeClock, program: Program | None = None, faults: Sequence[Fault] = ()
    ) -> None:
        self.clock = clock
        self.program = program or Program()
        self.faults = list(faults)
        self.tasks: dict[TaskRef, _Task] = {}
        self.saved: dict[str, int] = {}
        self.started: list[TaskRef] = []
        self.ports_free = True
        self._born_s = clock.monotonic_s()

    def live(self) -> list[TaskRef]:
        """The tasks that have a process."""
        return [ref for ref, task in self.tasks.items() if task.live]

    def advance(self, duration_s: float) -> None:
        """Let time pass in small steps, and check after each that no two attempts overlap."""
        left_s = duration_s
        while left_s > 1e-9:
            step_s = min(0.05, left_s)
            self.clock.advance(step_s)
            left_s -= step_s
            self._strike()
            for ref, task in self.tasks.items():
                if task.comes_s is not None:
                    self._wait(ref, task, task.comes_s)
                elif task.live:
                    self._live_on(ref, task)
            self.check()

    def check(self) -> None:
        """No job has two live attempts, and no task two lives."""
        epochs: dict[str, int] = {}
        live = [(ref.job_id, ref.domain) for ref in self.live()]
        assert len(live) == len(set(live)), f"a task lives twice: {live}"
        for ref in self.live():
            other = epochs.setdefault(ref.job_id, ref.epoch)
            assert other == ref.epoch, f"{ref.job_id} runs under epochs {other} and {ref.epoch}"

    def struck(self, kind: str, domain: str) -> bool:
        """Whether such a fault lasts there now."""
        now_s = self.clock.monotonic_s() - self._born_s
        return any(
            fault.kind == kind
            and fault.domain == domain
            and fault.at_s <= now_s < fault.at_s + fault.for_s
            for fault in self.faults
        )

    def start(self, order: TaskOrder) -> None:
        now_s = self.clock.monotonic_s()
        ref = order.task
        self.started.append(ref)
        done = max([self.saved.get(ref.job_id, 0), *self._peers_steps(ref)])
        task = _Task(order, order.lease_until_s, now_s, now_s, first=done, step=done)
        self.tasks[ref] = task
        if order.meets is not None:
            task.live, task.comes_s = False, now_s + (self.program.queue_s or 0.0)
        elif self.clock.now_s() >= order.lease_until_s:
            self._end(ref, task, Why.LEASE_LAPSED)
        self.check()

    def ask_to_end(self, task: _Task, why: Why, grace_s: float) -> None:
        """The first request decides over the cause, the earliest end over the time."""
        if task.end_s is None:
            task.why = why
        hangs = self.struck("hang", task.order.task.domain)
        wait_s = grace_s if hangs else min(grace_s, self.program.save_s)
        end_s = self.clock.monotonic_s() + wait_s
        task.end_s = end_s if task.end_s is None else min(end_s, task.end_s)

    def cancel(self, ref: TaskRef) -> None:
        """Take a task out of its site's queue."""
        self.tasks[ref].comes_s = None
        self._end(ref, self.tasks[ref], Why.STOP_REQUESTED)

    def meet(self, task: _Task, told: Rendezvous) -> None:
        """Tell a task where the others are; what it was told before it knows already."""
        assert task.told is None or told.port == task.told.port, "an attempt has one port"
        if task.told is None:
            task.told, task.began_s, task.beat_s = told, self.clock.monotonic_s(), 0.0

    def _wait(self, ref: TaskRef, task: _Task, comes_s: float) -> None:
        now_s = self.clock.monotonic_s()
        if now_s >= comes_s:
            task.comes_s, task.renewed_s, task.beat_s = None, now_s, 0.0
            if self.clock.now_s() >= task.lease_until_s:
                self._end(ref, task, Why.LEASE_LAPSED)
            else:
                task.live = True
        elif now_s >= task.beat_s:
            task.beat_s = now_s + 1.0
            task.reports.append(TaskWaiting(**who(ref), sentence="Priority"))

    def _strike(self) -> None:
        now_s = self.clock.monotonic_s() - self._born_s
        for fault in [one for one in self.faults if one.at_s <= now_s]:
            if fault.kind == "jump":
                self.clock.jump(fault.by_s)
            elif fault.kind in ("kill", "lose"):
                for ref in self.live():
                    if ref.domain == fault.domain:
                        self._die(ref, lost=fault.kind == "lose")
            else:
                continue
            self.faults.remove(fault)

    def _die(self, ref: TaskRef, *, lost: bool) -> None:
        task = self.tasks[ref]
        if lost:
            task.live, task.lost = False, True
        else:
            self._end(ref, task, Why.KILLED)

    def _live_on(self, ref: TaskRef, task: _Task) -> None:
        now_s = self.clock.monotonic_s()
        lapsed = (
            self.clock.now_s() >= task.lease_until_s or now_s >= task.renewed_s + task.order.lease_s
        )
        if lapsed and (task.end_s is None or task.why is not Why.LEASE_LAPSED):
            self.ask_to_end(task, Why.LEASE_LAPSED, task.order.lapse_grace_s)
            task.why = Why.LEASE_LAPSED
        if task.end_s is not None and now_s >= task.end_s:
            self._end(ref, task, task.why)
            return
        if task.order.meets is not None and task.told is None:
            if now_s >= task.beat_s:
                task.beat_s = now_s + 1.0
                task.reports.append(TaskArrived(**who(ref), arrival=_HERE))
            return
        if now_s >= task.began_s + self.program.start_s and now_s >= task.beat_s:
            if not task.beat_s and self.program.independent:
                ready = TaskReady(**who(ref), resumed_step=task.first, independent_sites=True)
                task.reports.append(ready)
            task.beat_s = now_s + 1.0
            task.reports.append(TaskRunning(**who(ref)))
        if task.end_s is None and self._is_whole(ref):
            self._train(ref, task, now_s)

    def _train(self, ref: TaskRef, task: _Task, now_s: float) -> None:
        program = self.program
        due = task.first + int((now_s - task.began_s - program.start_s) / program.step_s)
        while task.step < min(due, program.steps):
            task.step += 1
            if task.order.ranks[0].rank.rank == 0:
                task.reports.append(StepReported(**who(ref), step=task.step))
                if task.step % program.checkpoint_every == 0:
                    self.saved[ref.job_id] = max(self.saved.get(ref.job_id, 0), task.step)
                    task.reports.append(CheckpointSaved(**who(ref), step=task.step))
            if ref.attempt == 1 and task.step == program.killed_at:
                self._end(ref, task, Why.KILLED)
                return
        if task.step >= program.steps:
            self._end(ref, task, Why.COMPLETED)

    def _peers_steps(self, ref: TaskRef) -> list[int]:
        """How far the live tasks of the attempt are, of whom a newcomer gets its state."""
        if not self.program.independent:
            return []
        epoch = (ref.job_id, ref.epoch)
        return [self.tasks[o].step for o in self.live() if (o.job_id, o.epoch) == epoch]

    def _is_whole(self, ref: TaskRef) -> bool:
        """A collective goes on only while all tasks of the attempt do, or are done."""
        if self.program.independent:
            return True
        peers = [
            task
            for other, task in self.tasks.items()
            if (other.job_id, other.epoch) == (ref.job_id, ref.epoch)
        ]
        wanted = self.tasks[ref].order.ranks[0].rank.node_count
        return len(peers) == wanted and all(
            (task.live and (task.told or not task.order.meets)) or task.step >= self.program.steps
            for task in peers
        )

    def _end(self, ref: TaskRef, task: _Task, why: Why) -> None:
        task.live = False
        outcome = Outcome(code=why, sentence=f"the world says {why}", ended_s=self.clock.now_s())
        task.reports.append(TaskEnded(**who(ref), outcome=outcome))


class FakeDriver:
    """Plays `gridloom.ports.driver.Driver`; a new control plane makes a new one over the world."""

    def __init__(self, world: World, wire: Tripwire | None = None) -> None:
        self._world = world
        self._wire = wire or Tripwire()
        self._read: dict[TaskRef, int] = {}
        self.chooses_nodes = world.program.queue_s is not None

    def submit(self, site: Site, orders: Sequence[TaskOrder]) -> Mapping[TaskRef, Reason]:
        refusals = {order.task: self._submit(order) for order in orders}
        return {task: reason for task, reason in refusals.items() if reason is not None}

    def _submit(self, order: TaskOrder) -> Reason | None:
        self._wire.step()
        world, domain = self._world, order.task.domain
        if order.task in world.tasks:
            return None
        if world.struck("refuse", domain) or world.struck("cut", domain):
            return Reason(code=Why.REFUSED, sentence=f"{domain} starts nothing now")
        world.start(order)
        return None

    def meet(self, task: TaskRef, rendezvous: Rendezvous) -> None:
        self._wire.step()
        if self._world.struck("cut", task.domain):
            raise SiteError(f"{task.domain} does not answer")
        held = self._world.tasks[task]
        if held.live:
            self._world.meet(held, rendezvous)

    def renew(self, task: TaskRef, until_s: float) -> None:
        self._wire.step()
        held = self._world.tasks.get(task)
        if held and not self._world.struck("cut", task.domain) and until_s > held.lease_until_s:
            held.lease_until_s = until_s
            held.renewed_s = self._world.clock.monotonic_s()

    def stop(self, task: TaskRef, grace_s: float, sentence: str) -> None:
        self._wire.step()
        held = self._world.tasks.get(task)
        if held is None or self._world.struck("cut", task.domain):
            return
        if held.comes_s is not None:
            self._world.cancel(task)
        elif held.live:
            self._world.ask_to_end(held, Why.STOP_REQUESTED, grace_s)

    def observe(self, tasks: Sequence[TaskRef]) -> list[AnyEvent]:
        return [fact for task in tasks for fact in self._seen(task)]

    def standing(self, site: Site) -> list[NodeMarked]:
        drained = {one.domain for one in self._world.faults if one.kind == "drain"}
        return [
            NodeMarked(domain=one, mark="drain", sentence="fans", by_site=True)
            for one in sorted(drained)
            if one.startswith(f"{site.name}/") and self._world.struck("drain", one)
        ]

    def free_port(
        self, address: str, ports: tuple[int, int], taken: frozenset[int], count: int = 1
    ) -> int:
        self._wire.step()
        if not self._world.ports_free:
            raise SiteError(f"every port at {address} is in use")
        return next(
            port
            for port in range(ports[0], ports[1] + 2 - count)
            if taken.isdisjoint(range(port, port + count))
        )

    def _seen(self, ref: TaskRef) -> Iterator[AnyEvent]:
        world, task = self._world, self._world.tasks.get(ref)
        if task is None or world.struck("cut", ref.domain):
            return
        news = task.reports[self._read.get(ref, 0) :]
        self._read[ref] = len(task.reports)
        if world.struck("repeat", ref.domain):
            news = [*news, *news]
        if world.struck("mix", ref.domain):
            news = news[::-1]
        yield from news
        if task.lost:
            outcome = Outcome(
                code=Why.SUPERVISOR_LOST, sentence="gone", ended_s=world.clock.now_s()
            )
            yield TaskEnded(**who(ref), outcome=outcome)
