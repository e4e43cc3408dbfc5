"""Deep Gradient Compression between sites: momentum goes first, and shares shrink by round."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from tests.fakes.clock import FakeClock
from tests.fakes.turns import Turns
from tests.fakes.wires import Network
from torch import Tensor, nn

from gridloom.base.errors import InputError
from gridloom.model.parallel import SiteSync
from gridloom.runtime.wan.averaged import LocalGradients, Staged, Trained
from gridloom.runtime.wan.deep_encoder import DeepEncoder, check_optimizer, policy
from gridloom.runtime.wan.events import Down, Received, Up
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.gradient_sync import GradientSync
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.message_codec import decode_message
from gridloom.runtime.wan.messages import Offer
from gridloom.runtime.wan.methods import encoder
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import OptimizerState

HOW = SiteSync(codec="deep", share=0.05, warm_up=6, momentum=0.9)
NUMBERS = 400


def gradient(number: int) -> Tensor:
    return torch.randn(NUMBERS, generator=torch.Generator().manual_seed(number))


def test_shares_come_down_from_a_quarter_over_the_warm_up() -> None:
    assert policy(HOW).shares == (0.25, 0.0625, 0.05)
    assert policy(HOW).rounds_a_share == 3
    made = DeepEncoder(NUMBERS, policy(HOW))
    assert isinstance(made, Staged)
    assert made.stages() == [1, 4, 7]
    sizes = [made.size_at(NUMBERS, round_) for round_ in (1, 3, 4, 6, 7, 100)]
    assert sizes[0] == sizes[1] > sizes[2] == sizes[3] > sizes[4] == sizes[5]
    for stage in made.stages():
        made.at(stage)
        payload = made.encode(gradient(stage))
        assert payload.shape == (made.size_bytes(NUMBERS),)
        assert payload.shape == (made.size_at(NUMBERS, stage),)
    usual = policy(SiteSync(codec="deep", share=0.5, warm_up=6))
    assert usual.shares == (0.5,)
    assert policy(SiteSync(codec="deep")).shares == (0.01,)


def test_what_is_sent_in_the_end_is_what_momentum_makes_of_the_gradients() -> None:
    """Without masking (all is sent at once) it is SGD's momentum, to fp32 rounding."""
    made = DeepEncoder(NUMBERS, policy(SiteSync(codec="deep", share=1.0, momentum=0.0)))
    assert torch.allclose(made.decode(made.encode(gradient(1)), NUMBERS), gradient(1))
    sparse = DeepEncoder(NUMBERS, policy(SiteSync(codec="deep", share=0.05, momentum=0.5)))
    only = torch.zeros(NUMBERS)
    sent = sparse.decode(sparse.encode(gradient(1)), NUMBERS)
    for _ in range(200):
        sent += sparse.decode(sparse.encode(only), NUMBERS)
    unmasked = gradient(1) / (1 - 0.5)  # the sum of a velocity that is never stopped
    share = sent / unmasked
    assert bool(((share > 0.49) & (share < 1.01)).all())
    assert float(share.mean()) > 0.8


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_is_withdrawn_never_was(momentum: float) -> None:
    how = policy(SiteSync(codec="deep", share=0.05, momentum=momentum))
    one, other = DeepEncoder(NUMBERS, how), DeepEncoder(NUMBERS, how)
    for number in range(3):
        one.encode(gradient(number))
        other.encode(gradient(number))
    other.withdraw(other.encode(gradient(9)), gradient(9))
    for number in range(3, 6):
        payload = one.encode(gradient(number))
        sent = one.decode(payload, NUMBERS)
        assert torch.allclose(
            other.decode(other.encode(gradient(number)), NUMBERS), sent, atol=1e-4
        )


