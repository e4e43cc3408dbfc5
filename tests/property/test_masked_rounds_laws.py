"""Masked rounds under any order of messages, cuts and restarts: exact sums, and nothing else."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import permutations, product

import torch
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from tests.examples import at_least
from tests.property.linked_sites import PATIENCE_S, LinkedSites, picks
from torch import Tensor

from gridloom.model.parallel import MASKED_SITES_MIN
from gridloom.runtime.wan.history import Buffer, next_chain
from gridloom.runtime.wan.keyring import Keyring
from gridloom.runtime.wan.masked_rounds import MaskedRounds
from gridloom.runtime.wan.masks import weighed
from gridloom.runtime.wan.message_codec import AnyMessage
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.rounds import RoundPolicy

NUMBERS = 8


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
        assert len(members) >= MASKED_SITES_MIN
        return super().masked(vector, members, label)


class Site:
    """One site: its rounds, and what it has taken in."""

    def __init__(self, name: str, life: int, names: tuple[str, ...]) -> None:
        keyring = Watched(name, chance_of(f"{name} {life}"))
        policy = RoundPolicy(PATIENCE_S, 10_000)
        self.rounds = MaskedRounds(name, names, "same", policy, keyring)
        self.rounds.payload_bytes = lambda number: 4 * NUMBERS
        self.chain = ""


class MaskedRoundsMachine(LinkedSites[Site]):
    """Sites whose offers are vectors, of which only sums may be known."""

    @initialize(count=st.integers(3, 5))
    def begin(self, count: int) -> None:
        self.names = tuple("abcde"[:count])
        self.lives = dict.fromkeys(self.names, -1)
        self.vectors: list[Tensor] = []
        self.offered: dict[tuple[str, int, str], list[tuple[float, int]]] = {}
        self.sums: dict[str, tuple[int, ...]] = {}
        self.together = 0
        self.sites = {name: self.begin_anew(name) for name in self.names}
        for one, two in permutations(self.names, 2):
            self.join(one, two)
        self.hand_over_all()

    def begin_anew(self, name: str) -> Site:
        """Return a process that has nothing, not even its last one's key."""
        self.lives[name] += 1
        return Site(name, self.lives[name], self.names)

    def take_in(self, name: str) -> None:
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

    def is_large(self, body: bytes) -> bool:
        return len(body) > 0

    def send(self, source: str, target: str, message: AnyMessage, body: tuple[Buffer, ...]) -> None:
        for vector in self.vectors:
            assert vector.numpy().tobytes() not in b"".join(body), "a plain vector has left"
        super().send(source, target, message, body)

    @rule(pick=picks)
    def deliver_all_to(self, pick: int) -> None:
        target = self.names[pick % len(self.names)]
        for source in self.names:
            for large in (False, True):
                while self.links.get((source, target, large)):
                    self.hand_over(source, target, large)

    @rule(times=st.integers(1, 6))
    def deliver_to_all(self, times: int) -> None:
        """One message on each lane, a few times: how far a round gets."""
        for _ in range(times):
            for link in sorted(self.links):
                self.hand_over(*link)

    @rule()
    def offer(self) -> None:
        for name in self.names:
            self._offer(name)

    @invariant()
    def no_vector_is_in_two_sums(self) -> None:
        used = [vector for vectors in getattr(self, "sums", {}).values() for vector in vectors]
        assert len(used) == len(set(used))

    def teardown(self) -> None:
        """Whatever has happened: once all hear all, rounds go on, with everybody in them."""
        if not hasattr(self, "sites"):
            return
        for one, two in permutations(self.names, 2):
            self.join(one, two)
        self.settle()
        for _ in range(3):
            for name in self.names:
                self._offer(name)
            self.together = 0
            self.settle()
            assert len({site.chain for site in self.sites.values()}) == 1
        assert self.together == len(self.names)

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
        self.after(name)

    def _check(self, name: str, before: str, what: Outcome) -> None:
        """A result is the exact sum of parts that its sites offered, or nothing."""
        (part,) = what.parts
        total = torch.frombuffer(bytearray(part.payload), dtype=torch.int32)
        if not part.sites:
            assert not total.any()
            return
        assert len(part.sites) >= MASKED_SITES_MIN
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


TestMaskedRounds = MaskedRoundsMachine.TestCase
TestMaskedRounds.settings = at_least(20, stateful_steps=40)


def test_whose_parts_come_late_is_called_again() -> None:
    machine = MaskedRoundsMachine()
    machine.begin(count=3)
    machine.offer()
    machine.deliver_all_to(0)  # all are ready, and a roster is on its way
    machine.wait(PATIENCE_S)
    machine.hand_over_all()
    assert machine.together == 3
