"""Who takes part in which round: a state machine without clock, socket or arithmetic.

In a round every site that is there offers its part, the leader gathers the parts, and the result
goes to all. Rounds follow one another; a state is known by its *version*, the number of rounds in
it, and by its *chain*, a hash of everything that led there. The leader is the site with the
newest state among those in contact; of several, the one in contact with most others, then the
first in the order of the members. Nothing ever waits here: a site that is not heard in time is left
out, keeps its part, and brings it to a later round. A leader that is in contact but does nothing is
counted out until it is heard again. Small messages may overtake large ones; none gets lost.

A round needs a quorum of sites in contact. By default this is more than half of them, or half with
the first one: of two sites whose link is cut, the first goes on with rounds of its own, the second
with training alone, and comes back with what it has learnt.

Whoever is behind asks for what it lacks: the results since, which the others keep for a while, or
a whole state. Two states with the same number of rounds but different chains come from a leader
that was cut off at the wrong moment; who would not lead takes over the other's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gridloom.runtime.wan.contacts import Contact, Contacts, Quorum
from gridloom.runtime.wan.history import Buffer, Given, History, Past, next_chain, parts_of
from gridloom.runtime.wan.message_codec import AnyMessage
from gridloom.runtime.wan.messages import (
    Done,
    Hello,
    Leave,
    MessageError,
    Offer,
    Open,
    Result,
    State,
    Wanted,
)
from gridloom.runtime.wan.outcome import Adopted, Offered, Outcome, Send

_LAG_S = 1.0
"""How long another site may seem to be ahead: a result may be on its way from a third one."""


@dataclass(frozen=True)
class RoundPolicy:
    """How rounds are held.

    Attributes:
        patience_s: How long a round that has been opened waits for a site that is in contact.
        history_bytes: Payloads of past rounds that are kept for those who missed them.
        quorum: Which share of the sites must be in contact.
        absence_s: How long a round waits for a site that was in contact and was lost.
    """

    patience_s: float = 30.0
    history_bytes: int = 256 * 2**20
    quorum: Quorum = "majority"
    absence_s: float = 0.0


class Rounds:
    """The rounds of one site.

    Attributes:
        version: Rounds that this site has the result of.
        chain: Names its state.
        patience_s: How long a round waits for a site in contact.
        outbox: Messages to be sent, in order; the caller takes them out.
        settled: Rounds that ended and states that came, in order; the caller takes them out.
        strangers: Sites whose settings differ; they are not listened to.
        done: Sites that have trained all that they were to, and the version at which each had.
        payload_bytes: Size of every payload of a round, by its number.
        missing: Returns the lost sites that a round waits for at a time.
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
            combine: Makes one payload of more than two, so that results stay small.
        """
        self.version, self.chain = 0, ""
        self.patience_s = policy.patience_s
        self.outbox: list[Send] = []
        self.settled: list[Outcome | Adopted] = []
        self.strangers: set[str] = set()
        self.done: dict[str, int] = {}
        self.payload_bytes: Callable[[int], int] | None = None
        self._me, self._members = me, tuple(members)
        self._settings, self._combine = settings, combine
        self._history = History(policy.history_bytes)
        self._contacts = Contacts(me, members, policy.quorum, policy.absence_s)
        self.missing = self._contacts.missing
        self._offers: dict[str, Offered] = {}
        self._leaving: dict[str, int] = {}
        self._has_left = False
        self._opened_s: float | None = None
        self._offered_to = self._asked = ""
        self._offered_s = self._asked_s = 0.0
        self._lag_since_s: float | None = None
        self._told_looks = 1, self.has_quorum()

    def offer(self, weight: float, payload: Buffer, now_s: float) -> None:
        """Take part in the next round with a payload that counts ``weight`` tokens."""
        given = Given((self._me,), weight, payload)
        self._offers[self._me] = Offered(self.version + 1, self.chain, given)
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
        return [name for name, peer in self._contacts.known.items() if peer.lacks_state]

    def give_state(self, peer: str, body: tuple[Buffer, ...]) -> None:
        """Send the state of this version to a site that asked for it, if it is still there."""
        if peer in self._contacts.known:
            self._contacts.sent(peer, self.version, self.chain, is_whole=True)
            self._send(peer, State(version=self.version, chain=self.chain), body)

    def diverge(self, change: Buffer) -> None:
        """Note that ``change`` was made to this site's state alone: it is no more the others'."""
        alone = Given((self._me,), 0.0, change)
        self.chain = next_chain(self.chain, self.version, (alone,))
        self._start_over()

    def finish(self) -> None:
        """Tell the others that this site has trained all that it was to."""
        self.done[self._me] = last = self.version + self.is_offered()
        for peer in self._contacts.known:
            self._send(peer, Done(version=last))

    def leave(self) -> None:
        """Tell the others that this site has ended."""
        self._has_left = True
        for peer in self._contacts.known:
            self._send(peer, Leave(version=self.version))

    def up(self, peer: str, *, resumed: bool) -> None:
        """A connection has come up, to the process it was to before or to a new one."""
        if not resumed:
            self._forget(peer)
            self._offers.pop(peer, None)
            self.done.pop(peer, None)
        if self._has_left:
            self._send(peer, Leave(version=self.version))
            return
        self._contacts.up(peer, resumed=resumed)
        self._hello(peer)
        if self._me in self.done:
            self._send(peer, Done(version=self.done[self._me]))

    def down(self, peer: str, now_s: float) -> None:
        """A connection has broken, or the site has fallen silent."""
        if peer in self._leaving:
            self._contacts.left.add(peer)
        self._contacts.down(peer, now_s)
        self._forget(peer)
        self.tick(now_s)

    def shun(self, peer: str, now_s: float) -> None:
        """Listen no more to a site, until a connection to it comes up anew."""
        self._forget(peer)
        self._offers.pop(peer, None)
        self.tick(now_s)

    def received(self, peer: str, message: AnyMessage, body: Buffer, now_s: float) -> None:
        """Take a message of a site in contact.

        Raises:
            MessageError: It cannot be meant.
        """
        if peer in self._contacts.known:
            self._contacts.spoke(peer)
            self._take(peer, message, body, now_s)
            self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Do what the time asks for: seek what is lacking, hand the offer over, end the round."""
        for peer in [name for name, last in self._leaving.items() if last <= self.version]:
            self._contacts.left.add(peer)
            self._forget(peer)
        self._tell_looks()
        self._seek(now_s)
        self._doubt(now_s)
        leader = self.leader()
        if leader == self._me:
            if self._is_complete(now_s):
                self._end()
        elif leader:
            self._hand_over(leader, now_s)

    def leader(self) -> str:
        """Return who leads the next round; nobody (empty) without a quorum."""
        return "" if self._has_left else self._contacts.leader(self.version)

    def has_quorum(self) -> bool:
        """Return whether enough sites are in contact for a round that this one leads."""
        return self._contacts.has_quorum()

    def present(self) -> list[str]:
        """Return the sites that have greeted, this one too, in the order of the members."""
        return self._contacts.present()

    def in_contact(self) -> bool:
        """Return whether there is any other site in contact."""
        return bool(self._contacts.known)

    def is_behind(self) -> bool:
        """Return whether this site has asked for results or a state that have not come yet."""
        return bool(self._asked)

    def is_outdone(self) -> bool:
        """Return whether a site in contact has had the result of a round that this one lacks."""
        known = [contact.version for contact in self._contacts.known.values()]
        return max([*known, *self._leaving.values()], default=0) > self.version

    def is_level(self) -> bool:
        """Return whether every site that has not left is in contact and in the same state."""
        others = set(self._members) - self._contacts.left - {self._me}
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
                self._leaving[peer] = message.version  # results up to there may come later
            case _:
                pass  # of no concern here

    def _equals(self) -> list[str]:
        """Return the sites in contact whose state is this site's."""
        return self._contacts.level(self.version, self.chain)

    def _send(self, peer: str, message: AnyMessage, body: tuple[Buffer, ...] = ()) -> None:
        self.outbox.append(Send(peer, message, body))

    def _hello(self, peer: str, *, dropped: bool = False) -> None:
        hello = Hello(
            version=self.version,
            chain=self.chain,
            settings=self._settings,
            sees=len(self.present()),
            can_lead=self.has_quorum(),
            dropped=dropped,
        )
        self._send(peer, hello)

    def _tell_looks(self) -> None:
        """Tell all if this site is in contact with more than before, or fewer."""
        looks = len(self.present()), self.has_quorum()
        if looks != self._told_looks:
            self._told_looks = looks
            self._hello_all()

    def _hello_all(self) -> None:
        for peer in self._contacts.known:
            self._hello(peer)

    def _open(self, now_s: float) -> None:
        """Note that the next round has begun, and tell those who may not know."""
        if self._opened_s is None:
            self._opened_s = now_s
            for peer in self._contacts.known:
                self._send(peer, Open(round=self.version + 1, chain=self.chain))

    def _opened(self, peer: str, opened: Open, now_s: float) -> None:
        self._contacts.heard(peer, opened.round - 1, opened.chain)
        if opened.round == self.version + 1 and self._opened_s is None:
            self._opened_s = now_s

    def _forget(self, peer: str) -> None:
        """A site is out of contact; what it has offered counts when it is back, or has ended."""
        self._contacts.forget(peer)
        self._leaving.pop(peer, None)
        self._asked = "" if self._asked == peer else self._asked
        self._offered_to = "" if self._offered_to == peer else self._offered_to

    def _greeted(self, peer: str, hello: Hello) -> None:
        if hello.settings != self._settings or peer not in self._members:
            self.strangers.add(peer)
            self._forget(peer)
            self._offers.pop(peer, None)
            return
        self.strangers.discard(peer)
        if hello.dropped or self._asked == peer:
            self._contacts.doubt(peer)  # what it says now counts, be it less than was thought
        self._contacts.heard(peer, hello.version, hello.chain)
        self._contacts.looks(peer, hello.sees, can_lead=hello.can_lead)
        if self._asked == peer:
            self._asked, self._lag_since_s = "", None

    def _seek(self, now_s: float) -> None:
        """Ask for what is lacking, if somebody has it and it does not come by itself."""
        ahead = self._ahead()
        if not ahead:
            self._lag_since_s = None
            if self._asked:
                self._asked = ""
                self._hello_all()  # this site has caught up
        elif self._asked:
            if now_s - self._asked_s >= 2 * self.patience_s:
                self._contacts.doubt(self._asked)
                self._asked, self._lag_since_s = "", None
        elif self._lag_since_s is None:
            self._lag_since_s = now_s
            self._hello_all()  # so that all count this site in
        elif now_s - self._lag_since_s >= _LAG_S:
            self._asked, self._asked_s = ahead, now_s
            self._send(ahead, Wanted(version=self.version, chain=self.chain))

    def _ahead(self) -> str:
        """Return who has what this site lacks; nobody (empty) if it lacks nothing."""
        best = self._contacts.best(self.version)
        return "" if best == self._me or best in self._equals() else best

    def _doubt(self, now_s: float) -> None:
        """Count a leader out that has had this site's offer for long, and ended no round."""
        leader = self._offered_to
        if leader and now_s - self._offered_s >= 2 * self.patience_s:
            self._offered_to, self._opened_s = "", now_s  # the next leader has its patience
            self._contacts.doubt(leader)

    def _hand_over(self, leader: str, now_s: float) -> None:
        """Give this site's offer to a leader that does not have it yet."""
        own = self._offers.get(self._me)
        if own is None or self._offered_to == leader or leader not in self._equals():
            return
        self._offered_to, self._offered_s = leader, now_s
        offer = Offer(round=own.round, chain=own.chain, weight=own.given.weight)
        self._send(leader, offer, (own.given.payload,))

    def _offered(self, peer: str, offer: Offer, body: Buffer, now_s: float) -> None:
        self._check_size(offer.round, len(body))
        self._note(peer, offer, body, now_s)

    def _note(self, peer: str, offer: Offer, body: Buffer, now_s: float) -> None:
        """Keep an offer for its round, which has begun with it if it is the next."""
        self._contacts.heard(peer, offer.round - 1, offer.chain)
        if offer.round <= self.version:
            if self._contacts.known[peer].version < self.version:  # else the result is on its way
                self._hello(peer)
            return
        if offer.round == self.version + 1 and offer.chain != self.chain:
            self._hello(peer)
        self._offers[peer] = Offered(offer.round, offer.chain, Given((peer,), offer.weight, body))
        if peer in self._current():
            self._open(now_s)

    def _current(self) -> dict[str, Given]:
        """Return the offers for the next round, of sites that have not been lost."""
        there = {self._me, *self._contacts.known, *self._contacts.left}
        next_one = (self.version + 1, self.chain)
        return {
            name: offered.given
            for name, offered in self._offers.items()
            if name in there and (offered.round, offered.chain) == next_one
        }

    def _check_size(self, number: int, size_bytes: int) -> None:
        if self.payload_bytes is not None and size_bytes != self.payload_bytes(number):
            wanted = self.payload_bytes(number)
            raise MessageError(f"a payload of round {number} of {size_bytes} bytes, not {wanted}")

    def _is_complete(self, now_s: float) -> bool:
        """Return whether the round that this site leads is to end now."""
        offers = self._current()
        if not offers or self._opened_s is None or self.missing(now_s):
            return False
        level = [self._me, *filter(self._contacts.is_awaited, self._equals())]
        # who is done is waited for only when all are: then the last rounds are held
        expected = level if self.all_done() else [name for name in level if name not in self.done]
        if all(name in offers for name in expected):
            return True
        return now_s >= self._opened_s + self.patience_s

    def _end(self) -> None:
        """End the round that this site leads, with the offers that it has."""
        offers = self._current()
        parts = tuple(offers[name] for name in self._members if name in offers)
        if len(parts) > 2:
            sites = tuple(name for part in parts for name in part.sites)
            weight = sum(part.weight for part in parts)
            parts = (Given(sites, weight, self._combine(parts)),)
        past = Past.of(self.version + 1, self.chain, parts)
        told = [n for n in self._equals() if n in offers or self._contacts.is_awaited(n)]
        self._contacts.missed([n for n in told if n not in offers and n not in self.done])
        self._accept(past, told)
        for peer in self._contacts.known:
            if peer in told:
                self._send(peer, *past.told(peer))
                self._contacts.note_sent(peer, self.version)
            else:
                self._hello(peer)

    def _accept(self, past: Past, told: Sequence[str]) -> None:
        """Take over the result of the next round, that others were told as well."""
        self._contacts.advance(told, past.result.round, past.result.chain)
        self.version, self.chain = past.result.round, past.result.chain
        included = any(self._me in part.sites for part in past.parts)
        self.settled.append(Outcome(past.result.round, past.parts, included))
        self._history.add(past)
        self._start_over()

    def _start_over(self) -> None:
        """Forget what belonged to the round before."""
        self._opened_s, self._offered_to = None, ""
        self._offers.pop(self._me, None)
        for name in [name for name, o in self._offers.items() if o.round <= self.version]:
            del self._offers[name]

    def _ended(self, peer: str, result: Result, body: Buffer) -> None:
        """Take a result that another site has led to."""
        if result.round <= self.version:
            if (result.round, result.chain) != (self.version, self.chain):
                self._contacts.heard(peer, result.round, result.chain)
                self._hello(peer)
            return
        self._contacts.heard(peer, result.round, result.chain)
        if result.round > self.version + 1 or result.before != self.chain:
            self._asked = "" if self._asked == peer else self._asked
            self._hello(peer, dropped=True)
            return
        own = self._offers.get(self._me)
        parts = parts_of(result, body, own.given if own is not None else None)
        for part in parts:
            self._check_size(result.round, len(part.payload))
        past = Past.of(result.round, self.chain, parts)  # all sizes in it, for others to be told
        if past.result.chain != result.chain:
            raise MessageError(f"a result of round {result.round} that is not what its chain says")
        self._accept(past, self._equals())
        if self._contacts.sees.get(peer, 0) < len(set(self._members) - self._contacts.left):
            self._hello_all()  # the leader is perhaps not in contact with all of them

    def _help(self, peer: str, version: int, chain: str) -> None:
        """Give a site that is behind what it lacks."""
        if version > self.version or (version, chain) == (self.version, self.chain):
            self._hello(peer)
            return
        if self._contacts.known[peer].sent_version > version:
            return  # it is on its way
        missed = self._history.since(version, chain)
        if not missed:
            self._contacts.known[peer] = Contact(version, chain, lacks_state=True)
            return
        for past in missed:
            self._send(peer, *past.whole())
        self._contacts.sent(peer, self.version, self.chain)

    def _adopt(self, peer: str, state: State, body: Buffer) -> None:
        """Take over a whole state, if it is still of use."""
        is_newer, is_other = state.version > self.version, state.version == self.version
        is_right = is_newer or (is_other and peer == self._ahead())
        if not is_right or state.chain == self.chain:
            self._hello(peer)
            return
        self.version, self.chain = state.version, state.chain
        self._start_over()
        self._history.clear()
        self.settled[:] = [Adopted(state.version, body)]  # what came before is in the state
        self._contacts.heard(peer, state.version, state.chain)
        self._hello_all()
