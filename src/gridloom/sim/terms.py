"""By which rules a simulated world runs, and who may predict in it."""

from typing import Protocol

import msgspec

from gridloom.core.turn import LeaseTerms
from gridloom.model.life import JobState
from gridloom.model.spec import Forecast, JobSpec
from gridloom.sim.engine import NEVER_S


class Forecasts(Protocol):
    """Who predicts how long jobs run, and learns from those that ended."""

    def predict_at(self, job_id: str, spec: JobSpec, now_s: float) -> Forecast:
        """Return what is predicted of a job when it is submitted."""
        ...

    def finished(self, job_id: str, spec: JobSpec, run_s: float, state: JobState) -> None:
        """Take in that a job ended after ``run_s`` seconds of running."""
        ...


class SimTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the world takes for granted.

    Attributes:
        start_s: From the order to start to the first sign of life.
        noise: Standard deviation of the logarithm of an attempt's step time over the predicted.
        checkpoint_stall: Share of ``Forecast.checkpoint_s`` for which training stands still at a
            periodic checkpoint: 0 where it is written behind the training, 1 where it is not.
        report_checkpoints: The scheduler is told of every checkpoint, as by a training program of
            gridloom's; the world keeps them in either case.
        heartbeat_s: Seconds between two signs of life of a task, each of which renews its lease;
            0: leases never lapse, and the silence of a site is told as a fact.
        lease: How long leases last, with heartbeats.
        detect_s: From a loss to the fact, by default what a lease and its margin take together;
            ``NEVER_S``: nobody tells, so that with heartbeats leases lapse.
        link_share: Share of a training step between sites for which it waits for a link that it
            has for itself, where the option's ``speeds`` do not tell; an assumption. With n jobs
            on the link each has the n-th part of it, so this share takes n times as long.
        keep_over: Stopped and failed jobs are remembered, so that they can be resumed.
        spans: The record keeps who was where and when.
        curve_points_max: Points of the record's curves, at most.
        steps_max: Steps at one instant after which the simulation is deemed to be stuck.
    """

    start_s: float = 0.0
    noise: float = 0.0
    checkpoint_stall: float = 0.0
    report_checkpoints: bool = False
    heartbeat_s: float = 0.0
    lease: LeaseTerms = LeaseTerms()
    detect_s: float = 10.0
    link_share: float = 0.2
    keep_over: bool = True
    spans: bool = True
    curve_points_max: int = 20_000
    steps_max: int = 10_000

    def lease_terms(self) -> LeaseTerms:
        """Return the terms to give to the scheduler: without heartbeats no lease ever lapses."""
        return self.lease if self.heartbeat_s > 0 else LeaseTerms(lease_s=NEVER_S)
