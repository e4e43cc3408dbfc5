"""Every layout trains as one process would, and every rank knows which numbers are its own."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.runtime.conftest import Nursery
from tests.unit.runtime.inside.layouts import (
    ALL,
    FEW,
    GPTS,
    LAYOUTS,
    LOW_PRECISION,
    MANY,
    MODULES,
    RESUMED,
    SEED,
    TRAINING,
    WORLD,
    batch,
    examples,
    module,
)
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from gridloom.model.recipe import GptShape
from gridloom.runtime.gpt import Gpt

EXACT = LAYOUTS | RESUMED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class World:
    """What the processes found, by layout and rank."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._found: dict[str, dict[str, Any]] = {}
        for process in range(WORLD):
            self._found |= json.loads((directory / f"found-{process}.json").read_text())

    def of(self, name: str) -> list[dict[str, Any]]:
        ranks = [self._found[f"{name}/{rank}"] for rank in range(ALL[name].world_size)]
        for found in ranks:
            assert "error" not in found, found["error"]
        return ranks

    def weights(self, name: str) -> dict[str, Tensor]:
        """Put the model together from what ranks own; every number must be owned once."""
        whole: dict[str, Tensor] = {}
        owners: dict[str, Tensor] = {}
        for rank in range(ALL[name].world_size):
            for title, shape, start, owner, box in torch.load(self.directory / f"{name} {rank}.pt"):
                place = tuple(slice(s, s + n) for s, n in zip(start, box.shape, strict=True))
                whole.setdefault(title, torch.zeros(shape))
                owners.setdefault(title, torch.zeros(shape, dtype=torch.int32))
                if owner:
                    whole[title][place] = box
                    owners[title][place] += 1
        for title, count in owners.items():
            assert (count == 1).all(), title
        return whole


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> World:
    directory = tmp_path_factory.mktemp("layouts")
    program = "tests.unit.runtime.inside.layouts"
    processes = [
        nursery.run(program, [str(rank), str(directory)], {}, directory / f"process-{rank}.txt")
        for rank in range(WORLD)
    ]
    try:
        for process in processes:
            process.lines()
    finally:
        nursery.end_all()
    return World(directory)


@cache
def alone(shape: GptShape) -> tuple[list[float], list[float], dict[int, dict[str, Tensor]]]:
    """Train in one process, with torch's own optimizer and clipping.

    Return losses, norms, and the weights after some of the steps.
    """
    model = Gpt(shape, SEED)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": TRAINING.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=TRAINING.learning_rate,
        betas=(TRAINING.beta1, TRAINING.beta2),
    )
    losses, norms, weights = [], [], {}
    for step in range(MANY):
        inputs, targets = batch(step)
        loss = model.loss_sum(inputs, targets) / targets.numel()
        torch.autograd.backward(loss)
        norm = nn.utils.clip_grad_norm_(model.parameters(), TRAINING.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        norms.append(norm.item())
        if step + 1 in (FEW, 2 * FEW, MANY):
            weights[step + 1] = {n: p.detach().clone() for n, p in model.named_parameters()}
    return losses, norms, weights


@pytest.mark.parametrize("name", EXACT)
def test_losses_are_those_of_one_process(world: World, name: str) -> None:
    layout = EXACT[name]
    first = FEW if layout.resume else 0
    steps = slice(first, first + layout.steps)
    losses, norms, _ = alone(layout.shape)
    for found in world.of(name):
        assert found["losses"] == pytest.approx(losses[steps], abs=1e-4)
        assert found["norms"] == pytest.approx(norms[steps], rel=1e-3)
        assert found["evaluated"] == pytest.approx(losses[first], abs=1e-4)
        assert not any(found["skipped"])


@pytest.mark.parametrize("name", EXACT)
def test_ranks_own_every_number_once(world: World, name: str) -> None:
    layout = EXACT[name]
    world.of(name)
    _, _, weights = alone(layout.shape)
    expected = weights[layout.steps + (FEW if layout.resume else 0)]
    found = world.weights(name)
    assert found.keys() == expected.keys()
    for title, tensor in found.items():
        # Adam's first steps are as long for a gradient of rounding errors as for any other
        assert (tensor - expected[title]).abs().mean() < 1e-5, title


@pytest.mark.parametrize("name", GPTS)
def test_what_owners_have_reaches_all_copies(world: World, name: str) -> None:
    assert all(found["least"] >= 1 for found in world.of(name))


@pytest.mark.parametrize("name", GPTS)
def test_gradients_come_back_from_other_sites_to_where_they_were(world: World, name: str) -> None:
    assert all(found["strayed"] < 1e-6 for found in world.of(name))


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_low_precision_is_near(world: World, name: str) -> None:
    layout = LOW_PRECISION[name]
    losses, norms, _ = alone(layout.shape)
    for found in world.of(name):
        kept = [i for i, skipped in enumerate(found["skipped"]) if not skipped]
        assert kept
        if layout.plan.precision == "bf16":
            assert len(kept) == layout.steps
            assert found["losses"] == pytest.approx(losses[: layout.steps], rel=5e-3)
            assert found["norms"][0] == pytest.approx(norms[0], rel=5e-2)
        else:  # skipped at first, until the scale is small enough; then it learns
            assert 0 < kept[0] == layout.steps - len(kept)
            assert found["losses"][: kept[0] + 1] == pytest.approx(
                [losses[0]] * (kept[0] + 1), rel=0.1
            )
            assert found["norms"][kept[0]] == pytest.approx(norms[kept[0]], rel=0.1)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_ones_own_trains_as_alone(world: World, name: str) -> None:
    model = module()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, norms = [], []
    for step in range(FEW):
        x, y = examples(step)
        loss = mse_loss(model(x), y)
        torch.autograd.backward(loss)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    for found in world.of(name):
        assert found["losses"] == pytest.approx(losses, abs=1e-5)
        assert found["norms"] == pytest.approx(norms, rel=1e-3)
