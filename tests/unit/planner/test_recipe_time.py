"""Predicted training steps of the recipe: what is known, what is refused, what a link costs."""

import msgspec
import pytest

from gridloom.model.inventory import Inventory, Link, Node, Site
from gridloom.model.parallel import ParallelPlan, SiteSync
from gridloom.model.recipe import GptShape, Training
from gridloom.planner.constants import Constants
from gridloom.planner.flops import flops_per_token
from gridloom.planner.hardware import Fabric
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.recipe_time import (
    as_plan,
    as_transformer,
    fabric_of,
    recipe_step_s,
    why_unpredicted,
)
from gridloom.planner.shape import parameter_count, step_flops

SHAPE = GptShape(layers=24, hidden=2048, heads=16, kv_heads=8, ffn=5632, vocabulary=257)
TRAINING = Training(steps=10, global_batch=64, sequence_length=2048, precision="bf16")


def constants(_: str) -> Constants:
    return Constants()


def step_s(ranks: int, training: Training = TRAINING, fabric: Fabric | None = None) -> float:
    plan = ParallelPlan(data=ranks)
    return recipe_step_s((SHAPE, training), "h100", plan, fabric or Fabric(), constants)


def site(name: str, nodes: int, count: int = 8, accelerator: str = "h100") -> Site:
    return Site(
        name=name,
        kind="local",
        nodes=tuple(
            Node(name=f"{name}{n}", address="", accelerator=accelerator, count=count)
            for n in range(nodes)
        ),
    )


@pytest.mark.parametrize("tied", [True, False])
def test_the_recipes_model_is_the_planners(tied: bool) -> None:
    shape = GptShape(
        layers=4, hidden=256, heads=8, kv_heads=2, ffn=704, vocabulary=512, tied_embeddings=tied
    )
    model = as_transformer(shape)
    assert count_parameters(model).total == parameter_count(shape)
    assert flops_per_token(model, 128) == step_flops(shape, 1, 128)


def test_its_plan_says_what_the_recipe_makes_of_a_cut() -> None:
    plan = as_plan(TRAINING, ParallelPlan(data=8))
    assert (plan.world_size, plan.data, plan.zero, plan.micro_batch) == (8, 8, 0, 8)
    assert not plan.overlap_gradients
    half = msgspec.structs.replace(TRAINING, precision="fp16", micro_batch=2)
    how = SiteSync(kind="outer", every=8)
    cut = as_plan(half, ParallelPlan(tensor=2, pipeline=2, data=2, zero=1, site_sync=how))
    assert (cut.tensor, cut.pipeline, cut.data, cut.zero) == (2, 2, 2, 1)
    assert (cut.micro_batch, cut.precision, cut.site_sync) == (2, "fp16", SiteSync())


def test_a_step_is_longer_than_its_flops_at_peak_and_shorter_with_more_ranks() -> None:
    best_s = step_flops(SHAPE, 64 * 2048, 2048) / (8 * 989e12)
    assert 1.5 * best_s < step_s(8) < 10 * best_s
    assert step_s(16) < step_s(8) < step_s(1)


@pytest.mark.parametrize(
    ("accelerator", "precision", "said"),
    [("cpu", "bf16", "no data sheet of `cpu`"), ("h100", "fp32", "fp32"), ("h100", "bf16", "")],
)
def test_says_what_cannot_be_predicted(accelerator: str, precision: str, said: str) -> None:
    training = Training(steps=1, global_batch=8, sequence_length=128, precision=precision)
    why = why_unpredicted(training, accelerator)
    assert (said in why) if said else not why
    predicted = recipe_step_s((SHAPE, training), accelerator, ParallelPlan(), Fabric(), constants)
    assert bool(predicted) == (not said)


def test_sites_are_taken_largest_first_and_their_link_costs_time() -> None:
    inventory = Inventory(
        sites=(site("small", 1), site("large", 2), site("other", 4, accelerator="a100")),
        links=(
            Link(between=("small", "large"), bandwidth_bits_per_s=8e9, latency_s=0.02),
            Link(between=("other", "large"), bandwidth_bits_per_s=8e6, latency_s=1.0),
        ),
    )
    one = fabric_of(inventory, "h100", 16, ())
    assert (one.sites, one.node, one.wan_bytes_per_s) == (1, 8, 0.0)
    two = fabric_of(inventory, "h100", 24, ())
    assert (two.sites, two.wan_bytes_per_s, two.wan_latency_s) == (2, 1e9, 0.02)
    # Two sites: each sends its fp32 gradients once over the link.
    gradients = 4 * parameter_count(SHAPE)
    more = step_s(24, fabric=two) - step_s(24, fabric=one)
    assert more == pytest.approx(gradients / 1e9 + 2 * 0.02, rel=0.02)
    assert fabric_of(inventory, "h100", 8, ("small",)).sites == 1
