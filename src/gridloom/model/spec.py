"""What a user asks: a job, the shapes it could take, and the policies it is run under."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from gridloom.model.parallel import Auto, ParallelPlan, SiteSync
from gridloom.model.recipe import GptRecipe, GptShape, Training


class GroupNeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the ranks of one communication group must, or should, sit together.

    Attributes:
        ranks: Consecutive ranks of one group; each need's divides the next larger one's.
        level: Within one domain of this level: ``island``, ``node``, a level of the site or
            ``site``. A site without such a level is refused where the need is required.
        required: Must; else it should, and the predicted step time says what it is worth.
    """

    ranks: int
    level: str
    required: bool = True


class Speed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The predicted step time of a placement that reaches these levels.

    Attributes:
        level: All ranks sit within one domain of it (or of one further in).
        step_s: Seconds of a training step.
        replica: So does every replica group, within one of this; empty for anywhere.
    """

    level: str
    step_s: float
    replica: str = ""


class Option(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=True, cache_hash=True
):
    """A shape that a job could take, computed by the planner before any placing.

    Attributes:
        accelerator: Kind of device.
        plan: How the model is cut; ``plan.world_size`` ranks are needed.
        memory_bytes: Predicted need of one rank; 0 when unknown.
        step_s: Predicted seconds of a training step, wherever it is placed; 0 when unknown.
        groups: What the groups of ranks need beyond a tensor group on one node and a replica
            group at one site, smallest first.
        speeds: Predicted step time by the levels reached, best first; ``step_s`` elsewhere.
        rank_devices: Devices of one rank.
        rank_resources: What one rank needs of its host besides, by name, in order of names.
    """

    accelerator: str
    plan: ParallelPlan
    memory_bytes: int = 0
    step_s: float = 0.0
    groups: tuple[GroupNeed, ...] = ()
    speeds: tuple[Speed, ...] = ()
    rank_devices: int = 1
    rank_resources: tuple[tuple[str, int], ...] = ()

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.plan.world_size * self.rank_devices

    def with_copies(self, data: int) -> "Option":
        """Return the shape with another number of copies of the model.

        Groups of several copies keep their share of all, where that is whole copies.
        """
        plan = replace(self.plan, data=data)
        groups = []
        for need in self.groups:
            copies, left = divmod(need.ranks, plan.replica_ranks)
            if copies <= 1:
                groups.append(need)
            elif not left and copies * data % self.plan.data == 0:
                ranks = copies * data // self.plan.data * plan.replica_ranks
                groups.append(replace(need, ranks=ranks))
        return replace(self, plan=plan, groups=tuple(groups))


class ShapeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says about its shape; the planner turns it into options.

    Attributes:
        accelerator: Kind of device.
        count_min: Devices over the whole job, at least.
        count_max: At most; 0 means as many as there are.
        sites: Sites it may use; empty means any.
        min_sites: At how many sites it must take part at once, at least.
        max_sites: At how many at most.
        cut: How a copy of the model is cut, whatever its ``data``; ``auto``: not at all where a
            device holds a whole one, else as the planner finds best.
        data: Copies of the model; 0 means as many as fit.
        sync: How copies at different sites stay one model; ``auto``: as the planner finds best.
        shape: The model, when gridloom's own training program runs.
        training: How it is trained, when gridloom's own training program runs.
    """

    accelerator: str
    count_min: int
    count_max: int
    sites: tuple[str, ...] = ()
    min_sites: int = 1
    max_sites: int = 1
    cut: ParallelPlan | Auto = ParallelPlan()
    data: int = 0
    sync: SiteSync | Auto = SiteSync()
    shape: GptShape | None = None
    training: Training | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What each rank executes.

    Attributes:
        argv: The command line of one rank; of a batch script that of its interpreter, which gets
            the script as its last word.
        workdir: Absolute path in which it starts.
        env: Variables added to the environment.
    """

    argv: tuple[str, ...]
    workdir: str
    env: dict[str, str] = msgspec.field(default_factory=dict)


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch script of the user's own: it is started once, on the first node, and starts the rest.

    Attributes:
        options: What it asks a site's own scheduler for: long names of options and their values.
        submitted_in: Absolute path of the directory in which it was handed in.
        warning: Signal that the script itself catches to save its state, as ``USR1``; empty if
            it has named none.
    """

    options: tuple[tuple[str, str], ...] = ()
    submitted_in: str = ""
    warning: str = ""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a failed attempt is followed by another.

    Attributes:
        max_restarts: Attempts after the first, and starts of a single lost site, at most.
        on: ``lost``: only after a failure outside the program (killed, node or site lost);
            ``any``: also after the program itself exited with an error.
        backoff_s: Wait before the second attempt; doubles each time, up to ``backoff_s_max``.
        backoff_s_max: Longest wait.
    """

    max_restarts: int = 3
    on: Literal["lost", "any"] = "lost"
    backoff_s: float = 1.0
    backoff_s_max: float = 60.0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What the job may use before it is stopped with its state saved; 0 means no limit.

    Attributes:
        cost_max: In the grid's currency.
        run_s_max: Seconds of running, over all attempts.
    """

    cost_max: float = 0.0
    run_s_max: float = 0.0


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """Another job that must have ended first.

    Attributes:
        job_id: The other.
        kind: It must have succeeded (``afterok``), not succeeded (``afternotok``), only be over
            (``afterany``), or only have started once (``after``).
    """

    job_id: str
    kind: Literal["afterok", "afterany", "afternotok", "after"] = "afterok"


class Forecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long the job is predicted to train, on its first option.

    Attributes:
        duration_s: Seconds of running until it is done, the median; 0 when unknown.
        spread: Standard deviation of the logarithm of the true over the predicted; 0 when exact.
        checkpoint_s: What saving its state takes.
        restart_s: What starting from a checkpoint takes before it trains again.
        checkpoint_every_s: Seconds of running between two checkpoints; 0 for none but at a stop.
    """

    duration_s: float = 0.0
    spread: float = 0.0
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    checkpoint_every_s: float = 0.0


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the core sees it: nothing here needs a file or a network to be understood.

    Attributes:
        name: Given by the user.
        program: What each rank executes.
        options: Shapes it could take, best first; all are acceptable.
        sites: Sites it may use, in order of preference; empty means any.
        min_sites: At how many sites it must take part at once, at least.
        max_sites: At how many at most.
        priority: Higher goes first.
        grace_s: Seconds from the request to stop to the kill.
        retry: When to try again.
        budget: When to stop.
        recipe: Set when gridloom's own training program runs.
        queue: Where it waits and is charged; empty for the grid's only one.
        user: Whose it is.
        forecast: How long it is predicted to train.
        deadline_s: When it should be done, in seconds since the epoch; 0 for no such time.
        after: Jobs that must have ended first.
        elastic: It may go over, at a checkpoint, from one of its options to another.
        preemptible: It may be evicted.
        spares: Idle nodes that are kept beside it for a loss, as far as there are any when it
            starts; they do not count as its devices.
        on_loss: What happens when a node of it is lost: start anew on other places as soon as
            there are any (``restart``), on fewer devices if need be (``shrink``), or wait for the
            same places to come back until the policy's hold is over (``wait``).
        nodes: Nodes it must use, as ``site/node``; empty for any.
        labels: What its nodes must be labelled with.
        ranks_per_node_max: Ranks on one node at most; 0 for no limit.
        data_sites: Sites that hold its data; empty when it does not matter.
        data_required: It may run nowhere else.
        batch: Set when it is a batch script.
    """

    name: str
    program: Program
    options: tuple[Option, ...]
    sites: tuple[str, ...] = ()
    min_sites: int = 1
    max_sites: int = 1
    priority: int = 0
    grace_s: float = 30.0
    retry: RetryPolicy = RetryPolicy()
    budget: Budget = Budget()
    recipe: GptRecipe | None = None
    queue: str = ""
    user: str = ""
    forecast: Forecast = Forecast()
    deadline_s: float = 0.0
    after: tuple[Dependency, ...] = ()
    elastic: bool = False
    preemptible: bool = True
    spares: int = 0
    on_loss: Literal["restart", "shrink", "wait"] = "restart"
    nodes: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    ranks_per_node_max: int = 0
    data_sites: tuple[str, ...] = ()
    data_required: bool = False
    batch: Batch | None = None