def test_momentum_is_not_applied_twice() -> None:
    weights = [nn.Parameter(torch.ones(3))]
    sgd = partial(torch.optim.SGD, weights, lr=0.1)
    check_optimizer(HOW, sgd())
    check_optimizer(SiteSync(codec="deep", momentum=0.0), sgd(momentum=0.9))
    check_optimizer(SiteSync(codec="top_k"), sgd(momentum=0.9))
    for made in (sgd(momentum=0.8), torch.optim.AdamW(weights, betas=(0.8, 0.9))):
        with pytest.raises(InputError, match=r"momentum of its own, 0\.8"):
            check_optimizer(HOW, made)


class Site:
    """One site that averages its gradients with the others'."""

    def __init__(self, name: str, names: str, network: Network, turns: Turns) -> None:
        torch.manual_seed(3)
        self.name, self.turns, self.clock = name, turns, FakeClock()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)
        parameters = list(self.net.parameters())
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        weights = Fragments(parameters, 1)
        gradients = Fragments([p.grad for p in parameters if p.grad is not None], 1)
        made: list[GradientSync] = []

        def combine(given: Sequence[Given]) -> Buffer:
            return made[0].combine(given)

        rounds = Rounds(name, names, "same", RoundPolicy(10.0, 0), combine)
        self.end = network.end(name)
        self.look = self.end.events
        self.end.events = self.events  # type: ignore[method-assign]
        peers = Peers(rounds, self.end, self.clock)
        inner = OptimizerState(self.optimizer)
        trained = Trained([weights], lambda bucket: gradients, inner, self.optimizer.step)
        make = partial(encoder, HOW, weights.numbers(0), [])
        self.averaged = LocalGradients(trained, [make])
        made.append(GradientSync(self.averaged, peers))
        self.sync, self.rounds = made[0], rounds
        self.shared: list[bool] = []

    def events(self, timeout_s: float) -> list[Up | Down | Received]:
        happened = self.look(0.0)
        if timeout_s and not happened:
            self.clock.advance(timeout_s)
            self.turns.hand_on()
            happened = self.look(0.0)
        return happened

    def work(self) -> None:
        self.sync.join(10.0)
        for step in range(60):
            chance = torch.Generator().manual_seed(100 * step + ord(self.name))
            inputs = torch.randn(6, 8, generator=chance)
            targets = torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))
            self.optimizer.zero_grad(set_to_none=False)
            loss = ((self.net(inputs) - targets) ** 2).mean()
            loss.backward()
            self.averaged.begin(1)
            self.averaged.keep()
            self.shared.append(self.sync.exchange(6.0))
            self.averaged.let_go()
            self.last = float(loss.detach())
            self.first = self.first if step else self.last
        self.state = self.averaged.state_dict()
        self.sync.finish(100.0)

    first = last = 0.0


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_sites_send_less_round_by_round_and_stay_one_model(names: str) -> None:
    network, turns = Network(), Turns()
    offers: dict[int, set[int]] = {}
    carry = network.carry

    def watched(source: str, target: str, header: bytes, body: Buffer) -> None:
        message = decode_message(header)
        if isinstance(message, Offer):
            offers.setdefault(message.round, set()).add(len(body))
        carry(source, target, header, body)

    network.carry = watched  # type: ignore[method-assign]
    sites = [Site(name, names, network, turns) for name in names]
    works: list[Callable[[], None]] = [site.work for site in sites]
    turns.run(works)
    weights = [torch.cat([p.detach().flatten() for p in site.net.parameters()]) for site in sites]
    for site, own in zip(sites, weights, strict=True):
        assert all(site.shared)
        assert torch.equal(own, weights[0])
        assert site.last < 0.6 * site.first
    assert all(len(sizes) == 1 for sizes in offers.values())
    told = [min(offers[number]) for number in (1, 4, 7)]
    assert told == sorted(told, reverse=True)
    assert len(set(told)) == 3
    again = Site("a", names, Network(), Turns())
    again.averaged.load_state_dict(sites[0].state)
    velocity = again.averaged.state_dict()["own"]["0"]["velocity"]
    assert torch.equal(velocity, sites[0].state["own"]["0"]["velocity"])
    assert bool(velocity.any())
