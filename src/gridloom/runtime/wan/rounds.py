"""Who takes part in which round: a state machine without clock, socket or arithmetic.

In a round every site that is there offers its part, the leader gathers the parts, and the result
goes to all. Rounds follow one another; a state is known by its *version*, the number of rounds in
it, and by its *chain*, a hash of everything that led there. The leader is the site with the
newest state among those in contact, the first in the order of the members if several have it.
Nothing ever waits here: a site that is not heard in time is left out, keeps its part, and brings
it to a later round.

A round needs a quorum of sites in contact. By default this is more than half of them, or half with
the first one: of two sites whose link is cut, the first goes on with rounds of its own, the second
with training alone, and comes back with what it has learnt.

Whoever is behind asks for what it lacks: the results since, which the others keep for a while, or
a whole state. Two states with the same number of rounds but different chains come from a leader
that was cut off at the wrong moment; the later site in the order takes over the other's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gridloom.runtime.wan.history import Buffer, Given, History, Past, parts_of
from gridloom.runtime.wan.messages import (
    AnyMessage,
    Done,
    Hello,
    Leave,
    Offer,
    Open,
    Result,
    State,
    Wanted,
)

_LAG_S = 1.0
"""How long another site may seem to be ahead: a result may be on its way from a third one."""

Quorum = Literal["majority", "any", "all"]


@dataclass(frozen=True)
class Send:
    """A message to be sent.

    Attributes:
        peer: To which site.
        message: The message.
        body: Its payloads, one behind the other.
    """

    peer: str
    message: AnyMessage
    body: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a round ended.

    Attributes:
        round: The round.
        parts: What is to be averaged, by weight.
        included: This site's own offer is in it.
    """

    round: int
    parts: tuple[Given, ...]
    included: bool


@dataclass(frozen=True)
class Adopted:
    """A whole state that another site sent.

    Attributes:
        version: Rounds in it.
        body: The state.
    """

    version: int
    body: Buffer


@dataclass(frozen=True)
class RoundPolicy:
    """How rounds are held.

    Attributes:
        patience_s: How long a round that has been opened waits for a site that is in contact.
        history_bytes: Payloads of past rounds that are kept for those who missed them.
        quorum: Which share of the sites must be in contact.
    """

    patience_s: float = 30.0
    history_bytes: int = 256 * 2**20
    quorum: Quorum = "majority"


@dataclass(frozen=True)
class _Peer:
    """What is known of a site in contact; its version is -1 until it has said."""

    version: int = -1
    chain: str = ""
    lacks_state: bool = False


