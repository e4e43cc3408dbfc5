"""Where the ranks of one shape go, by table."""

import numpy as np
import pytest
from tests.unit.core.grids import NO_FRAGMENTS, Ground, grid, must, node, shape, should, site

from gridloom.core.gang import choices, evenly, fill_first, predicted_step_s
from gridloom.model.inventory import Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.policy import Weights
from gridloom.model.spec import Option, Speed

Rooms = dict[str, list[int]]


def sites(rooms: Rooms, prices: dict[str, float] | None = None) -> list[Site]:
    """Return sites whose nodes n0, n1, ... have that many devices."""
    return [
        site(
            name, *(str(count) for count in counts), price_per_accelerator_hour=(prices or {})[name]
        )
        if prices and name in prices
        else site(name, *(str(count) for count in counts))
        for name, counts in rooms.items()
    ]


def where(
    option: Option,
    rooms: Rooms,
    at: tuple[int, int] = (1, 1),
    *,
    wish: str = "",
    prices: dict[str, float] | None = None,
) -> str:
    ground = Ground(grid(*sites(rooms, prices)), NO_FRAGMENTS)
    wished = tuple(wish.split())
    return ground.where(option, min_sites=at[0], max_sites=at[1], sites=wished)


@pytest.mark.parametrize(
    ("ranks", "at", "rooms", "want"),
    [
        (4, (1, 1), {"a": [4]}, "a/n0:4"),
        (4, (1, 1), {"a": [2, 2]}, "a/n0:2 a/n1:2"),
        (4, (1, 1), {"a": [2], "b": [2]}, "nowhere"),
        (4, (1, 2), {"a": [2], "b": [2]}, "a/n0:2 b/n0:2"),
        (4, (1, 2), {"a": [3], "b": [4]}, "b/n0:4"),  # one site is enough
        (4, (1, 2), {"a": [3], "b": [3]}, "a/n0:3 b/n0:1"),  # filled in order
        (4, (2, 2), {"a": [2], "b": [2]}, "a/n0:2 b/n0:2"),
        (4, (2, 2), {"a": [4], "b": [4]}, "a/n0:2 b/n0:2"),  # rather than 3 + 1
        (4, (2, 2), {"a": [4], "b": [1]}, "a/n0:3 b/n0:1"),  # as even as it can be
        (5, (2, 2), {"a": [4], "b": [4]}, "a/n0:3 b/n0:2"),
        (4, (2, 2), {"a": [4], "b": []}, "nowhere"),
        (7, (3, 3), {"a": [1], "b": [9], "c": [9]}, "a/n0:1 b/n0:3 c/n0:3"),
        (6, (2, 3), {"a": [2], "b": [2], "c": [2]}, "a/n0:2 b/n0:2 c/n0:2"),
        (1, (2, 2), {"a": [4], "b": [4]}, "nowhere"),  # one replica cannot be at two sites
        (4, (3, 2), {"a": [4], "b": [4], "c": [4]}, "nowhere"),
        (4, (0, 1), {"a": [4]}, "a/n0:4"),
        (4, (1, 1), {"a": []}, "nowhere"),
    ],
)
def test_sites(ranks: int, at: tuple[int, int], rooms: Rooms, want: str) -> None:
    assert where(shape(ranks), rooms, at) == want


@pytest.mark.parametrize(
    ("ranks", "counts", "want"),
    [
        (3, [4, 3, 8], "a/n1:3"),  # best fit
        (4, [1, 4, 2], "a/n1:4"),  # fewest nodes
        (5, [1, 4, 2], "a/n0:1 a/n1:4"),  # the largest, then best fit for the rest
        (6, [4, 1, 4], "a/n0:4 a/n2:2"),
        (7, [1, 4, 2], "a/n0:1 a/n1:4 a/n2:2"),
        (2, [2, 2], "a/n0:2"),  # the first among equals
        (8, [1, 4, 2], "nowhere"),
    ],
)
def test_nodes_of_a_site(ranks: int, counts: list[int], want: str) -> None:
    assert where(shape(ranks), {"a": counts}) == want


@pytest.mark.parametrize(
    ("option", "at", "rooms", "want"),
    [
        (shape(1, tensor=2), (1, 1), {"a": [1, 1]}, "nowhere"),  # a tensor group stays together
        (shape(2, tensor=2), (1, 1), {"a": [3, 3]}, "a/n0:2 a/n1:2"),
        (shape(1, tensor=2, pipeline=2), (1, 1), {"a": [2, 3]}, "a/n0:2 a/n1:2"),
        (shape(2, pipeline=3), (1, 2), {"a": [5], "b": [4]}, "a/n0:3 b/n0:3"),
        (shape(2, pipeline=3), (1, 2), {"a": [5], "b": [2]}, "nowhere"),  # a replica too
        (shape(2, pipeline=3), (2, 2), {"a": [9], "b": [1, 2]}, "a/n0:3 b/n0:1 b/n1:2"),
        (shape(3, rank_devices=2), (1, 1), {"a": [3, 5]}, "a/n0:2 a/n1:4"),
        (shape(2, rank_devices=4), (1, 1), {"a": [3, 5]}, "nowhere"),
    ],
)
def test_groups_stay_whole(option: Option, at: tuple[int, int], rooms: Rooms, want: str) -> None:
    assert where(option, rooms, at) == want


