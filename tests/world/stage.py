"""The whole loop in simulated time: a real control plane that may die, over a fake world."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fakes.clock import FakeClock
from tests.fakes.driver import FakeDriver, World
from tests.fakes.journal import CrashError, MortalJournal, Tripwire

from gridloom.base.codec import encode
from gridloom.control.dispatch import Dispatch
from gridloom.control.intake import Intake
from gridloom.control.loop import ControlLoop
from gridloom.control.restore import replayed, restore
from gridloom.core import laws
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted
from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.life import OVER, Job, TaskState
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import JobSpec, Option, Program, RetryPolicy
from gridloom.ports.journal import Journal

BEAT_S = 0.5
DOWN_S = 0.5
"""How long it takes until another control plane takes over."""

Wish = tuple[Callable[[State], bool], AnyEvent]

GRID = Inventory(
    sites=tuple(
        Site(
            name=name,
            kind="fake",
            nodes=(Node(name="n", address="127.0.0.1", accelerator="cpu", count=4),),
        )
        for name in ("a", "b")
    )
)


def job_spec(*, ranks: int = 4, max_restarts: int = 3, grace_s: float = 2.0) -> JobSpec:
    """Return a job of two tasks, one at each site."""
    return JobSpec(
        name="j",
        program=Program(argv=("train",), workdir="/"),
        options=(Option(accelerator="cpu", plan=ParallelPlan(data=ranks)),),
        min_sites=2,
        max_sites=2,
        grace_s=grace_s,
        retry=RetryPolicy(max_restarts=max_restarts, backoff_s=0.5, backoff_s_max=1.0),
    )


class Stage:
    """A journal, a world, and whichever control plane lives."""

    def __init__(
        self, journal: Journal, runs: Path, world: World, *, wire: Tripwire | None = None
    ) -> None:
        self.journal = journal
        self.world = world
        self.clock: FakeClock = world.clock
        self.wire = wire or Tripwire()
        self.crashes = 0
        self.closed: list[str] = []
        self._runs = runs
        self._loop: ControlLoop | None = None
        self._up_at_s = 0.0

    @property
    def state(self) -> State:
        """What the present control plane knows, or what the next one will."""
        return self._loop.state if self._loop else restore(self.journal)[0].state

    def job(self, job_id: str = "j-1") -> Job:
        return self.state.jobs[job_id]

    def submit(self, *job_ids: str, spec: JobSpec | None = None) -> None:
        now_s = self.clock.now_s()
        spec = spec or job_spec()
        self.journal.post(
            [
                InventoryChanged(inventory=GRID),
                *(JobSubmitted(job_id=one, spec=spec, submitted_s=now_s) for one in job_ids),
            ]
        )

    def run(self, limit_s: float, wishes: Sequence[Wish] = ()) -> None:
        """Let time pass until every wish was uttered and all jobs are over, or to the limit."""
        left = list(wishes)
        end_s = self.clock.monotonic_s() + limit_s
        while self.clock.monotonic_s() < end_s:
            if left and self._loop and left[0][0](self._loop.state):
                self.journal.post([left.pop(0)[1]])
            try:
                self._turn()
            except CrashError:
                self.crash()
            if not left and self._loop and self._loop.idle():
                self.world.advance(BEAT_S)
                assert not self.world.live(), "a job is over and its tasks live"
                return
            self.world.advance(BEAT_S)

    def crash(self) -> None:
        """The control plane is killed; another one comes up in a while."""
        self.crashes += 1
        self._loop = None
        self._up_at_s = self.clock.monotonic_s() + DOWN_S

    def check_end(self) -> None:
        """The jobs are over, and the journal leads to where the control plane is."""
        assert all(job.state in OVER for job in self.state.jobs.values())
        assert replayed(self.journal.records()) == encode(self.state)
        assert restore(self.journal)[0].state == self.state

    def _turn(self) -> None:
        if self._loop is None and self.clock.monotonic_s() >= self._up_at_s:
            self._loop = self._control_plane()
        if self._loop is not None:
            self._loop.beat()
            laws.check(self._loop.state)
            self._check_rights(self._loop.state)

    def _check_rights(self, state: State) -> None:
        """What runs has the right to: the core never takes a living task for dead."""
        for ref in self.world.live():
            attempt = state.jobs[ref.job_id].attempt
            assert attempt is not None, f"{ref} lives and its job holds nothing"
            assert attempt.epoch == ref.epoch
            task = attempt.tasks[ref.domain]
            assert task.state is not TaskState.ENDED
            assert task.life == ref.life

    def _control_plane(self) -> ControlLoop:
        journal = MortalJournal(self.journal, self.wire)
        dispatch = Dispatch(
            journal,
            {"fake": FakeDriver(self.world, self.wire)},
            self._runs,
            LeaseTerms(),
            close=self._close,
        )
        return ControlLoop(journal, Intake(journal, self.clock, 2.0), dispatch, self.clock)

    def _close(self, job: Job, _inventory: Inventory | None) -> None:
        self.wire.step()
        self.closed.append(job.job_id)
