"""One call of the door: what every part of it reads, and where it leaves its intentions."""

import random
from collections.abc import Iterable

import msgspec

from gridloom.core.index import Index
from gridloom.core.state import State
from gridloom.model.action import AnyAction, StopTask
from gridloom.model.life import Job, Task
from gridloom.model.reason import Reason


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a right to run lasts, and when its holder is deemed dead.

    Attributes:
        lease_s: From each grant or renewal to the lapse.
        kill_margin_s: From the lapse until the holder, which stops itself then, is surely gone.
        forget_over: Jobs that are over, and whose end somebody was told of, are forgotten at once.
    """

    lease_s: float = 6.0
    kill_margin_s: float = 4.0
    forget_over: bool = False


class Turn(msgspec.Struct, frozen=True):
    """What one step is given, and the intentions it has come to so far."""

    state: State
    index: Index
    terms: LeaseTerms
    now: float
    rng: random.Random
    actions: list[AnyAction] = msgspec.field(default_factory=list)

    def lease_until_s(self, site: str) -> float:
        """Return until when what is heard of now may run on at a site."""
        return self.now + (self.index.leases_s.get(site) or self.terms.lease_s)


def stop_tasks(turn: Turn, job: Job, tasks: Iterable[Task], grace_s: float, reason: Reason) -> None:
    """Want tasks of a job's attempt to stop, with a grace in seconds; 0 kills them at once."""
    attempt = job.attempts[-1]
    turn.actions.extend(
        StopTask(
            job_id=job.job_id,
            attempt=attempt.number,
            epoch=attempt.epoch,
            domain=task.placement.domain,
            grace_s=grace_s,
            reason=reason,
            life=task.life,
        )
        for task in tasks
    )
