"""The cut of a model that fits on no device, found by the planner's search."""

from typing import Any

import pytest
from msgspec.structs import replace

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.plan_check import copies_problems, cut_problems
from gridloom.model.recipe import GptShape, Training
from gridloom.model.spec import ShapeRequest
from gridloom.model.transformer import Experts
from gridloom.planner.constants import Constants
from gridloom.planner.options import options, room_bytes
from gridloom.planner.recipe_cut import with_cut

LARGE = GptShape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336)
SPARSE = replace(LARGE, layers=16, experts=Experts(count=8, per_token=2, ffn=7168))
TRAINING = Training(steps=10, global_batch=64, sequence_length=4096, precision="bf16")
GIB = 2**30


def grid(kind: str = "h100", nodes: int = 4) -> Inventory:
    def site(name: str) -> Site:
        return Site(
            name=name,
            kind="local",
            nodes=tuple(
                Node(name=f"{name}{i}", address="", accelerator=kind, count=8,
                     memory_bytes=80 * GIB)
                for i in range(nodes)
            ),
        )  # fmt: skip

    return Inventory(sites=(site("north"), site("south")))


def constants(_: str) -> Constants:
    return Constants()


def request(count: int, **more: Any) -> ShapeRequest:
    asked = {"shape": LARGE, "training": TRAINING, "cut": "auto", "accelerator": "h100", **more}
    return ShapeRequest(count_min=count, count_max=count, **asked)


@pytest.mark.parametrize(("shape", "sites"), [(LARGE, 1), (LARGE, 2), (SPARSE, 1)])
def test_a_cut_that_fits_and_that_the_runtime_can_build(shape: GptShape, sites: int) -> None:
    asked = request(16, shape=shape, min_sites=sites, max_sites=sites)
    (whole,) = options(asked, grid()).options
    assert whole.memory_bytes > room_bytes(asked, grid()) == 80 * GIB
    chosen = with_cut(asked, grid(), constants)
    plan = chosen.cut
    assert isinstance(plan, ParallelPlan)
    assert plan.is_spread
    assert cut_problems(plan, shape) == []
    assert copies_problems(plan, sites, TRAINING.global_batch) == []
    (option,) = options(chosen, grid()).options
    assert 0 < option.memory_bytes <= 80 * GIB
    assert option.plan == replace(plan, data=16 // plan.replica_ranks)
    assert (option.groups != ()) == (sites > 1)


def test_what_cannot_be_searched_stays_as_it_was() -> None:
    for asked, there in (
        (request(16, accelerator="cpu"), grid("cpu")),
        (request(1), grid()),  # one device holds no 8 billion parameters
        (request(16, shape=None), grid()),
    ):
        assert with_cut(asked, there, constants) == asked
    assert with_cut(replace(request(9), count_max=0), grid(nodes=0), constants).cut == "auto"
    assert room_bytes(request(16, sites=("south",)), grid("a100")) == 0