@pytest.mark.parametrize(
    ("at", "wish", "prices", "want"),
    [
        ((1, 1), "", {"a": 2.0, "b": 1.0, "c": 3.0}, "b/n0:2"),
        ((1, 1), "c b a", {}, "c/n0:2"),
        ((1, 1), "c b a", {"c": 1.0, "b": 0.5, "a": 1.0}, "b/n0:2"),  # price before liking
        ((1, 1), "c c a b", {}, "c/n0:2"),
        ((2, 2), "", {"a": 2.0, "b": 1.0, "c": 1.5}, "b/n0:1 c/n0:1"),
    ],
)
def test_cheapest_then_liked(
    at: tuple[int, int], wish: str, prices: dict[str, float], want: str
) -> None:
    assert where(shape(2), {"a": [2], "b": [2], "c": [2]}, at, wish=wish, prices=prices) == want


def test_the_sum_is_cheap_not_the_first_site() -> None:
    prices = {"tiny": 1.0, "left": 2.0, "right": 2.0, "dear": 10.0}
    rooms = {"tiny": [1], "dear": [7], "left": [4], "right": [4]}
    assert where(shape(8), rooms, (1, 2), prices=prices) == "left/n0:4 right/n0:4"


def test_the_price_of_a_placement_is_that_of_all_its_devices() -> None:
    ground = Ground(grid(*sites({"a": [8], "b": [8]}, {"b": 2.5})))
    placement = ground.place(shape(4, tensor=2), min_sites=2, max_sites=2)
    assert placement is not None
    assert placement.price_per_hour == 4 * 0.0 + 4 * 2.5
    assert placement.site_ranks() == (("a", 4), ("b", 4))
    assert [task.address for task in placement.tasks] == ["a-0", "b-0"]


def test_many_sites_are_still_placed_quickly() -> None:
    ground = Ground(grid(*sites({f"s{i:02}": [1 + i % 2] for i in range(40)})))
    placement = ground.place(shape(24), min_sites=12, max_sites=12)
    assert placement is not None
    assert len(placement.site_ranks()) == 12


def test_when_there_are_too_many_choices_the_best_of_the_first_is_taken() -> None:
    rooms = {f"s{i:02}": [1] for i in range(20)}
    prices = {name: 1.0 + (name < "s10") for name in rooms}
    ground = Ground(grid(*sites(rooms, prices)))
    placement = ground.place(shape(10), min_sites=10, max_sites=10)
    assert placement is not None
    assert placement.price_per_hour == 10.0  # sites are tried in order of price


# --- levels


RACKS = site("a", "r0/2", "r0/2", "r1/4", "r1/4", "r2/8:4", levels="rack")


@pytest.mark.parametrize(
    ("option", "want"),
    [
        (shape(4, groups=(must(4, "rack"),)), "a/n2:4"),  # no nearer than it can be had
        (shape(8, groups=(must(8, "node"),)), "a/n4:8"),
        (shape(4, groups=(must(4, "island"),)), "a/n2:4"),
        (shape(3, groups=(must(3, "island"),)), "a/n2:3"),
        (shape(8, groups=(must(8, "island"),)), "nowhere"),
        (shape(9, groups=(must(9, "rack"),)), "nowhere"),
        (shape(2, tensor=4, groups=(must(4, "island"), must(8, "node"))), "a/n4:8"),
        (shape(2, pipeline=4, groups=(must(4, "node"), must(8, "rack"))), "a/n4:8"),
        (shape(2, pipeline=5, groups=(must(5, "rack"), must(10, "rack"))), "nowhere"),
        (shape(3, pipeline=4, groups=(must(4, "rack"),)), "a/n0:2 a/n1:2 a/n2:4 a/n3:4"),
        (shape(20, groups=(must(1, "spine"),)), "nowhere"),
        (shape(20, groups=(should(1, "spine"),)), "a/n0:2 a/n1:2 a/n2:4 a/n3:4 a/n4:8"),
    ],
)
def test_what_must_be_together(option: Option, want: str) -> None:
    assert Ground(grid(RACKS), NO_FRAGMENTS).where(option) == want


