"""Rounds between sites under any order of messages, cuts and restarts."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gridloom.runtime.wan.history import Buffer, next_chain
from gridloom.runtime.wan.messages import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.rounds import Adopted, Outcome, RoundPolicy, Rounds

PATIENCE_S = 10.0
picks = st.integers(0, 3)


class Site:
    """One site: its rounds, and what it has taken in."""

    def __init__(self, name: str, names: tuple[str, ...], history_bytes: int) -> None:
        policy = RoundPolicy(patience_s=PATIENCE_S, history_bytes=history_bytes)
        self.rounds = Rounds(
            name, names, "same", policy, lambda given: b"+".join(bytes(g.payload) for g in given)
        )
        self.chain = ""
        self.offered = b""

    def take_in(self) -> list[bytes]:
        """Take in what has settled; return the payloads that were averaged."""
        seen: list[bytes] = []
        for what in self.rounds.settled:
            match what:
                case Outcome():
                    payloads = [bytes(part.payload) for part in what.parts]
                    whole = b"+".join(payloads).split(b"+")
                    assert what.included == (self.offered != b"" and self.offered in whole)
                    self.chain = next_chain(self.chain, what.round, what.parts)
                    self.offered = b""
                    seen += whole
                case Adopted():
                    self.chain = bytes(what.body).decode()
                    self.offered = b""
        self.rounds.settled.clear()
        assert self.chain == self.rounds.chain
        return seen


class RoundsMachine(RuleBasedStateMachine):
    """Sites, and between each two of them a link that delivers in order or is cut."""

    @initialize(count=st.integers(2, 4), history_bytes=st.sampled_from([0, 40, 10_000]))
    def begin(self, count: int, history_bytes: int) -> None:
        self.names = tuple("abcd"[:count])
        self.history_bytes = history_bytes
        self.sites = {name: Site(name, self.names, history_bytes) for name in self.names}
        self.links: dict[tuple[str, str], deque[tuple[bytes, bytes]]] = {}
        self.kept: dict[tuple[str, str], deque[tuple[bytes, bytes]]] = {}
        self.now_s = 0.0
        self.offers = 0

    @rule(pick=picks, other=picks)
    def connect(self, pick: int, other: int) -> None:
        self._connect(*self._pair(pick, other))

    @rule(pick=picks, other=picks)
    def cut(self, pick: int, other: int) -> None:
        """Cut a link: what is under way waits, and arrives when the link is back."""
        one, two = self._pair(pick, other)
        if one == two or (one, two) not in self.links:
            return
        for here, there in ((one, two), (two, one)):
            self.kept[here, there] = self.links.pop((here, there))
            self.sites[here].rounds.down(there, self.now_s)
            self._after(here)

    @rule(pick=picks)
    def restart(self, pick: int) -> None:
        """A site's process dies and comes back with nothing."""
        name = self.names[pick % len(self.names)]
        met = [other for one, other in self.links if one == name]
        for other in met:
            del self.links[name, other], self.links[other, name]
            self.sites[other].rounds.down(name, self.now_s)
            self._after(other)
        self.kept = {link: waiting for link, waiting in self.kept.items() if name not in link}
        self.sites[name] = Site(name, self.names, self.history_bytes)

    @rule(pick=picks, other=picks, count=st.integers(1, 4))
    def deliver(self, pick: int, other: int, count: int) -> None:
        for _ in range(count):
            self._deliver(*self._pair(pick, other))

    @rule(pick=picks)
    def offer(self, pick: int) -> None:
        self._offer(self.names[pick % len(self.names)])

    @rule(seconds=st.sampled_from([1.0, PATIENCE_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name in self.names:
            self.sites[name].rounds.tick(self.now_s)
            self._after(name)

    @invariant()
    def whoever_leads_has_a_quorum(self) -> None:
        for site in getattr(self, "sites", {}).values():
            if site.rounds.leader():
                assert site.rounds.has_quorum()

    def teardown(self) -> None:
        """Whatever has happened: once all are in contact, they become one and go on."""
        if not hasattr(self, "sites"):
            return
        for one in self.names:
            for two in self.names:
                self._connect(one, two)
        self._settle()
        before = max(site.rounds.version for site in self.sites.values())
        for _ in range(3):
            for name in self.names:
                self._offer(name)
            self._settle()
            assert len({site.chain for site in self.sites.values()}) == 1
        assert {site.rounds.version for site in self.sites.values()} >= {before + 3}
        assert all(site.rounds.is_level() for site in self.sites.values())

    def _settle(self) -> None:
        for _ in range(6):
            for _ in range(200):
                if not any(self.links.values()):
                    break
                for link in sorted(self.links):
                    self._deliver(*link)
            assert not any(self.links.values()), "messages without end"
            self.now_s += PATIENCE_S
            for name in self.names:
                self.sites[name].rounds.tick(self.now_s)
                self._after(name)

    def _pair(self, pick: int, other: int) -> tuple[str, str]:
        count = len(self.names)
        return self.names[pick % count], self.names[other % count]

    def _connect(self, one: str, two: str) -> None:
        if one == two or (one, two) in self.links:
            return
        resumed = (one, two) in self.kept
        for here, there in ((one, two), (two, one)):
            self.links[here, there] = self.kept.pop((here, there), deque())
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

    def _deliver(self, source: str, target: str) -> None:
        link = self.links.get((source, target))
        if link:
            header, body = link.popleft()
            self.sites[target].rounds.received(source, decode_message(header), body, self.now_s)
            self._after(target)

    def _after(self, name: str) -> None:
        """Take in, serve and send, as a site does after everything that happens to it."""
        site = self.sites[name]
        site.take_in()
        for peer in site.rounds.wants_state():
            site.rounds.give_state(peer, (site.chain.encode(),))
        for sent in site.rounds.outbox:
            self._send(name, sent.peer, sent.message, sent.body)
        site.rounds.outbox.clear()

    def _send(
        self, source: str, target: str, message: AnyMessage, body: tuple[Buffer, ...]
    ) -> None:
        if (source, target) in self.links:
            self.links[source, target].append((encode_message(message), b"".join(body)))


TestRounds = RoundsMachine.TestCase
TestRounds.settings = settings(stateful_step_count=60, deadline=None)
