"""Two sites of two ranks each: what a site decides, all its ranks do."""

from typing import Any

import pytest
from tests.unit.runtime.conftest import Nursery
from tests.unit.runtime.wan.spread_sites import KINDS, STEPS
from tests.unit.runtime.wan.two_sites import free_ports, variables_of

PROGRAM = "tests.unit.runtime.wan.cut_sites"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> list[list[dict[str, Any]]]:
    """What each rank said: a line a plan, then one for each way that others spread a model."""
    said, ports = tmp_path_factory.mktemp("said"), free_ports(22)
    words = [str(ports[8]), str(ports[21] + 1)]
    processes = [
        nursery.run(PROGRAM, words, variables_of(number, ports[0]), said / f"{number}")
        for number in range(4)
    ]
    try:
        return [process.told() for process in processes]
    finally:
        nursery.end_all()


@pytest.mark.parametrize("plan", [0, 1], ids=["copies", "shards"])
def test_all_ranks_end_with_one_model(ended: list[list[dict[str, Any]]], plan: int) -> None:
    ranks = [lines[plan] for lines in ended]
    assert [(one["site"], one["rank"]) for one in ranks] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1),
    ]  # fmt: skip
    for here, there in ((ranks[0], ranks[2]), (ranks[1], ranks[3])):
        assert here["weights"] == there["weights"]
        assert here["starts"] == there["starts"]
    assert ranks[0]["together"] >= 3
    assert sum(ranks[0]["losses"][-10:]) < sum(ranks[0]["losses"][:10])
    assert {one for rank in ranks for one in rank["steps"]} == {40.0}


def test_copies_are_the_same_and_shards_are_not(ended: list[list[dict[str, Any]]]) -> None:
    copies, shards = ([lines[plan] for lines in ended] for plan in (0, 1))
    assert copies[0]["weights"] == copies[1]["weights"]
    assert shards[0]["weights"] != shards[1]["weights"]
    assert sum(map(len, shards[0]["weights"])) < sum(map(len, copies[0]["weights"]))


def test_the_first_rank_says_how_often_the_site_has_shown_something(
    ended: list[list[dict[str, Any]]],
) -> None:
    shown = [[line["shown"] for line in lines[:2]] for lines in ended]
    assert shown[1] == shown[3] == [None, None]
    for first in (shown[0], shown[2]):
        assert first[0] is None
        assert first[1] >= 8


def test_every_rank_keeps_its_own_state(ended: list[list[dict[str, Any]]]) -> None:
    for lines in ended:
        for one in lines[:2]:
            kept = {"agreement", "since_update", "tokens", "steps", "how"}
            assert set(one["saved"]) == (kept | {"sync"} if one["rank"] == 0 else kept)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_a_library_has_spread_ends_as_one(
    ended: list[list[dict[str, Any]]], kind: str
) -> None:
    ranks = [lines[2 + KINDS.index(kind)] for lines in ended]
    for here, there in ((ranks[0], ranks[2]), (ranks[1], ranks[3])):
        assert here["weights"] == there["weights"]
    assert len({tuple(one["answer"]) for one in ranks}) == 1
    assert ranks[0]["together"] >= 3
    assert sum(ranks[0]["losses"][-10:]) < sum(ranks[0]["losses"][:10])
    assert {step for rank in ranks for step in rank["steps"]} == {float(STEPS)}
    assert all((rank["norm"] > 0) == (kind != "engine") for rank in ranks)


def test_gradients_of_a_model_that_a_library_has_spread_are_not_averaged(
    ended: list[list[dict[str, Any]]],
) -> None:
    for lines in ended:
        for one in lines[2:]:
            assert "another library has spread the model" in one["refused"]
