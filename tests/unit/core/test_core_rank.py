"""What places are worth, by table."""

from typing import Any

import pytest
from tests.unit.core.grids import Ground, grid, shape, should, site, spec

from gridloom.core.demand import Demand
from gridloom.core.rank import GRID, best_step_s, step_s_at
from gridloom.core.state import Signals
from gridloom.core.topology import Tree
from gridloom.model.policy import Weights
from gridloom.model.spec import Option, Speed

NOTHING = Weights(time=0, wish=0, fragmentation=0, price=0, distance=0)


def only(**weights: float) -> Weights:
    return Weights(
        **{"time": 0, "wish": 0, "fragmentation": 0, "price": 0, "distance": 0} | weights
    )


def costs(
    weights: Weights, named: dict[str, dict[str, Any]], signals: Signals | None = None, **more: Any
) -> list[tuple[float, str]]:
    """Return what being at each site costs, the best first."""
    sites = (site(name, "1", **about) for name, about in named.items())
    ground = Ground(grid(*sites), weights, signals)
    found = ground.ranker.sites(ground.demand(shape(1), **more))
    return [(cost, ground.tree.sites[number].name) for cost, number in found]


def price(value: float) -> dict[str, Any]:
    return {"price_per_accelerator_hour": value}


@pytest.mark.parametrize(
    ("weights", "sites", "want"),
    [
        (only(price=0.5), {"a": price(3.0), "b": price(2.0)}, [(0.0, "b"), (25.0, "a")]),
        (only(price=1.0), {"a": price(2.0), "b": price(0.0)}, [(0.0, "b"), (100.0, "a")]),
        (  # what is free does not make all else alike
            only(price=1.0),
            {"a": price(2.0), "b": price(0.0), "c": price(1.0)},
            [(0.0, "b"), (100.0, "c"), (200.0, "a")],
        ),
        (only(price=1.0), {"a": {}, "b": {}}, [(0.0, "a"), (0.0, "b")]),
        (
            only(energy=1.0),
            {"a": {"power_w_per_accelerator": 700.0}, "b": {"power_w_per_accelerator": 350.0}},
            [(0.0, "b"), (100.0, "a")],
        ),
        (
            only(carbon=2.0),
            {
                "a": {"power_w_per_accelerator": 100.0, "carbon_g_per_kwh": 30.0},
                "b": {"power_w_per_accelerator": 400.0, "carbon_g_per_kwh": 10.0},
            },
            [(0.0, "a"), (pytest.approx(200 / 3), "b")],
        ),
    ],
)
def test_sites(
    weights: Weights, sites: dict[str, dict[str, Any]], want: list[tuple[float, str]]
) -> None:
    assert costs(weights, sites) == want


def test_a_site_that_the_job_may_not_use_is_no_measure() -> None:
    sites = {"a": price(3.0), "b": price(2.0), "c": price(1.0)}
    assert costs(only(price=1.0), sites, sites=("a", "b")) == [(0.0, "b"), (50.0, "a")]
    assert costs(only(price=1.0), sites, sites=("z",)) == []


def test_equal_sites_stand_in_the_order_of_the_user_then_of_the_grid() -> None:
    sites: dict[str, dict[str, Any]] = {"c": {}, "a": {}, "b": {}}
    assert [name for _, name in costs(NOTHING, sites)] == ["c", "a", "b"]
    assert [name for _, name in costs(NOTHING, sites, sites=("b", "c", "b", "a"))] == [
        "b",
        "c",
        "a",
    ]


def test_sites_far_from_the_data_are_dear() -> None:
    sites: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
    assert costs(only(distance=7.0), sites, data_sites=("b",)) == [(0.0, "b"), (7.0, "a")]
    assert costs(only(distance=7.0), sites) == [(0.0, "a"), (0.0, "b")]


def test_signals_take_the_place_of_what_the_inventory_says() -> None:
    sites = {
        "a": price(2.0) | {"carbon_g_per_kwh": 5.0, "power_w_per_accelerator": 1.0},
        "b": price(2.0) | {"carbon_g_per_kwh": 5.0, "power_w_per_accelerator": 1.0},
    }
    signals = Signals(prices={"a": 3.0, "z": 9.0}, carbon={"b": 15.0})
    assert costs(only(price=1.0), sites, signals) == [(0.0, "b"), (50.0, "a")]
    assert costs(only(carbon=1.0), sites, signals) == [(0.0, "a"), (200.0, "b")]


def test_the_sites_of_a_demand_are_sorted_once() -> None:
    ground = Ground(grid(site("a", "1")))
    demand, other = ground.demand(shape(1)), ground.demand(shape(1))
    assert ground.ranker.sites(demand) is ground.ranker.sites(demand)
    assert ground.ranker.sites(other) is not ground.ranker.sites(demand)


# --- kinds


