"""Sites of two ranks as stages: each rank has a share of the batch, and all have one model."""

from typing import Any

import pytest
from tests.unit.runtime.conftest import Nursery
from tests.unit.runtime.wan.stage_sites import adamw, batch, options, run_of, stages_of, trained
from tests.unit.runtime.wan.two_sites import free_ports, variables_of

PROGRAM = "tests.unit.runtime.wan.stage_ranks"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> list[list[dict[str, Any]]]:
    """What each rank has said of its two runs."""
    kept, said = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("said")
    port = free_ports(4)[0]
    processes = [
        nursery.run(PROGRAM, [str(kept)], variables_of(number, port), said / f"{number}")
        for number in range(4)
    ]
    try:
        return [process.told() for process in processes]
    finally:
        nursery.end_all()


def test_they_train_what_one_process_trains(ended: list[list[dict[str, Any]]]) -> None:
    alone = stages_of(run_of("here", {"here": ("127.0.0.1", 0)}), options())
    optimizer, expected, held_out = adamw(alone), [], []
    for steps in (6, 9):
        expected += trained(alone, steps, optimizer)
        held_out.append(alone.evaluate(*batch(100)))
    assert [(one["site"], one["rank"]) for one, _ in ended] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    for runs in ended:
        losses, norms = ([x for run in runs for x in run[key]] for key in ("losses", "norms"))
        assert losses == pytest.approx([step.loss for step in expected], abs=1e-4)
        assert norms == pytest.approx([step.norm for step in expected], rel=1e-3)
        assert [run["held_out"] for run in runs] == pytest.approx(held_out, abs=1e-4)


def test_all_go_on_from_their_own_checkpoints(ended: list[list[dict[str, Any]]]) -> None:
    assert [[(one["began"], one["steps"]) for one in runs] for runs in ended] == [
        [(0, 6), (6, 9)]
    ] * 4


def test_a_row_that_begins_a_step_again_is_waited_for(ended: list[list[dict[str, Any]]]) -> None:
    """That it trains the same all the same is what the first test says."""
    again = [runs[0]["again"] for runs in ended]
    assert again == [[0] * 6, [0, 0, 0, 1, 0, 0]] * 2


def test_the_ranks_of_a_site_have_one_stage(ended: list[list[dict[str, Any]]]) -> None:
    for run in (0, 1):
        one, other, third, fourth = (runs[run]["weights"] for runs in ended)
        assert one == other
        assert third == fourth
        assert not one.keys() & third.keys()


def test_the_wish_of_any_rank_stops_all_after_the_same_step(
    ended: list[list[dict[str, Any]]],
) -> None:
    assert [runs[0]["wishes"] for runs in ended] == [[False] * 2 + [True] * 4] * 4
