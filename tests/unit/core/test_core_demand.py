"""What a job needs on one grid: chains of groups, and room counted in blocks."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.grids import Ground, grid, must, node, shape, should, site

from gridloom.core.demand import Chain, Demand, needs_of
from gridloom.model.inventory import Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.spec import Option

RACKS = site("a", "r0/4:2", "r0/3", "r1/4", levels="rack")  # site 0, rack 1, node 2, island 3
FLAT = site("b", "4", "4")


def demand(option: Option, *sites: Site, **more: Any) -> Demand:
    return Ground(grid(*(sites or (RACKS,)))).demand(option, **more)


def groups(some: Demand, at: int = 0) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    return [(chain.groups, chain.steps) for chain in some.chains[at]]


def counts(some: Demand, chain: int = 0) -> list[list[int]]:
    return [count.tolist() for count in some.full(some.chains[0][chain]).counts]


# --- needs


def test_a_tensor_group_sits_on_a_node_and_a_replica_at_a_site() -> None:
    needs = needs_of(shape(3, tensor=2, pipeline=2))
    assert needs == [must(1, "node"), must(2, "node"), must(4, "site")]
    assert needs_of(shape(3)) == [must(1, "node")]
    assert needs_of(shape(1, pipeline=2)) == [must(1, "node"), must(2, "site")]


def test_an_option_adds_its_needs_but_for_that_of_the_whole_gang() -> None:
    option = shape(4, pipeline=2, groups=(should(2, "rack"), must(4, "rack"), must(8, "rack")))
    assert needs_of(option) == [must(1, "node"), should(2, "rack"), must(4, "rack")]


# --- chains


def test_what_is_required_has_one_chain() -> None:
    some = demand(shape(2, tensor=2, pipeline=2, groups=(must(2, "island"), must(4, "rack"))))
    assert groups(some) == [(((1, 3), (2, 3), (4, 1)), 0)]
    assert some.chains[0][0].block == (4, 1)


def test_a_wish_gives_way_one_level_at_a_time() -> None:
    some = demand(shape(4, pipeline=2, groups=(should(2, "island"),)))
    assert groups(some) == [
        (((1, 3), (2, 3)), 0),
        (((1, 2), (2, 2)), 1),
        (((1, 2), (2, 1)), 2),
        (((1, 2), (2, 0)), 3),
    ]


def test_the_wish_of_the_largest_group_gives_way_first() -> None:
    some = demand(shape(2, pipeline=4, groups=(should(2, "node"), should(4, "rack"))))
    assert groups(some) == [
        (((1, 2), (2, 2), (4, 1)), 0),
        (((1, 2), (2, 2), (4, 0)), 1),
        (((1, 2), (2, 1), (4, 0)), 2),
        (((1, 2), (2, 0), (4, 0)), 3),
    ]


def test_a_group_sits_as_close_as_the_one_that_holds_it() -> None:
    some = demand(shape(2, pipeline=4, groups=(must(2, "rack"), must(4, "node"))))
    assert groups(some) == [(((1, 2), (2, 2), (4, 2)), 0)]
    wished = demand(shape(2, pipeline=4, groups=(should(2, "rack"), must(4, "node"))))
    assert groups(wished) == [(((1, 2), (2, 2), (4, 2)), 0)]  # its wish costs nothing to give up


def test_no_wish_takes_a_tensor_group_off_its_node() -> None:
    for need in (should(2, "island"), should(2, "node"), must(2, "rack"), must(2, "site")):
        some = demand(shape(2, tensor=2, groups=(need,)))
        assert {level for chain in some.chains[0] for _, level in chain.groups} <= {2, 3}
    some = demand(shape(2, tensor=2, groups=(should(2, "island"),)))
    assert groups(some) == [(((1, 3), (2, 3)), 0), (((1, 2), (2, 2)), 1)]


def test_a_site_that_lacks_a_required_level_is_out_and_a_wish_for_one_is_void() -> None:
    required = demand(shape(2, pipeline=2, groups=(must(2, "rack"),)), RACKS, FLAT)
    assert list(required.chains) == list(required.gang) == [0]
    assert required.eligible.tolist() == [True] * 4 + [False] * 2
    wished = demand(shape(2, pipeline=2, groups=(should(2, "rack"),)), RACKS, FLAT)
    assert groups(wished, 1) == [(((1, 2), (2, 0)), 0)]


def test_groups_that_do_not_divide_the_gang_are_refused() -> None:
    assert demand(shape(4, groups=(must(3, "node"),))).chains == {}


# --- the whole gang


@pytest.mark.parametrize(
    ("needs", "want", "together"),
    [
        ((), (0, 0), False),
        ((must(4, "rack"),), (1, 1), True),
        ((should(4, "rack"),), (0, 1), False),
        ((must(4, "rack"), should(8, "node")), (1, 2), True),
        ((must(4, "site"),), (0, 0), True),
        ((should(4, "spine"),), (0, 0), False),
    ],
)
def test_the_level_of_the_gang(needs: Any, want: tuple[int, int], together: bool) -> None:
    some = demand(shape(4, groups=needs))
    assert some.gang == {0: want}
    assert some.together == together


def test_a_site_without_the_level_of_the_gang_is_out() -> None:
    some = demand(shape(2, groups=(must(2, "rack"),)), FLAT, RACKS)
    assert some.gang == {1: (1, 1)}
    assert not some.eligible[:2].any()


# --- who may use what


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, [1, 1, 0, 0, 1, 1]),
        ({"sites": ("b",)}, [0, 0, 0, 0, 1, 1]),
        ({"labels": {"disk": "nvme"}}, [0, 1, 0, 0, 0, 0]),
        ({"nodes": ("a/n0", "b/n1", "b/n9")}, [1, 0, 0, 0, 0, 1]),
        ({"queue": "x"}, [1, 1, 0, 0, 0, 0]),
        ({"data_sites": ("a",)}, [1, 1, 0, 0, 1, 1]),
        ({"data_sites": ("a",), "data_required": True}, [1, 1, 0, 0, 0, 0]),
    ],
)
def test_who_may_use_what(more: dict[str, Any], want: list[int]) -> None:
    nodes = (
        node("1", 0),
        node("1", 1, labels={"disk": "nvme", "x": "y"}, memory_bytes=8),
        node("1", 2, memory_bytes=4),
        node("1 h100", 3),
    )
    some = demand(
        shape(1, memory_bytes=8), site("a", *nodes), site("b", "1", "1", queues=("", "y")), **more
    )
    assert some.eligible.astype(int).tolist() == want
    assert list(some.chains) == sorted({0 if i < 4 else 1 for i in range(6) if want[i]})


# --- blocks


def test_blocks_by_hand() -> None:
    """Rack r0 has islands of 2 and 2 and a node of 3; rack r1 has a node of 4."""
    some = demand(shape(2, tensor=2, pipeline=2))
    assert some.full(some.chains[0][0]).sizes == (4, 2, 2, 1)
    assert counts(some) == [[2], [3, 2], [2, 1, 2], [2, 2, 3, 4]]


def test_blocks_of_islands_and_racks() -> None:
    some = demand(shape(2, tensor=2, pipeline=2, groups=(must(2, "island"), must(4, "rack"))))
    assert some.full(some.chains[0][0]).sizes == (4, 4, 2, 2)
    assert counts(some) == [[2], [1, 1], [2, 1, 2], [1, 1, 1, 2]]


def test_what_is_left_over_in_one_domain_does_not_join_that_of_another() -> None:
    some = demand(shape(2, tensor=3), site("a", *["r0/4"] * 2, "r1/4", levels="rack"))
    assert counts(some) == [[3], [2, 1], [1, 1, 1]]


def test_blocks_of_ranks_with_several_devices() -> None:
    some = demand(shape(2, rank_devices=2))
    assert counts(some) == [[5], [3, 2], [2, 1, 2], [1, 1, 1, 2]]


def test_blocks_count_only_what_may_be_taken() -> None:
    ground = Ground(grid(RACKS, FLAT))
    some = ground.demand(shape(2), sites=("a",))
    chain = some.chains[0][0]
    available = np.array([1, 2, 0, 4, 4, 4])
    blocks = some.blocks(chain, available, ground.capacity)
    assert blocks.counts[0].tolist() == [7, 0]
    assert available.tolist() == [1, 2, 0, 4, 4, 4]
    assert some.full(chain) is some.full(chain)


@pytest.mark.parametrize(
    ("most", "resources", "want"),
    [
        (0, (), [[11], [7, 4], [4, 3, 4], [2, 2, 3, 4]]),
        (3, (), [[9], [6, 3], [3, 3, 3], [2, 2, 3, 3]]),
        (1, (), [[3], [2, 1], [1, 1, 1], [1, 1, 1, 1]]),
        (0, (("cpus", 2),), [[6], [5, 1], [2, 3, 1], [2, 2, 3, 1]]),
        (2, (("cpus", 2), ("tapes", 1)), [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]),
    ],
)
def test_nodes_are_limited_by_more_than_their_devices(
    most: int, resources: Any, want: list[list[int]]
) -> None:
    cpus = (5, 6, 2)
    nodes = (
        node(text, number, resources={"cpus": cpus[number]})
        for number, text in enumerate(("r0/4:2", "r0/3", "r1/4"))
    )
    some = demand(
        shape(1, rank_resources=resources),
        site("a", *nodes, levels="rack"),
        ranks_per_node_max=most,
    )
    assert some.bounded == bool(most or resources)
    if not most:  # a gang of one rank needs no more than one a node
        big = shape(9, rank_resources=resources)
        some = demand(big, some.tree.sites[0])
    assert counts(some) == want


def test_what_the_host_has_left_counts_not_what_it_has() -> None:
    ground = Ground(grid(site("a", node("4", resources={"cpus": 8}))))
    option = shape(4, rank_resources=(("cpus", 2),))
    ground.run(shape(1, rank_resources=(("cpus", 3),)))
    some = ground.demand(option)
    blocks = ground.finder(some).blocks(some.chains[0][0])
    assert blocks.counts[0].tolist() == [2]
    assert some.full(some.chains[0][0]).counts[0].tolist() == [4]


def test_a_host_that_was_made_smaller_takes_nothing_from_its_neighbours() -> None:
    """Who runs there has more than there is now, and so less than nothing is free."""
    nodes = (node("4", 0, resources={"cpus": 2}), node("4", 1, resources={"cpus": 8}))
    ground = Ground(grid(site("a", *nodes)))
    task = TaskPlacement(site="a", node="n0", address="", devices=(0,))
    large = Placement(option=shape(1, rank_resources=(("cpus", 8),)), tasks=(task,))
    ground.capacity.take(ground.capacity.holding(large))
    assert ground.capacity.host("cpus").tolist() == [-6, 8]
    assert ground.where(shape(4, rank_resources=(("cpus", 2),))) == "a/n1:4"


# --- useful


def test_chains_are_equal_when_they_keep_the_same_together() -> None:
    assert Chain(((1, 2),)) == Chain(((1, 2),), 0)
    assert Chain(((1, 2),)) != Chain(((1, 2),), 1)