class Rounds:
    """The rounds of one site.

    Attributes:
        version: Rounds that this site has the result of.
        chain: Names its state.
        patience_s: How long a round waits for a site in contact.
        outbox: Messages to be sent, in order; the caller takes them out.
        settled: Rounds that ended and states that came, in order; the caller takes them out.
        strangers: Sites in contact whose settings differ.
        left: Sites that have ended.
        done: Sites that have trained all that they were to, this one too, and the version at which
            each had.
    """

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        settings: str,
        policy: RoundPolicy,
        combine: Callable[[Sequence[Given]], Buffer],
    ) -> None:
        """Begin at version 0.

        Args:
            me: Name of this site.
            members: All sites that may take part, in the order that decides ties.
            settings: Digest of what all sites must agree on.
            policy: How rounds are held.
            combine: Makes one payload of more than two, so that a result does not grow with the
                number of sites.
        """
        self.version, self.chain = 0, ""
        self.patience_s = policy.patience_s
        self.outbox: list[Send] = []
        self.settled: list[Outcome | Adopted] = []
        self.strangers: set[str] = set()
        self.left: set[str] = set()
        self.done: dict[str, int] = {}
        self._me, self._members = me, tuple(members)
        self._settings, self._policy, self._combine = settings, policy, combine
        self._history = History(policy.history_bytes)
        self._peers: dict[str, _Peer] = {}
        self._offers: dict[str, Given] = {}
        self._opened_s: float | None = None
        self._offered_to = ""
        self._asked = ""
        self._lag_since_s: float | None = None

    # What this site does.

    def offer(self, weight: float, payload: Buffer, now_s: float) -> None:
        """Take part in the next round with a payload that counts ``weight`` tokens."""
        self._offers[self._me] = Given((self._me,), weight, payload)
        self._open(now_s)
        self.tick(now_s)

    def is_offered(self) -> bool:
        """Return whether this site's part of the next round is given."""
        return self._me in self._offers

    def due_since_s(self) -> float | None:
        """Return when another site opened the next round; nothing if none did, or it is given."""
        return None if self.is_offered() else self._opened_s

    def wants_state(self) -> list[str]:
        """Return the sites that wait for a whole state, which ``give_state`` is to send."""
        return [name for name, peer in self._peers.items() if peer.lacks_state]

    def give_state(self, peer: str, body: tuple[Buffer, ...]) -> None:
        """Send the state of this version to a site that asked for it."""
        self._peers[peer] = _Peer(self.version, self.chain)
        self._send(peer, State(version=self.version, chain=self.chain), body)

    def diverge(self) -> None:
        """Note that this site has changed its state by itself: it is no longer the others'."""
        self.chain = f"{self.chain.partition('~')[0]}~{self._me}"
        self._start_over()

    def finish(self) -> None:
        """Tell the others that this site has trained all that it was to."""
        self.done[self._me] = self.version
        for peer in self._peers:
            self._send(peer, Done(version=self.version))

    def leave(self) -> None:
        """Tell the others that this site has ended."""
        for peer in self._peers:
            self._send(peer, Leave())

    # What is seen of the others.

    def up(self, peer: str, *, resumed: bool) -> None:
        """A connection has come up, to the process it was to before or to a new one."""
        if not resumed:
            self._offers.pop(peer, None)
        self._peers[peer] = _Peer()
        self.left.discard(peer)
        self._hello(peer)
        if self._me in self.done:
            self._send(peer, Done(version=self.done[self._me]))

    def down(self, peer: str, now_s: float) -> None:
        """A connection has broken, or the site has fallen silent."""
        self._forget(peer)
        self.tick(now_s)

    def received(self, peer: str, message: AnyMessage, body: Buffer, now_s: float) -> None:
        """Take a message of a site in contact."""
        if peer in self._peers:
            self._take(peer, message, body, now_s)
            self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Do what the time asks for: seek what is lacking, hand the offer over, end the round."""
        self._seek(now_s)
        leader = self.leader()
        if leader == self._me:
            if self._is_complete(now_s):
                self._end()
        elif leader:
            self._hand_over(leader)

    # What follows from it.

    def leader(self) -> str:
        """Return who leads the next round; nobody (empty) without a quorum."""
        if not self.has_quorum():
            return ""
        known = {name: peer.version for name, peer in self._peers.items() if peer.version >= 0}
        known[self._me] = self.version
        return min(known, key=lambda name: (-known[name], self._members.index(name)))

    def has_quorum(self) -> bool:
        """Return whether enough sites are in contact for a round."""
        members = [name for name in self._members if name not in self.left]
        present = self.present()
        match self._policy.quorum:
            case "any":
                return True
            case "all":
                return len(present) == len(members)
            case "majority":
                twice = 2 * len(present)
                return twice > len(members) or (twice == len(members) and present[0] == members[0])

    def present(self) -> list[str]:
        """Return the sites that have greeted, this one too, in the order of the members."""
        known = {name for name, peer in self._peers.items() if peer.version >= 0} | {self._me}
        return [name for name in self._members if name in known]

    def in_contact(self) -> bool:
        """Return whether there is any other site in contact."""
        return bool(self._peers)

    def is_behind(self) -> bool:
        """Return whether this site has asked for results or a state that have not come yet."""
        return bool(self._asked)

    def is_level(self) -> bool:
        """Return whether every site that has not left is in contact and in the same state."""
        others = set(self._members) - self.left - {self._me}
        return not self._asked and others <= set(self._equals())

    def all_done(self) -> bool:
        """Return whether all sites in contact have trained all that they were to."""
        return all(name in self.done for name in self.present())

    def last_done(self) -> int:
        """Return the version at which the last site in contact, of those that are, was done."""
        return max(self.done.get(name, 0) for name in self.present())

    def _take(self, peer: str, message: AnyMessage, body: Buffer, now_s: float) -> None:
        match message:
            case Hello():
                self._greeted(peer, message)
            case Open():
                self._opened(peer, message, now_s)
            case Offer():
                self._offered(peer, message, body, now_s)
            case Result():
                self._ended(peer, message, body)
            case Wanted():
                self._help(peer, message.version, message.chain)
            case State():
                self._adopt(peer, message, body)
            case Done():
                self.done[peer] = message.version
            case Leave():
                self.left.add(peer)
                self._forget(peer)

    def _equals(self) -> list[str]:
        """Return the sites in contact whose state is this site's."""
        mine = (self.version, self.chain)
        return [name for name, peer in self._peers.items() if (peer.version, peer.chain) == mine]

    def _send(self, peer: str, message: AnyMessage, body: tuple[Buffer, ...] = ()) -> None:
        self.outbox.append(Send(peer, message, body))

    def _hello(self, peer: str) -> None:
        self._send(peer, Hello(version=self.version, chain=self.chain, settings=self._settings))

    def _open(self, now_s: float) -> None:
        """Note that the next round has begun, and tell those who may not know."""
        if self._opened_s is None:
            self._opened_s = now_s
            for peer in self._peers:
                self._send(peer, Open(round=self.version + 1, chain=self.chain))

    def _opened(self, peer: str, opened: Open, now_s: float) -> None:
        if self._peers[peer].version < opened.round:
            self._peers[peer] = _Peer(opened.round - 1, opened.chain)
        if opened.round == self.version + 1 and self._opened_s is None:
            self._opened_s = now_s

    def _forget(self, peer: str) -> None:
        """A site is out of contact; an offer that it has made still counts."""
        self._peers.pop(peer, None)
        self._asked = "" if self._asked == peer else self._asked
        self._offered_to = "" if self._offered_to == peer else self._offered_to

    def _greeted(self, peer: str, hello: Hello) -> None:
        if hello.settings != self._settings or peer not in self._members:
            self.strangers.add(peer)
            self._forget(peer)
            return
        self.strangers.discard(peer)
        self._peers[peer] = _Peer(hello.version, hello.chain)
        self._asked = "" if self._asked == peer else self._asked

    def _seek(self, now_s: float) -> None:
        """Ask for what is lacking, if somebody has it and it does not come by itself."""
        ahead = self._ahead()
        if not ahead:
            self._lag_since_s = None
        elif self._lag_since_s is None:
            self._lag_since_s = now_s
        elif now_s - self._lag_since_s >= _LAG_S and not self._asked:
            self._asked = ahead
            self._send(ahead, Wanted(version=self.version, chain=self.chain))

    def _ahead(self) -> str:
        """Return who has what this site lacks; nobody (empty) if it lacks nothing."""
        others = [name for name in self._members if name in self._peers]
        newest = max(others, key=lambda name: self._peers[name].version, default="")
        if not newest or self._peers[newest].version > self.version:
            return newest
        # equal numbers of rounds, but other ones: the first in the order is right
        before = self._members[: self._members.index(self._me)]
        peers = ((name, self._peers.get(name)) for name in before)
        astray = (
            name
            for name, peer in peers
            if peer and peer.version == self.version and peer.chain != self.chain
        )
        return next(astray, "")

    def _hand_over(self, leader: str) -> None:
        """Give this site's offer to a leader that does not have it yet."""
        own = self._offers.get(self._me)
        if own is None or self._offered_to == leader or leader not in self._equals():
            return
        self._offered_to = leader
        offer = Offer(round=self.version + 1, chain=self.chain, weight=own.weight)
        self._send(leader, offer, (own.payload,))

    def _offered(self, peer: str, offer: Offer, body: Buffer, now_s: float) -> None:
        if offer.round <= self.version:
            if self._peers[peer].version < self.version:  # else the result is on its way
                self._hello(peer)
        elif offer.round > self.version + 1:
            self._peers[peer] = _Peer(offer.round - 1, offer.chain)
        elif offer.chain != self.chain:
            self._hello(peer)
        else:
            self._peers[peer] = _Peer(self.version, self.chain)
            self._offers[peer] = Given((peer,), offer.weight, body)
            self._open(now_s)

    def _is_complete(self, now_s: float) -> bool:
        """Return whether the round that this site leads is to end now."""
        if not self._offers or self._opened_s is None or self._asked:
            return False
        level = [self._me, *self._equals()]
        # who is done is waited for only when all are: then the last rounds are held
        expected = level if self.all_done() else [name for name in level if name not in self.done]
        if all(name in self._offers for name in expected):
            return True
        return now_s >= self._opened_s + self.patience_s

    def _end(self) -> None:
        """End the round that this site leads, with the offers that it has."""
        parts = tuple(self._offers[name] for name in self._members if name in self._offers)
        if len(parts) > 2:
            sites = tuple(name for part in parts for name in part.sites)
            weight = sum(part.weight for part in parts)
            parts = (Given(sites, weight, self._combine(parts)),)
        past = Past.of(self.version + 1, self.chain, parts)
        equals = self._equals()
        self._accept(past)
        for peer in equals:
            self._send(peer, *past.told(peer))

    def _accept(self, past: Past) -> None:
        """Take over the result of the next round; who was level stays level."""
        for name in self._equals():
            self._peers[name] = _Peer(past.result.round, past.result.chain)
        self.version, self.chain = past.result.round, past.result.chain
        included = any(self._me in part.sites for part in past.parts)
        self.settled.append(Outcome(past.result.round, past.parts, included))
        self._history.add(past)
        self._start_over()

    def _start_over(self) -> None:
        """Forget what belonged to the round before."""
        self._opened_s, self._offered_to = None, ""
        self._offers.clear()

    def _ended(self, peer: str, result: Result, body: Buffer) -> None:
        """Take a result that another site has led to."""
        if result.round <= self.version:
            return
        if result.round > self.version + 1 or result.before != self.chain:
            self._peers[peer] = _Peer(result.round, result.chain)
            return
        self._accept(Past(result, parts_of(result, body, self._offers.get(self._me))))
        if self._peers[peer].version <= self.version:
            self._peers[peer] = _Peer(self.version, self.chain)
            self._caught_up(peer)

    def _help(self, peer: str, version: int, chain: str) -> None:
        """Give a site that is behind what it lacks."""
        if (version, chain) == (self.version, self.chain):
            self._hello(peer)
            return
        missed = self._history.since(version, chain)
        if not missed:
            self._peers[peer] = _Peer(version, chain, lacks_state=True)
            return
        for past in missed:
            self._send(peer, *past.whole())
        self._peers[peer] = _Peer(self.version, self.chain)

    def _adopt(self, peer: str, state: State, body: Buffer) -> None:
        """Take over a whole state, if it is the one that was asked for and is still of use."""
        if peer != self._asked or state.version < self.version or state.chain == self.chain:
            self._hello(peer)
            return
        self.version, self.chain = state.version, state.chain
        self._start_over()
        self._history.clear()
        self.settled[:] = [Adopted(state.version, body)]  # what came before is in the state
        self._peers[peer] = _Peer(state.version, state.chain)
        self._caught_up(peer)

    def _caught_up(self, peer: str) -> None:
        """Tell everybody where this site stands, once it has got all that it had asked for."""
        if self._asked == peer:
            self._asked = ""
            for other in self._peers:
                self._hello(other)
