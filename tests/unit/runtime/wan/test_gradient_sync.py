"""Sites that exchange gradients, with links and processes lost at any moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from tests.fakes.clock import FakeClock
from tests.fakes.turns import KilledError, Turns
from tests.fakes.wires import End, Network
from torch import Tensor, nn

from gridloom.model.parallel import SiteSync
from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.wan.averaged import Encoder, LocalGradients, Trained
from gridloom.runtime.wan.backward import Backward, InOrder
from gridloom.runtime.wan.buckets import Buckets
from gridloom.runtime.wan.events import Down, Received, Up
from gridloom.runtime.wan.gradient_sync import GradientSync
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.methods import encoder
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import OptimizerState

PATIENCE_S = 10.0
STEP_S = 0.2
TOP_K = SiteSync(codec="top_k", share=0.1)


class Wire:
    """A site's connections; looking for messages hands the baton on."""

    def __init__(self, end: End, turns: Turns, clock: FakeClock) -> None:
        self._end, self._turns, self._clock = end, turns, clock
        self.looks = 0
        self.at_look: dict[int, Callable[[], None]] = {}
        self.send, self.links, self.close = end.send, end.links, end.close
        self.busy_s = end.busy_s

    def events(self, timeout_s: float) -> list[Up | Down | Received]:
        self.looks += 1
        if self.looks in self.at_look:
            self.at_look[self.looks]()
        happened = self._end.events(0.0)
        if timeout_s and not happened:
            self._clock.advance(timeout_s)
            self._turns.hand_on()
            happened = self._end.events(0.0)
        return happened


@dataclass
class Site:
    """One site.

    Attributes:
        shared: What ``exchange`` returned, step by step.
        applied: The gradients of each update.
        own: Its own gradients of each training step.
        change: What gradients are multiplied by after the backward pass.
    """

    name: str
    net: nn.Module
    optimizer: torch.optim.Optimizer
    wire: Wire
    rounds: Rounds
    peers: Peers
    averaged: LocalGradients
    encoders: list[Encoder]
    sync: GradientSync = field(init=False)
    backward: Backward = field(init=False)
    order: InOrder = field(init=False)
    shared: list[bool] = field(default_factory=list)
    applied: list[Tensor] = field(default_factory=list)
    own: list[Tensor] = field(default_factory=list)
    change: float = 1.0

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])

    def gradients(self) -> Tensor:
        parameters = reversed(list(self.net.parameters()))
        return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])

    def update(self) -> None:
        self.applied.append(self.gradients().clone())
        self.optimizer.step()

    def step(self, number: int) -> None:
        seed = 1000 * number + ord(self.name)
        inputs = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        targets = torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))
        self.optimizer.zero_grad(set_to_none=False)
        ((self.net(inputs) - targets) ** 2).mean().backward()
        for parameter in self.net.parameters():
            if parameter.grad is not None and self.change != 1.0:
                parameter.grad.mul_(self.change)
        self.own.append(self.gradients().clone())
        self.averaged.keep()
        self.shared.append(self.sync.exchange(6.0))
        self.averaged.let_go()
        self.order.restart(self.backward.end_step())


