"""Lives of jobs, attempts and tasks, and the tables of their legal transitions."""

from enum import StrEnum

import msgspec

from gridloom.model.reason import Reason, Why
from gridloom.model.spec import JobSpec, Option


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {JobState.STARTING, JobState.STOPPED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING}),
    JobState.RUNNING: frozenset({JobState.STOPPING}),
    JobState.STOPPING: frozenset(
        {
            JobState.QUEUED,
            JobState.STOPPED,
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.STOPPED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset(),
}
"""From each state, the states that may follow. ``resume`` leads back from stopped and failed."""

OVER = frozenset({JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
"""States in which nothing runs and nothing is owed."""

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
"""States in which a job holds devices."""


class TaskState(StrEnum):
    """Where one supervised process group on one node is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended.

    Attributes:
        code: The cause.
        sentence: The cause, for a person.
        remedy: What would help, where known.
        rank: The rank that ended first in that way; -1 when no rank did.
        exit_code: Its exit status; negative for a signal, as Python reports it.
        ended_s: When, in seconds since the epoch, by the node's clock.
    """

    code: Why
    sentence: str
    remedy: str = ""
    rank: int = -1
    exit_code: int = 0
    ended_s: float = 0.0


class SiteUse(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt has used at one site, by the site's own accounts.

    Attributes:
        site: Name of the site.
        attempt: Number of the attempt.
        site_job: What the site calls it: there is one such record for each.
        elapsed_s: From its start there to its end.
        cpu_s: Of processors, all its processes together.
        max_rss_bytes: Of memory, the task that had most; 0 when the site did not look.
        energy_j: What its nodes drew; 0 when the site did not measure.
    """

    site: str
    attempt: int
    site_job: str
    elapsed_s: float
    cpu_s: float
    max_rss_bytes: int = 0
    energy_j: float = 0.0


class TaskPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node that an attempt holds; tasks stand in rank order.

    Attributes:
        site: Name of the site.
        node: Name of the node.
        address: Where other nodes reach it.
        devices: Numbers of the devices, ascending; ``option.rank_devices`` of them a rank.
    """

    site: str
    node: str
    address: str
    devices: tuple[int, ...]

    @property
    def domain(self) -> str:
        """``site/node``, the name under which the task is known."""
        return f"{self.site}/{self.node}"


class Placement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an attempt runs.

    Attributes:
        option: The shape that was placed.
        tasks: One a node, in rank order; nodes of one site are neighbours.
        price_per_hour: Of all devices together, in the grid's currency.
        level: The innermost level one domain of which holds all ranks; ``grid`` for several sites.
        step_s: Predicted seconds of a training step there; 0 when unknown.
    """

    option: Option
    tasks: tuple[TaskPlacement, ...]
    price_per_hour: float = 0.0
    level: str = ""
    step_s: float = 0.0

    def site_ranks(self) -> tuple[tuple[str, int], ...]:
        """Return the number of ranks of every site, in rank order."""
        counts: dict[str, int] = {}
        for task in self.tasks:
            ranks = len(task.devices) // self.option.rank_devices
            counts[task.site] = counts.get(task.site, 0) + ranks
        return tuple(counts.items())


class Arrival(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a task came up, at a site that chooses its nodes itself.

    Attributes:
        node: Name of the node.
        address: Where other nodes reach it.
        free_ports: Ports that nobody listened on there, as rows: first and last of each, ascending.
    """

    node: str
    address: str
    free_ports: tuple[tuple[int, int], ...] = ()


class Task(msgspec.Struct, kw_only=True):
    """One supervised process group.

    Attributes:
        placement: Where it runs.
        state: Where it is in its life.
        lease_until_s: Until when its right to run lasts, by the core's clock.
        outcome: How it ended, once it has.
        life: Which life of it in this attempt this is, from 1.
        waits: What it waits for in its site's own queue, in the site's words; empty when it does
            not.
        expected_s: When that queue expects to start it; 0 when unknown.
        arrival: Where it came up, if its ranks wait there for those of the others.
    """

    placement: TaskPlacement
    state: TaskState = TaskState.STARTING
    lease_until_s: float = 0.0
    outcome: Outcome | None = None
    life: int = 1
    waits: str = ""
    expected_s: float = 0.0
    arrival: Arrival | None = None


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """A site that an attempt has lost and goes on without, until it is back.

    Attributes:
        outcome: How it was lost.
        due_s: When its tasks are started again; nothing while some still end, 0 once they were.
    """

    outcome: Outcome
    due_s: float | None = None


class Attempt(msgspec.Struct, kw_only=True):
    """One try of a job.

    Attributes:
        number: From 1.
        epoch: Fencing number; no two attempts of the grid share one, and later ones are higher.
        placement: Where it runs.
        tasks: By ``site/node``, in rank order.
        started_s: When it was placed.
        resumed: Whether it was told to continue from a checkpoint.
        resumed_step: Training step that its program says it continues from.
        notes: What its program says of where it starts, a sentence each.
        stop_sent: Whether its tasks were told to stop.
        killed: Whether they were told to die at once.
        grace_until_s: When the grace of the stop ends; 0 before a stop.
        ended_s: When the last task ended; 0 while it runs.
        outcome: The cause of its end.
        first_step: First training step that it reported; 0 for none.
        last_step: Last training step that it reported.
        ready_s: When it began to train; 0 before.
        kept_s: The job's ``kept_s`` when it started.
        checkpoint_step: Training step of the newest checkpoint it reported.
        independent_sites: Its program says that its sites go on without a lost one, and let it in
            again.
        absent: Lost sites that are to come back, by name, until they train again.
        queued_until_s: When the first of its tasks left its site's queue, where all had waited; 0
            before, and where none waited.
    """

    number: int
    epoch: int
    placement: Placement
    tasks: dict[str, Task]
    started_s: float
    resumed: bool = False
    resumed_step: int = 0
    notes: tuple[str, ...] = ()
    stop_sent: bool = False
    killed: bool = False
    grace_until_s: float = 0.0
    ended_s: float = 0.0
    outcome: Outcome | None = None
    first_step: int = 0
    last_step: int = 0
    ready_s: float = 0.0
    kept_s: float = 0.0
    checkpoint_step: int = 0
    independent_sites: bool = False
    absent: dict[str, Absence] = msgspec.field(default_factory=dict)
    queued_until_s: float = 0.0

    @property
    def is_queued(self) -> bool:
        """Whether all of its tasks wait, or have ended waiting, in queues of their sites."""
        return all(task.waits and task.life == 1 for task in self.tasks.values())

    @property
    def begun_s(self) -> float:
        """Since when it has devices, unless it is queued still."""
        return self.queued_until_s or self.started_s

    def held_s(self, now: float) -> float:
        """Return the seconds for which it has had devices by now: none while it is queued."""
        return 0.0 if self.is_queued else now - self.begun_s


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of a job.

    Attributes:
        job_id: Unique for ever.
        spec: What was asked.
        submitted_s: Its place in the queue; kept over restarts.
        state: Where it is in its life.
        attempts: All tries, oldest first.
        restarts: Attempts, and starts of a single site, that count against the retry policy since
            the last resume.
        not_before_s: Backing off until then.
        wanted: What was asked for meanwhile: ``stop``, ``cancel``, ``resume`` (after a stop that
            was already sent) or nothing.
        wanted_reason: Why.
        reason: Why it waits, or why it ended.
        checkpoint_step: Training step of its newest checkpoint; 0 for none.
        run_s: Seconds that ended attempts ran.
        cost: What ended attempts cost.
        kept_s: Seconds of running, at the speed of its first option, that its newest checkpoint
            holds.
        device_s: Device-seconds that ended attempts had.
        evictions: Attempts that ended because the core wanted the devices.
        evicted_s: When the last of them was told to stop; 0 for never.
        reservation: Places kept for it while they are being freed, or while a lost one may come
            back; nothing for none.
        reserved_until_s: When the reservation is given up.
        spares: Idle nodes, as ``site/node``, that are kept beside it while it runs.
        promised_s: The latest start that it was promised when it was last blocked; 0 for none.
        promised: The places that it is to have then, where promises are kept; nothing for none.
    """

    job_id: str
    spec: JobSpec
    submitted_s: float
    state: JobState = JobState.QUEUED
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    restarts: int = 0
    not_before_s: float = 0.0
    wanted: str = ""
    wanted_reason: Reason | None = None
    reason: Reason | None = None
    checkpoint_step: int = 0
    run_s: float = 0.0
    cost: float = 0.0
    kept_s: float = 0.0
    device_s: float = 0.0
    evictions: int = 0
    evicted_s: float = 0.0
    reservation: Placement | None = None
    reserved_until_s: float = 0.0
    spares: tuple[str, ...] = ()
    promised_s: float = 0.0
    promised: Placement | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that holds devices now."""
        return self.attempts[-1] if self.state in HOLDING else None
