"""What a site's updates are before they leave it, and what is told of them."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import pytest
import safetensors.torch
import torch
from msgspec import structs
from tests.unit.runtime.wan.two_sites import free_ports
from torch import Tensor, nn

from gridloom.base.errors import InputError
from gridloom.base.system import SystemClock
from gridloom.model.parallel import SitePrivacy, SiteSync
from gridloom.runtime.compress import Cast, NotFiniteError
from gridloom.runtime.place import Place
from gridloom.runtime.run import Run, StopWish
from gridloom.runtime.updates import Sync, SyncOptions
from gridloom.runtime.wan.agreement import LocalAgreement
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.keystream import Keystream
from gridloom.runtime.wan.local_data import (
    PrivacySpent,
    PrivateAgreement,
    Shield,
    Shown,
    agreement,
    check_sites,
)
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.settings import TransportSettings
from gridloom.runtime.wan.state import OptimizerState

rdp = pytest.importorskip("opacus.accountants.rdp", reason="needs gridloom[privacy]")

NOISY = SitePrivacy(clip_norm=2.0, noise_multiplier=1.5, delta=1e-5)
QUICK = TransportSettings(heartbeat_s=0.05, silence_s=15.0, connect_s=0.5, backoff_s_max=0.1)


def normal(count: int) -> Tensor:
    return Keystream(bytes(32), "test").normal(count)


def test_an_update_is_clipped_over_all_fragments_and_noised() -> None:
    count, fragments = 200_000, 4
    shield = Shield(NOISY, fragments, normal)
    apart = torch.full((count,), 1.0)
    shown = shield(apart)
    noise = shown - apart * (2.0 / math.sqrt(fragments) / math.sqrt(count))
    assert float(noise.std()) == pytest.approx(1.5 * 2.0, rel=5 / math.sqrt(2 * count))
    assert abs(float(noise.mean())) < 5 * 3.0 / math.sqrt(count)
    assert bool((apart == 1.0).all())
    small = torch.full((3,), 0.1)
    quiet = Shield(SitePrivacy(clip_norm=2.0), fragments, normal)
    assert torch.equal(quiet(small), small)
    length = float(torch.linalg.vector_norm(quiet(apart), dtype=torch.float64))
    assert length == pytest.approx(1.0, rel=1e-5)  # 4 fragments of 1 have a norm of 2


def test_the_norm_is_that_of_all_ranks_of_the_site() -> None:
    others = 16.0 * 9
    quiet = Shield(SitePrivacy(clip_norm=1.0), 1, normal, lambda own: own + others)
    apart = torch.full((25,), 1.0)
    assert torch.allclose(quiet(apart), apart / 13)
    with pytest.raises(NotFiniteError):
        Shield(NOISY, 1, normal, lambda own: math.nan)(apart)


@pytest.mark.parametrize(("fragments", "rounds"), [(1, 30), (4, 120), (16, 480)])
def test_epsilon_is_what_opacus_says_of_the_same_numbers(fragments: int, rounds: int) -> None:
    shield = Shield(NOISY, fragments, normal)
    assert shield.spent() == PrivacySpent(0.0, 1e-5, 0, 1.5 * math.sqrt(fragments))
    shield.rounds = rounds
    accountant = rdp.RDPAccountant()
    accountant.history = [(1.5 * math.sqrt(fragments), 1.0, rounds)]
    told = shield.spent()
    assert told.epsilon == pytest.approx(accountant.get_epsilon(delta=1e-5), rel=1e-9)
    assert told.rounds == rounds
    once = Shield(NOISY, 1, normal)
    once.rounds = 30
    assert told.epsilon == pytest.approx(once.spent().epsilon, rel=1e-9)


def test_what_earlier_policies_showed_adds_up() -> None:
    rough, fine = (
        Shield(NOISY, 4, normal),
        Shield(structs.replace(NOISY, noise_multiplier=0.8), 9, normal),
    )
    rough.rounds, fine.rounds = 40, 27
    fine.follow(rough.shown())
    fine.rounds = 27
    accountant = rdp.RDPAccountant()
    accountant.history = [(3.0, 1.0, 40), (2.4, 1.0, 27)]
    assert fine.spent().rounds == 67
    assert fine.spent().epsilon == pytest.approx(accountant.get_epsilon(delta=1e-5), rel=1e-9)
    fine.follow(Shown(1, math.inf))
    assert fine.spent().epsilon == math.inf


def test_without_noise_nothing_is_promised() -> None:
    quiet = Shield(SitePrivacy(clip_norm=1.0), 1, normal)
    assert quiet.spent().epsilon == 0.0
    quiet(torch.ones(3))
    assert quiet.spent().epsilon == math.inf


def test_a_site_that_comes_back_counts_what_it_cannot_know() -> None:
    shield = Shield(NOISY, 1, normal)
    shield.rejoin(0, 0)
    assert shield.rounds == 0
    shield.rounds = 5
    shield.rejoin(7, 9)  # two rounds went on without it, and one offer may have been under way
    assert shield.rounds == 8
    shield.rejoin(0, 9)
    assert shield.rounds == 18


def made(privacy: SitePrivacy) -> tuple[LocalAgreement, nn.Module, list[Fragment]]:
    torch.manual_seed(1)
    net = nn.Linear(6, 4)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(6)).sum().backward()
    optimizer.step()
    fragments = Fragments(list(net.parameters()), 2)
    agreed = [Fragment(fragments.read(i), OuterRule(), Cast(torch.float32)) for i in range(2)]
    return agreement(privacy, fragments, agreed, OptimizerState(optimizer)), net, agreed


def move(net: nn.Module) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)


def test_a_whole_state_has_neither_weights_nor_moments_of_the_site() -> None:
    own, net, agreed = made(NOISY)
    move(net)
    body = own.pack()
    assert {name.split(".")[0] for name in safetensors.torch.load(bytes(body))} == {
        "anchor", "velocity", "counted",
    }  # fmt: skip
    other, other_net, _ = made(SitePrivacy(masked=True))
    other.check(body)
    other.unpack(body)
    told = torch.cat([p.detach().flatten() for p in other_net.parameters()])
    assert torch.equal(told, torch.cat([one.anchor for one in agreed]))
    usual, _, _ = made(SitePrivacy())
    assert type(usual) is LocalAgreement


def test_what_was_told_is_in_the_checkpoint() -> None:
    own, net, _ = made(NOISY)
    assert isinstance(own, PrivateAgreement)
    move(net)
    own.train(3.0)
    own.offer(0)
    own.offer(1)
    again, _, _ = made(NOISY)
    assert isinstance(again, PrivateAgreement)
    again.load_state_dict(own.state_dict())
    assert again.shield is not None
    assert again.shield.spent() == own.shield.spent()  # type: ignore[union-attr]
    assert again.shield.spent().rounds == 2
    silent, _, _ = made(SitePrivacy(masked=True))
    silent.load_state_dict(silent.state_dict())


def test_what_the_shield_keeps_back_is_not_kept_for_another_round() -> None:
    own, net, agreed = made(NOISY)
    move(net)
    own.train(3.0)
    _, first = own.offer(0)
    move(net)
    own.settle(0, [(3.0, first)], included=True)
    since = Fragments(list(net.parameters()), 2).read(0) - agreed[0].anchor
    assert torch.allclose(since, torch.ones(14), atol=1e-5)
    _, second = own.offer(0)
    assert not torch.equal(first, second)
    own.settle(0, [(3.0, torch.zeros_like(second))], included=False)
    _, third = own.offer(0)
    assert not torch.equal(second, third)  # noised anew, and counted
    assert isinstance(own, PrivateAgreement)
    assert own.shield is not None
    assert own.shield.rounds == 3


def test_two_sites_cannot_hide_from_one_another() -> None:
    with pytest.raises(InputError, match="mask the updates of 3 sites or more"):
        check_sites(SitePrivacy(masked=True), 2)
    for sites in (1, 3):
        check_sites(SitePrivacy(masked=True), sites)
    check_sites(NOISY, 2)


class Party:
    """Sites with data of their own, and as much as each has, over real connections."""

    names = ("a", "b", "c")
    how = SiteSync(
        kind="outer",
        every=8,
        fragments=2,
        outer_learning_rate=1.0,
        outer_momentum=0.0,
        privacy=SitePrivacy(masked=True, clip_norm=4.0, noise_multiplier=0.001),
    )

    def __init__(self) -> None:
        self.ports = free_ports(len(self.names))
        torch.manual_seed(3)
        self.nets = {name: nn.Linear(8, 4) for name in self.names}
        for net in self.nets.values():
            net.load_state_dict(self.nets["a"].state_dict())
        self.told: dict[str, tuple[PrivacySpent | None, Mapping[str, Any], list[str]]] = {}
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self.guarded, args=(name,)) for name in self.names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50.0)
            assert not thread.is_alive(), "a site hangs"
        if self.errors:
            raise self.errors[0]

    def guarded(self, name: str) -> None:
        try:
            self.train(name)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            self.errors.append(error)

    def begin(self, name: str) -> Sync:
        speakers = {n: ("127.0.0.1", port) for n, port in zip(self.names, self.ports, strict=True)}
        place = Place(
            job_id="job", site=name, sites=self.names, rank=0, size=1, local_rank=0,
            address="127.0.0.1", store=("", 0), speakers=speakers,
        )  # fmt: skip
        net = self.nets[name]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        options = SyncOptions(patience_s=20.0, transport=QUICK)
        return Sync(Run(place, SystemClock(), StopWish()), net, optimizer, self.how, options)

    def train(self, name: str) -> None:
        sync, net, clock = self.begin(name), self.nets[name], SystemClock()
        chance = torch.Generator().manual_seed(ord(name))
        size = 4 + 2 * self.names.index(name)
        events: list[str] = []
        rounds = 0
        while rounds < 6:
            inputs = torch.randn(size, 8, generator=chance)
            targets = inputs @ torch.linspace(-1, 1, 32).view(8, 4)
            ((net(inputs) - targets) ** 2).mean().backward()
            sync.step(tokens=size)
            done = sync.rounds()
            assert all(one.epsilon is not None and one.epsilon > 0 for one in done)
            rounds += len(done)
            events += sync.events()
            clock.sleep(0.005)
        state = sync.state_dict()
        self.told[name] = sync.privacy(), state, events
        sync.finish()


@pytest.mark.parametrize(
    ("agreed", "rounds", "bound"),
    [({"shown": {"rounds": 3, "exposure": 0.5}}, 3, 5.0), ({"sums": 1.0}, 0, math.inf)],
    ids=["counted", "not counted"],
)
def test_another_method_does_not_forget_what_was_told(
    agreed: Mapping[str, Any], rounds: int, bound: float
) -> None:
    sync = Party().begin("a")
    sync.load_state_dict({"steps": 7, "how": "another", "agreement": agreed})
    spent = sync.privacy()
    assert spent is not None
    assert (sync.steps, spent.rounds) == (7, rounds)
    assert 0 < spent.epsilon <= bound
    assert math.isinf(spent.epsilon) == math.isinf(bound)
    sync.leave(0.0)


def test_three_sites_train_masked_and_noised_over_real_connections() -> None:
    party = Party()
    party.run()
    weights = {name: net.weight.detach() for name, net in party.nets.items()}
    for name in party.names:
        spent, state, events = party.told[name]
        assert spent is not None
        assert spent.rounds >= 6
        assert math.isfinite(spent.epsilon)
        assert state["agreement"]["shown"]["rounds"] == spent.rounds
        assert any("masks without TLS" in event for event in events)
        assert torch.equal(weights[name], weights["a"])
    truth = torch.linspace(-1, 1, 32).view(8, 4).T
    assert float((weights["a"] - truth).norm()) < 0.5 * float(truth.norm())