class World:
    """Sites, the wires between them, their common clock, and whose turn it is."""

    def __init__(
        self, names: Sequence[str], how: SiteSync | None = None, bucket_bytes: int = 700
    ) -> None:
        self.names, self.how = tuple(names), how or SiteSync()
        self.bucket_bytes = bucket_bytes
        self.clock, self.network, self.turns = FakeClock(), Network(), Turns()
        self.sites = {name: self.begin(name) for name in names}

    def begin(self, name: str) -> Site:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        parameters = list(net.parameters())
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-2)
        buckets = Buckets(parameters, [True] * len(parameters), self.bucket_bytes)
        encoders: list[Encoder] = []

        def encode(bucket: int) -> Encoder:
            numbers = buckets.gradients(bucket).numbers(0)
            encoders.append(encoder(self.how, numbers, buckets.shapes(bucket)))
            return encoders[-1]

        made: list[GradientSync] = []

        def combine(given: Sequence[Given]) -> Buffer:
            return made[0].combine(given)

        policy = RoundPolicy(patience_s=PATIENCE_S, history_bytes=0)
        rounds = Rounds(name, self.names, "same", policy, combine)
        wire = Wire(self.network.end(name), self.turns, self.clock)
        peers = Peers(rounds, wire, self.clock)
        trained = Trained(
            buckets.weights, buckets.gradients, OptimizerState(optimizer), lambda: site.update()
        )
        averaged = LocalGradients(trained, [partial(encode, n) for n in range(len(buckets))])
        site = Site(name, net, optimizer, wire, rounds, peers, averaged, encoders)
        made.append(GradientSync(averaged, peers))
        site.sync = made[0]
        site.order = InOrder(buckets.parameters, site.sync.begin)
        site.backward = Backward(parameters, site.order.came)
        return site

    def run(self, works: dict[str, Callable[[Site], None]]) -> None:
        """Let each site do its work, and then follow the others to their end."""

        def job(name: str, work: Callable[[Site], None]) -> Callable[[], None]:
            def do() -> None:
                site = self.sites[name]
                site.sync.join(PATIENCE_S)
                work(site)
                site.sync.finish(10 * PATIENCE_S)

            return do

        self.turns.run([job(name, work) for name, work in works.items()])

    def train(self, site: Site, steps: int, pause: int = 1, start: int = 0) -> None:
        """Make training steps that take so many turns each."""
        for number in range(start, start + steps):
            for _ in range(pause):
                self.clock.advance(STEP_S / len(self.names))
                self.turns.hand_on()
            site.step(number)

    def kill(self, name: str) -> None:
        for other in self.names:
            if other != name:
                self.network.cut(name, other)
        raise KilledError

    def level(self, names: Sequence[str] = ()) -> bool:
        """Return whether sites have the same weights to the bit, and know it."""
        first, *others = [self.sites[name] for name in names or self.names]
        return all(
            torch.equal(one.weights, first.weights) and one.rounds.chain == first.rounds.chain
            for one in others
        )


@pytest.mark.parametrize("bucket_bytes", [0, 700])
@pytest.mark.parametrize("how", [SiteSync(), TOP_K], ids=["exact", "top_k"])
@pytest.mark.parametrize("names", ["ab", pytest.param("abc", marks=pytest.mark.unmeasured)])
def test_every_update_is_the_same_everywhere(names: str, how: SiteSync, bucket_bytes: int) -> None:
    world = World(names, how, bucket_bytes)
    world.run({name: lambda site: world.train(site, 10) for name in names})
    assert world.level()
    for site in world.sites.values():
        assert site.shared == [True] * 10
        assert site.rounds.version == 10
    ahead = [header for header in world.network.carried if b'"kind":"ahead"' in header]
    assert bool(ahead) is bool(bucket_bytes)


@pytest.mark.parametrize("victim", ["a", "b", pytest.param("c", marks=pytest.mark.unmeasured)])
def test_a_site_killed_at_any_moment_stops_nobody(victim: str) -> None:
    others = [name for name in "abc" if name != victim]
    for look in range(1, 16):
        world = World("abc", TOP_K)
        world.sites[victim].wire.at_look[look] = partial(world.kill, victim)
        world.run({name: partial(world.train, steps=8) for name in "abc"})
        assert world.level(others), look
        assert all(sum(world.sites[name].shared) >= 7 for name in others), look


@pytest.mark.parametrize("names", ["ab", pytest.param("abc", marks=pytest.mark.unmeasured)])
def test_a_link_cut_at_any_moment_and_mended_leaves_one_model(names: str) -> None:
    for look in range(1, 14):
        world = World(names, TOP_K)
        at_look = world.sites["b"].wire.at_look
        at_look[look] = partial(world.network.cut, "a", "b")
        at_look[look + 8] = partial(world.network.join, "a", "b")
        world.run({name: partial(world.train, steps=30) for name in names})
        assert world.level(), look
        assert all(site.shared[-1] for site in world.sites.values()), look


