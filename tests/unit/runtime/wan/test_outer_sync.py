"""Sites that train in turns, in one thread: every run of a test is the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from tests.fakes.clock import FakeClock
from tests.fakes.turns import Turns
from tests.fakes.wires import Network
from torch import Tensor, nn

from gridloom.runtime.compress import Blocks
from gridloom.runtime.wan.agreement import LocalAgreement
from gridloom.runtime.wan.events import Down, Received, Up
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterRound, OuterSync, _Slot
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import OptimizerState

EVERY, FRAGMENTS = 16, 4
SLOT = EVERY // FRAGMENTS
STEP_S = 0.1


def batch(step: int, site: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + site)
    inputs = torch.randn(6, 8, generator=generator)
    return inputs, torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))


@dataclass
class Site:
    """One site.

    Attributes:
        number: Its place in the order.
        net: Its model.
        sync: Keeps it in step.
        rounds: What it knows of the others.
        done: Rounds taken in.
        losses: One a step.
    """

    number: int
    net: nn.Module
    optimizer: torch.optim.Optimizer
    sync: OuterSync
    agreed: list[Fragment]
    rounds: Rounds
    done: list[OuterRound]
    losses: list[float]

    def train(self, step: int) -> None:
        inputs, targets = batch(step, self.number)
        loss = ((self.net(inputs) - targets) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))
        self.sync.after_step(6.0)
        self.done += self.sync.done
        self.sync.done.clear()

    @property
    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])

    @property
    def anchor(self) -> Tensor:
        return torch.cat([one.anchor for one in self.agreed])


class World:
    """Sites, their wires and their common clock."""

    def __init__(self, names: Sequence[str], history_bytes: int = 2**20) -> None:
        self.names, self.clock, self.network = tuple(names), FakeClock(), Network()
        self._policy = RoundPolicy(patience_s=30.0, history_bytes=history_bytes)
        self.sites = {name: self.begin(name) for name in names}
        for _ in range(2):
            for name in names:
                self.sites[name].sync.join(0.0)

    def begin(self, name: str) -> Site:
        """Start a site's process, with a model that is not yet anybody's."""
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        fragments = Fragments(list(net.parameters()), FRAGMENTS)
        rule = OuterRule(learning_rate=0.9, momentum=0.3)
        agreed = [Fragment(fragments.read(i), rule, Blocks(4)) for i in range(FRAGMENTS)]
        agreement = LocalAgreement(fragments, agreed, OptimizerState(optimizer))
        made: list[OuterSync] = []

        def combine(given: Sequence[Given]) -> Buffer:
            return made[0].combine(given)

        rounds = Rounds(name, self.names, "same", self._policy, combine)
        peers = Peers(rounds, self.network.end(name), self.clock)
        made.append(OuterSync(agreement, peers, EVERY))
        number = self.names.index(name)
        return Site(number, net, optimizer, made[0], agreed, rounds, [], [])

    def run(
        self, steps: range, trains: Callable[[str, int], bool] = lambda name, step: True
    ) -> None:
        for step in steps:
            self.clock.advance(STEP_S)
            for name, site in self.sites.items():
                if trains(name, step):
                    site.train(step)


def level(world: World) -> bool:
    """Return whether all sites have agreed on the same, to the bit."""
    first, *others = world.sites.values()
    same = all(torch.equal(first.anchor, other.anchor) for other in others)
    return same and len({site.rounds.chain for site in world.sites.values()}) == 1


def together(site: Site, since: int = 0) -> int:
    """Return how many rounds a site has held with all others."""
    return sum(len(one.sites) == len(site.rounds.present()) for one in site.done[since:])


def test_rounds_follow_the_steps_and_the_same_seed_gives_the_same_bits() -> None:
    runs = []
    for _ in range(2):
        world = World("ab")
        world.run(range(80))
        runs.append(world)
        for site in world.sites.values():
            assert [one.round for one in site.done] == list(range(1, 80 // SLOT))
            assert [one.fragment for one in site.done] == [n % FRAGMENTS for n in range(19)]
            assert {one.stale_steps for one in site.done} == {SLOT}
            assert {one.sites for one in site.done} == {("a", "b")}
        assert level(world)
    for name in "ab":
        assert runs[0].sites[name].losses == runs[1].sites[name].losses
        assert torch.equal(runs[0].sites[name].weights, runs[1].sites[name].weights)


def test_cosine_and_norm_tell_how_far_the_sites_agree() -> None:
    world = World("ab")
    world.run(range(20))
    for one in world.sites["a"].done:
        assert one.norm > 0
        assert one.cosine is not None
        assert -1 <= one.cosine <= 1
    three = World("abc")
    three.run(range(20))
    assert all(one.cosine is None for one in three.sites["a"].done)
    assert level(three)


def test_a_site_of_a_third_of_the_speed_is_waited_for_by_nobody() -> None:
    world = World("abc")
    world.run(range(240), lambda name, step: name != "c" or step % 3 == 0)
    fast, slow = world.sites["a"], world.sites["c"]
    assert len(fast.losses) == 3 * len(slow.losses)
    assert len(fast.done) > 0.6 * 240 / SLOT
    assert together(fast) == len(fast.done)
    assert slow.rounds.version >= fast.rounds.version - 1


def test_a_cut_site_trains_on_and_brings_what_it_has_learnt() -> None:
    world = World("ab")
    world.run(range(40))
    world.network.cut("a", "b")
    world.run(range(40, 120))
    first, second = world.sites["a"], world.sites["b"]
    assert first.rounds.version > second.rounds.version  # half with the first one is a quorum
    assert {one.sites for one in first.done[12:]} == {("a",)}
    world.network.join("a", "b")
    world.run(range(120, 200))
    assert len(first.losses) == len(second.losses) == 200
    assert level(world)
    assert together(first, since=-8) == 8
    assert sum(second.losses[-20:]) < sum(second.losses[20:40])


def test_what_was_missed_is_a_whole_state_where_no_history_is_kept() -> None:
    world = World("ab", history_bytes=0)
    world.run(range(40))
    world.network.cut("a", "b")
    world.run(range(40, 80))
    world.network.join("a", "b")
    world.run(range(80, 140))
    assert level(world)
    assert together(world.sites["b"], since=-6) == 6


def test_a_new_process_of_a_site_takes_over_where_the_others_are() -> None:
    world = World("abc", history_bytes=0)
    world.run(range(60))
    before = sum(world.sites["c"].losses[-10:])
    world.sites["c"] = world.begin("c")
    world.run(range(60, 140))
    assert level(world)
    assert together(world.sites["a"], since=-6) == 6
    newcomer = world.sites["c"]
    assert sum(newcomer.losses[30:40]) < 1.5 * before
    assert newcomer.optimizer.state[next(newcomer.net.parameters())]["step"] > 80


def together_do(world: World, call: Callable[[OuterSync], object]) -> None:
    """Let all sites make a call that waits, in turns; large messages come every twentieth turn."""
    turns, network, clock = Turns(), world.network, world.clock

    def work(name: str) -> Callable[[], None]:
        sync = world.sites[name].sync
        end = network.ends[name]
        look = end.events

        def events(timeout_s: float) -> list[Up | Down | Received]:
            clock.advance(timeout_s)
            turns.hand_on()
            if turns.count % 20 == 0:
                network.release()
            return look(timeout_s)

        end.events = events  # type: ignore[method-assign]

        def act() -> None:
            call(sync)

        return act

    turns.run([work(name) for name in world.names])


def finish_together(world: World) -> None:
    """Let all sites finish."""
    together_do(world, lambda sync: sync.finish(40.0))


def test_sites_that_begin_with_other_weights_take_those_of_one_before_they_train() -> None:
    world = World("abc")
    for number, site in enumerate(world.sites.values()):
        with torch.no_grad():
            for one in (*site.net.parameters(), *(agreed.anchor for agreed in site.agreed)):
                one.add_(0.1 * number)
        site.rounds.chain = str(number)
    began_s = world.clock.monotonic_s()
    together_do(world, lambda sync: sync.join(40.0))
    assert level(world)
    assert torch.equal(world.sites["a"].weights, world.sites["c"].weights)
    assert world.clock.monotonic_s() - began_s < 20.0


def test_the_last_result_may_be_overtaken_by_the_goodbye() -> None:
    """Large messages take half a second here, and small ones no time."""
    world = World("ab")
    world.run(range(30))
    world.network.large_bytes = 60
    finish_together(world)
    assert level(world)
    assert torch.equal(world.sites["a"].weights, world.sites["b"].weights)


def test_what_is_trained_after_an_offer_under_way_is_in_the_last_rounds() -> None:
    world = World("ab")
    world.run(range(28))
    world.network.large_bytes = 60
    world.run(range(28, 34))
    assert all(site.rounds.is_offered() for site in world.sites.values())
    finish_together(world)
    assert torch.equal(world.sites["a"].weights, world.sites["b"].weights)
    assert torch.equal(world.sites["a"].weights, world.sites["a"].anchor)


def test_two_newcomers_at_once_are_given_the_same_state() -> None:
    world = World("abc", history_bytes=0)
    world.run(range(60))
    for name in "bc":
        world.sites[name] = world.begin(name)
    world.run(range(60, 140))
    assert level(world)
    assert together(world.sites["a"], since=-6) == 6


@pytest.mark.parametrize(
    ("round_s", "steps"), [(0.001, 1), (0.19, 10), (0.21, 11), (1e9, 1000)], ids=str
)
def test_without_an_interval_rounds_take_a_small_share_of_the_training(
    round_s: float, steps: int
) -> None:
    slot, now_s = _Slot(0, fragments=4), 0.0
    for number in range(8):  # steps of a second, a round in every second one
        work_s = round_s * (number % 2)
        slot.note(now_s + 1.0, now_s + 1.0 + work_s)
        now_s += 1.0 + work_s
        if number % 2:
            slot.offered()
    assert slot.steps == steps


def test_an_interval_that_is_told_is_kept() -> None:
    slot = _Slot(12, fragments=4)
    for number in range(20):
        slot.note(number, number + 0.9)
        slot.offered()
    assert slot.steps == 3
