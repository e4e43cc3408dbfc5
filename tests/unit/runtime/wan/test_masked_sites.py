"""Sites whose updates are masked, in one thread: what they learn, and what anybody can see."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import safetensors.torch
import torch
from tests.fakes.clock import FakeClock
from tests.fakes.wires import Network
from torch import Tensor, nn

from gridloom.model.parallel import SitePrivacy, SiteSync
from gridloom.runtime.wan.fragments import Fragments
from gridloom.runtime.wan.history import Buffer, Given
from gridloom.runtime.wan.keyring import Keyring, agreeing, fingerprint
from gridloom.runtime.wan.local_data import agreement
from gridloom.runtime.wan.mask_messages import (
    Key,
    Masked,
    Member,
    Ready,
    Roster,
    Seed,
    Unseal,
)
from gridloom.runtime.wan.masked_rounds import MaskedRounds
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.messages import Hello, MessageError, Offer, State
from gridloom.runtime.wan.methods import codec
from gridloom.runtime.wan.outer import Fragment, OuterRule
from gridloom.runtime.wan.outer_sync import OuterRound, OuterSync
from gridloom.runtime.wan.peers import Peers
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import OptimizerState

pytest.importorskip("cryptography", reason="needs gridloom[privacy]")

EVERY, FRAGMENTS, STEP_S, PATIENCE_S = 8, 2, 0.1, 2.0
PLAIN = SiteSync(kind="outer", every=EVERY, fragments=FRAGMENTS)
MASKED = SiteSync(kind="outer", every=EVERY, fragments=FRAGMENTS, privacy=SitePrivacy(masked=True))


def chance_of(name: str) -> Callable[[int], bytes]:
    """Return entropy that is the same in every run."""
    drawn = 0

    def chance(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{name} {drawn}".encode()).digest(count)

    return chance


@dataclass
class Site:
    """One site."""

    number: int
    net: nn.Module
    optimizer: torch.optim.Optimizer
    sync: OuterSync
    agreed: list[Fragment]
    rounds: Rounds
    done: list[OuterRound] = field(default_factory=list)

    def train(self, step: int) -> None:
        generator = torch.Generator().manual_seed(100 * step + self.number)
        inputs = torch.randn(6, 8, generator=generator)
        targets = torch.sin(inputs @ torch.linspace(-1, 1, 32).view(8, 4))
        ((self.net(inputs) - targets) ** 2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.sync.after_step(6.0 + self.number)
        self.done += self.sync.done
        self.sync.done.clear()

    @property
    def anchor(self) -> Tensor:
        return torch.cat([one.anchor for one in self.agreed])


class World:
    """Sites, their wires and their common clock.

    Attributes:
        plain: What each site has offered, as it is before any mask.
        carried: From whom, to whom, what.
        at: Called with each message before it is carried.
    """

    def __init__(self, names: Sequence[str], how: SiteSync = MASKED) -> None:
        self.names, self.how = tuple(names), how
        self.clock, self.network = FakeClock(), Network()
        self.plain: list[tuple[str, bytes]] = []
        self.carried: list[tuple[str, str, AnyMessage, bytes]] = []
        self.at: Callable[[str, str, AnyMessage], None] = lambda source, target, message: None
        carry = self.network.carry

        def watched(source: str, target: str, header: bytes, body: Buffer) -> None:
            message = decode_message(header)
            self.carried.append((source, target, message, bytes(body)))
            self.at(source, target, message)
            carry(source, target, header, body)

        self.network.carry = watched  # type: ignore[method-assign]
        self.sites = {name: self.begin(name) for name in names}
        for _ in range(2):
            for name in names:
                self.sites[name].sync.join(0.0)

    def begin(self, name: str, life: int = 0) -> Site:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        fragments = Fragments(list(net.parameters()), FRAGMENTS)
        rule = OuterRule(learning_rate=0.9, momentum=0.3)
        agreed = [Fragment(fragments.read(i), rule, codec(self.how)) for i in range(FRAGMENTS)]
        own = agreement(self.how.privacy, fragments, agreed, OptimizerState(optimizer))
        made: list[OuterSync] = []

        def combine(given: Sequence[Given]) -> Buffer:
            return made[0].combine(given)

        policy = RoundPolicy(patience_s=PATIENCE_S, history_bytes=0)
        rounds: Rounds
        if self.how.privacy.masked:
            keyring = Keyring(name, chance_of(f"{name} {life}"))
            rounds = MaskedRounds(name, self.names, "same", policy, keyring)
        else:
            rounds = Rounds(name, self.names, "same", policy, combine)
        self._watch_offers(name, rounds)
        peers = Peers(rounds, self.network.end(name), self.clock)
        made.append(OuterSync(own, peers, EVERY))
        return Site(self.names.index(name), net, optimizer, made[0], agreed, rounds)

    def run(self, steps: range, names: Sequence[str] = ()) -> None:
        for step in steps:
            self.clock.advance(STEP_S)
            for name in names or self.names:
                self.sites[name].train(step)

    def cut(self, name: str) -> None:
        for other in self.names:
            if other != name:
                self.network.cut(name, other)

    def join(self, name: str) -> None:
        for other in self.names:
            if other != name:
                self.network.join(name, other)

    def said(self, kind: type[AnyMessage]) -> list[tuple[str, str, AnyMessage, bytes]]:
        return [one for one in self.carried if isinstance(one[2], kind)]

    def level(self, names: Sequence[str] = ()) -> bool:
        first, *others = (self.sites[name] for name in names or self.names)
        same = all(torch.equal(first.anchor, other.anchor) for other in others)
        return same and len({self.sites[n].rounds.chain for n in names or self.names}) == 1

    def _watch_offers(self, name: str, rounds: Rounds) -> None:
        offer = rounds.offer

        def watched(weight: float, payload: Buffer, now_s: float) -> None:
            self.plain.append((name, bytes(payload)))
            offer(weight, payload, now_s)

        rounds.offer = watched  # type: ignore[method-assign]


def whole(body: bytes) -> Tensor:
    return torch.frombuffer(bytearray(body), dtype=torch.int32).to(torch.float64)


def test_masked_sites_learn_what_plain_ones_do() -> None:
    masked, plain = World("abc"), World("abc", PLAIN)
    for world in (masked, plain):
        world.run(range(48))
        assert world.level()
    rounds = [one.sites for one in masked.sites["b"].done]
    assert len(rounds) >= 8
    assert set(rounds) == {("a", "b", "c")}
    # the plain average of three is told in fp32; the masked one comes a step or two later
    assert float((masked.sites["a"].anchor - plain.sites["a"].anchor).abs().max()) < 0.05
    assert {one.stale_steps for one in masked.sites["a"].done} == {EVERY // FRAGMENTS}


def test_nobody_but_the_site_ever_holds_its_plain_update() -> None:
    world = World("abcd")
    world.run(range(40))
    assert world.level()
    assert not world.said(Offer)
    parts = world.said(Masked)
    assert len(parts) >= 3 * 6
    plain = {
        name: [whole(payload) for who, payload in world.plain if who == name] for name in "bcd"
    }
    for _, _, _, body in world.carried:
        assert not any(payload[:64] in body for _, payload in world.plain)
    for source, target, _, body in parts:
        assert target == "a"
        seen = whole(body)
        assert float(seen.abs().mean()) == pytest.approx(2**30, rel=0.2)  # of all int32
        for vector in plain[source]:
            cosine = torch.nn.functional.cosine_similarity(seen, vector, dim=0)
            assert abs(float(cosine)) < 6 / len(seen) ** 0.5
    rosters = [message for _, _, message, _ in world.carried if isinstance(message, Roster)]
    assert {member.site for one in rosters for member in one.members} == set("abcd")


def test_what_a_newcomer_is_given_is_what_all_have_agreed_on() -> None:
    world = World("abc")
    world.run(range(20))
    world.sites["c"] = world.begin("c", life=1)
    world.run(range(20, 60))
    assert world.level()
    assert world.sites["a"].done[-1].sites == ("a", "b", "c")
    names = {name for _, _, _, body in world.said(State) for name in safetensors.torch.load(body)}
    assert names
    assert {name.split(".")[0] for name in names} <= {"anchor", "velocity", "counted"}


def test_a_lost_site_is_done_without_and_comes_back() -> None:
    world = World("abcd")
    world.run(range(20))
    world.cut("d")
    world.run(range(20, 60))
    assert world.level("abc")
    assert world.sites["a"].done[-1].sites == ("a", "b", "c")
    world.join("d")
    world.run(range(60, 110))
    assert world.level()
    assert world.sites["a"].done[-1].sites == tuple("abcd")


def test_two_sites_of_three_hold_no_round_and_train_on() -> None:
    world = World("abc")
    world.run(range(20))
    before = world.sites["a"].rounds.version
    world.cut("c")
    world.run(range(20, 60))
    assert world.sites["a"].rounds.version <= before + 1
    assert not world.sites["a"].rounds.leader()
    world.join("c")
    world.run(range(60, 90))
    assert world.level()
    assert world.sites["a"].done[-1].sites == tuple("abc")


def test_a_site_lost_before_its_part_is_there_makes_another_try() -> None:
    world = World("abcd")
    world.run(range(20))
    cut: list[str] = []

    def lose(source: str, target: str, message: AnyMessage) -> None:
        if isinstance(message, Roster) and target == "d" and not cut:
            cut.append(target)
            world.cut("d")

    world.at = lose
    since = len(world.carried)
    world.run(range(20, 40))
    rosters = [m for _, _, m, _ in world.carried[since:] if isinstance(m, Roster)]
    first, *later = rosters
    again = [one for one in later if one.round == first.round and one.number > first.number]
    assert again
    assert [member.site for member in again[0].members] == ["a", "b", "c"]
    assert world.level("abc")
    assert world.sites["b"].done[-1].sites == ("a", "b", "c")


def test_a_site_lost_while_seals_are_opened_ends_the_round_with_nothing() -> None:
    world = World("abcd")
    world.run(range(20))
    cut: list[str] = []

    def lose(source: str, target: str, message: AnyMessage) -> None:
        if isinstance(message, Unseal) and target == "d" and not cut:
            cut.append(target)
            world.cut("d")

    world.at = lose
    anchors = world.sites["a"].anchor
    version = world.sites["a"].rounds.version
    for step in range(20, 80):
        world.run(range(step, step + 1))
        if world.sites["a"].rounds.version > version and cut:
            break
    world.run(range(80, 90))
    done = [one for site in "abc" for one in world.sites[site].done if not one.sites]
    assert len(done) == 3
    assert {one.norm for one in done} == {0.0}
    assert world.level("abc")
    # given up: what the three offered in it is offered no more
    for name in "abc":
        assert world.sites[name].rounds.version > done[0].round
    world.at = lambda source, target, message: None
    world.join("d")
    world.run(range(90, 140))
    assert world.level()
    assert world.sites["a"].done[-1].sites == tuple("abcd")
    assert not torch.equal(anchors, world.sites["a"].anchor)


def test_who_lacks_most_keys_is_left_out() -> None:
    all_four = dict.fromkeys("abcd", "x")
    assert agreeing(dict.fromkeys("abcd", all_four)) == list("abcd")
    assert agreeing(dict.fromkeys("abc", all_four) | {"d": {"d": "x"}}) == list("abc")
    stale = {"a": all_four, "b": all_four | {"c": "old"}, "c": all_four, "d": all_four}
    assert agreeing(stale) == list("abd")  # either would do: the last goes
    assert agreeing({}) == []


def test_a_leader_with_too_few_parts_waits_and_says_so() -> None:
    world = World("abc")
    world.run(range(20))
    since = len(world.carried)
    sites = world.sites
    for step in range(20, 80):
        world.clock.advance(STEP_S)
        for name in "ab":  # c is in contact, and trains nothing
            sites[name].train(step)
        sites["c"].sync._peers.pump()
    hellos = [one for one in world.carried[since:] if isinstance(one[2], Hello)]
    assert {source for source, _, _, _ in hellos} == {"a"}
    assert 1 <= len(hellos) // 2 <= 60 * STEP_S / PATIENCE_S
    world.run(range(80, 110))
    assert world.level()
    assert sites["a"].done[-1].sites == tuple("abc")


class Alone:
    """One site ``b`` among ``a`` to ``d``, and a test that speaks for the others."""

    def __init__(self) -> None:
        self.rings = {name: Keyring(name, chance_of(name)) for name in "abcd"}
        policy = RoundPolicy(patience_s=PATIENCE_S)
        self.rounds = MaskedRounds("b", "abcd", "same", policy, self.rings["b"])
        self.rounds.payload_bytes = lambda number: 16
        for name in "acd":
            self.rounds.up(name, resumed=False)
            self.tell(name, Hello(version=0, chain="", settings="same", sees=4, can_lead=True))
            self.tell(name, Key(public=self.rings[name].public.hex()))
        self.vector = torch.tensor([1, -2, 3, 4], dtype=torch.int32)
        self.rounds.offer(2.0, self.vector.numpy().tobytes(), 0.0)

    def tell(self, peer: str, message: AnyMessage, body: bytes = b"") -> None:
        self.rounds.received(peer, decode_message(encode_message(message)), body, 0.0)

    def said(self, kind: type[AnyMessage]) -> list[AnyMessage]:
        found = [sent.message for sent in self.rounds.outbox if isinstance(sent.message, kind)]
        self.rounds.outbox.clear()
        return found

    def roster(
        self, names: str = "abcd", number: int = 1, other: Mapping[str, str] | None = None
    ) -> Roster:
        changed = {name: fingerprint(ring.public) for name, ring in self.rings.items()}
        changed |= {"chain": ""} | dict(other or {})
        members = tuple(Member(site=name, weight=2.0, key=changed[name]) for name in names)
        return Roster(round=1, chain=changed["chain"], number=number, members=members)


def test_a_leader_is_told_that_a_part_is_there_and_which_keys() -> None:
    site = Alone()
    ready = site.said(Ready)[-1]
    assert isinstance(ready, Ready)
    assert ready.weight == 2.0
    assert sorted(ready.keys) == list("abcd")
    assert not ready.is_open


def test_a_site_opens_its_part_for_one_sum_only() -> None:
    site = Alone()
    site.said(Ready)
    labels = []
    for number in (1, 2):
        site.tell("a", site.roster(number=number))
        (masked,) = site.said(Masked)
        assert isinstance(masked, Masked)
        labels.append(masked.label)
    site.tell("c", Unseal(label=labels[0]))  # it was not c who called
    site.tell("a", Unseal(label="made up"))
    assert not site.said(Seed)
    for _ in range(2):
        site.tell("a", Unseal(label=labels[1]))
        (seed,) = site.said(Seed)
        assert isinstance(seed, Seed)
        assert seed.label == labels[1]
    site.tell("a", Unseal(label=labels[0]))
    site.tell("a", site.roster(number=3))
    assert not site.said(Seed)
    assert not site.said(Masked)


@pytest.mark.parametrize(
    ("names", "changed"),
    [
        ("ab", {}),
        ("bcd", {"c": "another key"}),
        ("acd", {}),
        ("abbc", {}),
        ("abcd", {"chain": "elsewhere"}),
    ],
)
def test_a_roster_that_is_not_sound_gets_no_part(names: str, changed: dict[str, str]) -> None:
    site = Alone()
    site.tell("a", site.roster(names, other=changed))
    assert not site.said(Masked)
    site.tell("a", site.roster())
    assert site.said(Masked)
    site.tell("a", site.roster())  # the same once more: a mask never serves twice
    assert not site.said(Masked)


def test_what_cannot_be_meant_is_refused() -> None:
    site = Alone()
    with pytest.raises(MessageError, match="not masked"):
        site.tell("a", Offer(round=1, chain="", weight=1.0), bytes(16))
    with pytest.raises(MessageError, match="small order"):
        site.tell("a", Key(public=bytes(32).hex()))
    with pytest.raises(MessageError, match="cannot be read"):
        decode_message(b'{"kind":"key","public":"zz"}')


def test_a_new_process_of_a_site_has_a_new_key() -> None:
    site = Alone()
    site.said(Ready)
    site.rounds.up("c", resumed=False)
    site.rounds.tick(0.0)
    (ready,) = site.said(Ready)
    assert isinstance(ready, Ready)
    assert sorted(ready.keys) == list("abd")
    site.tell("a", site.roster())
    assert not site.said(Masked)
    site.tell("c", Key(public=Keyring("c", chance_of("new")).public.hex()))
    (ready,) = site.said(Ready)
    assert isinstance(ready, Ready)
    assert sorted(ready.keys) == list("abcd")
