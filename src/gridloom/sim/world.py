"""Jobs in a simulated world: what the scheduler's intentions do to them, and what they use."""

import math
import random
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from gridloom.base.errors import BrokenError, InputError, Problem
from gridloom.core.progress import speed
from gridloom.model.action import (
    AnyAction,
    CloseJob,
    OpenRendezvous,
    RenewLease,
    RestartSite,
    StartAttempt,
    StopTask,
)
from gridloom.model.event import JobSubmitted
from gridloom.model.life import Job, JobState
from gridloom.sim.attempts import Attempts
from gridloom.sim.beats import Beats
from gridloom.sim.engine import Agenda
from gridloom.sim.floor import Floor
from gridloom.sim.progress import Progress
from gridloom.sim.record import JobRow, Point, SimRecord
from gridloom.sim.run import Life, Run
from gridloom.sim.terms import Forecasts, SimTerms
from gridloom.sim.workload_nouns import Arrival

# Python 3.11 takes 0.2 us to look a member of an enum up, and these are on every attempt's way
_QUEUED: Final = JobState.QUEUED
_RUNNING: Final = JobState.RUNNING

_REMEMBERED = frozenset({JobState.STOPPED, JobState.FAILED})


class World:
    """All jobs that are not over, and what the scheduler's intentions do to them.

    Attributes:
        attempts: Their live attempts, and the facts that these give rise to.
        open: Jobs that are not over.
    """

    def __init__(
        self,
        agenda: Agenda,
        floor: Floor,
        record: SimRecord,
        *,
        terms: SimTerms,
        seed: int,
        forecasts: Forecasts | None = None,
    ) -> None:
        self.attempts = Attempts(agenda, floor, terms, self._attempt_over)
        self.open = 0
        self._agenda, self._floor, self._record = agenda, floor, record
        self._terms, self._seed, self._forecasts = terms, seed, forecasts
        self._beats = Beats(self.attempts)
        self._lives: dict[str, Life] = {}
        self._waiting_jobs = self._waiting_devices = 0

    def submit(self, arrival: Arrival) -> None:
        """Hand a job in.

        Raises:
            InputError: There was a job of that id.
        """
        row = self._record.add(arrival.job_id)
        if row is None:
            message = f"two jobs are called {arrival.job_id}"
            raise InputError([Problem(message, "give each job an id of its own")])
        now_s, spec = self._agenda.now_s, arrival.spec
        if self._forecasts is not None:
            forecast = self._forecasts.predict_at(arrival.job_id, spec, now_s)
            spec = replace(spec, forecast=forecast)
        life = self._lives[arrival.job_id] = Life(arrival, spec, row)
        self.open += 1
        self._waits(life, 1)
        self.attempts.facts.append(
            JobSubmitted(job_id=arrival.job_id, spec=spec, submitted_s=arrival.submit_s)
        )

    def act(self, actions: Iterable[AnyAction]) -> None:
        """Carry out what the scheduler wants, in order."""
        for action in actions:
            match action:
                case StartAttempt():
                    self._start(action)
                case StopTask():
                    self._stop(action)
                case RenewLease():
                    self._renew(action)
                case CloseJob():
                    self._over(action)
                case RestartSite() | OpenRendezvous():
                    pass  # no simulated program's sites are independent, or choose its nodes

    def point(self) -> Point:
        """Return how the grid is used now."""
        return Point(
            at_s=self._agenda.now_s,
            used=self._floor.held,
            available=self._floor.total - self._floor.away,
            waiting_jobs=self._waiting_jobs,
            waiting_devices=self._waiting_devices,
        )

    def note(self, now_s: float) -> None:
        """Bring the rows of all jobs that are not over up to date."""
        for life in self._lives.values():
            self._write(life, now_s)

    def reopen(self, job_id: str) -> None:
        """Take in that a job that was stopped, or failed, is wanted again."""
        life = self._lives.get(job_id)
        if life is not None and life.end_s is not None:
            life.end_s, life.state = None, JobState.QUEUED
            self.open += 1
            self._waits(life, 1)

    def _start(self, action: StartAttempt) -> None:
        life = self._lives.get(action.job_id)
        if life is None:
            raise BrokenError(
                f"attempt {action.attempt} of {action.job_id} is started, which is over and was"
                " forgotten, or never was"
            )
        if life.run is not None:  # the scheduler takes it for dead
            self.attempts.close(life.run)
        if life.end_s is not None:
            self.reopen(action.job_id)
        self._waits(life, -1)
        now_s, forecast = self._agenda.now_s, life.arrival.spec.forecast
        life.attempts += 1
        life.first_start_s = now_s if life.first_start_s is None else life.first_start_s
        life.sites = tuple(dict.fromkeys([task.site for task in action.placement.tasks]))
        life.state = _RUNNING
        progress = Progress(
            life.kept_s,
            every_s=forecast.checkpoint_every_s,
            save_s=forecast.checkpoint_s,
            stall_s=forecast.checkpoint_s * self._terms.checkpoint_stall,
        )
        run = life.run = Run(life, action, progress, now_s)
        life.devices = sum(run.placed.values())
        run.base = self._base(life, action)
        self.attempts.start(run)
        if self._terms.heartbeat_s > 0:
            self._beats.start(run)

    def _stop(self, action: StopTask) -> None:
        life = self._lives.get(action.job_id)
        run = life.run if life else None
        if run is not None and run.action.epoch == action.epoch and action.domain in run.live:
            self.attempts.stop(run, action)

    def _renew(self, action: RenewLease) -> None:
        life = self._lives.get(action.job_id)
        run = life.run if life else None
        if run is not None and run.leases and run.action.epoch == action.epoch:
            run.leases[action.domain] = action.lease_until_s
            run.silent.pop(action.domain, None)

    def _over(self, action: CloseJob) -> None:
        life = self._lives.get(action.job_id)
        if life is None:
            return
        if life.run is not None:
            self.attempts.close(life.run)
        life.state = action.state
        if life.end_s is None:
            life.end_s = self._agenda.now_s
            self.open -= 1
            self._waits(life, -1)
            if self._forecasts is not None:
                spec, run_s = life.arrival.spec, life.tally.running_s
                self._forecasts.finished(action.job_id, spec, run_s, life.state)
        self._write(life, self._agenda.now_s)
        if not (self._terms.keep_over and life.state in _REMEMBERED):
            del self._lives[action.job_id]

    def _attempt_over(self, run: Run) -> None:
        """Account for an attempt; until the scheduler says more, its job waits."""
        life, progress, tally = run.life, run.progress, run.life.tally
        run.add_to(tally, self._agenda.now_s)
        lost_device_s = life.devices * (progress.train_s - progress.kept_train_s)
        tally.useful_device_s -= lost_device_s
        tally.lost_device_s += lost_device_s
        life.kept_s = progress.kept_s
        life.preemptions += run.evicted
        life.run, life.state = None, _QUEUED
        self._waits(life, 1)

    def _base(self, life: Life, action: StartAttempt) -> float:
        """Return the work a second of training where nothing slows it down."""
        placement, spec = action.placement, life.spec
        base = 1.0
        if placement.step_s or placement.option is not spec.options[0]:
            job = Job(job_id=action.job_id, spec=spec, submitted_s=life.arrival.submit_s)
            base = speed(job, placement.option, placement.step_s)
        if self._terms.noise > 0:
            rng = random.Random(f"{self._seed}/{action.job_id}/{action.attempt}")
            base /= math.exp(rng.gauss(0.0, self._terms.noise))
        return base

    def _waits(self, life: Life, sign: int) -> None:
        self._waiting_jobs += sign
        self._waiting_devices += sign * life.wanted

    def _write(self, life: Life, now_s: float) -> None:
        """Fill the job's row; what a live attempt has trained so far counts as kept."""
        tally, arrival = life.tally, life.arrival
        if life.run is not None:
            tally = tally.copy()
            life.run.add_so_far_to(tally, now_s)
        start_s = math.nan if life.first_start_s is None else life.first_start_s
        end_s = math.nan if life.end_s is None else life.end_s
        started = life.first_start_s is not None
        waited_until_s = start_s if started else now_s if life.end_s is None else end_s
        self._record.write(
            life.row,
            JobRow(
                job_id=arrival.job_id,
                submit_s=arrival.submit_s,
                first_start_s=start_s,
                end_s=end_s,
                attempts=life.attempts,
                wait_s=waited_until_s - arrival.submit_s,
                running_s=tally.running_s,
                device_s=tally.device_s,
                useful_device_s=tally.useful_device_s,
                lost_device_s=tally.lost_device_s,
                overhead_device_s=tally.overhead_device_s,
                preemptions=life.preemptions,
                cost=tally.cost,
                energy_kwh=tally.energy_kwh,
                co2_kg=tally.co2_kg,
                state=life.state,
                queue=life.spec.queue,
                devices=life.devices,
                sites=life.sites,
            ),
        )
