"""A scheduler with the core's door and next to no sense: first come first served, or past those."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gridloom.core.machine import Machine
from gridloom.model.action import AnyAction, CloseJob, RenewLease, StartAttempt, StopTask
from gridloom.model.event import (
    AnyEvent,
    CancelRequested,
    EvictRequested,
    InventoryChanged,
    JobSubmitted,
    NodeMarked,
    ResumeRequested,
    StopRequested,
    TaskEnded,
    TaskRefused,
    TaskRunning,
)
from gridloom.model.life import JobState, Placement, TaskPlacement
from gridloom.model.reason import Reason, Why
from gridloom.model.spec import JobSpec


@dataclass
class _Job:
    spec: JobSpec
    attempt: int = 0
    epoch: int = 0
    placement: Placement | None = None
    live: dict[str, None] = field(default_factory=dict)
    failed: Why | None = None
    then: JobState | None = None
    """What it enters when its attempt ends in whatever way; queued: it goes on."""


class FakeScheduler(Machine):
    """Places whole jobs on the first free devices; told what happened, it keeps its own books."""

    def __init__(self, *, skip: bool = True, lease_s: float = 1e15, retry: bool = True) -> None:
        super().__init__()
        self.skip, self.lease_s, self.retry = skip, lease_s, retry
        self.jobs: dict[str, _Job] = {}
        self.queue: dict[str, None] = {}
        self.free: dict[str, list[int]] = {}
        self.sizes: dict[str, int] = {}
        self.marks: dict[str, str] = {}
        self.seen: list[AnyEvent] = []
        self.timer_s: float | None = None
        self.times_s: list[float] = []
        self._epoch = 0
        self._actions: list[AnyAction] = []

    def step(self, events: Sequence[AnyEvent], now: float, rng: random.Random) -> list[AnyAction]:
        """Take facts in and place what fits."""
        self._actions = []
        self.times_s.append(now)
        self.seen.extend(events)
        for event in events:
            self._take(event, now)
        self._place(now)
        return self._actions

    def next_timer_s(self, until_s: float = math.inf) -> float | None:
        """Nothing is ever due."""
        return self.timer_s

    def _take(self, event: AnyEvent, now: float) -> None:
        match event:
            case InventoryChanged() | NodeMarked():
                self._grid(event)
            case JobSubmitted():
                self.jobs[event.job_id] = _Job(event.spec)
                if event.spec.options[0].devices > sum(self.sizes.values()):
                    self._end(event.job_id, JobState.FAILED)
                else:
                    self.queue[event.job_id] = None
            case TaskEnded() | TaskRefused():
                self._ended(event)
            case TaskRunning():
                self._renew(event, now)
            case StopRequested() | CancelRequested() | EvictRequested() | ResumeRequested():
                self._asked(event)
            case _:
                pass

    def _grid(self, event: InventoryChanged | NodeMarked) -> None:
        if isinstance(event, NodeMarked):
            self.marks[event.domain] = event.mark
            return
        sites = event.inventory.sites
        self.sizes = {f"{site.name}/{one.name}": one.count for site in sites for one in site.nodes}
        for domain, count in self.sizes.items():
            self.free.setdefault(domain, list(range(count)))

    def _renew(self, event: TaskRunning, now: float) -> None:
        job = self.jobs.get(event.job_id)
        if job and job.epoch == event.epoch and event.domain in job.live:
            self._actions.append(
                RenewLease(
                    job_id=event.job_id,
                    attempt=event.attempt,
                    epoch=event.epoch,
                    domain=event.domain,
                    lease_until_s=now + self.lease_s,
                )
            )

    def _asked(
        self, event: StopRequested | CancelRequested | EvictRequested | ResumeRequested
    ) -> None:
        job = self.jobs.get(event.job_id)
        if isinstance(event, ResumeRequested):
            assert job is not None
            self.queue[event.job_id] = None
            return
        if job is None or not job.live:
            return
        why, job.then, grace_s = {
            StopRequested: (Why.STOP_REQUESTED, JobState.STOPPED, job.spec.grace_s),
            CancelRequested: (Why.CANCEL_REQUESTED, JobState.CANCELLED, 0.0),
            EvictRequested: (Why.PREEMPTED, JobState.QUEUED, job.spec.grace_s),
        }[type(event)]
        self._stop(event.job_id, job, Reason(code=why, sentence=why.value), grace_s)

    def _stop(self, job_id: str, job: _Job, reason: Reason, grace_s: float) -> None:
        for domain in job.live:
            self._actions.append(
                StopTask(
                    job_id=job_id,
                    attempt=job.attempt,
                    epoch=job.epoch,
                    domain=domain,
                    grace_s=grace_s,
                    reason=reason,
                )
            )

    def _ended(self, event: TaskEnded | TaskRefused) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.epoch != event.epoch or event.domain not in job.live:
            return
        del job.live[event.domain]
        code = event.outcome.code if isinstance(event, TaskEnded) else Why.REFUSED
        if code is not Why.COMPLETED and job.failed is None:
            job.failed = code
            if job.then is None:
                reason = Reason(code=Why.PEER_LOST, sentence="a peer ended")
                self._stop(event.job_id, job, reason, 0.0)
        if not job.live:
            self._close(event.job_id, job)

    def _close(self, job_id: str, job: _Job) -> None:
        assert job.placement is not None
        for task in job.placement.tasks:
            self.free[task.domain] = sorted([*self.free[task.domain], *task.devices])
        failed, then = job.failed, job.then
        job.failed = job.then = None
        if failed is None:
            self._end(job_id, JobState.SUCCEEDED)
        elif then is JobState.QUEUED or (then is None and failed is not Why.EXITED and self.retry):
            self.queue[job_id] = None
        else:
            self._end(job_id, then or JobState.FAILED)

    def _end(self, job_id: str, state: JobState) -> None:
        self._actions.append(CloseJob(job_id=job_id, state=state))
        if state in (JobState.SUCCEEDED, JobState.CANCELLED):
            del self.jobs[job_id]

    def _place(self, now: float) -> None:
        for job_id in list(self.queue):
            job = self.jobs[job_id]
            placement = self.place(job_id)
            if placement is None:
                if not self.skip:
                    return
                continue
            del self.queue[job_id]
            self._epoch += 1
            job.attempt, job.epoch = job.attempt + 1, self._epoch
            job.placement = placement
            job.live = dict.fromkeys(task.domain for task in placement.tasks)
            for task in placement.tasks:
                self.free[task.domain] = [
                    one for one in self.free[task.domain] if one not in task.devices
                ]
            self._actions.append(
                StartAttempt(
                    job_id=job_id,
                    attempt=job.attempt,
                    epoch=job.epoch,
                    placement=job.placement,
                    restart_count=job.attempt - 1,
                    lease_until_s=now + self.lease_s,
                )
            )

    def place(self, job_id: str) -> Placement | None:
        """Return where the job could start now."""
        spec = self.jobs[job_id].spec
        tasks = self._tasks(spec)
        return Placement(option=spec.options[0], tasks=tuple(tasks)) if tasks else None

    def _tasks(self, spec: JobSpec) -> list[TaskPlacement] | None:
        """Take the first free devices; a job for several sites takes as many from each."""
        left = spec.options[0].devices
        share = left // spec.min_sites
        by_site: dict[str, int] = {}
        tasks = []
        for domain, free in self.free.items():
            site, _, node = domain.partition("/")
            if self.marks.get(domain) or self.marks.get(site) or domain not in self.sizes:
                continue
            most = left if spec.min_sites == 1 else share - by_site.get(site, 0)
            count = min(len(free), left, most)
            if count > 0:
                tasks.append(
                    TaskPlacement(site=site, node=node, address=node, devices=tuple(free[:count]))
                )
                by_site[site] = by_site.get(site, 0) + count
                left -= count
            if not left:
                return tasks
        return None
