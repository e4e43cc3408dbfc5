"""Rounds between sites under any order of messages, cuts and restarts."""

from itertools import pairwise, permutations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from tests.examples import at_least
from tests.property.linked_sites import PATIENCE_S, LinkedSites, picks

from gridloom.runtime.wan.contacts import Quorum
from gridloom.runtime.wan.history import next_chain
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds


class Site:
    """One site: its rounds, and what it has taken in."""

    def __init__(self, name: str, names: tuple[str, ...], policy: RoundPolicy) -> None:
        self.rounds = Rounds(
            name, names, "same", policy, lambda given: b"+".join(bytes(g.payload) for g in given)
        )
        self.chain = ""
        self.offered = b""

    def take_in(self) -> list[tuple[list[bytes], str]]:
        """Take in what has settled; return the payloads of each round, and the chain after it."""
        seen: list[tuple[list[bytes], str]] = []
        for what in self.rounds.settled:
            match what:
                case Outcome():
                    payloads = [bytes(part.payload) for part in what.parts]
                    whole = b"+".join(payloads).split(b"+")
                    assert what.included == (self.offered != b"" and self.offered in whole)
                    self.chain = next_chain(self.chain, what.round, what.parts)
                    self.offered = b""
                    seen.append((whole, self.chain))
                case Adopted():
                    self.chain = bytes(what.body).decode()
                    self.offered = b""
        self.rounds.settled.clear()
        assert self.chain == self.rounds.chain
        return seen


class RoundsMachine(LinkedSites[Site]):
    """Sites whose offers are what they are made of."""

    @initialize(
        count=st.integers(2, 4),
        history_bytes=st.sampled_from([0, 40, 10_000]),
        large_bytes=st.sampled_from([0, 3, 6, 1000]),
        last=st.sampled_from(["all", "star", "line"]),
        quorum=st.sampled_from(["majority", "any"]),
    )
    def begin(
        self, count: int, history_bytes: int, large_bytes: int, last: str, quorum: Quorum
    ) -> None:
        self.names = tuple("abcd"[:count])
        self.policy = RoundPolicy(PATIENCE_S, history_bytes, quorum)
        self.large_bytes, self.last = large_bytes, last
        self.sites = {name: self.begin_anew(name) for name in self.names}
        self.offers = 0
        self.led_to: dict[str, tuple[bytes, ...]] = {"": ()}

    def begin_anew(self, name: str) -> Site:
        return Site(name, self.names, self.policy)

    def take_in(self, name: str) -> None:
        site = self.sites[name]
        before = site.chain
        for payloads, chain in site.take_in():
            led_to = (*self.led_to[before], *payloads)
            assert len(set(led_to)) == len(led_to), "an offer counts twice"
            assert self.led_to.setdefault(chain, led_to) == led_to
            before = chain
        assert site.chain in self.led_to, "a state of nobody's"

    def is_large(self, body: bytes) -> bool:
        return len(body) > self.large_bytes

    @rule(pick=picks)
    def deliver_small(self, pick: int) -> None:
        """All small messages to a site arrive."""
        target = self.names[pick % len(self.names)]
        for source in self.names:
            while self.links.get((source, target, False)):
                self.hand_over(source, target, False)

    @rule(pick=picks)
    def offer(self, pick: int) -> None:
        self._offer(self.names[pick % len(self.names)])

    @rule(pick=picks)
    def go_alone(self, pick: int) -> None:
        """A site without a quorum changes its state by itself."""
        name = self.names[pick % len(self.names)]
        site = self.sites[name]
        if site.rounds.leader():
            return
        self.offers += 1
        before = site.chain
        site.rounds.diverge(b"%d" % self.offers)
        site.chain, site.offered = site.rounds.chain, b""
        self.led_to[site.chain] = self.led_to[before]
        self.after(name)

    @invariant()
    def whoever_leads_has_a_quorum(self) -> None:
        for name, site in getattr(self, "sites", {}).items():
            if site.rounds.leader() == name:
                assert site.rounds.has_quorum()

    def teardown(self) -> None:
        """Whatever has happened: once all hear enough of the others, they become one and go on."""
        if not hasattr(self, "sites"):
            return
        pairs = {
            "all": list(permutations(self.names, 2)),
            "star": [(self.names[-1], other) for other in self.names],
            "line": list(pairwise(self.names)),
        }
        for one, two in pairs[self.last]:
            self.join(one, two)
        self.settle()
        before = max(site.rounds.version for site in self.sites.values())
        for _ in range(3):
            for name in self.names:
                self._offer(name)
            self.settle()
            assert len({site.chain for site in self.sites.values()}) == 1
        assert {site.rounds.version for site in self.sites.values()} >= {before + 3}
        if self.last == "all":
            assert all(site.rounds.is_level() for site in self.sites.values())

    def _offer(self, name: str) -> None:
        site = self.sites[name]
        rounds = site.rounds
        if rounds.is_offered() or rounds.is_behind() or not rounds.leader():
            return
        self.offers += 1
        site.offered = b"%s%d" % (name.encode(), self.offers)
        rounds.offer(1.0 + self.offers % 3, site.offered, self.now_s)
        self.after(name)


TestRounds = RoundsMachine.TestCase
TestRounds.settings = at_least(20, stateful_steps=60)
