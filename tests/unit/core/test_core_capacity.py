"""What is free, kept and open; a trial leaves no trace."""

from typing import Any

import numpy as np
import pytest
from tests.unit.core.grids import Ground, grid, node, shape, site

from gridloom.base.errors import BrokenError
from gridloom.core.capacity import Capacity, Holding
from gridloom.core.topology import Tree
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.spec import Option

OPTION = shape(1)
HUNGRY = shape(1, rank_resources=(("cpus", 3), ("memory_gib", 4)))


def capacity(*nodes: Any) -> Capacity:
    return Capacity(Tree(grid(site("s", *(nodes or ("4",))))))


def on(*devices: int, name: str = "n0", option: Option = OPTION, at: str = "s") -> Placement:
    task = TaskPlacement(site=at, node=name, address="", devices=devices)
    return Placement(option=option, tasks=(task,))


def numbers(some: Capacity) -> list[object]:
    return [some.free.tolist(), some.available.tolist(), some.host("cpus").tolist()]


# --- taking and giving back


def test_what_is_taken_is_not_free_until_it_is_given_back() -> None:
    some = capacity()
    first, second = some.holding(on(1)), some.holding(on(0, 3))
    some.take(first)
    assert some.free.tolist() == some.available.tolist() == [3]
    some.take(second)
    assert some.free_devices(0) == 1
    placed, _ = some.place(OPTION, np.array([0]), np.array([1]), {"s": 1.0})
    assert placed.tasks[0].devices == (2,)
    some.give_back(second)
    assert some.free.tolist() == [3]
    some.give_back(first)
    assert some.free.tolist() == some.available.tolist() == [4]


def test_nothing_is_given_twice() -> None:
    some = capacity("1", "4")
    some.take(some.holding(on(1, name="n1")))
    with pytest.raises(BrokenError, match="a device of s/n1 is taken twice"):
        some.take(some.holding(on(1, 2, name="n1")))


def test_a_trial_leaves_no_trace() -> None:
    some = capacity(node("4:2", resources={"cpus": 9, "memory_gib": 9}))
    before = numbers(some)
    held = some.holding(on(1, 2, option=HUNGRY))
    some.take(held)
    assert numbers(some) == [[1, 1], [1, 1], [3]]
    assert some.host("memory_gib").tolist() == [1]
    some.give_back(held)
    assert numbers(some) == before


def test_only_what_may_have_become_available_counts_as_growth() -> None:
    some = capacity()
    held = some.holding(on(0))
    some.take(held)
    some.keep("x", held.units, held.devices)
    assert some.grown == 0
    some.give_back(held)
    assert some.grown == 1
    some.release("x")
    assert some.grown == 2
    some.release("x")  # nothing was kept
    assert some.grown == 2
    some.open([True])
    assert some.grown == 3


def test_a_node_without_such_a_resource_has_none_of_it() -> None:
    some = capacity(node("1", 0, resources={"cpus": 5}), node("1", 1))
    assert some.host("cpus").tolist() == [5, 0]
    assert some.host("tapes").tolist() == [0, 0]


# --- holdings


def test_a_holding_is_a_placement_by_number() -> None:
    some = capacity("2", "5:2")
    tasks = (*on(0, 3, 4, name="n1").tasks, *on(1).tasks)
    held = some.holding(Placement(option=HUNGRY, tasks=tasks))
    assert held.units.tolist() == [0, 1, 2, 3]
    assert held.devices.tolist() == [1, 1, 1, 1]
    assert held.bits == (2, 1, 2, 1)
    assert held.nodes.tolist() == [0, 1]
    assert held.ranks.tolist() == [1, 3]
    assert held.resources == HUNGRY.rank_resources


def test_what_the_grid_no_longer_has_is_left_out_of_a_holding() -> None:
    some = capacity("2")
    gone = (*on(0, at="mars").tasks, *on(0, name="n9").tasks, *on(1, 2, 3).tasks)
    held = some.holding(Placement(option=OPTION, tasks=gone))
    assert (held.units.tolist(), held.bits) == ([0], (2,))
    some.take(held)
    assert some.free.tolist() == [1]


