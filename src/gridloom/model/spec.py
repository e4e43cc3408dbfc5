"""What a user asks: a job, the shapes it could take, and the policies it is run under."""

from typing import Literal

import msgspec

from gridloom.model.parallel import ParallelPlan, Sync
from gridloom.model.recipe import GptRecipe, GptShape, Training


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A shape that a job could take, computed by the planner before any placing.

    Attributes:
        accelerator: Kind of device.
        plan: How the model is cut; ``plan.world_size`` devices are needed.
        memory_bytes: Predicted need of one rank; 0 when unknown.
        step_s: Predicted seconds of a training step; 0 when unknown.
    """

    accelerator: str
    plan: ParallelPlan
    memory_bytes: int = 0
    step_s: float = 0.0


class ShapeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says about its shape; the planner turns it into options.

    Attributes:
        accelerator: Kind of device.
        count_min: Devices over the whole job, at least.
        count_max: At most; 0 means as many as there are.
        sites: Sites it may use; empty means any.
        min_sites: At how many sites it must take part at once, at least.
        max_sites: At how many at most.
        tensor: Ranks that share each matrix.
        pipeline: Stages of layers.
        context: Ranks that share each sequence.
        data: Copies of the model; 0 means as many as fit.
        sync: How copies at different sites stay one model.
        shape: The model, when gridloom's own training program runs.
        training: How it is trained, when gridloom's own training program runs.
    """

    accelerator: str
    count_min: int
    count_max: int
    sites: tuple[str, ...] = ()
    min_sites: int = 1
    max_sites: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    data: int = 0
    sync: Sync = "every_step"
    shape: GptShape | None = None
    training: Training | None = None

    @property
    def replica_ranks(self) -> int:
        """Ranks that hold one full copy of the model."""
        return self.tensor * self.pipeline * self.context


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What each rank executes.

    Attributes:
        argv: The command line of one rank.
        workdir: Absolute path in which it starts.
        env: Variables added to the environment.
    """

    argv: tuple[str, ...]
    workdir: str
    env: dict[str, str] = msgspec.field(default_factory=dict)


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a failed attempt is followed by another.

    Attributes:
        max_restarts: Attempts after the first, at most.
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


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
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
