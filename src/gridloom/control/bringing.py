"""Attempts that wait until what their job has saved elsewhere is where they can see it."""

from collections.abc import Collection, Iterable

from gridloom.control.orders import task_refs
from gridloom.core.state import State
from gridloom.model.action import StartAttempt
from gridloom.model.event import TaskWaiting
from gridloom.ports.driver import Driver, Keeping
from gridloom.wire.agent import TaskRef, who


class Bringing:
    """Knows which attempts wait for a checkpoint, and why."""

    def __init__(self, drivers: Iterable[Driver]) -> None:
        """Ask those of ``drivers`` whose sites keep checkpoints for themselves."""
        self._keeping = [driver for driver in drivers if isinstance(driver, Keeping)]
        self._waiting: dict[TaskRef, str] = {}

    def holds(self, state: State, start: StartAttempt) -> bool:
        """Return whether an attempt is not to be started yet; one that is to end waits no more."""
        refs = task_refs(start)
        for ref in refs:
            self._waiting.pop(ref, None)
        job = state.jobs.get(start.job_id)
        attempt = job.attempt if job is not None else None
        if attempt is None or attempt.epoch != start.epoch or attempt.outcome is not None:
            return False
        if attempt.stop_sent:
            return False
        sites = [site for site, _ in start.placement.site_ranks()]
        for driver in self._keeping:
            if sentence := driver.bring(start.job_id, start.attempt, sites):
                self._waiting.update(dict.fromkeys(refs, sentence))
                return True
        return False

    def tasks(self) -> Collection[TaskRef]:
        """Return the tasks that wait: no driver knows of them yet."""
        return self._waiting.keys()

    def facts(self) -> list[TaskWaiting]:
        """Return what they wait for."""
        return [
            TaskWaiting(**who(ref), sentence=sentence) for ref, sentence in self._waiting.items()
        ]
