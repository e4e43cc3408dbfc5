"""How the recipe's model is cut where no device holds a whole copy of it: the planner's search."""

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from gridloom.model.inventory import Inventory
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import copies_problems, cut_problems, length_problems
from gridloom.model.recipe import GptShape, Training
from gridloom.model.spec import ShapeRequest
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.constants import Constants
from gridloom.planner.costs import cost_model
from gridloom.planner.options import counts, room_bytes
from gridloom.planner.recipe_memory import memory_bytes
from gridloom.planner.recipe_time import as_plan, as_transformer, fabric_of
from gridloom.planner.search import Goal, search
from gridloom.planner.search_space import SearchSpace

_LOOKED_AT = 4000
"""Plans, best first, of which the first that the runtime can carry out is taken."""

_COUNTS_MAX = 16
"""Numbers of devices that are searched, the largest ones."""


def with_cut(
    request: ShapeRequest, inventory: Inventory, constants: Callable[[str], Constants]
) -> ShapeRequest:
    """Return the request with the fastest cut that fits; as it was where none is known.

    Over several sites all have as many ranks, at as few sites as the request allows.

    Args:
        request: Of a job of the recipe whose whole copies fit nowhere.
        inventory: The grid.
        constants: Of a family of accelerators.
    """
    kind, shape, training = find_accelerator(request.accelerator), request.shape, request.training
    any_copies = structs.replace(request, training=None, data=0)
    devices = counts(any_copies, ParallelPlan(), inventory)[:_COUNTS_MAX]
    if kind is None or shape is None or training is None or not devices:
        return request
    room = room_bytes(request, inventory)
    fabric = fabric_of(inventory, request.accelerator, devices[0], request.sites)
    space = SearchSpace(
        model=as_transformer(shape),
        accelerator=structs.replace(kind, memory_bytes=room or kind.memory_bytes),
        fabric=structs.replace(fabric, sites=request.min_sites),
        devices=tuple(devices),
        global_batch=training.global_batch,
        sequence=training.sequence_length,
        uneven_stages=False,
        schedule=("1f1b",),
        data=(request.data,) if request.data else (),
        expert_tensor=(0, 2, 4, 8) if shape.experts is not None else (0,),
        micro_batch=(training.micro_batch,) if training.micro_batch else (),
        base=as_plan(training, ParallelPlan()),
    )
    space = replace(space, precision=(space.base.precision,))
    found = search(space, cost_model(constants(kind.family)), Goal(top=_LOOKED_AT))
    cuts = (_as_cut(ranked.plan) for ranked in found.plans)
    chosen = (plan for plan in cuts if _works(plan, (shape, training), request.min_sites, room))
    return structs.replace(request, cut=next(chosen, request.cut))


def _as_cut(plan: ParallelPlan) -> ParallelPlan:
    """Return what the runtime is told of a plan."""
    return ParallelPlan(
        tensor=plan.tensor,
        pipeline=plan.pipeline,
        context=plan.context,
        data=plan.data,
        expert=plan.expert,
        expert_tensor=plan.expert_tensor if plan.expert > 1 else 0,
        sequence_parallel=plan.sequence_parallel,
        zero=plan.zero,
        micro_batch=plan.micro_batch,
        recompute=plan.recompute,
    )


def _works(plan: ParallelPlan, recipe: tuple[GptShape, Training], sites: int, room: int) -> bool:
    """Return whether the runtime can carry a plan out, in the room that a rank has."""
    shape, training = recipe
    if plan.data % sites or cut_problems(plan, shape):
        return False
    length = length_problems(plan, training.sequence_length)
    if length or copies_problems(plan, sites, training.global_batch, training.micro_batch):
        return False
    return not 0 < room < memory_bytes(shape, training, plan, sites)