def test_ranks_of_several_devices_are_counted_in_ranks() -> None:
    some = capacity("6")
    held = some.holding(on(0, 1, 4, 5, option=shape(2, rank_devices=2)))
    assert (held.ranks.tolist(), held.devices.tolist()) == ([2], [4])


# --- placing


def test_the_lowest_free_devices_are_taken() -> None:
    some = capacity("6")
    some.take(some.holding(on(0, 2)))
    placed, held = some.place(shape(2), np.array([0]), np.array([2]), {"s": 0.0})
    assert placed.tasks[0].devices == (1, 3)
    assert held.bits == (0b1010,)


@pytest.mark.parametrize(
    ("taken", "ranks", "want"),
    [
        ((), 4, (0, 1, 2, 3)),
        ((), 2, (0, 1)),
        ((2, 3), 1, (0,)),
        ((0,), 3, (1, 2, 3)),
        ((1,), 2, (0, 2)),
    ],
)
def test_devices(taken: tuple[int, ...], ranks: int, want: tuple[int, ...]) -> None:
    some = capacity()
    if taken:
        some.take(some.holding(on(*taken)))
    placed, _ = some.place(shape(ranks), np.array([0]), np.array([ranks]), {"s": 0.0})
    assert placed.tasks[0].devices == want


def test_islands_of_one_node_are_one_task() -> None:
    some = Capacity(Tree(grid(site("s", "4:2", "2"), site("t", "2"))))
    option = shape(6, rank_devices=1, rank_resources=(("cpus", 0),))
    units, ranks = np.array([0, 1, 2, 3]), np.array([1, 2, 2, 1])
    placed, held = some.place(option, units, ranks, {"s": 2.0, "t": 0.5})
    assert [(t.domain, t.address, t.devices) for t in placed.tasks] == [
        ("s/n0", "s-0", (0, 2, 3)),
        ("s/n1", "s-1", (0, 1)),
        ("t/n0", "t-0", (0,)),
    ]
    assert placed.price_per_hour == 5 * 2.0 + 0.5
    assert placed.site_ranks() == (("s", 5), ("t", 1))
    again = some.holding(placed)
    for name in Holding.__struct_fields__:
        assert np.array_equal(getattr(again, name), getattr(held, name)), name


# --- what is kept, and what is open


def test_what_is_kept_is_for_one_job_alone_free_or_not() -> None:
    some = capacity("4", "2")
    busy = some.holding(on(0, 1))
    some.take(busy)
    some.keep("x", np.array([0, 1]), np.array([3, 1]))
    assert list(some.keepers()) == ["x"]
    assert some.available.tolist() == [0, 1]  # of the first, more is kept than is free
    assert some.available_to("x").tolist() == [2, 2]
    assert some.available_to("y").tolist() == [0, 1]
    some.give_back(busy)
    assert some.available.tolist() == [1, 1]
    kept = some.kept("x")
    assert kept is not None
    assert [part.tolist() for part in kept] == [[0, 1], [3, 1]]
    some.release("x")
    assert some.available.tolist() == [4, 2]
    assert some.kept("x") is None


def test_a_job_that_keeps_anew_keeps_nothing_of_before() -> None:
    some = capacity("4", "4")
    some.keep("x", np.array([0]), np.array([4]))
    some.keep("y", np.array([1]), np.array([1]))
    some.keep("x", np.array([1]), np.array([2]))
    assert some.available.tolist() == [4, 1]
    assert some.available_to("x").tolist() == [4, 3]
    assert list(some.keepers()) == ["y", "x"]