def test_a_leader_that_is_stuck_is_counted_out_until_it_is_heard_again() -> None:
    world = World("abc")

    def stuck(site: Site) -> None:
        world.train(site, 3)
        while sum(world.sites["b"].shared) < 15:  # its connections live on, it does nothing
            world.turns.hand_on()
        world.train(site, 5)

    work = {"a": stuck} | dict.fromkeys("bc", lambda site: world.train(site, 20))
    began_s = world.clock.monotonic_s()
    world.run(work)
    assert world.level()
    for name in "bc":
        assert sum(world.sites[name].shared) >= 19
    assert world.clock.monotonic_s() - began_s < 10 * PATIENCE_S


def test_a_follower_that_is_stuck_is_waited_for_once_and_not_sent_more_and_more() -> None:
    world = World("abc")
    sent: list[Received] = []

    def stuck(site: Site) -> None:
        world.train(site, 3)
        end = world.network.ends["c"]
        while sum(world.sites["a"].shared) < 30:
            world.turns.hand_on()
        sent.extend(e for e in end.happened if isinstance(e, Received) and len(e.body))
        world.train(site, 5)

    work = {"c": stuck} | dict.fromkeys("ab", lambda site: world.train(site, 40))
    began_s = world.clock.monotonic_s()
    world.run(work)
    assert world.level()
    assert len(sent) <= 3
    assert world.clock.monotonic_s() - began_s < 10 * PATIENCE_S


def test_two_sites_that_start_anew_together_take_over_the_state_of_the_third() -> None:
    world = World("abc")

    def first(name: str) -> None:
        world.sites[name].sync.join(PATIENCE_S)
        world.train(world.sites[name], 5)

    world.turns.run([partial(first, name) for name in "abc"])
    for name in "bc":
        world.sites[name] = world.begin(name)
    world.run({name: lambda site: world.train(site, 10) for name in "abc"})
    assert world.level()
    for name in "bc":
        site = world.sites[name]
        assert sum(site.shared) >= 8
        assert site.optimizer.state[next(site.net.parameters())]["step"] >= 14


