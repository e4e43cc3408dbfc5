"""Two sites of two ranks each that average their gradients: the training of one process."""

from typing import Any

import pytest
import torch
from tests.unit.runtime.conftest import Nursery, Program
from tests.unit.runtime.wan.cut_gradients import CASES, LOST_AFTER, STEPS, batch
from tests.unit.runtime.wan.two_sites import free_ports, variables_of
from torch import nn

PROGRAM = "tests.unit.runtime.wan.cut_gradients"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Ended = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Ended:
    """What each rank said of each training, by its name; the last is ``back``."""
    said, ports = tmp_path_factory.mktemp("said"), free_ports(8 + 4 * (len(CASES) + 1))

    def start(number: int, mode: str) -> Program:
        words = [mode, *(str(port) for port in ports[8::4])]
        return nursery.run(
            PROGRAM, words, variables_of(number, ports[0]), said / f"{mode}-{number}"
        )

    try:
        first = [start(number, "all") for number in range(4)]
        lost = [first[number].told(code=9) for number in (2, 3)]
        back = [start(number, "back") for number in (2, 3)]
        stayed = [first[number].told() for number in (0, 1)]
        found = [process.told() for process in back]
    finally:
        nursery.end_all()
    trained: Ended = {
        name: [lines[n] for lines in (*stayed, *lost)] for n, name in enumerate(CASES)
    }
    trained["back"] = [lines[-1] for lines in (*stayed, *found)]
    return trained


def alone(steps: int, every: int = 1) -> tuple[list[float], nn.Module]:
    """Return the losses of one process on the samples of all ranks, and its model."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        parts = [batch(step, rank) for rank in range(4)]
        inputs, targets = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        loss = ((net(inputs) - targets) ** 2).mean()
        (loss / every).backward()
        losses.append(float(loss.detach()))
        if (step + 1) % every == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return losses, net


def together(ranks: list[dict[str, Any]]) -> list[float]:
    """Return the loss of each step over all ranks."""
    return [sum(losses) / 4 for losses in zip(*(one["losses"] for one in ranks), strict=True)]


def agree(ranks: list[dict[str, Any]]) -> bool:
    """Return whether ranks with the same number hold the same bits at both sites."""
    return all(ranks[n]["weights"] == ranks[n + 2]["weights"] for n in (0, 1))


@pytest.mark.parametrize(("name", "every"), [("copies", 1), ("shards", 1), ("accumulated", 2)])
def test_plain_gradients_give_the_losses_of_one_process(
    ended: Ended, name: str, every: int
) -> None:
    ranks = ended[name]
    assert agree(ranks)
    losses, _ = alone(STEPS, every)
    assert max(abs(a - b) for a, b in zip(together(ranks), losses, strict=True)) < 1e-4
    assert {one for rank in ranks for one in rank["steps"]} == {STEPS / every}


@pytest.mark.parametrize("name", ["blocks", "top_k", "deep", "low_rank"])
def test_compressed_gradients_train_as_well(ended: Ended, name: str) -> None:
    ranks = ended[name]
    assert agree(ranks)
    losses, _ = alone(STEPS)
    assert sum(together(ranks)[-5:]) < 1.1 * sum(losses[-5:])


@pytest.mark.parametrize(
    ("name", "updates"),
    [("copies", STEPS), ("shards", STEPS), ("blocks", STEPS), ("accumulated", STEPS // 2)],
)
def test_gradients_travel_while_the_backward_goes_on(ended: Ended, name: str, updates: int) -> None:
    for rank in ended[name]:
        if rank["rank"] == 0:  # in all steps but the first, that of the last layers
            assert updates - 3 <= rank["behind"] < updates
        else:
            assert rank["behind"] == 0


def test_copies_are_the_same_and_shards_are_not(ended: Ended) -> None:
    copies, shards = ended["top_k"], ended["blocks"]
    assert copies[0]["weights"] == copies[1]["weights"]
    assert sum(map(len, shards[0]["weights"])) < sum(map(len, copies[0]["weights"]))


def test_low_rank_of_parts_of_matrices_is_refused(ended: Ended) -> None:
    for rank in ended["cut low_rank"]:
        assert "low_rank" in rank["error"]
        assert "blocks" in rank["error"]


def test_gradients_that_are_no_numbers_on_one_rank_are_refused_on_all_of_its_site(
    ended: Ended,
) -> None:
    ranks = ended["poisoned"]
    assert [one["refused"] for one in ranks] == [[4]] * 4
    assert agree(ranks)
    assert all(loss == loss for one in ranks for loss in one["losses"][5:])


def test_a_site_that_was_killed_gets_the_state_of_the_other(ended: Ended) -> None:
    ranks = ended["back"]
    assert agree(ranks)
    assert {len(one["losses"]) for one in ranks[2:]} == {LOST_AFTER + STEPS}
    made = {steps for one in ranks for steps in one["steps"]}
    assert len(made) == 1  # the moments, too, are those of the site that went on
    assert made.pop() > 2 * LOST_AFTER + STEPS
