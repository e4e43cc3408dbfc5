"""What the supervisor of one task is told: an order, a lease, where to meet, a stop.

A task has a directory. The control plane writes ``order.json`` once, ``lease.json`` again and
again, and ``stop.json`` when the task must end; each is replaced atomically. Where a site chooses
its nodes itself, the ranks wait for ``rendezvous.json``, which tells where the others have come up.
The supervisor appends its reports (``gridloom.wire.reports``) to ``reports.jsonl`` and holds a lock
on ``lock`` as long as it or anything that would kill its processes lives.
"""

from pathlib import PurePath
from typing import TypedDict

import msgspec

from gridloom.model.spec import Batch
from gridloom.wire.launch import Rank

ORDER_FILE = "order.json"
LEASE_FILE = "lease.json"
STOP_FILE = "stop.json"
RENDEZVOUS_FILE = "rendezvous.json"
GANG_FILE = "gang.json"
REPORTS_FILE = "reports.jsonl"
LOCK_FILE = "lock"
BATCH_FILE = "job.sbatch"
"""A user's batch script, in the job's run directory."""

INDEX_VARIABLES = ("SLURM_PROCID", "JOB_COMPLETION_INDEX")
"""Variables by which a site's scheduler numbers the nodes of a gang, from 0."""
NODE_VARIABLES = ("SLURMD_NODENAME", "GRIDLOOM_POD_NODE")
"""Variables that tell what the site calls the node."""
ADDRESS_VARIABLE = "GRIDLOOM_POD_ADDRESS"
"""Variable that tells under which address the node, or what stands for it, is reached."""

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


class Who(TypedDict):
    """The fields by which a fact says which task it is about."""

    job_id: str
    attempt: int
    epoch: int
    domain: str
    life: int


def who(task: TaskRef) -> Who:
    """Return the fields by which a fact says that it is about ``task``."""
    return Who(
        job_id=task.job_id,
        attempt=task.attempt,
        epoch=task.epoch,
        domain=task.domain,
        life=task.life,
    )


def life_directory(run_dir: PurePath, attempt: int, life: int) -> PurePath:
    """Return where the tasks of an attempt have their files, in one of their lives.

    Directories of tasks, ``<site>.<node>``, have a dot in their names; that of a later life none.
    """
    directory = run_dir / "attempts" / str(attempt)
    return directory / f"life-{life}" if life > 1 else directory


def task_directory(runs: PurePath, task: TaskRef) -> PurePath:
    """Return where a task's orders and reports live, under the directory of all runs."""
    life = life_directory(runs / task.job_id, task.attempt, task.life)
    return life / f"{task.site}.{task.node}"


def gang_directory(runs: PurePath, task: TaskRef) -> PurePath:
    """Return where the tasks that start together with ``task`` at its site have their files."""
    life = life_directory(runs / task.job_id, task.attempt, task.life)
    return life / f"gang.{task.site}"


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One process to start.

    Attributes:
        rank: Who it is.
        devices: Numbers of the devices it may see; none: those that its site has given the task.
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
        meets: First and last of the ports of which the supervisor says whether they are free at
            its node; the ranks then wait for the rendezvous, which replaces the addresses and the
            port that they are given here. Nothing: they start at once.
        batch: Set when the one rank is a batch script, which starts the rest by itself.
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
    meets: tuple[int, int] | None = None
    batch: Batch | None = None


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one site that its scheduler starts on nodes of its own choice.

    Attributes:
        directories: Of the tasks, in rank order: the supervisor on the site's first node takes the
            first, and so on.
        network: Addresses by which the nodes reach each other, as ``10.0.0.0/8``; empty: by name.
    """

    directories: tuple[str, ...]
    network: str = ""


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tasks of an attempt are.

    Attributes:
        addresses: Of every node, by node rank.
        port: Where rank 0 listens.
    """

    addresses: tuple[str, ...]
    port: int


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
