"""The shapes that a job could take on the grid, best first, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from gridloom.base.errors import Problem
from gridloom.model.inventory import CPU, Inventory, Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.plan_check import copies_problems
from gridloom.model.spec import GroupNeed, Option, ShapeRequest
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
    free. Every shape is a whole number of copies of the model and, for the recipe, one that can
    share the work: where copies are cut, all sites have as many. Where the planner is to choose how
    copies stay one model, every step stands until it has (``sync_job``), and where it is to choose
    the cut, copies are whole.
    """
    plan = ParallelPlan() if request.cut == "auto" else request.cut
    sizes = counts(request, plan, inventory)
    if not sizes:
        return Choice((), *_why_none(request, plan, inventory))
    found = (_option(request, plan, size) for size in sizes if not _amiss(request, plan, size))
    offered = tuple(islice(found, OPTIONS_MAX))
    if not offered:
        return Choice((), *_why_unshared(request, plan, sizes))
    return Choice(offered)


def counts(request: ShapeRequest, plan: ParallelPlan, inventory: Inventory) -> Sequence[int]:
    """Return the numbers of devices that are whole copies of the model, largest first.

    Of the recipe, no more copies than there are sequences in a training step.
    """
    unit = plan.replica_ranks * _even_sites(request, plan)
    most = request.count_max
    if most != request.count_min:
        capacity = _capacity(request, plan, inventory)
        most = min(capacity, most) if most else capacity
    if request.training:
        most = min(most, request.training.global_batch * plan.replica_ranks)
    if request.data:
        pinned = plan.replica_ranks * request.data
        return (pinned,) if request.count_min <= pinned <= most else ()
    least = -(-request.count_min // unit) * unit
    return range(most - most % unit, least - 1, -unit)


def room_bytes(request: ShapeRequest, inventory: Inventory) -> int:
    """Return the memory of the largest device that the request may use; 0 when unknown."""
    return max(
        (
            node.memory_bytes
            for site in inventory.sites
            if not request.sites or site.name in request.sites
            for node in site.nodes
            if node.accelerator == request.accelerator
        ),
        default=0,
    )


def _is_even(request: ShapeRequest, plan: ParallelPlan) -> bool:
    """Return whether sites must have equally many ranks: ``min_sites`` of them, and no more."""
    return request.training is not None and plan.is_spread


def _even_sites(request: ShapeRequest, plan: ParallelPlan) -> int:
    """Return how many sites must have equally many ranks; 1 where they need not."""
    return request.min_sites if _is_even(request, plan) else 1


def _amiss(request: ShapeRequest, plan: ParallelPlan, count: int) -> list[Problem]:
    """Return why so many devices cannot share the recipe's work."""
    training = request.training
    if training is None:
        return []
    copies = replace(plan, data=count // plan.replica_ranks)
    sites = _even_sites(request, plan)
    return copies_problems(copies, sites, training.global_batch, training.micro_batch)


def _why_unshared(
    request: ShapeRequest, plan: ParallelPlan, sizes: Sequence[int]
) -> tuple[str, str]:
    problem = _amiss(request, plan, sizes[0])[0]
    return (
        f"no allowed number of accelerators can share the work; with {sizes[0]}, `{problem.field}`"
        f" {problem.message}",
        problem.remedy,
    )


def _why_none(request: ShapeRequest, plan: ParallelPlan, inventory: Inventory) -> tuple[str, str]:
    """Return why there is no count, and what would help."""
    replica, kind = plan.replica_ranks, request.accelerator
    pinned = replica * request.data
    least = max(request.count_min, pinned)
    if pinned and (pinned < request.count_min or 0 < request.count_max < pinned):
        return (
            f"the parallel degrees make {pinned} ranks, which `accelerators` does not allow",
            f"ask for {kind}:{pinned}, or leave out `data`",
        )
    if request.training and request.training.global_batch * replica < least:
        batch = request.training.global_batch
        return (
            f"a global batch of {batch} sequences cannot be shared among {least} ranks",
            f"ask for at most {batch * replica} accelerators, or raise the global batch",
        )
    capacity = _capacity(request, plan, inventory)
    if request.count_max != request.count_min and capacity < least:
        where = "one site" if request.max_sites == 1 else f"up to {request.max_sites} sites"
        return (
            f"the job needs {kind}:{least} at least, and the grid has {kind}:{capacity} for it at"
            f" {where}",
            "ask for fewer accelerators, or allow more sites",
        )
    unit = replica * _even_sites(request, plan)
    each = f" at each of {request.min_sites} sites" if unit > replica else ""
    return (
        f"a copy of the model takes {replica} accelerators (tensor x pipeline x context), and no"
        f" multiple of that{each} is both asked for and there",
        f"ask for a multiple of {unit} accelerators",
    )


def _option(request: ShapeRequest, plan: ParallelPlan, count: int) -> Option:
    sites = _even_sites(request, plan)
    plan = replace(plan, data=count // plan.replica_ranks)
    memory = 0
    if request.shape is not None and request.training is not None:
        # a core's own memory is the host's
        held = replace(plan, offload=()) if request.accelerator == CPU else plan
        memory = memory_bytes(request.shape, request.training, held, sites)
    sync = SiteSync() if request.sync == "auto" else request.sync
    is_even = _is_even(request, plan) and request.max_sites > 1
    return Option(
        accelerator=request.accelerator,
        plan=replace(plan, site_sync=sync),
        memory_bytes=memory,
        groups=(GroupNeed(ranks=count // sites, level="site"),) if is_even else (),
    )


def _capacity(request: ShapeRequest, plan: ParallelPlan, inventory: Inventory) -> int:
    """Return the devices of the largest sites that may be used at once; 0 when too few have any."""
    allowed = [s for s in inventory.sites if not request.sites or s.name in request.sites]
    held = sorted((_held(request, plan, site) for site in allowed), reverse=True)
    useful = [count for count in held if count][: request.max_sites]
    if len(useful) < request.min_sites:
        return 0
    if _is_even(request, plan):
        return useful[request.min_sites - 1] * request.min_sites
    return sum(useful)


def _held(request: ShapeRequest, plan: ParallelPlan, site: Site) -> int:
    # Ranks that share a matrix sit in one node, so what is left over in a node is of no use.
    return sum(
        node.count - node.count % plan.tensor
        for node in site.nodes
        if node.accelerator == request.accelerator
    )
