"""What the world knows of one job and of its live attempt."""

import copy
from enum import Enum
from typing import Final

from gridloom.model.action import StartAttempt, StopTask
from gridloom.model.life import JobState, Outcome
from gridloom.model.spec import JobSpec
from gridloom.sim.engine import Entry
from gridloom.sim.progress import Progress
from gridloom.sim.record import Tally
from gridloom.sim.signals import Meter
from gridloom.sim.workload_nouns import Arrival

Link = tuple[str, str]
"""Two sites, in order of their names."""


class Phase(Enum):
    """What an attempt is busy with."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    DONE = "done"
    """Its program has ended, or waits to be cancelled; not all of its tasks have said so."""
    DEAD = "dead"
    """It lost a part, so that the rest waits for it in vain."""


# Python 3.11 takes 0.2 us to look a member of an enum up, and these are on every attempt's way
_STARTING: Final = Phase.STARTING
_TRAINING: Final = Phase.TRAINING
_QUEUED: Final = JobState.QUEUED


class Life:
    """One job: what only the world knows of it, and what it has used.

    Attributes:
        arrival: As it came, with the true work.
        row: Number of its row in the record.
        state: As far as the world can tell; the scheduler's word once it is over.
        spec: What the scheduler was told, the forecast included.
        fails: Whether its program ends with an error.
        target_s: Work at which its program ends, well or not.
        kept_s: Work that its newest checkpoint holds.
        attempts: How many were placed.
        preemptions: How many of them ended because the scheduler wanted the devices.
        first_start_s: When the first was placed; nothing before.
        end_s: When it was over; nothing before.
        wanted: Devices of its first option.
        devices: Of its last placement; before, as wanted.
        sites: Of its last placement.
        tally: What its ended attempts used.
        run: Its live attempt.
    """

    __slots__ = (
        "arrival",
        "attempts",
        "devices",
        "end_s",
        "fails",
        "first_start_s",
        "kept_s",
        "preemptions",
        "row",
        "run",
        "sites",
        "spec",
        "state",
        "tally",
        "target_s",
        "wanted",
    )

    def __init__(self, arrival: Arrival, spec: JobSpec, row: int) -> None:
        self.arrival, self.spec, self.row = arrival, spec, row
        self.fails = 0 < arrival.fail_after_s <= arrival.work_s
        self.target_s = arrival.fail_after_s if self.fails else arrival.work_s
        self.state = _QUEUED
        self.kept_s = 0.0
        self.attempts = self.preemptions = 0
        self.first_start_s: float | None = None
        self.end_s: float | None = None
        self.wanted = self.devices = spec.options[0].devices if spec.options else 0
        self.sites: tuple[str, ...] = ()
        self.tally = Tally()
        self.run: Run | None = None


class Run:
    """One live attempt.

    Attributes:
        life: Its job.
        action: How it was started.
        placed: Devices of its tasks, by ``site/node``, in rank order.
        live: Tasks that have not ended, as far as the scheduler can know, by ``site/node``.
        unheard: Those of them whose first sign of life has not been told.
        orders: Stops that did not reach a task yet, by ``site/node``.
        phase: What it is busy with.
        progress: How far it is.
        base: Work a second of training, while nothing slows it down.
        rate: Work a second now.
        started_s: When it was placed.
        since_s: Until when its seconds are accounted for.
        overhead_s: Seconds in which it did not train, but for periodic checkpoints.
        meters: Of each site, with its devices there and the reading at the start.
        links: That it uses.
        share: Share of its training step for which it waits for them, having them for itself.
        evicted: The scheduler wanted its devices.
        ending: Its next end or change of phase.
        checkpoint: Completion of its next checkpoint, where that is told.
        outcome: How it ended, for the tasks that could not say so yet.
        leases: Until when its tasks may run, by ``site/node``.
        silent: Tasks whose lease is running out.
    """

    __slots__ = (
        "action",
        "base",
        "checkpoint",
        "ending",
        "evicted",
        "leases",
        "life",
        "links",
        "live",
        "meters",
        "orders",
        "outcome",
        "overhead_s",
        "phase",
        "placed",
        "progress",
        "rate",
        "share",
        "silent",
        "since_s",
        "started_s",
        "unheard",
    )

    def __init__(self, life: Life, action: StartAttempt, progress: Progress, now_s: float) -> None:
        self.life, self.action, self.progress = life, action, progress
        self.placed = {task.domain: len(task.devices) for task in action.placement.tasks}
        self.live = dict.fromkeys(self.placed)
        self.unheard = list(self.placed)
        self.orders: dict[str, StopTask] = {}
        self.phase = _STARTING
        self.base = 1.0
        self.rate = 0.0
        self.started_s = self.since_s = now_s
        self.overhead_s = 0.0
        self.meters: list[tuple[Meter, int, tuple[float, float, float]]] = []
        self.links: tuple[Link, ...] = ()
        self.share = 0.0
        self.evicted = False
        self.ending: Entry | None = None
        self.checkpoint: Entry | None = None
        self.outcome: Outcome | None = None
        self.leases: dict[str, float] = {}
        self.silent: dict[str, None] = {}

    @property
    def is_over(self) -> bool:
        """Whether it is not, or no more, its job's attempt."""
        return self.life.run is not self

    @property
    def devices(self) -> int:
        """Devices that it holds."""
        return self.life.devices

    def settle(self, now_s: float) -> None:
        """Account for the seconds that passed."""
        passed_s = now_s - self.since_s
        if self.phase is _TRAINING and self.rate > 0:
            self.progress.advance(passed_s, self.rate)
        else:
            self.overhead_s += passed_s
        self.since_s = now_s

    def step_of(self, work_s: float) -> int:
        """Return the training step at which that much work is done.

        Where the first option's step time is not known, a step is a second of work.
        """
        options = self.life.spec.options
        step_s = options[0].step_s if options else 0.0
        return int(work_s / step_s if step_s else work_s)

    def add_so_far_to(self, tally: Tally, now_s: float) -> None:
        """Do as ``add_to`` to one that goes on: to look at it changes nothing, to the last bit."""
        seen = copy.copy(self)
        seen.progress = copy.copy(self.progress)
        seen.add_to(tally, now_s)

    def add_to(self, tally: Tally, now_s: float) -> None:
        """Add what it has used until now, all of its training counting as kept."""
        self.settle(now_s)
        train_s, devices = self.progress.train_s, self.life.devices
        overhead_s = self.progress.still_s + self.overhead_s
        running_s = train_s + overhead_s
        tally.running_s += running_s
        tally.device_s += devices * running_s
        tally.useful_device_s += devices * train_s
        tally.overhead_device_s += devices * overhead_s
        for meter, count, reading in self.meters:
            meter.bill(count, reading, now_s, tally)
