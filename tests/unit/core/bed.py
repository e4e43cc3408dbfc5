"""A machine under conservative backfill, and jobs in few words: who is promised what, and where."""

import random
from collections.abc import Sequence
from typing import Any

from tests.unit.core.grids import shape, site

from gridloom.base.codec import decode, encode
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.core.turn import LeaseTerms
from gridloom.model.action import StartAttempt
from gridloom.model.event import (
    AnyEvent,
    InventoryChanged,
    JobSubmitted,
    TaskEnded,
)
from gridloom.model.inventory import Inventory, Site
from gridloom.model.life import Job, Outcome
from gridloom.model.policy import Policy, Preemption
from gridloom.model.quota import Queue
from gridloom.model.reason import Why
from gridloom.model.spec import Forecast, JobSpec, Program

CALM = Preemption(priority=False, reclaim=False)
TERMS = LeaseTerms(lease_s=1e9)


class Bed:
    """A machine, and jobs in few words."""

    def __init__(self, *sites: Site, queues: Sequence[Queue] = (), **policy: Any) -> None:
        settings: dict[str, Any] = {"blocked": "conservative", "preemption": CALM} | policy
        self.grid = Inventory(sites=sites, queues=tuple(queues), policy=Policy(**settings))
        self.machine = Machine(terms=TERMS)
        self.now = 0.0
        self.step(InventoryChanged(inventory=self.grid))

    def step(self, *events: AnyEvent, at: float | None = None) -> list[str]:
        """Return who starts; a restored machine decides the same."""
        self.now = self.now if at is None else at
        again = Machine(decode(encode(self.machine.state), State), TERMS)
        actions = self.machine.step(events, self.now, random.Random(0))
        assert again.step(events, self.now, random.Random(0)) == actions
        assert encode(again.state) == encode(self.machine.state)
        return [action.job_id for action in actions if isinstance(action, StartAttempt)]

    def asks(self, job_id: str, ranks: int, run_s: float, **more: Any) -> list[str]:
        """Submit a job; of two times the first is the predicted run."""
        forecast = {"spread": more.pop("spread", 0.0), "restart_s": more.pop("restart_s", 0.0)}
        options = more.pop("options", (shape(ranks, **more.pop("shaped", {})),))
        settings: dict[str, Any] = {"max_sites": 1} | more
        spec = JobSpec(
            name="j",
            program=Program(argv=(), workdir="/"),
            options=options,
            forecast=Forecast(duration_s=run_s, **forecast),
            **settings,
        )
        return self.step(JobSubmitted(job_id=job_id, spec=spec, submitted_s=self.now))

    def ends(self, job_id: str, at: float) -> list[str]:
        attempt = self.job(job_id).attempts[-1]
        done = Outcome(code=Why.COMPLETED, sentence="done")
        about: dict[str, Any] = {"job_id": job_id, "attempt": attempt.number}
        return self.step(
            *(
                TaskEnded(**about, epoch=attempt.epoch, domain=domain, outcome=done)
                for domain in attempt.tasks
            ),
            at=at,
        )

    def job(self, job_id: str) -> Job:
        return self.machine.state.jobs[job_id]

    def promised(self, *job_ids: str) -> list[float]:
        return [self.job(job_id).promised_s for job_id in job_ids]

    def where(self, job_id: str) -> str:
        places = self.job(job_id).promised
        assert places is not None
        return " ".join(f"{task.domain}:{len(task.devices)}" for task in places.tasks)


def pool(count: int, **more: Any) -> Bed:
    return Bed(site("a", str(count)), **more)
