"""Where the ranks of one shape go, by table."""

import pytest

from gridloom.core.gang import FreeNode, FreeSite, place, usable
from gridloom.model.inventory import Node, Site
from gridloom.model.parallel import ParallelPlan
from gridloom.model.spec import JobSpec, Option, Program

Grid = dict[str, list[int]]


def sites(grid: Grid, prices: dict[str, float] | None = None) -> list[FreeSite]:
    """Return sites whose nodes n0, n1, ... have that many free devices."""
    found = []
    for name, counts in grid.items():
        nodes = tuple(
            Node(name=f"n{i}", address=f"{name}-{i}", accelerator="cpu", count=count)
            for i, count in enumerate(counts)
        )
        price = (prices or {}).get(name, 0.0)
        site = Site(name=name, kind="local", nodes=nodes, price_per_accelerator_hour=price)
        free = tuple(FreeNode(node=node, devices=tuple(range(node.count))) for node in nodes)
        found.append(FreeSite(site=site, nodes=free))
    return found


def spec(min_sites: int = 1, max_sites: int = 1, wish: str = "") -> JobSpec:
    return JobSpec(
        name="j",
        program=Program(argv=(), workdir="/"),
        options=(),
        sites=tuple(wish.split()),
        min_sites=min_sites,
        max_sites=max_sites,
    )


def shape(data: int, tensor: int = 1, pipeline: int = 1) -> Option:
    plan = ParallelPlan(data=data, tensor=tensor, pipeline=pipeline)
    return Option(accelerator="cpu", plan=plan)


def nodes(job: JobSpec, option: Option, free: list[FreeSite]) -> str:
    """Return where ``place`` puts the ranks, as ``site/node:count ...``."""
    placement = place(job, option, free)
    if placement is None:
        return "nowhere"
    return " ".join(f"{task.domain}:{len(task.devices)}" for task in placement.tasks)


@pytest.mark.parametrize(
    ("ranks", "at", "grid", "want"),
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
    ],
)
def test_sites(ranks: int, at: tuple[int, int], grid: Grid, want: str) -> None:
    assert nodes(spec(*at), shape(ranks), sites(grid)) == want


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
    assert nodes(spec(), shape(ranks), sites({"a": counts})) == want


@pytest.mark.parametrize(
    ("option", "at", "grid", "want"),
    [
        (shape(1, tensor=2), (1, 1), {"a": [1, 1]}, "nowhere"),  # a tensor group stays together
        (shape(2, tensor=2), (1, 1), {"a": [3, 3]}, "a/n0:2 a/n1:2"),
        (shape(1, tensor=2, pipeline=2), (1, 1), {"a": [2, 3]}, "a/n0:2 a/n1:2"),
        (shape(2, pipeline=3), (1, 2), {"a": [5], "b": [4]}, "a/n0:3 b/n0:3"),
        (shape(2, pipeline=3), (1, 2), {"a": [5], "b": [2]}, "nowhere"),  # a replica too
        (shape(2, pipeline=3), (2, 2), {"a": [9], "b": [1, 2]}, "a/n0:3 b/n0:1 b/n1:2"),
    ],
)
def test_groups_stay_whole(option: Option, at: tuple[int, int], grid: Grid, want: str) -> None:
    assert nodes(spec(*at), option, sites(grid)) == want


@pytest.mark.parametrize(
    ("job", "prices", "want"),
    [
        (spec(), {"a": 2.0, "b": 1.0, "c": 3.0}, "b/n0:2"),
        (spec(wish="c b a"), {}, "c/n0:2"),
        (spec(wish="c b a"), {"c": 1.0, "b": 0.5, "a": 1.0}, "b/n0:2"),  # price before liking
        (spec(wish="c c a b"), {}, "c/n0:2"),
        (spec(2, 2), {"a": 2.0, "b": 1.0, "c": 1.5}, "b/n0:1 c/n0:1"),
    ],
)
def test_cheapest_then_liked(job: JobSpec, prices: dict[str, float], want: str) -> None:
    free = sites({"a": [2], "b": [2], "c": [2]}, prices)
    assert nodes(job, shape(2), free) == want


def test_the_sum_is_cheap_not_the_first_site() -> None:
    prices = {"tiny": 1.0, "left": 2.0, "right": 2.0, "dear": 10.0}
    free = sites({"tiny": [1], "dear": [7], "left": [4], "right": [4]}, prices)
    assert nodes(spec(1, 2), shape(8), free) == "left/n0:4 right/n0:4"


def test_the_price_of_a_placement_is_that_of_all_its_devices() -> None:
    placement = place(spec(2, 2), shape(4, tensor=2), sites({"a": [8], "b": [8]}, {"b": 2.5}))
    assert placement is not None
    assert placement.price_per_hour == 4 * 0.0 + 4 * 2.5
    assert placement.site_ranks() == (("a", 4), ("b", 4))
    assert [task.address for task in placement.tasks] == ["a-0", "b-0"]


def test_the_lowest_free_devices_are_taken() -> None:
    free = sites({"a": [4]})[0]
    some = FreeSite(site=free.site, nodes=(FreeNode(node=free.nodes[0].node, devices=(1, 3, 4)),))
    placement = place(spec(), shape(2), [some])
    assert placement is not None
    assert placement.tasks[0].devices == (1, 3)


def test_many_sites_are_still_placed_quickly() -> None:
    free = sites({f"s{i:02}": [1 + i % 2] for i in range(40)})
    placement = place(spec(12, 12), shape(24), free)
    assert placement is not None
    assert len(placement.site_ranks()) == 12


@pytest.mark.parametrize(
    ("ranks", "at", "grid", "want"),
    [
        (8, (1, 1), {"big": [8], "small": [2]}, ["big"]),  # the small one is of no use to it
        (8, (1, 2), {"big": [6], "small": [2]}, ["big", "small"]),
        (8, (1, 2), {"big": [6], "small": [2], "none": []}, ["big", "small"]),
        (9, (1, 2), {"big": [6], "small": [2]}, []),
        (2, (2, 2), {"big": [8]}, []),
    ],
)
def test_usable_sites(ranks: int, at: tuple[int, int], grid: Grid, want: list[str]) -> None:
    found = usable(spec(*at), shape(ranks), sites(grid))
    assert [free.site.name for free in found] == want
