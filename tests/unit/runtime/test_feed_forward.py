"""Experts: what is routed where, what it adds up to, and what keeps the load even."""

import msgspec
import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from gridloom.base.errors import InputError
from gridloom.model.recipe import GptShape
from gridloom.model.transformer import Experts
from gridloom.planner.shape import parameter_count
from gridloom.runtime.feed_forward import FeedForward, MixtureOfExperts, gate_groups, gated
from gridloom.runtime.gpt import Gpt

EXPERTS = Experts(count=5, per_token=2, ffn=24, shared_ffn=20, shared_gate=True)
SHAPE = GptShape(layers=2, hidden=16, heads=4, kv_heads=2, ffn=48, experts=EXPERTS)


def layer() -> MixtureOfExperts:
    found = Gpt(SHAPE, 1).blocks["1"].ffn
    assert isinstance(found, MixtureOfExperts)
    return found


def stream(batch: int = 2, time: int = 6) -> Tensor:
    return torch.randn(batch, time, SHAPE.hidden, generator=torch.Generator().manual_seed(4))


def swiglu(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """As it is written in the paper, with the rows of gate and up taken apart first."""
    groups = gate_groups(SHAPE, down.shape[1])
    rows = up.view(groups, 2, -1, up.shape[1])
    gate, plain = rows[:, 0].flatten(0, 1), rows[:, 1].flatten(0, 1)
    return (silu(x @ gate.T) * (x @ plain.T)) @ down.T


def test_a_dense_layer_is_swiglu() -> None:
    dense, x = FeedForward(SHAPE, 48), stream()
    assert gate_groups(SHAPE, 48) == 2
    assert torch.allclose(dense(x), swiglu(x, dense.up.weight, dense.down.weight), atol=1e-6)
    assert torch.equal(gated(x, 1), silu(x[..., :8]) * x[..., 8:])


def test_every_token_goes_through_its_best_experts() -> None:
    mixture, x = layer(), stream()
    seen, _ = mixture(x)
    scores = (x @ mixture.router.weight.T).softmax(-1)
    assert mixture.shared is not None
    assert mixture.shared_gate is not None
    for place in [(0, 0), (0, 5), (1, 3)]:
        token, best = x[place], scores[place].topk(2)
        by_hand = sum(
            weight * swiglu(token, mixture.experts.up[i], mixture.experts.down[i])
            for weight, i in zip(best.values / best.values.sum(), best.indices, strict=True)
        )
        shared = swiglu(token, mixture.shared.up.weight, mixture.shared.down.weight)
        by_hand = by_hand + torch.sigmoid(token @ mixture.shared_gate.weight[0]) * shared
        assert torch.allclose(seen[place], by_hand, atol=1e-5)


def test_gradients_are_those_of_the_dense_sum() -> None:
    mixture, x = layer(), stream().requires_grad_()
    torch.autograd.backward(mixture(x)[0].square().sum())
    routed = x.grad
    y = stream().requires_grad_()
    scores = (y @ mixture.router.weight.T).softmax(-1)
    top = scores.topk(2)
    weights = torch.zeros_like(scores).scatter(-1, top.indices, top.values)
    weights = weights / weights.sum(-1, keepdim=True)
    every = torch.stack(
        [swiglu(y, mixture.experts.up[i], mixture.experts.down[i]) for i in range(5)], dim=2
    )
    assert mixture.shared is not None
    assert mixture.shared_gate is not None
    summed = (weights[..., None] * every).sum(2)
    summed = summed + mixture.shared_gate(y).sigmoid() * mixture.shared(y)
    (gradient,) = torch.autograd.grad(summed.square().sum(), y)
    assert routed is not None
    assert torch.allclose(routed, gradient, atol=1e-5)


@torch.no_grad()
def test_an_even_load_costs_least_and_sequences_count_alone() -> None:
    mixture, x = layer(), stream(3, 8)
    _, together = mixture(x)
    alone = sum(float(mixture(x[i : i + 1])[1]) for i in range(3))
    assert float(together) == pytest.approx(alone, rel=1e-5)
    # all to expert 0 and 1: f is 5/2 for both, and P nearly all theirs
    mixture.router.weight.zero_()
    mixture.router.weight[0], mixture.router.weight[1] = 50.0, 49.0
    _, uneven = mixture(x.abs())
    assert float(uneven) == pytest.approx(SHAPE.router_loss * 24 * 5 / 2, rel=1e-3)
    mixture.router.weight.zero_()  # equal scores: P is 1/5 whatever the choice
    _, even = mixture(x)
    assert float(even) == pytest.approx(SHAPE.router_loss * 24, rel=1e-5)


def test_which_layers_have_experts() -> None:
    experts = msgspec.structs.replace(EXPERTS, dense_layers=1, every=2)
    shape = msgspec.structs.replace(SHAPE, layers=6, experts=experts)
    assert [shape.experts_at(i) is not None for i in range(6)] == [
        False, False, True, False, True, False
    ]  # fmt: skip
    assert msgspec.structs.replace(SHAPE, experts=None).experts_at(0) is None
    assert sum(p.numel() for p in Gpt(shape, 1).parameters()) == parameter_count(shape)


def test_the_router_s_loss_counts_while_learning_alone() -> None:
    model, text = Gpt(SHAPE, 1), torch.arange(18).view(2, 9)
    inputs, targets = text[:, :-1], text[:, 1:]
    entropy, imbalance = (loss.item() for loss in model.losses(inputs, targets))
    assert imbalance > 0
    assert model.loss_sum(inputs, targets).item() == pytest.approx(entropy + imbalance, rel=1e-6)
    with torch.no_grad():
        assert model.loss_sum(inputs, targets).item() == pytest.approx(entropy)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"count": 0}, "model.experts.count: is 0, must be at least 1"),
        ({"per_token": 6}, "model.experts.per_token: is 6, but a layer has 5 experts"),
        ({"capacity_factor": 1.25}, "model.experts.capacity_factor: no token is dropped"),
        ({"router_bias": True}, "model.experts.router_bias: is not built"),
    ],
)
def test_experts_that_cannot_be_built(change: dict[str, int], field: str) -> None:
    experts = msgspec.structs.replace(EXPERTS, **change)
    with pytest.raises(InputError, match=field):
        Gpt(msgspec.structs.replace(SHAPE, experts=experts), 1)
