"""The shapes that a job could take on the grid, best first, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

from gridloom.model.inventory import Inventory, Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.spec import Option, ShapeRequest
from gridloom.planner.recipe_memory import memory_bytes

OPTIONS_MAX = 64
"""No more shapes than this are offered: the largest ones."""


@dataclass(frozen=True)
class Choice:
    """What a job may choose from.

    Attributes:
        options: Shapes, best first.
        sentence: Why there is none; empty when there is one.
        remedy: What would help then.
    """

    options: tuple[Option, ...]
    sentence: str = ""
    remedy: str = ""


def options(request: ShapeRequest, inventory: Inventory) -> Choice:
    """Return the shapes that ``request`` allows, largest first.

    An exact count gives that one shape, whether or not the grid could hold it. A range gives each
    number of devices in it that the grid could hold at up to ``max_sites`` sites were all of them
    free. Every shape is a whole number of copies of the model and, for the recipe, leaves each
    rank a sequence a training step. Where the planner is to choose how copies stay one model, every
    step stands until it has (``sync_job``), for that takes the time of a training step.
    """
    counts = _counts(request, inventory)
    if not counts:
        return Choice((), *_why_none(request, inventory))
    return Choice(tuple(_option(request, count) for count in counts))


def _counts(request: ShapeRequest, inventory: Inventory) -> Sequence[int]:
    replica = request.replica_ranks
    most = request.count_max
    if most != request.count_min:
        capacity = _capacity(request, inventory)
        most = min(capacity, most) if most else capacity
    if request.training:
        most = min(most, request.training.global_batch)
    if request.data:
        pinned = replica * request.data
        return (pinned,) if request.count_min <= pinned <= most else ()
    least = -(-request.count_min // replica) * replica
    return range(most - most % replica, least - 1, -replica)[:OPTIONS_MAX]


def _why_none(request: ShapeRequest, inventory: Inventory) -> tuple[str, str]:
    """Return why there is no count, and what would help."""
    replica, kind = request.replica_ranks, request.accelerator
    pinned = replica * request.data
    least = max(request.count_min, pinned)
    if pinned and (pinned < request.count_min or 0 < request.count_max < pinned):
        return (
            f"the parallel degrees make {pinned} ranks, which `accelerators` does not allow",
            f"ask for {kind}:{pinned}, or leave out `data`",
        )
    if request.training and request.training.global_batch < least:
        batch = request.training.global_batch
        return (
            f"a global batch of {batch} sequences cannot be shared among {least} ranks",
            f"ask for at most {batch} accelerators, or raise the global batch",
        )
    capacity = _capacity(request, inventory)
    if request.count_max != request.count_min and capacity < least:
        where = "one site" if request.max_sites == 1 else f"up to {request.max_sites} sites"
        return (
            f"the job needs {kind}:{least} at least, and the grid has {kind}:{capacity} for it at"
            f" {where}",
            "ask for fewer accelerators, or allow more sites",
        )
    return (
        f"a copy of the model takes {replica} accelerators (tensor x pipeline x context), and no"
        " multiple of that is both asked for and there",
        f"ask for a multiple of {replica} accelerators",
    )


def _option(request: ShapeRequest, count: int) -> Option:
    memory = 0
    if request.shape is not None and request.training is not None:
        memory = memory_bytes(request.shape, request.training, count)
    plan = ParallelPlan(
        tensor=request.tensor,
        pipeline=request.pipeline,
        context=request.context,
        data=count // request.replica_ranks,
        site_sync=SiteSync() if request.sync == "auto" else request.sync,
    )
    return Option(accelerator=request.accelerator, plan=plan, memory_bytes=memory)


def _capacity(request: ShapeRequest, inventory: Inventory) -> int:
    """Return the devices of the ``max_sites`` largest allowed sites; 0 when too few have any."""
    allowed = [s for s in inventory.sites if not request.sites or s.name in request.sites]
    held = sorted((_held(request, site) for site in allowed), reverse=True)
    useful = [count for count in held if count][: request.max_sites]
    return sum(useful) if len(useful) >= request.min_sites else 0


def _held(request: ShapeRequest, site: Site) -> int:
    # Ranks that share a matrix sit in one node, so what is left over in a node is of no use.
    return sum(
        node.count - node.count % request.tensor
        for node in site.nodes
        if node.accelerator == request.accelerator
    )
