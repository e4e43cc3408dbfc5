"""The contract between the agent and a training process: environment, exit codes, report lines.

A training process is started once a rank. It finds torchrun's variables, so that an unmodified
torchrun script works, and gridloom's own beside them (``docs/how/launch.md`` lists both). It may
append JSON lines to the file that ``GRIDLOOM_REPORT_FILE`` names (``Ready``, ``StepDone``,
``CheckpointDone``, ``Failure``); a process that never does is watched by its exit status alone.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import InputError
from gridloom.model.parallel import ParallelPlan, SiteSync

RECIPE_ARGV = ("python", "-m", "gridloom.runtime.entry")
"""What each rank executes when gridloom's own training program runs."""

ARRAY_INDEX_VARIABLE = "GRIDLOOM_ARRAY_INDEX"
"""Index of a job in its array. It stands among the job's own variables, and in no other job's."""

SYNC_VARIABLE = "GRIDLOOM_SYNC"
"""How the sites stay one model: the fields of ``SiteSync`` as JSON, but for those at their usual
values. A program that is none of gridloom's may read it, or leave it."""

PLAN_VARIABLE = "GRIDLOOM_PLAN"
"""How the model is cut: the fields of ``ParallelPlan`` but ``site_sync`` as JSON, but for those at
their usual values. Its ``data`` are the copies at all sites."""

PORTS_A_SITE = 2
"""Ports from the master port on that an attempt at several sites may listen on, for each of them:
one of the store of its process group, and one of its first rank, which speaks to the others."""

EXIT_DONE = 0
EXIT_IO = 74
"""A file could not be written or read (disk full, no permission): trying again does not help."""
EXIT_STOPPED = 75
"""Asked to stop, saved what it had, and may be resumed."""
EXIT_PEER_LOST = 76
"""Another rank went away; this one is a victim, not the cause."""
EXIT_CONFIG = 78
"""What the job says cannot be run (data missing, shape impossible)."""
EXIT_POISONED = 79
"""The loss is no longer a number; the state that the sites share may be what is wrong."""


