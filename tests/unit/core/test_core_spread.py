"""From a domain to its units: large parts first, then the best fit, and nothing whole is broken."""

import pytest
from tests.unit.core.grids import Ground, grid, must, shape, site

from gridloom.core.spread import Spread, pick
from gridloom.model.inventory import Site
from gridloom.model.spec import Option


@pytest.mark.parametrize(
    ("rooms", "count", "want"),
    [
        ([4, 3, 8], 3, [(1, 3)]),  # best fit
        ([1, 4, 2], 4, [(1, 4)]),  # fewest
        ([1, 4, 2], 5, [(0, 1), (1, 4)]),  # the largest, then the best for the rest
        ([4, 1, 4], 6, [(0, 4), (2, 2)]),
        ([1, 4, 2], 7, [(0, 1), (1, 4), (2, 2)]),
        ([2, 2], 2, [(0, 2)]),  # the first among equals
        ([0, 2, 0, 3], 1, [(1, 1)]),
        ([5, 5, 5], 11, [(0, 5), (1, 5), (2, 1)]),
        ([], 0, []),
    ],
)
def test_places_are_picked(rooms: list[int], count: int, want: list[tuple[int, int]]) -> None:
    assert pick(rooms, count) == want


def spread(
    option: Option, a: Site, count: int, *, busy: tuple[Option, ...] = (), sparing: bool = False
) -> dict[str, int]:
    """Return the ranks of each node for ``count`` blocks at the site, once others run there."""
    ground = Ground(grid(a))
    for other in busy:
        ground.run(other)
    demand = ground.demand(option)
    chain = demand.chains[0][-1]
    blocks = ground.finder(demand).blocks(chain)
    full = demand.full(chain) if sparing else None
    units, ranks = Spread(ground.tree, blocks, full, bounded=demand.bounded).over(0, 0, count)
    assert units.tolist() == sorted(set(units.tolist()))
    assert (ranks > 0).all()
    found: dict[str, int] = {}
    for unit, some in zip(units.tolist(), ranks.tolist(), strict=True):
        name = ground.tree.nodes[ground.tree.unit_node[unit]].name
        found[name] = found.get(name, 0) + some
    return found


RACKS = site("a", "r0/4", "r0/4", "r1/4", "r1/4", "r1/2", levels="rack")


@pytest.mark.parametrize(
    ("ranks", "want"),
    [
        (4, {"n0": 4}),
        (8, {"n0": 4, "n1": 4}),  # the tightest rack
        (10, {"n2": 4, "n3": 4, "n4": 2}),
        (12, {"n0": 2, "n2": 4, "n3": 4, "n4": 2}),
        (18, {"n0": 4, "n1": 4, "n2": 4, "n3": 4, "n4": 2}),
    ],
)
def test_a_site_is_filled_rack_by_rack(ranks: int, want: dict[str, int]) -> None:
    assert spread(shape(ranks), RACKS, ranks) == want


def test_blocks_stay_whole_on_the_way_down() -> None:
    option = shape(2, tensor=3, groups=(must(3, "rack"),))
    assert spread(option, site("a", "r0/7", "r1/4", levels="rack"), 3) == {"n0": 6, "n1": 3}
    assert spread(shape(2, pipeline=4), site("a", "3", "6", "1"), 2) == {"n0": 2, "n1": 6}


def test_a_node_is_filled_island_by_island() -> None:
    assert spread(shape(3), site("a", "4:2", "5:2"), 3) == {"n0": 3}
    assert spread(shape(9), site("a", "4:2", "5:2"), 9) == {"n0": 4, "n1": 5}


def test_a_domain_that_was_begun_is_used_before_a_whole_one_is_broken() -> None:
    a = site("a", "r0/4", "r1/4", "r1/2", levels="rack")
    busy = (shape(1, groups=(must(1, "rack"),)),)
    assert spread(shape(3), a, 3, busy=busy) == {"n0": 3}
    whole = site("a", "r0/4", "r1/8", levels="rack")
    assert spread(shape(3), whole, 3, busy=(shape(5),), sparing=False) == {"n1": 3}
    assert spread(shape(3), whole, 3, busy=(shape(5),), sparing=True) == {"n1": 3}
    assert spread(shape(4), whole, 4, busy=(shape(5),), sparing=True) == {"n0": 4}


def test_only_what_was_begun_counts_when_whole_domains_are_spared() -> None:
    """The rest of the large rack would hold it, but so would the small one exactly."""
    a = site("a", "r0/2", "r1/8", levels="rack")
    assert spread(shape(2), a, 2, busy=(shape(5),)) == {"n0": 2}
    assert spread(shape(2), a, 2, busy=(shape(5),), sparing=True) == {"n1": 2}


def test_nodes_that_host_fewer_ranks_than_they_have_devices() -> None:
    ground = Ground(grid(site("a", "4:2", "4:2", "4:2")))
    assert ground.where(shape(6), ranks_per_node_max=3) == "a/n0:3 a/n1:3"
    assert ground.where(shape(9), ranks_per_node_max=3) == "a/n0:3 a/n1:3 a/n2:3"
    assert ground.where(shape(2), ranks_per_node_max=1) == "a/n0:1 a/n1:1"
    assert Ground(grid(site("a", "4", "4"))).where(shape(4), ranks_per_node_max=2) == (
        "a/n0:2 a/n1:2"
    )
