"""The state that a newcomer is given: as good as having been there all the time."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gridloom.runtime.wan.state import (
    OptimizerState,
    as_buffer,
    as_payload,
    pack_state,
    unpack_state,
)

Make = Callable[[list[Tensor]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "adamw amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, amsgrad=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=1e-2),
}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(inputs) ** 2).mean().backward()
        optimizer.step()


def copied(giver: nn.Module, giving: torch.optim.Optimizer, taking: torch.optim.Optimizer) -> bytes:
    own = {"weights": torch.cat([p.detach().flatten() for p in giver.parameters()])}
    body = pack_state(own, OptimizerState(giving))
    left = unpack_state(memoryview(body), OptimizerState(taking))
    assert list(left) == ["weights"]
    assert torch.equal(left["weights"], own["weights"])
    return body


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("used", [0, 3], ids=["into a fresh one", "into a used one"])
def test_training_goes_on_to_the_bit_from_the_state_of_another(make: Make, used: int) -> None:
    giver, taker = net(), net()
    giving, taking = make(list(giver.parameters())), make(list(taker.parameters()))
    train(giver, giving, range(5))
    train(taker, taking, range(100, 100 + used))
    copied(giver, giving, taking)
    taker.load_state_dict(copy.deepcopy(giver.state_dict()))
    train(giver, giving, range(5, 9))
    train(taker, taking, range(5, 9))
    for one, two in zip(giver.parameters(), taker.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_of_one_that_was_never_used_there_is_nothing_to_give(make: Make) -> None:
    model = net()
    optimizer = make(list(model.parameters()))
    assert OptimizerState(optimizer).pack() == {}


def test_what_was_taken_over_is_not_shared() -> None:
    giver, taker = net(), net()
    giving = torch.optim.AdamW(giver.parameters())
    taking = torch.optim.AdamW(taker.parameters())
    train(giver, giving, range(2))
    OptimizerState(taking).unpack(OptimizerState(giving).pack())
    train(giver, giving, range(2, 4))
    assert {float(state["step"]) for state in taking.state.values()} == {2.0}


def test_several_groups_are_one_list() -> None:
    model = net()
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 1e-3}, {"params": others}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    train(model, optimizer, range(1))
    names = OptimizerState(optimizer).pack()
    assert {name.partition(".")[0] for name in names} == {"0", "1", "2", "3"}


def test_payloads_share_their_memory_both_ways() -> None:
    payload = torch.arange(5, dtype=torch.uint8)
    buffer = as_buffer(payload)
    payload[0] = 9
    assert bytes(buffer) == bytes([9, 1, 2, 3, 4])
    assert torch.equal(as_payload(bytearray(buffer)), payload)
