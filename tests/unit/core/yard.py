"""A grid on which many jobs meet, driven through the core's door: who starts, who must go, why."""

import random
from collections.abc import Iterable
from typing import Any

from tests.unit.core.grids import shape, spec

from gridloom.base.codec import decode, encode
from gridloom.core import laws
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import AnyAction, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    TaskEnded,
    TaskReady,
    TaskRunning,
)
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import Attempt, Job, Outcome, Placement
from gridloom.model.policy import Policy
from gridloom.model.quota import Cohort, Queue
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import Forecast

TERMS = LeaseTerms(lease_s=1e9)
"""Nobody's right to run lapses here."""

START_S = 1e6
"""When a test begins; the times that it names are seconds after that."""


class Yard:
    """A machine; laws are checked after every step, and that a restored one agrees."""

    def __init__(
        self,
        *sites: Site,
        queues: Iterable[Queue] = (),
        cohorts: Iterable[Cohort] = (),
        **policy: Any,
    ) -> None:
        self.grid = Inventory(
            sites=sites,
            queues=tuple(queues),
            cohorts=tuple(cohorts),
            policy=Policy(**({"blocked": "skip"} | policy)),
        )
        self.machine = Machine(terms=TERMS)
        self.now = START_S
        self._asked = 0
        self.actions: list[AnyAction] = []
        self.step(InventoryChanged(inventory=self.grid))

    def step(self, *events: AnyEvent, at: float | None = None) -> list[str]:
        """Return who starts."""
        self.now = self.now if at is None else START_S + at
        again = Machine(decode(encode(self.machine.state), State), TERMS)
        self.actions = self.machine.step(events, self.now, random.Random(0))
        assert again.step(events, self.now, random.Random(0)) == self.actions
        assert encode(again.state) == encode(self.machine.state)
        laws.check(self.machine.state)
        return [action.job_id for action in self.actions if isinstance(action, StartAttempt)]

    def asks(self, job_id: str, ranks: int = 1, run_s: float = 0.0, **more: Any) -> list[str]:
        """Submit a job that is predicted to run for so long; 0: nobody knows."""
        names = ("spread", "checkpoint_s", "restart_s", "checkpoint_every_s")
        foreseen = {name: more.pop(name) for name in names if name in more}
        options = more.pop("options", None) or (shape(ranks),)
        asked = spec(*options, forecast=Forecast(duration_s=run_s, **foreseen), **more)
        self._asked += 1  # a moment apart, so that the first to ask is the first in order
        submitted_s = self.now - 1.0 + 1e-3 * self._asked
        return self.step(JobSubmitted(job_id=job_id, spec=asked, submitted_s=submitted_s))

    def timer(self) -> float | None:
        """Return when the machine wants to be looked at again."""
        at_s = self.machine.next_timer_s()
        return None if at_s is None else at_s - START_S

    def job(self, job_id: str) -> Job:
        return self.machine.state.jobs[job_id]

    def attempt(self, job_id: str) -> Attempt:
        return self.job(job_id).attempts[-1]

    def about(self, job_id: str, domain: str) -> dict[str, Any]:
        attempt = self.attempt(job_id)
        ids = {"job_id": job_id, "attempt": attempt.number, "epoch": attempt.epoch}
        return ids | {"domain": domain}

    def runs(self, *job_ids: str) -> list[str]:
        """Let jobs be alive and train."""
        events: list[AnyEvent] = []
        for job_id in job_ids:
            for domain in self.attempt(job_id).tasks:
                about = self.about(job_id, domain)
                events += [TaskRunning(**about), TaskReady(**about, resumed_step=0)]
        return self.step(*events)

    def ends(self, *job_ids: str, code: Why = Why.COMPLETED, at: float | None = None) -> list[str]:
        """Let jobs end, and return who starts."""
        outcome = Outcome(code=code, sentence=f"it {code.value}")
        return self.step(
            *(
                TaskEnded(**self.about(job_id, domain), outcome=outcome)
                for job_id in job_ids
                for domain in self.attempt(job_id).tasks
            ),
            at=at,
        )

    def goes(self, *job_ids: str, at: float | None = None) -> list[str]:
        """Let jobs that were told to stop end, and return who starts."""
        return self.ends(*job_ids, code=Why.STOP_REQUESTED, at=at)

    def marks(self, domain: str, mark: Any, sentence: str = "") -> list[str]:
        return self.step(NodeMarked(domain=domain, mark=mark, sentence=sentence))

    def told(self) -> dict[str, Why]:
        """Return who was told to stop in the last step, and why."""
        return {a.job_id: a.reason.code for a in self.actions if isinstance(a, StopTask)}

    def said(self, job_id: str) -> str:
        """Return what a job was told in the last step."""
        stops = [a for a in self.actions if isinstance(a, StopTask) and a.job_id == job_id]
        return stops[0].reason.sentence

    def where(self, job_id: str) -> str:
        """Return where a job holds devices, as ``site/node:devices ...``."""
        return places(self.attempt(job_id).placement)

    def kept(self, job_id: str) -> str:
        """Return what is reserved for a job."""
        reservation = self.job(job_id).reservation
        return places(reservation) if reservation is not None else "nothing"

    def reason(self, job_id: str) -> Reason:
        reason = self.machine.reason(job_id)
        assert reason is not None
        return reason

    def why(self, job_id: str) -> Why:
        return self.reason(job_id).code


def places(placement: Placement) -> str:
    return " ".join(f"{task.domain}:{len(task.devices)}" for task in placement.tasks)
