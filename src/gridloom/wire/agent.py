"""What passes between the control plane and the supervisor of one task: an order, a lease, reports.

A task has a directory. The control plane writes ``order.json`` once, ``lease.json`` again and
again, and ``stop.json`` when the task must end; each is replaced atomically. The supervisor appends
numbered reports to ``reports.jsonl`` and holds a lock on ``lock`` as long as it or anything that
would kill its processes lives.
"""

from pathlib import PurePath

import msgspec

from gridloom.model.life import Outcome
from gridloom.wire.launch import Rank

ORDER_FILE = "order.json"
LEASE_FILE = "lease.json"
STOP_FILE = "stop.json"
REPORTS_FILE = "reports.jsonl"
LOCK_FILE = "lock"

TASK_VARIABLE = "GRIDLOOM_TASK"
"""Variable that every process of a task carries, so that none can hide from a sweep."""


class TaskRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names one task of one attempt.

    Attributes:
        job_id: The job.
        attempt: The attempt's number.
        epoch: Its fencing number.
        site: Name of the site.
        node: Name of the node.
        life: Which life of it: those of a lost site are started again while others run.
    """

    job_id: str
    attempt: int
    epoch: int
    site: str
    node: str
    life: int = 1

    @property
    def domain(self) -> str:
        """``site/node``."""
        return f"{self.site}/{self.node}"

    @property
    def token(self) -> str:
        """The value of ``GRIDLOOM_TASK`` in every process of the task."""
        fence = f"{self.epoch}.{self.life}"
        return f"{self.job_id}/{self.attempt}/{fence}/{self.site}/{self.node}"


def life_directory(run_dir: PurePath, attempt: int, life: int) -> PurePath:
    """Return where the tasks of an attempt have their files, in one of their lives.

    Directories of tasks, ``<site>.<node>``, have a dot in their names; that of a later life none.
    """
    directory = run_dir / "attempts" / str(attempt)
    return directory / f"life-{life}" if life > 1 else directory


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One process to start.

    Attributes:
        rank: Who it is.
        devices: Numbers of the devices it may see.
        log_file: Where its output goes.
    """

    rank: Rank
    devices: tuple[int, ...]
    log_file: str


class TaskOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a supervisor needs to know.

    Attributes:
        task: Which task.
        argv: Command line of every rank.
        workdir: Where each starts.
        env: Variables beyond the supervisor's own environment and the launch contract.
        accelerator: Kind of the devices.
        ranks: The processes.
        lease_s: How long one renewal lasts at most, by the supervisor's own clock.
        lease_until_s: Until when the first lease lasts, by the control plane's clock.
        lapse_grace_s: Seconds between a lapsed lease and the kill.
        grace_s: Seconds between a request to stop and the kill, unless the request says otherwise.
    """

    task: TaskRef
    argv: tuple[str, ...]
    workdir: str
    env: dict[str, str]
    accelerator: str
    ranks: tuple[RankOrder, ...]
    lease_s: float
    lease_until_s: float
    lapse_grace_s: float
    grace_s: float


class LeaseRenewal(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run goes on.

    Attributes:
        until_s: Until then, by the control plane's clock.
    """

    until_s: float


class StopOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The task must end.

    Attributes:
        grace_s: Seconds before the kill; 0 kills at once.
        sentence: Why.
    """

    grace_s: float
    sentence: str


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One numbered line of a supervisor.

    Attributes:
        seq: From 1, without gaps.
        epoch: Of the attempt.
        now_s: When, in seconds since the epoch, by the supervisor's clock.
    """

    seq: int
    epoch: int
    now_s: float


class Alive(Report, frozen=True, kw_only=True, tag="alive"):
    """The processes run: the first report of a task, then its heartbeat."""


class StepSeen(Report, frozen=True, kw_only=True, tag="step"):
    """A rank reported this training step."""

    step: int


class CheckpointSeen(Report, frozen=True, kw_only=True, tag="checkpoint"):
    """A rank reported a complete checkpoint."""

    step: int


class ReadySeen(Report, frozen=True, kw_only=True, tag="ready"):
    """A rank is set up and trains from now on.

    Attributes:
        resumed_step: Training step of the checkpoint it continues from; 0 for a fresh start.
        notes: What a person should know of where it starts.
        independent_sites: Whether the sites go on without a lost one, and let it in again.
    """

    resumed_step: int
    notes: tuple[str, ...] = ()
    independent_sites: bool = False


class Ended(Report, frozen=True, kw_only=True, tag="ended"):
    """No process of the task is left."""

    outcome: Outcome


AnyReport = Alive | ReadySeen | StepSeen | CheckpointSeen | Ended

REPORTS: msgspec.json.Decoder[AnyReport] = msgspec.json.Decoder(AnyReport)
"""Reads one report; raises ``msgspec.MsgspecError`` for what is none."""
