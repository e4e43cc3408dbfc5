"""Predictions for a job that is handed in; what they rest on is imported here and nowhere above."""

from dataclasses import replace

from msgspec import structs

from gridloom.cli.plan_trust import read_trust
from gridloom.cli.plan_words import short_seconds
from gridloom.model.inventory import Inventory
from gridloom.model.parallel import SiteSync
from gridloom.model.spec import JobSpec, Option, ShapeRequest
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.recipe_cut import with_cut
from gridloom.planner.recipe_time import fabric_of, recipe_step_s, why_unpredicted
from gridloom.planner.shape import step_flops
from gridloom.planner.sync_forecast import forecast
from gridloom.planner.sync_job import job_sync

_FP32_SHARE = 0.03
"""Of the 16-bit peak, that fp32 products without TF32 reach on the whole: half of a sixteenth."""


def cut_to_fit(request: ShapeRequest, inventory: Inventory) -> ShapeRequest:
    """Return the request of a job whose whole copies fit nowhere, with a cut that fits."""
    return with_cut(request, inventory, read_trust(None).constants)


def with_step_times(spec: JobSpec, inventory: Inventory) -> JobSpec:
    """Return the job with the predicted time of a training step on each of its options."""
    recipe = spec.recipe
    if recipe is None:
        return spec
    constants = read_trust(None).constants
    what = (recipe.shape, recipe.training)

    def timed(option: Option) -> Option:
        kind, plan, how = option.accelerator, option.plan, option.plan.site_sync
        fabric = fabric_of(inventory, kind, plan.world_size, spec.sites)
        if fabric.sites == 1 or how == SiteSync():
            return structs.replace(
                option, step_s=recipe_step_s(what, kind, plan, fabric, constants)
            )
        near = structs.replace(fabric, sites=1)
        step_s = recipe_step_s(what, kind, plan, near, constants)
        asked = job_sync(spec, inventory, step_s)
        if asked is not None and step_s:
            step_s /= forecast(how, replace(asked.situation, step_s=step_s)).tokens_ratio
        return structs.replace(option, step_s=step_s)

    return structs.replace(spec, options=tuple(timed(option) for option in spec.options))


def step_alone_s(spec: JobSpec, inventory: Inventory) -> float:
    """Return the seconds of a training step of the first option as if its sites were one.

    What cannot be predicted is guessed from the data sheet, or is 0 without one.
    """
    recipe, option = spec.recipe, spec.options[0]
    kind = find_accelerator(option.accelerator)
    if recipe is None or kind is None:
        return 0.0
    ranks = option.plan.world_size
    fabric = fabric_of(inventory, option.accelerator, ranks, spec.sites)
    step_s = recipe_step_s(
        (recipe.shape, recipe.training),
        option.accelerator,
        option.plan,
        structs.replace(fabric, sites=1),
        read_trust(None).constants,
    )
    training = recipe.training
    tokens = training.global_batch * training.sequence_length
    flops = step_flops(recipe.shape, tokens, training.sequence_length)
    return step_s or flops / (ranks * kind.flops_16 * _FP32_SHARE)


def step_sentence(spec: JobSpec, option: Option) -> str:
    """Return the predicted time of a training step with its uncertainty, or why there is none."""
    recipe = spec.recipe
    if recipe is None:
        return ""
    why = why_unpredicted(recipe.training, option.accelerator)
    kind = find_accelerator(option.accelerator)
    if why or kind is None:
        return f"cannot be predicted: {why}"
    error = read_trust(None).error(kind.family)
    off = f", ±{error.share:.0%} for nine of ten" if error.share else ""
    return f"{short_seconds(option.step_s)} predicted{off}"
