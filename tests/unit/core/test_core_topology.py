"""The grid as arrays: tree order, levels of different depth, islands."""

import numpy as np
import pytest
from tests.unit.core.grids import grid, node, site

from gridloom.core.topology import Tree

DEEP = site("deep", "s0/r0/2", "s1/r0/2", "s0/r1/2", "s0/r0/4", levels="spine rack")
FLAT = site("flat", "3", "1")


def of_level(tree: Tree, level: int) -> list[tuple[int, int]]:
    return [tree.span(level, domain) for domain in range(tree.count(level))]


def test_nodes_of_a_domain_come_together_where_its_first_stands() -> None:
    tree = Tree(grid(DEEP, FLAT))
    assert tree.domains == ("deep/n0", "deep/n3", "deep/n2", "deep/n1", "flat/n0", "flat/n1")
    assert [node.name for node in tree.nodes] == ["n0", "n3", "n2", "n1", "n0", "n1"]
    assert [tree.number[domain] for domain in tree.domains] == list(range(6))
    assert tree.node_site.tolist() == [0, 0, 0, 0, 1, 1]


def test_racks_of_one_name_under_two_spines_are_two() -> None:
    tree = Tree(grid(DEEP))
    assert (tree.node_level, tree.unit_level) == (3, 3)
    assert of_level(tree, 0) == [(0, 4)]
    assert of_level(tree, 1) == [(0, 3), (3, 4)]
    assert of_level(tree, 2) == [(0, 2), (2, 3), (3, 4)]
    assert of_level(tree, 3) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_site_with_fewer_levels_has_them_below_the_site_in_one_domain_each() -> None:
    tree = Tree(grid(FLAT, DEEP))
    assert of_level(tree, 1) == [(0, 2), (2, 5), (5, 6)]
    assert of_level(tree, 2) == [(0, 2), (2, 4), (4, 5), (5, 6)]
    assert [tree.level_name(0, level) for level in range(4)] == ["site", "site", "site", "node"]
    assert [tree.level_name(1, level) for level in range(4)] == ["site", "spine", "rack", "node"]
    assert [tree.level(0, name) for name in ("site", "spine", "rack", "node", "island")] == [
        0,
        None,
        None,
        3,
        3,
    ]
    assert [tree.level(1, name) for name in ("site", "spine", "rack", "node", "leaf")] == [
        0,
        1,
        2,
        3,
        None,
    ]


def test_levels_of_one_name_may_have_different_depths() -> None:
    tree = Tree(grid(site("a", "r0/1", levels="rack"), site("b", "r0/p0/1", levels="rack pod")))
    assert (tree.level(0, "rack"), tree.level(1, "rack")) == (2, 1)


def test_a_node_that_does_not_say_where_it_sits_has_a_domain_without_a_name() -> None:
    tree = Tree(grid(site("a", "r0/1", "1", "r0/1", "1", levels="rack")))
    assert tree.domains == ("a/n0", "a/n2", "a/n1", "a/n3")
    assert of_level(tree, 1) == [(0, 2), (2, 4)]


def test_a_path_that_is_too_long_ends_where_the_levels_do() -> None:
    tree = Tree(grid(site("a", "r0/x/1", "r0/y/1", levels="rack")))
    assert of_level(tree, 1) == [(0, 2)]


@pytest.mark.parametrize(
    ("text", "sizes", "firsts"),
    [
        ("4:2", [2, 2], [0, 2]),
        ("5:2", [2, 2, 1], [0, 2, 4]),  # the last may be smaller
        ("4:4", [4], [0]),
        ("4:9", [4], [0]),
        ("4", [4], [0]),
        ("0:2", [0], [0]),
    ],
)
def test_units_are_islands(text: str, sizes: list[int], firsts: list[int]) -> None:
    tree = Tree(grid(site("a", "1:0", text)))
    assert tree.unit_devices.tolist() == [1, *sizes]
    assert tree.unit_first.tolist() == [0, *firsts]
    assert tree.unit_node.tolist() == [0, *[1] * len(sizes)]
    assert tree.first_unit.tolist() == [0, 1, 1 + len(sizes)]
    assert tree.unit_level - tree.node_level == (len(sizes) > 1)
    assert tree.level(0, "island") == tree.unit_level


def test_islands_are_a_level_of_the_whole_grid() -> None:
    tree = Tree(grid(site("a", "4:2", "3")))
    assert of_level(tree, 1) == [(0, 2), (2, 3)]
    assert of_level(tree, 2) == [(0, 1), (1, 2), (2, 3)]
    assert tree.level_name(0, 2) == "island"
    assert tree.per_unit([True, False]).tolist() == [True, True, False]


def test_what_is_within_and_what_is_above() -> None:
    tree = Tree(grid(FLAT, DEEP))
    assert tree.within(3, 0, 1) == (2, 6)  # nodes of the deep site
    assert tree.within(2, 1, 1) == (1, 3)  # racks of its first spine
    assert tree.within(2, 2, 3) == (3, 4)
    assert [tree.above(1, unit) for unit in range(6)] == [0, 0, 1, 1, 1, 2]
    assert [tree.above(3, unit) for unit in range(6)] == [0, 1, 2, 3, 4, 5]
    assert tree.above_all(2, np.array([0, 3, 4, 5])).tolist() == [0, 1, 2, 3]


def test_nodes_of_one_kind_suit_the_same_jobs() -> None:
    nodes = (
        node("1", 0),
        node("2:1", 1, path=("r",), resources={"cpus": 9}),  # what is free may differ
        node("1", 2, memory_bytes=8),
        node("1", 3, labels={"a": "1", "b": "2"}),
        node("1", 4, labels={"b": "2", "a": "1"}),
        node("1 h100", 5),
    )
    tree = Tree(grid(site("a", *nodes), site("b", node("1"))))
    assert tree.kinds.tolist() == [0, 0, 1, 2, 2, 3, 4]
    assert tree.samples == (0, 2, 3, 5, 6)
    assert tree.totals == {"cpu": 7, "h100": 1}


def test_sites_without_nodes_are_left_out() -> None:
    tree = Tree(grid(site("void", levels="spine rack"), FLAT))
    assert [site.name for site in tree.sites] == ["flat"]
    assert tree.node_level == 1


def test_an_empty_grid_has_nothing() -> None:
    tree = Tree(grid())
    assert tree.domains == ()
    assert (tree.node_level, tree.unit_level) == (1, 1)
    assert tree.totals == {}
    assert [tree.count(level) for level in range(2)] == [0, 0]


def test_the_units_of_a_node_by_name() -> None:
    tree = Tree(grid(site("a", "1", "4:2")))
    assert list(tree.units_of("a/n1")) == [1, 2]
    assert list(tree.units_of("a/n9")) == []
