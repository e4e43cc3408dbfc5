"""What a site knows of the others: who is in contact, in which state, and who leads."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

_MISSES_MAX = 2
"""Rounds that wait for a site in contact that does nothing, and results that pile up for it."""

Quorum = Literal["majority", "any", "all"]


@dataclass(frozen=True)
class Contact:
    """What is known of a site in contact.

    Attributes:
        version: Rounds that it has the result of, or will have once it has got what it was sent;
            -1 until it has said.
        chain: Of that state.
        lacks_state: It has asked for a whole state, and has not been sent it yet.
        is_joining: It was sent a whole state and has not said yet that it has got it.
        misses: Rounds that waited for it in vain since it was last heard.
        sent_version: Rounds that it will have by what this site has sent it.
    """

    version: int = -1
    chain: str = ""
    lacks_state: bool = False
    is_joining: bool = False
    misses: int = 0
    sent_version: int = 0


class Contacts:
    """The sites in contact with this one.

    A process never goes back, and what it is sent it gets: what is known of it only grows, unless
    it says that it had no use for something.

    Attributes:
        known: The others in contact.
        sees: How many sites each of them is in contact with, itself too.
        can_lead: Those of them that are in contact with enough for a round.
        left: Sites that have ended.
    """

    def __init__(
        self, me: str, members: Sequence[str], quorum: Quorum, absence_s: float = 0.0
    ) -> None:
        self.known: dict[str, Contact] = {}
        self.sees: dict[str, int] = {}
        self.can_lead: set[str] = set()
        self.left: set[str] = set()
        self._me, self._members, self._quorum = me, tuple(members), quorum
        self._parted: dict[str, Contact] = {}
        self._absence_s = absence_s
        self._lost_s: dict[str, float] = {}

    def up(self, peer: str, *, resumed: bool) -> None:
        """A connection has come up; what is known of a process that lives on still holds."""
        self._lost_s.pop(peer, None)
        parted = self._parted.pop(peer, Contact())
        self.known[peer] = parted if resumed else Contact()
        self.left.discard(peer)

    def down(self, peer: str, now_s: float) -> None:
        """A connection has broken."""
        if peer in self.known:
            if peer not in self.left:
                self._lost_s[peer] = now_s
            self._parted[peer] = self.known[peer]
            self.forget(peer)

    def missing(self, now_s: float) -> list[str]:
        """Return the sites that were lost so lately that a round waits for them."""
        return [name for name, s in self._lost_s.items() if now_s - s < self._absence_s]

    def forget(self, peer: str) -> None:
        """A site is not listened to any more."""
        self.known.pop(peer, None)
        self.sees.pop(peer, None)
        self.can_lead.discard(peer)

    def heard(self, peer: str, version: int, chain: str) -> None:
        """A site has said which state it has."""
        contact = self.known[peer]
        if version >= contact.version:
            is_news = (version, chain) != (contact.version, contact.chain)
            self.known[peer] = Contact(
                version,
                chain,
                lacks_state=contact.lacks_state and not is_news,
                sent_version=contact.sent_version,
            )

    def doubt(self, peer: str) -> None:
        """A site does not answer: it does not count until it is heard again."""
        self.known[peer] = Contact()

    def looks(self, peer: str, sees: int, *, can_lead: bool) -> None:
        """A site has said how many others it is in contact with, and if these are enough."""
        self.sees[peer] = sees
        if can_lead:
            self.can_lead.add(peer)
        else:
            self.can_lead.discard(peer)

    def spoke(self, peer: str) -> None:
        """A site is there, whatever it said."""
        self.known[peer] = dataclasses.replace(self.known[peer], misses=0)

    def advance(self, names: Collection[str], version: int, chain: str) -> None:
        """Sites that were level will soon have the state after the next round."""
        for name in names:
            contact = self.known[name]
            self.known[name] = dataclasses.replace(contact, version=version, chain=chain)

    def sent(self, peer: str, version: int, chain: str, *, is_whole: bool = False) -> None:
        """This site has sent another one what leads to a state, or it as a whole."""
        self.known[peer] = Contact(version, chain, is_joining=is_whole, sent_version=version)

    def note_sent(self, peer: str, version: int) -> None:
        """This site has sent a level site the result that leads to a version."""
        self.known[peer] = dataclasses.replace(self.known[peer], sent_version=version)

    def missed(self, names: Collection[str]) -> None:
        """Sites have let a round pass that waited for them."""
        for name in names:
            contact = self.known[name]
            if not contact.is_joining:
                self.known[name] = dataclasses.replace(contact, misses=contact.misses + 1)

    def best(self, version: int) -> str:
        """Return whose state is right, where this site has ``version``: perhaps its own.

        It is the newest; of several, that of the site which is in contact with most others, so that
        two that cannot hear one another agree on a third; then the first in the order.
        """
        versions = {n: c.version for n, c in self.known.items() if c.version >= 0}
        versions[self._me] = version
        sees = self.sees | {self._me: len(self.present())}
        return min(
            versions,
            key=lambda name: (-versions[name], -sees.get(name, 0), self._members.index(name)),
        )

    def leader(self, version: int) -> str:
        """Return who leads the next round; nobody (empty) if that site has no quorum."""
        best = self.best(version)
        can = self.has_quorum() if best == self._me else best in self.can_lead
        return best if can else ""

    def is_awaited(self, peer: str) -> bool:
        """Return whether a site has not let too many rounds pass."""
        return self.known[peer].misses < _MISSES_MAX

    def level(self, version: int, chain: str) -> list[str]:
        """Return the others that have a state, or will have it."""
        return [n for n, c in self.known.items() if (c.version, c.chain) == (version, chain)]

    def present(self) -> list[str]:
        """Return the sites that have greeted, this one too, in the order of the members."""
        known = {name for name, contact in self.known.items() if contact.version >= 0} | {self._me}
        return [name for name in self._members if name in known]

    def has_quorum(self) -> bool:
        """Return whether enough sites are in contact for a round that this one leads."""
        members = [name for name in self._members if name not in self.left]
        present = self.present()
        match self._quorum:
            case "any":
                return True
            case "all":
                return len(present) == len(members)
            case "majority":
                twice = 2 * len(present)
                return twice > len(members) or (twice == len(members) and present[0] == members[0])