def test_nodes_that_are_not_open_take_nothing_new() -> None:
    some = capacity("4:2", "2")
    some.open([False, True])
    assert [some.is_open(0), some.is_open(1)] == [False, True]
    assert some.openings().tolist() == [False, False, True]
    assert some.available.tolist() == [0, 0, 2]
    assert some.free.tolist() == [2, 2, 2]
    held = some.holding(on(0))
    some.take(held)  # it runs there already
    some.keep("x", np.array([0]), np.array([1]))
    some.give_back(held)
    assert some.available_to("x").tolist() == [0, 0, 2]
    some.open([True, True])
    assert some.available.tolist() == [1, 2, 2]


# --- kept places


def test_a_gang_comes_back_to_its_places_on_devices_that_are_free_now() -> None:
    ground = Ground(grid(site("s", "4", "4", price_per_accelerator_hour=2.0)))
    some = ground.capacity
    places = Placement(
        option=shape(3),
        tasks=(*on(0, 1).tasks, *on(0, name="n1").tasks),
        level="site",
        step_s=0.5,
    )
    some.keep("x", np.array([0, 1]), np.array([2, 1]))
    some.take(some.holding(on(0)))
    found = some.place_kept(places, ground.ranker.prices)
    assert found is not None
    placed, held = found
    assert [task.devices for task in placed.tasks] == [(1, 2), (0,)]
    assert (placed.level, placed.step_s, placed.price_per_hour) == ("site", 0.5, 6.0)
    assert [task.address for task in placed.tasks] == ["s-0", "s-1"]
    some.take(held)
    assert some.free.tolist() == [1, 3]


@pytest.mark.parametrize(
    "hindrance",
    ["in use", "shut", "gone", "smaller", "other islands", "host"],
)
def test_places_that_are_not_all_there_are_no_places(hindrance: str) -> None:
    first = node("2", 0, resources={"cpus": 6})
    second = node("2", 1, resources={"cpus": 6})
    if hindrance == "smaller":
        second = node("1", 1, resources={"cpus": 6})
    if hindrance == "other islands":  # a rank had two devices of one
        second = node("2:1", 1, resources={"cpus": 6})
    if hindrance == "host":
        second = node("2", 1, resources={"cpus": 2})
    some = Capacity(Tree(grid(site("s", *[first, second][: 2 - (hindrance == "gone")]))))
    if hindrance == "in use":
        some.take(some.holding(on(1, name="n1")))
    if hindrance == "shut":
        some.open([True, False])
    option = shape(2, rank_devices=2, rank_resources=(("cpus", 3),))
    tasks = (*on(0, 1).tasks, *on(0, 1, name="n1").tasks)
    assert some.place_kept(Placement(option=option, tasks=tasks), {"s": 0.0}) is None


def test_a_node_that_has_fewer_devices_by_now_is_no_place() -> None:
    some = capacity("4", "1")
    tasks = (*on(0, 1).tasks, *on(0, 1, name="n1").tasks)
    assert some.place_kept(Placement(option=shape(4), tasks=tasks), {"s": 0.0}) is None


def test_places_with_enough_of_the_host_are_places() -> None:
    some = capacity(node("2", resources={"cpus": 6}))
    option = shape(2, rank_resources=(("cpus", 3),))
    assert some.place_kept(Placement(option=option, tasks=on(0, 1).tasks), {"s": 0.0})


def test_what_is_unkept() -> None:
    ground = Ground(grid(site("a", "4", "4")))
    capacity = ground.capacity
    placed = ground.place(shape(6))
    assert placed is not None
    wanted = capacity.holding(placed)  # four and two
    assert capacity.is_unkept(wanted, "j")
    capacity.open([True, False])
    assert capacity.is_unkept(wanted, "j")  # whoever may use it now
    capacity.keep("j", np.array([0, 1]), np.array([4, 4]))
    assert capacity.is_unkept(wanted, "j")
    capacity.keep("k", np.array([1]), np.array([3]))
    assert not capacity.is_unkept(wanted, "j")
    capacity.keep("k", np.array([1]), np.array([2]))
    assert capacity.is_unkept(wanted, "j")
    assert not capacity.is_unkept(wanted, "l")
    capacity.release("j")
    capacity.release("k")
    capacity.take(wanted)
    assert not capacity.is_unkept(wanted, "j")
