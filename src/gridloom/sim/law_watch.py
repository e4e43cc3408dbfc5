"""The core's laws in a simulation: of all jobs after each step, or of those that it touched."""

from collections.abc import Callable

from gridloom.base.errors import BrokenError
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.model.action import StartAttempt
from gridloom.model.life import HOLDING, Job
from gridloom.ports.journal import Record

Device = tuple[str, int]


class LawWatch:
    """Checks the laws with each record of a journal, at the cost of the jobs that it names.

    What holds of one job is asked of those jobs alone. That no device is held twice, and that
    epochs only grow, is kept track of from start to start.
    """

    def __init__(self, machine: Machine, *, every_job: bool = False) -> None:
        """Begin with what is there.

        Args:
            machine: The scheduler.
            every_job: Ask the laws of all jobs after every step.
        """
        self._machine, self._every_job = machine, every_job
        self._holders: dict[Device, str] = {}
        self._held: dict[str, tuple[Device, ...]] = {}
        self._epoch = machine.state.epoch
        for job in machine.state.jobs.values():
            self._note(job)

    def __call__(self, record: Record) -> None:
        """Check the laws after the step of a record.

        Raises:
            BrokenError: One is broken; the message names the law and the culprit.
        """
        state = self._machine.state
        if self._every_job:
            laws.check(state)
            return
        named = dict.fromkeys(
            job_id
            for one in (*record.events, *record.actions)
            if (job_id := getattr(one, "job_id", ""))
        )
        jobs = {job_id: state.jobs[job_id] for job_id in named if job_id in state.jobs}
        laws.check(State(jobs=jobs, epoch=state.epoch, now_s=state.now_s))
        for job_id in named:
            self._let_go(job_id)
        for job in jobs.values():
            self._note(job)
        for action in record.actions:
            if isinstance(action, StartAttempt):
                self._grew(action)

    def _let_go(self, job_id: str) -> None:
        for device in self._held.pop(job_id, ()):
            del self._holders[device]

    def _note(self, job: Job) -> None:
        held = _devices(job)
        for device in held:
            other = self._holders.get(device)
            if other is not None and other != job.job_id:
                self._refuse_two(device, other, job.job_id)
                self._let_go(other)  # a timer took it, which no record names
            self._holders[device] = job.job_id
        if held:
            self._held[job.job_id] = held

    def _refuse_two(self, device: Device, one: str, other: str) -> None:
        held = self._machine.state.jobs.get(one)
        if held is not None and device in _devices(held):
            domain, number = device
            raise BrokenError(
                f"law broken: no device is held twice: device {number} of {domain}, by {one} and"
                f" {other}"
            )

    def _grew(self, action: StartAttempt) -> None:
        if action.epoch <= self._epoch:
            raise BrokenError(
                f"law broken: epochs only grow and never repeat: attempt {action.attempt} of"
                f" {action.job_id} (epoch {action.epoch})"
            )
        self._epoch = action.epoch


def law_watch(machine: Machine, how: str) -> Callable[[Record], None] | None:
    """Return what checks the laws ``full``, ``incremental`` or not at all (``off``)."""
    return None if how == "off" else LawWatch(machine, every_job=how == "full")


def _devices(job: Job) -> tuple[Device, ...]:
    if job.state not in HOLDING:
        return ()
    tasks = job.attempts[-1].placement.tasks
    return tuple((task.domain, device) for task in tasks for device in task.devices)
