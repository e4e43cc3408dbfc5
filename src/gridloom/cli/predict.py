"""Predictions for a job that is handed in; what they rest on is imported here and nowhere above."""

from msgspec import structs

from gridloom.cli.plan_trust import read_trust
from gridloom.cli.plan_words import short_seconds
from gridloom.model.inventory import Inventory
from gridloom.model.spec import JobSpec, Option
from gridloom.planner.catalogue import find_accelerator
from gridloom.planner.recipe_time import fabric_of, recipe_step_s, why_unpredicted


def with_step_times(spec: JobSpec, inventory: Inventory) -> JobSpec:
    """Return the job with the predicted time of a training step on each of its options."""
    recipe = spec.recipe
    if recipe is None:
        return spec
    trust = read_trust(None)

    def timed(option: Option) -> Option:
        ranks = option.plan.world_size
        fabric = fabric_of(inventory, option.accelerator, ranks, spec.sites)
        step_s = recipe_step_s(
            (recipe.shape, recipe.training), option.accelerator, ranks, fabric, trust.constants
        )
        return structs.replace(option, step_s=step_s)

    return structs.replace(spec, options=tuple(timed(option) for option in spec.options))


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
