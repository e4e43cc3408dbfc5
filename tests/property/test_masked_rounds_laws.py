"""Masked rounds under any order of messages, cuts and restarts: exact sums, and nothing else."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import permutations, product

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from gridloom.runtime.wan.history import next_chain
from gridloom.runtime.wan.keyring import Keyring
from gridloom.runtime.wan.masked_rounds import MEMBERS_MIN, MaskedRounds
from gridloom.runtime.wan.masks import weighed
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.rounds import RoundPolicy

PATIENCE_S = 10.0
NUMBERS = 8
picks = st.integers(0, 4)

Lane = tuple[str, str, bool]
"""From whom, to whom, and whether it is for large messages."""


def chance_of(name: str) -> Callable[[int], bytes]:
    """Return entropy that is the same in every run."""
    drawn = 0

    def chance(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{name} {drawn}".encode()).digest(count)

    return chance


class Watched(Keyring):
    """A keyring whose masks never serve twice."""

    def __init__(self, me: str, chance: Callable[[int], bytes]) -> None:
        super().__init__(me, chance)
        self.labels: list[str] = []

    def masked(self, vector: Tensor, members: Sequence[str], label: str) -> Tensor:
        assert label not in self.labels
        self.labels.append(label)
        assert len(members) >= MEMBERS_MIN
        return super().masked(vector, members, label)


class Site:
    """One site: its rounds, and what it has taken in."""

    def __init__(self, name: str, life: int, names: tuple[str, ...]) -> None:
        keyring = Watched(name, chance_of(f"{name} {life}"))
        policy = RoundPolicy(PATIENCE_S, 10_000)
        self.rounds = MaskedRounds(name, names, "same", policy, keyring)
        self.rounds.payload_bytes = lambda number: 4 * NUMBERS
        self.chain = ""


class MaskedRoundsMachine(RuleBasedStateMachine):
    """Sites, and between each two of them a link that is cut, or delivers in two lanes."""

    @initialize(count=st.integers(3, 5))
    def begin(self, count: int) -> None:
        self.names = tuple("abcde"[:count])
        self.lives = dict.fromkeys(self.names, 0)
        self.sites = {name: Site(name, 0, self.names) for name in self.names}
        self.links: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.kept: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.now_s = 0.0
        self.vectors: list[Tensor] = []
        self.offered: dict[tuple[str, int, str], list[tuple[float, int]]] = {}
        self.sums: dict[str, tuple[int, ...]] = {}
        self.together = 0
        for one, two in permutations(self.names, 2):
            self._connect(one, two)
        self._quiet()

    @rule(pick=picks, other=picks)
    def connect(self, pick: int, other: int) -> None:
        self._connect(*self._pair(pick, other))

    @rule(pick=picks, other=picks)
    def cut(self, pick: int, other: int) -> None:
        """Cut a link: what is under way waits, and arrives when the link is back."""
        one, two = self._pair(pick, other)
        if one == two or (one, two, False) not in self.links:
            return
        for here, there in ((one, two), (two, one)):
            for large in (False, True):
                self.kept[here, there, large] = self.links.pop((here, there, large))
        for here, there in ((one, two), (two, one)):
            self.sites[here].rounds.down(there, self.now_s)
            self._after(here)

    @rule(pick=picks)
    def restart(self, pick: int) -> None:
        """A site's process dies and comes back with nothing, not even its key."""
        name = self.names[pick % len(self.names)]
        met = sorted({other for one, other, _ in self.links if one == name})
        for other in met:
            for large in (False, True):
                del self.links[name, other, large], self.links[other, name, large]
            self.sites[other].rounds.down(name, self.now_s)
            self._after(other)
        self.kept = {link: waiting for link, waiting in self.kept.items() if name not in link}
        self.lives[name] += 1
        self.sites[name] = Site(name, self.lives[name], self.names)

    @rule(pick=picks, other=picks, count=st.integers(1, 4), large=st.booleans())
    def deliver(self, pick: int, other: int, count: int, large: bool) -> None:
        for _ in range(count):
            self._deliver(*self._pair(pick, other), large)

    @rule(pick=picks)
    def deliver_all_to(self, pick: int) -> None:
        target = self.names[pick % len(self.names)]
        for source in self.names:
            for large in (False, True):
                while self.links.get((source, target, large)):
                    self._deliver(source, target, large)

    @rule(times=st.integers(1, 6))
    def deliver_to_all(self, times: int) -> None:
        """One message on each lane, a few times: how far a round gets."""
        for _ in range(times):
            for link in sorted(self.links):
                self._deliver(*link)

    @rule()
    def offer(self) -> None:
        for name in self.names:
            self._offer(name)

    @rule(seconds=st.sampled_from([1.0, PATIENCE_S, 2 * PATIENCE_S]))
    def wait(self, seconds: float) -> None:
        self._wait(seconds)

    @invariant()
    def no_vector_is_in_two_sums(self) -> None:
        used = [vector for vectors in getattr(self, "sums", {}).values() for vector in vectors]
        assert len(used) == len(set(used))

    def teardown(self) -> None:
        """Whatever has happened: once all hear all, rounds go on, with everybody in them."""
        if not hasattr(self, "sites"):
            return
        for one, two in permutations(self.names, 2):
            self._connect(one, two)
        self._settle()
        for _ in range(3):
            for name in self.names:
                self._offer(name)
            self.together = 0
            self._settle()
            assert len({site.chain for site in self.sites.values()}) == 1
        assert self.together == len(self.names)

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name in self.names:
            self.sites[name].rounds.tick(self.now_s)
            self._after(name)

    def _quiet(self) -> None:
        for _ in range(200):
            if not any(self.links.values()):
                return
            for link in sorted(self.links):
                self._deliver(*link)
        raise AssertionError("messages without end")

    def _settle(self) -> None:
        for _ in range(8):
            self._quiet()
            self._wait(PATIENCE_S)

    def _pair(self, pick: int, other: int) -> tuple[str, str]:
        count = len(self.names)
        return self.names[pick % count], self.names[other % count]

    def _connect(self, one: str, two: str) -> None:
        if one == two or (one, two, False) in self.links:
            return
        resumed = (one, two, False) in self.kept
        for here, there in ((one, two), (two, one)):
            for large in (False, True):
                self.links[here, there, large] = self.kept.pop((here, there, large), deque())
        for here, there in ((one, two), (two, one)):
            self.sites[here].rounds.up(there, resumed=resumed)
            self._after(here)

    def _offer(self, name: str) -> None:
        rounds = self.sites[name].rounds
        if rounds.is_offered() or rounds.is_behind() or not rounds.leader():
            return
        number = len(self.vectors)
        chance = torch.Generator().manual_seed(number)
        most = 2**29
        vector = torch.randint(-most, most, (NUMBERS,), generator=chance).to(torch.int32)
        self.vectors.append(vector)
        weight = 1.0 + number % 4
        at = (name, rounds.version + 1, rounds.chain)
        self.offered.setdefault(at, []).append((weight, number))
        rounds.offer(weight, bytes(vector.numpy().tobytes()), self.now_s)
        self._after(name)

    def _deliver(self, source: str, target: str, large: bool) -> None:
        link = self.links.get((source, target, large))
        if link:
            header, body = link.popleft()
            self.sites[target].rounds.received(source, decode_message(header), body, self.now_s)
            self._after(target)

    def _after(self, name: str) -> None:
        """Take in, serve and send, as a site does after everything that happens to it."""
        site = self.sites[name]
        for what in site.rounds.settled:
            match what:
                case Outcome():
                    self._check(name, site.chain, what)
                    site.chain = next_chain(site.chain, what.round, what.parts)
                case Adopted():
                    site.chain = bytes(what.body).decode()
        site.rounds.settled.clear()
        assert site.chain == site.rounds.chain
        for peer in site.rounds.wants_state():
            site.rounds.give_state(peer, (site.chain.encode(),))
        for sent in site.rounds.outbox:
            self._send(name, sent.peer, sent.message, b"".join(sent.body))
        site.rounds.outbox.clear()

    def _check(self, name: str, before: str, what: Outcome) -> None:
        """A result is the exact sum of parts that its sites offered, or nothing."""
        (part,) = what.parts
        total = torch.frombuffer(bytearray(part.payload), dtype=torch.int32)
        if not part.sites:
            assert not total.any()
            return
        assert len(part.sites) >= MEMBERS_MIN
        self.together = max(self.together, len(part.sites))
        if name in part.sites and self.offered[name, what.round, before]:
            assert what.included
        candidates = [self.offered[site, what.round, before] for site in part.sites]
        found = [
            tuple(number for _, number in chosen)
            for chosen in product(*candidates)
            if torch.equal(self._sum(chosen), total)
        ]
        assert len(found) == 1
        assert self.sums.setdefault(bytes(part.payload).hex(), found[0]) == found[0]

    def _sum(self, chosen: Sequence[tuple[float, int]]) -> Tensor:
        weights = [weight for weight, _ in chosen]
        total = sum(weights)
        shares = [weight / total if total else 1 / len(chosen) for weight in weights]
        parts = [weighed(self.vectors[n], s) for s, (_, n) in zip(shares, chosen, strict=True)]
        return torch.stack(parts).sum(dim=0).to(torch.int32)

    def _send(self, source: str, target: str, message: AnyMessage, body: bytes) -> None:
        for vector in self.vectors:
            assert vector.numpy().tobytes() not in body, "a plain vector has left"
        lane = (source, target, len(body) > 0)
        if lane in self.links:
            self.links[lane].append((encode_message(message), body))


TestMaskedRounds = MaskedRoundsMachine.TestCase
TestMaskedRounds.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
