"""Sites, and between each two of them a link that is cut, or delivers: for laws about rounds.

A link has two lanes, for large messages and small ones; each delivers in order.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.rounds import Rounds

PATIENCE_S = 10.0

picks = st.integers(0, 59)
"""Of a site, by the remainder: as likely for each of 2 to 5."""

Lane = tuple[str, str, bool]
"""From, to, and whether it is the one for large messages."""


class LinkedSite(Protocol):
    """A site's rounds, and its state as a chain."""

    rounds: Rounds
    chain: str


S = TypeVar("S", bound=LinkedSite)


class LinkedSites(RuleBasedStateMachine, Generic[S]):
    """What happens to links and processes; what sites make of it is for the subclass.

    Attributes:
        names: Of the sites; the subclass sets them, and the sites, before anything happens.
        sites: By name.
    """

    names: tuple[str, ...]
    sites: dict[str, S]

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.kept: dict[Lane, deque[tuple[bytes, bytes]]] = {}
        self.now_s = 0.0

    def begin_anew(self, name: str) -> S:
        """Return a new process of a site."""
        raise NotImplementedError

    def take_in(self, name: str) -> None:
        """Take in what has settled at a site."""
        raise NotImplementedError

    def is_large(self, body: bytes) -> bool:
        """Return whether a message with this body takes the lane for large ones."""
        raise NotImplementedError

    @rule(pick=picks, other=picks)
    def connect(self, pick: int, other: int) -> None:
        self.join(*self.pair(pick, other))

    @rule(pick=picks, other=picks)
    def cut(self, pick: int, other: int) -> None:
        """Cut a link: what is under way waits, and arrives when the link is back."""
        one, two = self.pair(pick, other)
        if one == two or (one, two, False) not in self.links:
            return
        for here, there in ((one, two), (two, one)):
            for large in (False, True):
                self.kept[here, there, large] = self.links.pop((here, there, large))
        for here, there in ((one, two), (two, one)):
            self.sites[here].rounds.down(there, self.now_s)
            self.after(here)

    @rule(pick=picks)
    def restart(self, pick: int) -> None:
        """A site's process dies and comes back with nothing."""
        name = self.names[pick % len(self.names)]
        met = sorted({other for one, other, _ in self.links if one == name})
        for other in met:
            for large in (False, True):
                del self.links[name, other, large], self.links[other, name, large]
            self.sites[other].rounds.down(name, self.now_s)
            self.after(other)
        self.kept = {link: waiting for link, waiting in self.kept.items() if name not in link}
        self.sites[name] = self.begin_anew(name)

    @rule(pick=picks, other=picks, count=st.integers(1, 4), large=st.booleans())
    def deliver(self, pick: int, other: int, count: int, large: bool) -> None:
        for _ in range(count):
            self.hand_over(*self.pair(pick, other), large)

    @rule(seconds=st.sampled_from([1.0, PATIENCE_S, 2 * PATIENCE_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for name in self.names:
            self.sites[name].rounds.tick(self.now_s)
            self.after(name)

    def pair(self, pick: int, other: int) -> tuple[str, str]:
        count = len(self.names)
        return self.names[pick % count], self.names[other % count]

    def join(self, one: str, two: str) -> None:
        """Connect two sites, if they are not."""
        if one == two or (one, two, False) in self.links:
            return
        resumed = (one, two, False) in self.kept
        for here, there in ((one, two), (two, one)):
            for large in (False, True):
                self.links[here, there, large] = self.kept.pop((here, there, large), deque())
        for here, there in ((one, two), (two, one)):
            self.sites[here].rounds.up(there, resumed=resumed)
            self.after(here)

    def hand_over(self, source: str, target: str, large: bool) -> None:
        """Deliver the next message of a lane, if there is one."""
        link = self.links.get((source, target, large))
        if link:
            header, body = link.popleft()
            self.sites[target].rounds.received(source, decode_message(header), body, self.now_s)
            self.after(target)

    def hand_over_all(self) -> None:
        """Deliver until there is nothing more to say."""
        for _ in range(200):
            if not any(self.links.values()):
                return
            for link in sorted(self.links):
                self.hand_over(*link)
        raise AssertionError("messages without end")

    def settle(self) -> None:
        """Let everything come about that is due without another offer."""
        for _ in range(8):
            self.hand_over_all()
            self.wait(PATIENCE_S)

    def after(self, name: str) -> None:
        """Take in, serve and send, as a site does after everything that happens to it."""
        site = self.sites[name]
        self.take_in(name)
        for peer in site.rounds.wants_state():
            site.rounds.give_state(peer, (site.chain.encode(),))
        for sent in site.rounds.outbox:
            self.send(name, sent.peer, sent.message, sent.body)
        site.rounds.outbox.clear()

    def send(self, source: str, target: str, message: AnyMessage, body: tuple[Buffer, ...]) -> None:
        whole = b"".join(body)
        lane = (source, target, self.is_large(whole))
        if lane in self.links:
            self.links[lane].append((encode_message(message), whole))
