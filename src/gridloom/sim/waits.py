"""Why jobs waited: asked of the scheduler now and then, of those that have waited longest."""

from heapq import nsmallest

import msgspec

from gridloom.core import explain
from gridloom.model.life import JobState
from gridloom.sim.simulation import Simulation

_LOOKS_MAX = 128
_JOBS = 500
_LATER = 1 / 8
"""Share of the time so far after which it is asked again, however few steps there were."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler said of a waiting job.

    Attributes:
        job_id: Which.
        at_s: When it was asked.
        code: Of the cause.
        sentence: For a person.
    """

    job_id: str
    at_s: float
    code: str
    sentence: str


class WaitWatch:
    """Asks after some of the steps, ever more rarely, so that a long run costs no more.

    Attributes:
        told: What was said last of each job that was asked for.
    """

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        self._every = 1
        self._steps = self._looks = 0
        self._began_s: float | None = None
        self._due_s = 0.0

    def look(self, sim: Simulation) -> None:
        """Take in one step."""
        if self._began_s is None:
            self._began_s = self._due_s = sim.now_s
        self._steps += 1
        if self._steps % self._every and sim.now_s < self._due_s:
            return
        self._due_s = sim.now_s + _LATER * (sim.now_s - self._began_s)
        self._looks += 1
        if self._looks == _LOOKS_MAX:
            self._looks //= 2
            self._every *= 2
        self._ask(sim)

    def _ask(self, sim: Simulation) -> None:
        queued = (
            (job.submitted_s, job.job_id)
            for job in sim.machine.state.jobs.values()
            if job.state is JobState.QUEUED and not job.attempts  # what is told is the first wait
        )
        oldest = nsmallest(_JOBS, queued)
        reasons = explain.reasons(sim.machine.index) if oldest else {}
        for _, job_id in oldest:
            reason = reasons.get(job_id)
            if reason is not None:
                self.told[job_id] = Told(
                    job_id=job_id,
                    at_s=sim.now_s,
                    code=reason.code.value,
                    sentence=reason.sentence,
                )
