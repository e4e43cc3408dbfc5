"""Whole states: what a site takes over, what it keeps of its own, and what it refuses."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from tests.unit.runtime.wan.test_gradient_sync import World as GradientWorld
from tests.unit.runtime.wan.test_outer_sync import (
    SLOT,
    World,
    finish_together,
    level,
    together,
)
from torch import Tensor, nn

from gridloom.runtime.compress import Cast
from gridloom.runtime.wan.agreement import LocalAgreement
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.local_data import PrivateAgreement
from gridloom.runtime.wan.message_codec import decode_message
from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.state import OptimizerState, pack_state

FRAGMENTS = 2


@dataclass
class Site:
    """A site without connections: what it agrees on is put together by the test."""

    net: nn.Sequential
    optimizer: torch.optim.Optimizer
    agreed: list[Fragment]
    agreement: LocalAgreement

    @classmethod
    def begin(cls, *, is_private: bool = False) -> "Site":
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        fragments = Fragments(list(net.parameters()), FRAGMENTS)
        rule = OuterRule(learning_rate=1.0, momentum=0.0)
        agreed = [
            Fragment(fragments.read(n), rule, Cast(torch.float32)) for n in range(len(fragments))
        ]
        if is_private:
            return cls(net, optimizer, agreed, PrivateAgreement(fragments, agreed, None))
        inner = OptimizerState(optimizer)
        return cls(net, optimizer, agreed, LocalAgreement(fragments, agreed, inner))

    def train(self, seed: int, tokens: float) -> None:
        inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        self.optimizer.zero_grad()
        (self.net(inputs) ** 2).mean().backward()
        self.optimizer.step()
        self.agreement.train(tokens)

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])

    @property
    def anchor(self) -> Tensor:
        return torch.cat([one.anchor for one in self.agreed])

    def moments(self) -> list[Tensor]:
        return [
            state[name].clone()
            for state in self.optimizer.state.values()
            for name in ("exp_avg", "exp_avg_sq")
        ]


def rounds_of(*sites: Site) -> None:
    """Hold a round of each fragment."""
    for number in range(FRAGMENTS):
        parts = [site.agreement.offer(number) for site in sites]
        for site in sites:
            site.agreement.settle(number, parts, included=True)


@pytest.mark.parametrize("is_private", [False, True], ids=["all is shown", "private"])
def test_training_that_no_round_has_counted_meets_a_whole_state_in_the_middle(
    is_private: bool,
) -> None:
    ahead, cut_off = Site.begin(is_private=is_private), Site.begin(is_private=is_private)
    for seed, site in enumerate((ahead, cut_off)):
        site.train(seed, 10.0)
    rounds_of(ahead, cut_off)
    for seed in (10, 11):  # the link is down
        ahead.train(seed, 15.0)
        rounds_of(ahead)
    ahead.train(12, 7.0)
    cut_off.train(13, 10.0)
    before, moments = cut_off.weights, cut_off.moments()
    body = ahead.agreement.pack()
    cut_off.agreement.check(body)
    cut_off.agreement.unpack(body)
    others = ahead.anchor if is_private else ahead.weights
    assert torch.allclose(cut_off.weights, 0.25 * before + 0.75 * others, atol=1e-6)
    assert [one.unshared for one in cut_off.agreed] == [40.0] * FRAGMENTS
    assert torch.equal(cut_off.anchor, ahead.anchor)
    assert all(map(torch.equal, cut_off.moments(), moments))
    rounds_of(ahead, cut_off)
    assert torch.equal(cut_off.anchor, ahead.anchor)
    cut_off.agreement.unpack(ahead.agreement.pack())  # nothing is left to be kept
    assert torch.equal(cut_off.weights, ahead.weights)


def test_a_site_that_was_in_no_round_keeps_nothing() -> None:
    ahead, newcomer = Site.begin(), Site.begin()
    for seed in range(4):
        ahead.train(seed, 10.0)
        rounds_of(ahead)
    newcomer.train(20, 1000.0)
    newcomer.agreement.unpack(ahead.agreement.pack())
    assert torch.equal(newcomer.weights, ahead.weights)
    assert all(map(torch.equal, newcomer.moments(), ahead.moments()))
    assert [one.unshared for one in newcomer.agreed] == [0.0] * FRAGMENTS


def test_what_rounds_have_counted_outlives_a_stop() -> None:
    ahead, stopped, resumed = Site.begin(), Site.begin(), Site.begin()
    for site in (ahead, stopped):
        site.train(1, 10.0)
    rounds_of(ahead, stopped)
    stopped.train(2, 10.0)
    resumed.net.load_state_dict(stopped.net.state_dict())
    resumed.optimizer.load_state_dict(stopped.optimizer.state_dict())
    resumed.agreement.load_state_dict(stopped.agreement.state_dict())
    ahead.train(3, 10.0)
    rounds_of(ahead)
    for site in (stopped, resumed):
        site.agreement.unpack(ahead.agreement.pack())
    assert torch.equal(resumed.weights, stopped.weights)
    assert not torch.equal(resumed.weights, ahead.weights)


def other_fragments(site: Site) -> Buffer:
    return pack_state({"anchor.0": torch.zeros(5)}, OptimizerState(site.optimizer))


def not_finite(site: Site) -> Buffer:
    site.agreed[1].anchor[2] = torch.nan
    return site.agreement.pack()


def of_larger_moments(site: Site) -> Buffer:
    first = next(iter(site.optimizer.state.values()))
    first["exp_avg"] = torch.zeros(3, 3)
    return site.agreement.pack()


def of_more_parameters(site: Site) -> Buffer:
    more = nn.Linear(2, 2)
    site.net.append(more)
    site.optimizer.add_param_group({"params": list(more.parameters())})
    site.train(1, 1.0)
    return site.agreement.pack()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda site: b"", "cannot be read"),
        (lambda site: b"\xff" * 100, "cannot be read"),
        (lambda site: bytes(site.agreement.pack())[:-1], "cannot be read"),
        (other_fragments, "of another model: anchor.0"),
        (not_finite, "anchor.1 is not finite"),
        (of_larger_moments, "of another optimiser: its 0.exp_avg"),
        (of_more_parameters, "of another optimiser: it has '4."),
    ],
    ids=["nothing", "noise", "cut short", "other sizes", "not finite", "moments", "more"],
)
def test_a_state_that_is_of_no_use_is_refused_before_anything_changes(
    spoil: Callable[[Site], Buffer], why: str
) -> None:
    giver, taker = Site.begin(), Site.begin()
    for seed, site in enumerate((giver, taker)):
        site.train(seed, 1.0)
    before = taker.weights
    with pytest.raises(MessageError, match=why):
        taker.agreement.check(spoil(giver))
    assert torch.equal(taker.weights, before)


def test_a_state_of_sites_that_exchange_gradients_is_looked_at_as_well() -> None:
    world = GradientWorld("ab")
    world.run({name: lambda site: world.train(site, 2) for name in "ab"})
    giver, taker = world.sites.values()
    body = bytes(giver.averaged.pack())
    assert taker.peers.check_state == taker.averaged.check
    taker.averaged.check(body)
    with pytest.raises(MessageError, match="cannot be read"):
        taker.averaged.check(body[:-1])


def test_a_private_site_is_not_shown_the_weights_of_others() -> None:
    site = Site.begin(is_private=True)
    with pytest.raises(MessageError, match=r"of another model: local\.0"):
        site.agreement.check(Site.begin().agreement.pack())


def test_a_spoilt_state_stops_nobody_and_another_site_is_asked() -> None:
    world = World("abc", history_bytes=0)
    world.run(range(60))
    carry, spoilt = world.network.carry, list[str]()

    def damaging(source: str, target: str, header: bytes, body: Buffer) -> None:
        if decode_message(header).__class__.__name__ == "State" and not spoilt:
            spoilt.append(source)
            body = bytes(len(body))
        carry(source, target, header, body)

    world.network.carry = damaging  # type: ignore[method-assign]
    world.sites["c"] = world.begin("c")
    world.run(range(60, 140))
    told = [e for e in world.sites["c"].sync._peers.events if "any more: a state that" in e]
    assert [event.partition(" ")[0] for event in told] == spoilt
    newcomer, others = world.sites["c"], [world.sites[name] for name in "ab"]
    assert newcomer.rounds.version > 60 // SLOT
    assert all(len(site.losses) == 140 for site in others)
    (source,) = spoilt
    world.network.cut("c", source)
    world.run(range(140, 144))
    world.network.join("c", source)
    world.run(range(144, 220))
    assert level(world)
    assert together(world.sites["a"], since=-6) == 6


@pytest.mark.parametrize("is_cut", [False, True], ids=["joined", "cut"])
def test_sites_that_end_with_two_models_say_so(is_cut: bool) -> None:
    world = World("ab")
    world.run(range(30))
    if is_cut:
        world.network.cut("a", "b")
    finish_together(world)
    for site in world.sites.values():
        told = [e for e in site.sync._peers.events if "a model of this site's own" in e]
        assert len(told) == is_cut
