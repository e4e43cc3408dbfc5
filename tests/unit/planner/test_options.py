"""The shapes a job could take, and why there is none."""

from typing import Any

import pytest

from gridloom.model.inventory import Inventory, Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.recipe import GptShape, Training
from gridloom.model.spec import GroupNeed, ShapeRequest
from gridloom.planner.options import OPTIONS_MAX, options
from gridloom.planner.recipe_memory import memory_bytes

SHAPE = GptShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=192)
TRAINING = Training(steps=10, global_batch=8, sequence_length=128)


def node(name: str, kind: str, count: int) -> Node:
    return Node(name=name, address="127.0.0.1", accelerator=kind, count=count)


GRID = Inventory(
    sites=(
        Site(name="a", kind="local", nodes=(node("a1", "cpu", 3), node("a2", "h100", 8))),
        Site(name="b", kind="local", nodes=(node("b1", "cpu", 5), node("b2", "cpu", 1))),
        Site(name="c", kind="local", nodes=(node("c1", "cpu", 2),)),
    )
)


def request(least: int, most: int, **more: Any) -> ShapeRequest:
    return ShapeRequest(
        accelerator=more.pop("kind", "cpu"), count_min=least, count_max=most, **more
    )


def sizes(wanted: ShapeRequest) -> list[int]:
    return [option.plan.world_size for option in options(wanted, GRID).options]


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        (request(4, 4), [4]),
        (request(100, 100), [100]),  # an exact count is placed, or not, by the core
        (request(4, 8), [6, 5, 4]),  # site b alone holds 6
        (request(4, 8, max_sites=2), [8, 7, 6, 5, 4]),
        (request(8, 0, max_sites=3), [11, 10, 9, 8]),
        (request(1, 0, sites=("c",), max_sites=3), [2, 1]),
        (
            request(2, 0, max_sites=3, cut=ParallelPlan(tensor=2)),
            [8, 6, 4, 2],
        ),  # odd devices of a node are left over
        (request(1, 0, max_sites=3, cut=ParallelPlan(pipeline=2, context=2)), [8, 4]),
        (request(1, 0, max_sites=3, data=3), [3]),
        (request(4, 4, data=2, cut=ParallelPlan(pipeline=2)), [4]),
        (request(1, 0, max_sites=3, shape=SHAPE, training=TRAINING), [8, 7, 6, 5, 4, 3, 2, 1]),
        (request(1, 0, kind="h100", min_sites=1), [8, 7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_counts_largest_first(wanted: ShapeRequest, counts: list[int]) -> None:
    assert sizes(wanted) == counts


def test_memory_is_known_for_the_recipe_only() -> None:
    (option,) = options(request(4, 4, shape=SHAPE, training=TRAINING), GRID).options
    assert option.memory_bytes == memory_bytes(SHAPE, TRAINING, ParallelPlan(data=4))
    (option,) = options(request(4, 4, cut=ParallelPlan(tensor=2, context=2)), GRID).options
    assert option.memory_bytes == 0
    assert (option.plan.tensor, option.plan.context, option.plan.data) == (2, 2, 1)


def recipe(least: int, most: int, **more: Any) -> ShapeRequest:
    return request(least, most, shape=SHAPE, training=TRAINING, **more)


def test_a_cut_of_the_recipe_wants_as_many_ranks_at_every_site() -> None:
    cut = ParallelPlan(tensor=2)
    (option,) = options(recipe(4, 4, min_sites=2, max_sites=2, cut=cut), GRID).options
    assert option.plan == ParallelPlan(tensor=2, data=2)
    assert option.groups == (GroupNeed(ranks=2, level="site"),)
    assert option.memory_bytes == memory_bytes(SHAPE, TRAINING, option.plan, 2)
    assert sizes(recipe(2, 0, min_sites=2, max_sites=2, cut=cut)) == [
        4
    ]  # site a has 2 and one over
    (alone,) = options(recipe(4, 4, cut=cut), GRID).options
    assert alone.groups == ()
    (either,) = options(recipe(4, 4, max_sites=2, cut=cut), GRID).options
    assert either.groups == (GroupNeed(ranks=4, level="site"),)


def test_sizes_that_cannot_share_the_work_are_not_offered() -> None:
    # 8 sequences: sharded copies take equal shares of them
    assert sizes(recipe(1, 0, cut=ParallelPlan(zero=1))) == [4, 2, 1]
    assert sizes(recipe(1, 6, cut=ParallelPlan(zero=1, shard=2))) == [4, 2]
    assert sizes(recipe(1, 6, cut=ParallelPlan(pipeline=2))) == [4, 2]
    choice = options(recipe(5, 6, cut=ParallelPlan(zero=1)), GRID)
    assert choice.options == ()
    assert choice.sentence == (
        "no allowed number of accelerators can share the work; with 6, `global_batch` is 8, and 6"
        " copies of the model must have equal shares of it"
    )
    assert choice.remedy == "choose a multiple of 6"


def test_where_nothing_is_said_of_the_cut_copies_are_whole() -> None:
    (option,) = options(recipe(4, 4, cut="auto"), GRID).options
    assert option.plan == ParallelPlan(data=4)


def test_what_is_moved_to_the_host_is_still_a_core_s_memory() -> None:
    cut = ParallelPlan(zero=3, offload=("parameters",))
    (core,) = options(recipe(2, 2, cut=cut), GRID).options
    (device,) = options(recipe(2, 2, cut=cut, kind="h100"), GRID).options
    assert device.memory_bytes < core.memory_bytes
    assert core.plan.offload == ("parameters",)


def test_not_too_many() -> None:
    grid = Inventory(sites=(Site(name="x", kind="local", nodes=(node("n", "cpu", 1000),)),))
    found = options(request(1, 0), grid).options
    assert len(found) == OPTIONS_MAX
    assert found[0].plan.world_size == 1000


@pytest.mark.parametrize(
    ("wanted", "sentence", "remedy"),
    [
        (
            request(4, 4, data=3),
            "the parallel degrees make 3 ranks, which `accelerators` does not allow",
            "ask for cpu:3, or leave out `data`",
        ),
        (
            request(1, 4, data=3, cut=ParallelPlan(tensor=2)),
            "the parallel degrees make 6 ranks, which `accelerators` does not allow",
            "ask for cpu:6, or leave out `data`",
        ),
        (
            request(9, 9, shape=SHAPE, training=TRAINING),
            "a global batch of 8 sequences cannot be shared among 9 ranks",
            "ask for at most 8 accelerators, or raise the global batch",
        ),
        (
            request(7, 8),
            "the job needs cpu:7 at least, and the grid has cpu:6 for it at one site",
            "ask for fewer accelerators, or allow more sites",
        ),
        (
            request(12, 0, max_sites=3),
            "the job needs cpu:12 at least, and the grid has cpu:11 for it at up to 3 sites",
            "ask for fewer accelerators, or allow more sites",
        ),
        (
            request(1, 0, kind="h100", min_sites=2, max_sites=2),
            "the job needs h100:1 at least, and the grid has h100:0 for it at up to 2 sites",
            "ask for fewer accelerators, or allow more sites",
        ),
        (
            request(4, 4, cut=ParallelPlan(pipeline=3)),
            "a copy of the model takes 3 accelerators (tensor x pipeline x context), and no"
            " multiple of that is both asked for and there",
            "ask for a multiple of 3 accelerators",
        ),
    ],
)
def test_why_there_is_none(wanted: ShapeRequest, sentence: str, remedy: str) -> None:
    choice = options(wanted, GRID)
    assert choice.options == ()
    assert (choice.sentence, choice.remedy) == (sentence, remedy)
