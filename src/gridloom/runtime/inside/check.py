"""Whether a plan can be carried out on a site: the rules of every plan, raised together."""

from gridloom.base.errors import InputError, Problem
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import cut_problems, length_problems, site_problems
from gridloom.model.recipe import GptShape

_DEGREES = ("tensor", "pipeline", "context", "data")


def check_plan(plan: ParallelPlan, ranks: int, shape: GptShape | None = None) -> None:
    """Raise ``InputError`` unless a site of ``ranks`` can carry ``plan`` out.

    Args:
        plan: How the model is cut inside the site.
        ranks: Of the site.
        shape: Of gridloom's own model; ``None`` for a module of the user's, which is cut along
            its data axis alone.
    """
    problems = cut_problems(plan, shape)
    if plan.world_size != ranks:
        cut = " x ".join(f"{name} {getattr(plan, name)}" for name in _DEGREES)
        text = f"{cut} is {plan.world_size} ranks, and the site has {ranks}"
        remedy = "choose degrees whose product is the ranks of the site"
        problems = [Problem(text, remedy, field="parallel"), *problems]
    if problems or (problems := site_problems(plan)):
        raise InputError(problems)


def check_length(plan: ParallelPlan, tokens: int) -> None:
    """Raise ``InputError`` unless sequences of so many tokens can be cut as ``plan`` says."""
    if problems := length_problems(plan, tokens):
        raise InputError(problems)