def test_gradients_of_a_site_slower_than_the_patience_are_not_thrown_away() -> None:
    world = World("abc")
    slow = int(3.5 * PATIENCE_S / STEP_S)  # turns in a little more than the patience

    def lasting(site: Site) -> None:
        while len(world.sites["c"].shared) < 6:
            site.step(len(site.shared))
            for _ in range(slow // 4):
                world.turns.hand_on()

    work = dict.fromkeys("ab", lasting) | {"c": lambda site: world.train(site, 6, slow)}
    world.run(work)
    assert world.level()
    assert sum(world.sites["c"].shared) >= 3


def test_large_results_that_small_messages_overtake_are_waited_for() -> None:
    world = World("abc", SiteSync())
    world.network.large_bytes = 100

    def late(site: Site) -> None:
        site.wire.at_look = dict.fromkeys(range(0, 10_000, 20), world.network.release)
        world.train(site, 8)

    world.run({"a": late} | dict.fromkeys("bc", lambda site: world.train(site, 8)))
    assert world.level()
    for site in world.sites.values():
        assert site.shared == [True] * 8
    assert not [header for header in world.network.carried if b'"kind":"state"' in header]


def test_what_a_site_made_use_of_alone_is_not_sent_again() -> None:
    world = World("ab", TOP_K, bucket_bytes=0)
    site = world.sites["b"]
    site.wire.at_look[12] = lambda: world.network.cut("a", "b")  # amid an exchange
    world.run({name: lambda site: world.train(site, 6) for name in "ab"})
    assert not all(site.shared)
    alone = [
        applied for applied, shared in zip(site.applied, site.shared, strict=True) if not shared
    ]
    own = [gradients for gradients, shared in zip(site.own, site.shared, strict=True) if not shared]
    assert torch.equal(alone[-1], own[-1])  # nobody led: as it was
    residual = site.encoders[0].residual  # type: ignore[attr-defined]
    assert not torch.allclose(alone[0], own[0])  # it had been sent already
    sent = sum(site.own[: len(site.shared) - len(own) + 1]) - residual
    assert float((sent - alone[0]).norm()) < float(sent.norm())


def test_a_gradient_that_came_too_late_is_kept_for_the_next() -> None:
    world = World("ab", TOP_K, bucket_bytes=0)
    world.network.large_bytes = 100
    site = world.sites["b"]

    def first(own: Site) -> None:
        own.step(0)  # without b, whose offer is slow
        world.network.release()
        world.network.large_bytes = None
        world.train(own, 3)

    def second(own: Site) -> None:
        own.step(0)
        assert own.shared == [False]
        torch.testing.assert_close(site.encoders[0].residual, own.own[0])  # type: ignore[attr-defined]
        world.train(own, 3)

    world.run({"a": first, "b": second})
    assert world.level()
    assert all(site.shared[-2:])


@pytest.mark.parametrize("names", ["ab", pytest.param("abc", marks=pytest.mark.unmeasured)])
def test_what_was_sent_ahead_is_not_sent_again(names: str) -> None:
    sent = []
    for bucket_bytes in (0, 700):
        world = World(names, SiteSync(), bucket_bytes)
        world.run(dict.fromkeys(names, partial(world.train, steps=6)))
        sent.append([world.network.ends[name].sent_bytes for name in names])
    for once, ahead in zip(*sent, strict=True):
        assert ahead < once + 6 * 500 * len(names)
        assert once > 6 * 1600


def test_gradients_that_change_after_the_backward_are_sent_as_they_are_then() -> None:
    world = World("ab", TOP_K)

    def work(site: Site) -> None:
        for number in range(6):
            site.change = 0.5 if number in (2, 3) else 1.0
            world.turns.hand_on()
            site.step(number)

    world.run(dict.fromkeys("ab", work))
    assert world.level()
    for site in world.sites.values():
        assert site.shared == [True] * 6
    total = sum(sum(site.own) for site in world.sites.values())
    left = [
        torch.cat([one.residual for one in site.encoders])  # type: ignore[attr-defined]
        for site in world.sites.values()
    ]
    applied = sum(world.sites["a"].applied)
    torch.testing.assert_close(applied, (total - sum(left)) / 2)


@pytest.mark.parametrize("names", ["ab", pytest.param("abc", marks=pytest.mark.unmeasured)])
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not(names: str) -> None:
    whole, first, second = (World(names, TOP_K) for _ in range(3))
    whole.run(dict.fromkeys(names, partial(whole.train, steps=8)))

    def begin(name: str) -> None:
        site = first.sites[name]
        site.sync.join(PATIENCE_S)
        first.train(site, 4)

    first.turns.run([partial(begin, name) for name in names])
    for name in names:
        before, after = first.sites[name], second.sites[name]
        after.sync.load_state_dict(before.sync.state_dict())
        after.averaged.load_state_dict(before.averaged.state_dict())
        after.net.load_state_dict(before.net.state_dict())
        after.optimizer.load_state_dict(before.optimizer.state_dict())
    second.run(dict.fromkeys(names, partial(second.train, steps=4, start=4)))
    assert second.level()
    for name in names:
        assert torch.equal(second.sites[name].weights, whole.sites[name].weights)


def test_gradients_that_are_no_numbers_are_refused_and_nothing_is_lost() -> None:
    world = World("ab", TOP_K)

    def work(site: Site) -> None:
        world.train(site, 3)
        before = [one.residual.clone() for one in site.encoders]  # type: ignore[attr-defined]
        site.change = float("nan")
        with pytest.raises(NotFiniteError):
            site.step(3)
        site.averaged.let_go()
        site.order.restart(site.backward.end_step())
        for one, residual in zip(site.encoders, before, strict=True):
            torch.testing.assert_close(one.residual, residual)  # type: ignore[attr-defined]
        site.change = 1.0
        world.train(site, 3, start=4)

    world.run(dict.fromkeys("ab", work))
    assert world.level()
    for site in world.sites.values():
        assert site.shared == [True] * 6
