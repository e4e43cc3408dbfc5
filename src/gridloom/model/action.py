"""Intentions: the closed union of everything that the core can want done."""

import msgspec

from gridloom.model.life import JobState, Placement
from gridloom.model.reason import Reason


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Something the core wants done, once; carrying it out twice must do no harm."""


class StartAttempt(Action, frozen=True, kw_only=True, tag=True):
    """Start the attempt's processes at every site of its placement.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        placement: Where it runs.
        restart_count: Attempts of the job before this one.
        lease_until_s: Until when the right to run lasts unless renewed, at a site without a lease
            of its own.
    """

    job_id: str
    attempt: int
    epoch: int
    placement: Placement
    restart_count: int
    lease_until_s: float


class RestartSite(Action, frozen=True, kw_only=True, tag=True):
    """Start the tasks of one site again, where they were, in an attempt that goes on elsewhere.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        placement: Where it runs, the other sites included.
        site: The site.
        life: Which life of its tasks this is, from 2.
        restart_count: Attempts of the job before this one, and lives before this one.
        lease_until_s: Until when the right to run lasts unless renewed, at a site without a lease
            of its own.
    """

    job_id: str
    attempt: int
    epoch: int
    placement: Placement
    site: str
    life: int
    restart_count: int
    lease_until_s: float


class OpenRendezvous(Action, frozen=True, kw_only=True, tag=True):
    """Tell tasks that start together, and that have all come up, where each is.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        site: Whose tasks are told; empty: all of the attempt's.
        life: Which life of them.
    """

    job_id: str
    attempt: int
    epoch: int
    site: str = ""
    life: int = 1


class RenewLease(Action, frozen=True, kw_only=True, tag=True):
    """Let one task, in one of its lives, run on until then."""

    job_id: str
    attempt: int
    epoch: int
    domain: str
    lease_until_s: float
    life: int = 1


class StopTask(Action, frozen=True, kw_only=True, tag=True):
    """Ask one task to stop; kill what is left after the grace.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        domain: ``site/node``.
        grace_s: Seconds before the kill; 0 kills at once.
        reason: Why.
        life: Which life of the task.
    """

    job_id: str
    attempt: int
    epoch: int
    domain: str
    grace_s: float
    reason: Reason
    life: int = 1


class CloseJob(Action, frozen=True, kw_only=True, tag=True):
    """The job is over (for now): write its summary."""

    job_id: str
    state: JobState


AnyAction = StartAttempt | RestartSite | OpenRendezvous | RenewLease | StopTask | CloseJob
