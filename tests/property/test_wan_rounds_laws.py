"""Rounds between sites under any order of messages, cuts and restarts."""

from collections import deque
from itertools import pairwise, permutations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gridloom.runtime.wan.contacts import Quorum
from gridloom.runtime.wan.history import Buffer, next_chain
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.outcome import Adopted, Outcome
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds

PATIENCE_S = 10.0
picks = st.integers(0, 3)

Lane = tuple[str, str, bool]
"""From whom, to whom, and whether it is for large messages."""


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


class RoundsMachine(RuleBasedStateMachine):
    """Sites, and between each two of them a link that is cut, or delivers.

    A link has two lanes, for large messages and small ones; each delivers in order.
    """

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
        self.sites = {name: Site(name, self.names, self.policy) for name in self.names}
        self.links: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.kept: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.now_s = 0.0
        self.offers = 0
        self.led_to: dict[str, tuple[bytes, ...]] = {"": ()}

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
        """A site's process dies and comes back with nothing."""
        name = self.names[pick % len(self.names)]
        met = sorted({other for one, other, _ in self.links if one == name})
        for other in met:
            for large in (False, True):
                del self.links[name, other, large], self.links[other, name, large]
            self.sites[other].rounds.down(name, self.now_s)
            self._after(other)
        self.kept = {link: waiting for link, waiting in self.kept.items() if name not in link}
        self.sites[name] = Site(name, self.names, self.policy)

    @rule(pick=picks, other=picks, count=st.integers(1, 4), large=st.booleans())
    def deliver(self, pick: int, other: int, count: int, large: bool) -> None:
        for _ in range(count):
            self._deliver(*self._pair(pick, other), large)

    @rule(pick=picks)
    def deliver_small(self, pick: int) -> None:
        """All small messages to a site arrive."""
        target = self.names[pick % len(self.names)]
        for source in self.names:
            while self.links.get((source, target, False)):
                self._deliver(source, target, False)

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
        self._after(name)

    @rule(seconds=st.sampled_from([1.0, PATIENCE_S, 2 * PATIENCE_S]))
    def wait(self, seconds: float) -> None:
        self._wait(seconds)

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
            self._connect(one, two)
        self._settle()
        before = max(site.rounds.version for site in self.sites.values())
        for _ in range(3):
            for name in self.names:
                self._offer(name)
            self._settle()
            assert len({site.chain for site in self.sites.values()}) == 1
        assert {site.rounds.version for site in self.sites.values()} >= {before + 3}
        if self.last == "all":
            assert all(site.rounds.is_level() for site in self.sites.values())

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name in self.names:
            self.sites[name].rounds.tick(self.now_s)
            self._after(name)

    def _settle(self) -> None:
        for _ in range(8):
            for _ in range(200):
                if not any(self.links.values()):
                    break
                for link in sorted(self.links):
                    self._deliver(*link)
            assert not any(self.links.values()), "messages without end"
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
        site = self.sites[name]
        rounds = site.rounds
        if rounds.is_offered() or rounds.is_behind() or not rounds.leader():
            return
        self.offers += 1
        site.offered = b"%s%d" % (name.encode(), self.offers)
        rounds.offer(1.0 + self.offers % 3, site.offered, self.now_s)
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
        before = site.chain
        for payloads, chain in site.take_in():
            led_to = (*self.led_to[before], *payloads)
            assert len(set(led_to)) == len(led_to), "an offer counts twice"
            assert self.led_to.setdefault(chain, led_to) == led_to
            before = chain
        assert site.chain in self.led_to, "a state of nobody's"
        for peer in site.rounds.wants_state():
            site.rounds.give_state(peer, (site.chain.encode(),))
        for sent in site.rounds.outbox:
            self._send(name, sent.peer, sent.message, sent.body)
        site.rounds.outbox.clear()

    def _send(
        self, source: str, target: str, message: AnyMessage, body: tuple[Buffer, ...]
    ) -> None:
        whole = b"".join(body)
        lane = (source, target, len(whole) > self.large_bytes)
        if lane in self.links:
            self.links[lane].append((encode_message(message), whole))


TestRounds = RoundsMachine.TestCase
TestRounds.settings = settings(stateful_step_count=60, deadline=None)