def test_a_gang_that_must_be_at_one_site_is_not_spread_over_two() -> None:
    ground = Ground(grid(*sites({"a": [2], "b": [2]})))
    for level in ("site", "node"):
        assert ground.where(shape(4, groups=(must(4, level),)), max_sites=2) == "nowhere"
        assert ground.where(shape(2, groups=(must(2, level),)), max_sites=2) == "a/n0:2"
        alone = ground.where(shape(2, groups=(must(2, level),)), min_sites=2, max_sites=2)
        assert alone == "nowhere"


FAST = (
    Speed(level="node", step_s=1.0),
    Speed(level="rack", step_s=1.2, replica="node"),
    Speed(level="rack", step_s=1.5),
    Speed(level="site", step_s=2.0),
    Speed(level="grid", step_s=4.0),
)


@pytest.mark.parametrize(
    ("nodes", "levels", "ranks", "gang", "step_s"),
    [
        (["r0/4", "r0/8"], "rack", 8, 2, 1.0),
        (["r0/4", "r0/4"], "rack", 8, 1, 1.2),
        (["r0/2", "r0/2", "r0/2", "r0/2"], "rack", 8, 1, 1.5),
        (["r0/4", "r1/4"], "rack", 8, 0, 2.0),
        (["4", "4"], "", 8, 0, 2.0),  # a site without racks
    ],
)
def test_the_predicted_step_time_is_that_of_the_levels_reached(
    nodes: list[str], levels: str, ranks: int, gang: int, step_s: float
) -> None:
    wish = (should(4, "node"),)
    option = shape(ranks // 4, pipeline=4, groups=wish, speeds=FAST, step_s=9.0)
    spot = Ground(grid(site("a", *nodes, levels=levels)), NO_FRAGMENTS).spot(option)
    assert spot is not None
    assert (spot.gang, predicted_step_s(spot)) == (gang, step_s)


def test_several_sites_are_further_apart_than_one() -> None:
    option = shape(2, pipeline=4, speeds=FAST, step_s=9.0)
    spot = Ground(grid(*sites({"a": [4], "b": [4]}))).spot(option, max_sites=2)
    assert spot is not None
    assert (spot.gang, predicted_step_s(spot)) == (-1, 4.0)
    unknown = Ground(grid(*sites({"a": [4], "b": [4]}))).spot(shape(8), max_sites=2)
    assert unknown is not None
    assert predicted_step_s(unknown) == 0.0


def test_a_faster_site_is_worth_its_price_up_to_a_point() -> None:
    """A step twice as long costs as much as a price of thrice the other, by the default weights."""
    slow = site("slow", "4", "4", price_per_accelerator_hour=1.0)
    option = shape(8, speeds=FAST, step_s=9.0)
    for price, want in ((2.9, "fast/n0:8"), (3.1, "slow/n0:4 slow/n1:4")):
        fast = site("fast", "8", price_per_accelerator_hour=price)
        assert Ground(grid(slow, fast)).where(option) == want


@pytest.mark.parametrize(
    ("wish", "want"),
    [
        (Weights(wish=1.0, fragmentation=0.0), "b/n0:2 b/n1:2"),
        (Weights(wish=0.0, fragmentation=0.0), "a/n0:2 a/n1:2"),
    ],
)
def test_wishes_count_where_no_step_time_is_known(wish: Weights, want: str) -> None:
    a = site("a", "r0/2", "r1/2", levels="rack")
    b = site("b", "r0/2", "r0/2", levels="rack")
    ground = Ground(grid(a, b), wish)
    assert ground.where(shape(4, groups=(should(4, "rack"),))) == want
    assert ground.where(shape(2, pipeline=2, groups=(should(4, "rack"),))) == want


def test_a_wish_is_kept_where_it_can_be_and_given_up_where_it_cannot() -> None:
    option = shape(2, pipeline=2, groups=(should(2, "node"),))
    assert Ground(grid(site("a", "1", "1", "2", "2"))).where(option) == "a/n2:2 a/n3:2"
    assert Ground(grid(site("a", "1", "1", "2"))).where(option) == "a/n0:1 a/n1:1 a/n2:2"
    over = Ground(grid(site("a", "1", "1"), site("b", "2")))
    assert over.where(option, max_sites=2) == "a/n0:1 a/n1:1 b/n0:2"


# --- what was begun is used before what is whole


def test_a_rack_that_was_begun_is_used_before_a_whole_one_is_broken() -> None:
    ground = Ground(grid(site("a", "r0/4", "r0/4", "r1/4", "r1/4", levels="rack")))
    ground.run(shape(6))
    assert ground.where(shape(2)) == "a/n1:2"
    assert ground.where(shape(4)) == "a/n2:4"
    begun = Ground(grid(site("a", "r0/4", "r0/4", "r1/4", levels="rack")))
    begun.run(shape(4, groups=(must(4, "rack"),)), nodes=("a/n0",))
    assert begun.where(shape(4)) == "a/n1:4"


def test_whole_racks_are_broken_when_closeness_is_worth_more() -> None:
    """Rack r1 was begun and has two nodes with 2 free each; a whole node would be closer."""
    a = site("a", "r0/4", "r0/4", "r1/4", "r1/4", levels="rack")
    busy = tuple(
        TaskPlacement(site="a", node=name, address="", devices=(0, 1)) for name in ("n2", "n3")
    )
    speeds = (Speed(level="node", step_s=1.0), Speed(level="rack", step_s=1.02))
    for weight, want in ((1.0, "a/n0:4"), (9.0, "a/n2:2 a/n3:2")):
        ground = Ground(grid(a), Weights(fragmentation=weight))
        held = ground.capacity.holding(Placement(option=shape(4), tasks=busy))
        ground.capacity.take(held)
        assert ground.where(shape(4, speeds=speeds)) == want


def test_levels_that_a_site_has_not_are_not_broken_open() -> None:
    """A flat site beside a deep one: of either, one site and one rack at most are broken."""
    deep = site("deep", "s0/p0/r0/4", "s0/p0/r1/4", levels="spine pod rack")
    flat = site("flat", "4", "4")
    ground = Ground(grid(deep, flat), Weights(fragmentation=1.0))
    spot = ground.spot(shape(2), sites=("flat",))
    assert spot is not None
    assert spot.cost == 1.0


def test_a_gang_over_several_racks_breaks_those_that_it_uses_in_part() -> None:
    a = site("a", "r0/4", "r1/4", "r2/4", levels="rack")
    ground = Ground(grid(a), Weights(fragmentation=1.0))
    for ranks, cost in ((12, 0.0), (10, 2.0), (8, 1.0), (4, 1.0), (2, 2.0)):
        spot = ground.spot(shape(ranks))
        assert spot is not None
        assert spot.cost == cost, ranks


def test_a_level_that_would_do_if_it_were_free_is_passed_over() -> None:
    ground = Ground(grid(site("a", "4", "4")), NO_FRAGMENTS)
    for name in ("a/n0", "a/n1"):
        ground.run(shape(1), nodes=(name,))
    assert ground.where(shape(3)) == "a/n0:3"
    assert ground.where(shape(4)) == "a/n0:3 a/n1:1"


# --- parts


def test_all_ways_to_choose() -> None:
    assert list(choices([3, 1, 2], 2, 4)) == [(0, 1), (0, 2)]
    assert list(choices([3, 1, 2], 1, 3)) == [(0,)]
    assert list(choices([3, 1, 2], 3, 6)) == [(0, 1, 2)]
    assert list(choices([3, 1, 2], 3, 7)) == []
    assert list(choices([1], 2, 1)) == []
    assert list(choices([], 0, 0)) == [()]


def test_shares() -> None:
    assert fill_first([3, 4, 2], 5) == [3, 1, 1]
    assert fill_first([3, 4, 2], 9) == [3, 4, 2]
    assert evenly([9, 1, 9], 7) == [3, 1, 3]
    assert evenly([9, 9, 9], 8) == [3, 3, 2]
    assert evenly([2, 2], 4) == [2, 2]


def test_the_fewest_sites_come_before_closeness() -> None:
    """Two sites hold the gang if its pairs may be on two nodes; three hold it as it would like."""
    option = shape(4, pipeline=2, groups=(should(2, "node"),))
    close = [site(name, "2", "2") for name in "ab"]
    wide = site("c", *["1"] * 4)
    ground = Ground(grid(site("x", "2"), *close[:1], wide, site("y", "2")))
    placement = ground.place(option, max_sites=3)
    assert placement is not None
    assert len(placement.site_ranks()) == 2


def test_the_units_of_a_spot_are_ascending_whatever_the_order_of_sites() -> None:
    ground = Ground(grid(*sites({"a": [2], "b": [2]}, {"a": 2.0, "b": 1.0})))
    spot = ground.spot(shape(4), max_sites=2)
    assert spot is not None
    assert np.array_equal(spot.units, [0, 1])


def test_a_demand_of_the_host_is_met_or_nobody_starts() -> None:
    nodes = [node("4", number, resources={"cpus": 4 * number}) for number in range(3)]
    ground = Ground(grid(site("a", *nodes)))
    option = shape(5, rank_resources=(("cpus", 2),))
    assert ground.where(option) == "a/n1:1 a/n2:4"
    ground.run(option)
    assert ground.capacity.host("cpus").tolist() == [0, 2, 0]
    assert ground.where(shape(2, rank_resources=(("cpus", 2),))) == "nowhere"


def test_what_nothing_suits_goes_nowhere() -> None:
    assert Ground(grid()).where(shape(1)) == "nowhere"
    assert Ground(grid(site("a", "2"))).where(shape(1), sites=("b",)) == "nowhere"