def test_a_job_leaves_a_kind_that_others_gain_more_from() -> None:
    """On the rare kind the job is hardly faster than on the plentiful one."""
    inventory = grid(site("a", "2 h100", "6"))
    slow, fast = shape(1, step_s=1.0), shape(1, accelerator="h100", step_s=0.9)
    ground = Ground(inventory, only(advantage=1.0))

    job = spec(fast, slow)
    usual = {"h100": 1 - 2 / 16, "cpu": 1 - 6 / 16}
    expected = usual["h100"] / ((usual["h100"] + usual["cpu"]) / 2)
    relative = (1 / 0.9) / ((1 / 0.9 + 1.0) / 2)
    assert ground.ranker.of_kind(Demand(job, fast, ground.tree)) == pytest.approx(
        100 * (expected - relative)
    )
    assert ground.ranker.of_kind(Demand(job, slow, ground.tree)) == 0.0
    for lonely in (spec(fast), spec(fast, shape(1))):  # nothing known to compare with
        assert ground.ranker.of_kind(Demand(lonely, fast, ground.tree)) == 0.0
        assert ground.ranker.of_kind(Demand(lonely, lonely.options[-1], ground.tree)) == 0.0
    unknown = spec(fast, slow, shape(1, accelerator="tpu"))
    tree = ground.tree
    assert ground.ranker.of_kind(Demand(unknown, unknown.options[2], tree)) == 0.0
    plain = Ground(inventory, NOTHING)
    assert plain.ranker.of_kind(Demand(job, fast, plain.tree)) == 0.0


def test_a_kind_that_the_grid_has_not_is_a_kind_like_any() -> None:

    ground = Ground(grid(site("a", "2"), site("void", "0 gone")), only(advantage=1.0))
    job = spec(shape(1, step_s=1.0), shape(1, accelerator="tpu", step_s=1.0))
    # Of all devices the half counts as usual: 0.5 against 1.0 for what there is none of
    assert ground.ranker.of_kind(Demand(job, job.options[0], ground.tree)) == 0.0
    assert ground.ranker.of_kind(Demand(job, job.options[1], ground.tree)) == pytest.approx(
        100 * (1 / 0.75 - 1)
    )
    empty = Ground(grid(site("void", "0")), only(advantage=1.0))
    assert empty.ranker.of_kind(Demand(job, job.options[0], empty.tree)) == 0.0


# --- step times


SPEEDS = (
    Speed(level="node", step_s=1.0),
    Speed(level="rack", step_s=1.5, replica="node"),
    Speed(level="rack", step_s=2.0, replica="rack"),
    Speed(level="site", step_s=3.0),
    Speed(level=GRID, step_s=6.0),
)


@pytest.mark.parametrize(
    ("site_number", "gang", "block", "want"),
    [
        (0, 2, 2, 1.0),
        (0, 1, 2, 1.5),
        (0, 1, 1, 2.0),
        (0, 0, 1, 3.0),
        (0, -1, 2, 6.0),
        (1, 1, 1, 3.0),  # its padding is no rack
        (1, 2, 2, 1.0),
    ],
)
def test_the_first_speed_whose_levels_are_reached(
    site_number: int, gang: int, block: int, want: float
) -> None:
    tree = Tree(grid(site("a", "r0/2", levels="rack"), site("b", "2")))
    option = shape(2, speeds=SPEEDS, step_s=9.0)
    assert step_s_at(option, tree, site_number, gang, block) == want
    less = shape(2, speeds=SPEEDS[:1], step_s=9.0)
    assert step_s_at(less, tree, site_number, gang, block) == (1.0 if gang == 2 else 9.0)


@pytest.mark.parametrize(
    ("option", "want"),
    [
        (shape(1), 0.0),
        (shape(1, step_s=2.0), 2.0),
        (shape(1, step_s=2.0, speeds=SPEEDS), 1.0),
        (shape(1, speeds=SPEEDS), 1.0),
        (shape(1, step_s=0.5, speeds=SPEEDS), 0.5),
    ],
)
def test_the_shortest_step(option: Option, want: float) -> None:
    assert best_step_s(option) == want


def test_time_is_counted_against_the_jobs_shortest_step() -> None:
    ground = Ground(grid(site("a", "2")), only(time=2.0))
    demand = ground.demand(shape(2, step_s=4.0, speeds=SPEEDS))
    assert ground.ranker.of_time(demand, 0, 1, 1) == 0.0
    assert ground.ranker.of_time(demand, 0, 0, 0) == 400.0
    assert ground.ranker.of_time(demand, 0, -1, 0) == 1000.0
    assert ground.ranker.of_time(ground.demand(shape(2)), 0, 0, 0) == 0.0
    assert ground.ranker.of_time(ground.demand(shape(2, speeds=SPEEDS[:1])), 0, 0, 0) == 0.0


def test_levels_have_names() -> None:
    ground = Ground(grid(site("a", "r0/4:2", levels="rack"), site("b", "2")))
    names = [ground.ranker.placement_level(0, gang) for gang in range(-1, 4)]
    assert names == ["grid", "site", "rack", "node", "island"]
    assert ground.ranker.placement_level(1, 1) == "site"


def test_a_wish_alone_is_no_step_time() -> None:
    ground = Ground(grid(site("a", "r0/2", "r1/2", levels="rack")), only(wish=3.0))
    spot = ground.spot(shape(4, groups=(should(4, "node"),)))
    assert spot is not None
    assert spot.cost == 6.0