def ports_of(sites: int) -> int:
    """Return how many ports an attempt at so many sites may listen on, from the master port on."""
    return PORTS_A_SITE * sites if sites > 1 else 1


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Who one training process is.

    Attributes:
        job_id: The job.
        attempt: Which try of the job this is, from 1.
        epoch: Fencing number of the attempt's lease.
        rank: Global rank, from 0; ranks of one node, and nodes of one site, are neighbours.
        world_size: Number of ranks in the attempt.
        local_rank: Rank inside the node.
        local_world_size: Number of ranks on the node.
        node_rank: Number of the node in the attempt, from 0 (torchrun's ``GROUP_RANK``).
        node_count: Number of nodes in the attempt (torchrun's ``GROUP_WORLD_SIZE``).
        site: Name of the site the rank is at.
        site_ranks: Site of every rank by its number of ranks, in rank order: ``(("a", 2), ...)``.
        node_addresses: Address of every node, by node rank.
        node_ranks: Number of ranks on every node, by node rank; empty if all have as many.
        master_address: Where rank 0 listens.
        master_port: The port it listens on.
        restart_count: How many attempts came before, and lives of this site in this one.
        run_dir: The job's run directory.
        report_file: Where this rank appends its report lines.
        grace_s: Seconds between the request to stop (SIGTERM) and SIGKILL.
        sync: How the sites stay one model.
        plan: How the model is cut; its ``data`` are the copies at all sites.
        rendezvous_file: Where it stands on which nodes the attempt is now, where sites choose them;
            empty where nobody does.
    """

    job_id: str
    attempt: int
    epoch: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    node_count: int
    site: str
    site_ranks: tuple[tuple[str, int], ...]
    node_addresses: tuple[str, ...]
    master_address: str
    master_port: int
    restart_count: int
    run_dir: str
    report_file: str
    grace_s: float
    node_ranks: tuple[int, ...] = ()
    sync: SiteSync = SiteSync()
    plan: ParallelPlan = ParallelPlan()
    rendezvous_file: str = ""

    _INTEGERS: ClassVar[dict[str, str]] = {
        "GRIDLOOM_ATTEMPT": "attempt",
        "GRIDLOOM_EPOCH": "epoch",
        "RANK": "rank",
        "WORLD_SIZE": "world_size",
        "LOCAL_RANK": "local_rank",
        "LOCAL_WORLD_SIZE": "local_world_size",
        "GROUP_RANK": "node_rank",
        "GROUP_WORLD_SIZE": "node_count",
        "MASTER_PORT": "master_port",
        "GRIDLOOM_RESTART_COUNT": "restart_count",
    }

    def environment(self) -> dict[str, str]:
        """Return the variables that tell a process it is this rank."""
        integers = {name: str(getattr(self, field)) for name, field in self._INTEGERS.items()}
        return {
            **integers,
            "MASTER_ADDR": self.master_address,
            "ROLE_NAME": "default",
            "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "TORCHELASTIC_RUN_ID": self.job_id,
            "TORCHELASTIC_RESTART_COUNT": str(self.restart_count),
            # The agent of rank 0's node does not serve the store: rank 0 does.
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "GRIDLOOM_JOB_ID": self.job_id,
            "GRIDLOOM_SITE": self.site,
            "GRIDLOOM_SITES": ",".join(f"{site}:{count}" for site, count in self.site_ranks),
            "GRIDLOOM_NODE_RANK": str(self.node_rank),
            "GRIDLOOM_NODE_ADDRESSES": ",".join(self.node_addresses),
            "GRIDLOOM_NODE_RANKS": ",".join(map(str, self.node_ranks)),
            "GRIDLOOM_RUN_DIR": self.run_dir,
            "GRIDLOOM_REPORT_FILE": self.report_file,
            "GRIDLOOM_RENDEZVOUS_FILE": self.rendezvous_file,
            "GRIDLOOM_GRACE_S": repr(self.grace_s).removesuffix(".0"),
            SYNC_VARIABLE: encode(self.sync).decode(),
            PLAN_VARIABLE: encode(self.plan).decode(),
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Rank":
        """Return who this process is, or raise ``InputError`` naming the variable that is amiss."""
        try:
            node_ranks = environment["GRIDLOOM_NODE_RANKS"]
            sites = [part.rpartition(":") for part in environment["GRIDLOOM_SITES"].split(",")]
            return cls(
                **{field: int(environment[name]) for name, field in cls._INTEGERS.items()},
                job_id=environment["GRIDLOOM_JOB_ID"],
                site=environment["GRIDLOOM_SITE"],
                site_ranks=tuple((site, int(count)) for site, _, count in sites),
                node_addresses=tuple(environment["GRIDLOOM_NODE_ADDRESSES"].split(",")),
                node_ranks=tuple(map(int, filter(None, node_ranks.split(",")))),
                master_address=environment["MASTER_ADDR"],
                run_dir=environment["GRIDLOOM_RUN_DIR"],
                report_file=environment["GRIDLOOM_REPORT_FILE"],
                rendezvous_file=environment["GRIDLOOM_RENDEZVOUS_FILE"],
                grace_s=float(environment["GRIDLOOM_GRACE_S"]),
                sync=decode(environment[SYNC_VARIABLE], SiteSync),
                plan=decode(environment[PLAN_VARIABLE], ParallelPlan),
            )
        except KeyError as missing:
            raise InputError(
                f"the variable {missing.args[0]} is not set: this program is started by gridloom"
            ) from missing
        except (ValueError, msgspec.MsgspecError) as bad:
            raise InputError(f"a variable of the launch contract is malformed: {bad}") from bad


Step = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of training steps; what is larger is no such number, and JSON readers would round it."""


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One line of a rank's report file."""


class Ready(Line, frozen=True, kw_only=True, tag="ready"):
    """The process is set up and trains from now on.

    Attributes:
        resumed_step: Training step of the checkpoint it continues from; 0 for a fresh start.
        notes: What a person should know of where it starts, a sentence each: why newer
            checkpoints were passed over, whose checkpoint it continues.
        independent_sites: The sites are no one process group: they go on without one that is lost,
            and give it their state when it is back.
    """

    resumed_step: Step = 0
    notes: tuple[str, ...] = ()
    independent_sites: bool = False


class StepDone(Line, frozen=True, kw_only=True, tag="step"):
    """A training step is over.

    Attributes:
        step: Its number, from 1.
        loss: Mean loss in nats a token, where known.
        tokens_per_s: Speed of the whole job in this step, where known.
    """

    step: Step
    loss: float | None = None
    tokens_per_s: float | None = None


class CheckpointDone(Line, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is complete and can be resumed from.

    Attributes:
        step: The last training step it contains.
        path: Its directory.
    """

    step: Step
    path: str


class Failure(Line, frozen=True, kw_only=True, tag="failure"):
    """The process is about to give up, in its own words.

    Attributes:
        message: What went wrong, one sentence.
        remedy: What would help.
    """

    message: str
    remedy: str = ""


AnyLine = Ready | StepDone | CheckpointDone | Failure

LINES: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
"""Reads one line; raises ``msgspec.MsgspecError`` for what is none."""
