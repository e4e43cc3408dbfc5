"""The one door for facts: letters of other processes, and what the drivers saw, made few."""

from collections.abc import Iterable

from gridloom.base.clock import Clock
from gridloom.core.state import State
from gridloom.model.event import (
    AnyEvent,
    StepReported,
    TaskArrived,
    TaskEvent,
    TaskRunning,
    TaskWaiting,
)
from gridloom.model.life import TaskState
from gridloom.ports.journal import Journal, Letter

_Routine = TaskRunning | TaskWaiting | TaskArrived | StepReported


class Intake:
    """Collects facts for the next step of the core.

    Heartbeats and training steps come several times a second; they are held back and passed on
    together, often enough for leases, so that the journal of a week stays small. Everything else
    is passed on at once. Facts of an older epoch are dropped here.
    """

    def __init__(self, journal: Journal, clock: Clock, routine_s: float) -> None:
        """Collect for one journal.

        Args:
            journal: Whose letters are read.
            clock: Where the time comes from.
            routine_s: Seconds between two batches of routine facts.
        """
        self._journal = journal
        self._clock = clock
        self._routine_s = routine_s
        self._routine: dict[tuple[str, int, str, type], AnyEvent] = {}
        self._passed_s = clock.monotonic_s()

    def letters(self) -> list[Letter]:
        """Return the facts that other processes handed in."""
        return self._journal.letters()

    def sift(self, state: State, facts: Iterable[AnyEvent]) -> list[AnyEvent]:
        """Return those of ``facts`` and of the held-back ones that the core should see now."""
        urgent: list[AnyEvent] = []
        for fact in facts:
            if isinstance(fact, TaskEvent) and _stale(state, fact):
                continue
            if isinstance(fact, _Routine) and not _is_first(state, fact):
                self._routine[fact.job_id, fact.epoch, fact.domain, type(fact)] = fact
            else:
                urgent.append(fact)
        now_s = self._clock.monotonic_s()
        if not urgent and now_s - self._passed_s < self._routine_s:
            return []
        self._passed_s = now_s
        routine = [fact for fact in self._routine.values() if not _stale(state, fact)]
        self._routine.clear()
        return [*routine, *urgent]  # a step was done before the end that came with it


def _stale(state: State, fact: AnyEvent) -> bool:
    if not isinstance(fact, TaskEvent):
        return False
    job = state.jobs.get(fact.job_id)
    attempt = job.attempt if job else None
    if attempt is None or attempt.epoch != fact.epoch:
        return True
    task = attempt.tasks.get(fact.domain)
    return task is None or task.life != fact.life


def _is_first(state: State, fact: _Routine) -> bool:
    """A task's first sign of life, or from elsewhere, and an attempt's first step are news."""
    attempt = state.jobs[fact.job_id].attempt
    assert attempt is not None
    task = attempt.tasks[fact.domain]
    match fact:
        case StepReported():
            return attempt.first_step == 0
        case TaskRunning():
            return task.state is TaskState.STARTING
        case TaskWaiting():
            return (task.waits, task.expected_s) != (fact.sentence, fact.expected_s)
        case TaskArrived():
            return task.arrival != fact.arrival
