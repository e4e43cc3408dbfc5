"""A place is found wrong for each reason that there is, and right where there is none."""

import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.core.grids import grid, must, shape, should, site, spec

from gridloom.core.laws_place import all_units, grid_of, misplaced, units_of
from gridloom.model.inventory import Node, Site
from gridloom.model.life import Placement, TaskPlacement
from gridloom.model.spec import JobSpec, Option


def the_site(**more: Any) -> Site:
    nodes = [
        Node(name="n0", address="", accelerator="cpu", count=4, path=("r0",), island=2),
        Node(name="n1", address="", accelerator="cpu", count=4, path=("r1",), memory_bytes=8),
        Node(name="n2", address="", accelerator="gpu", count=4, path=("r1",)),
    ]
    return site("a", *nodes, levels="rack", **more)


GRID = grid(the_site(), site("b", "2"))


def placed(option: Option, **devices: tuple[int, ...]) -> Placement:
    tasks = tuple(
        TaskPlacement(site=name[0], node=name[1:], address="", devices=numbers)
        for name, numbers in devices.items()
    )
    return Placement(option=option, tasks=tasks)


def wrong(job: JobSpec, **devices: tuple[int, ...]) -> list[str]:
    return list(misplaced(grid_of(GRID), job, placed(job.options[0], **devices)))


def test_a_lawful_place() -> None:
    four = shape(2, tensor=2, groups=(must(2, "island"), should(4, "node")))
    assert wrong(spec(four), an0=(0, 1), an1=(0, 1)) == []
    assert wrong(spec(shape(2, rank_devices=2, groups=(must(1, "rack"),))), an1=(0, 1, 2, 3)) == []
    assert wrong(spec(shape(2, groups=(must(2, "site"),))), an0=(0,), an1=(0,)) == []
    assert list(grid_of(None)) == []


@pytest.mark.parametrize(
    ("job", "devices", "why"),
    [
        (spec(shape(1)), {"cn0": (0,)}, "is placed on c/n0, which the grid does not have"),
        (spec(shape(1)), {"an2": (0,)}, "is placed on a/n2, which has gpu"),
        (spec(shape(1, memory_bytes=9)), {"an1": (0,)}, "a/n1, which has too little memory"),
        (spec(shape(1), labels={"disk": "nvme"}), {"an0": (0,)}, "which is labelled otherwise"),
        (spec(shape(1), nodes=("a/n1",)), {"an0": (0,)}, "a/n0, which it did not choose"),
        (spec(shape(1), sites=("b",)), {"an0": (0,)}, "is placed at a, which it may not use"),
        (
            spec(shape(1), data_required=True, data_sites=("b",)),
            {"an0": (0,)},
            "is placed at a, which does not hold its data",
        ),
        (spec(shape(1)), {"an0": (4,)}, r"is given devices \(4,\) of a/n0, which has 4"),
        (spec(shape(2)), {"an0": (1, 0)}, r"is given devices \(1, 0\) of a/n0"),
        (spec(shape(2)), {"an0": (1, 1)}, r"is given devices \(1, 1\) of a/n0"),
        (spec(shape(2), ranks_per_node_max=1), {"an0": (0, 1)}, "has more ranks on a/n0"),
        (spec(shape(1, tensor=2)), {"an0": (0,), "an1": (0,)}, "ranks 0 to 1 in more than one no"),
        (spec(shape(1, pipeline=2)), {"an0": (0,), "bn0": (0,)}, "ranks 0 to 1 in more than one s"),
        (spec(shape(2, groups=(must(2, "island"),))), {"an0": (1, 2)}, "more than one island"),
        (spec(shape(2, groups=(must(2, "rack"),))), {"an0": (0,), "an1": (0,)}, "one rack"),
        (spec(shape(1, groups=(must(1, "pod"),))), {"an0": (0,)}, "0 to 0 in more than one pod"),
    ],
)
def test_what_is_wrong(job: JobSpec, devices: dict[str, tuple[int, ...]], why: str) -> None:
    found = wrong(job, **devices)
    assert len(found) == 1
    assert re.search(why, found[0]), found


def test_nodes_of_a_site_are_neighbours() -> None:
    found = wrong(spec(shape(3)), an0=(0,), bn0=(0,), an1=(0,))
    assert found == ["has nodes of one site that are no neighbours"]


def test_a_shape_that_nobody_asked_for() -> None:
    job = spec(shape(2))
    found = list(misplaced(grid_of(GRID), job, placed(shape(1), an0=(0,))))
    assert found == ["is given a shape that it did not ask for"]


def test_a_site_that_is_closed_to_the_queue() -> None:
    closed = replace(GRID, sites=(the_site(queues=("x",)),))
    places = placed(shape(1), an0=(0,))
    assert list(misplaced(grid_of(closed), spec(shape(1), queue="x"), places)) == []
    found = list(misplaced(grid_of(closed), spec(shape(1)), places))
    assert found == ["is placed at a, which is closed to its queue"]


def test_units_are_islands() -> None:
    nodes = grid_of(GRID)
    places = placed(shape(5), an0=(1, 2, 3), an1=(0,), zn0=(0,), bn0=(7,))
    assert units_of(nodes, places) == {("a/n0", 0): 1, ("a/n0", 1): 2, ("a/n1", 0): 1}
    assert all_units(nodes, "a/n0") == {("a/n0", 0): 2, ("a/n0", 1): 2}
    assert all_units(nodes, "z/n0") == {}
