"""Rounds of which nobody sees a site's own part: parts are added up under masks of pairs.

A site does not send its part but says that it is ready. The leader calls a *roster* of sites that
hold each other's keys; each of them sends its part weighed by its tokens, sealed, and masked for
this roster (see ``masks``). Once the parts of all are there, the leader asks for the seeds of the
seals, and only with all of them can the sum be read. It is the result of the round.

A member that is lost, or late, before all parts are there: the leader calls another roster without
it, and all mask anew; once it is heard of again, it is called again. A member that is lost when the
seals are being opened: the round ends with nothing, and the parts whose seals are open are given
up, for they must not be in another sum; what the sites trained for one fragment of one round is
lost. A roster has at least three sites: of the sum of two, each would know the other's part. With
fewer in contact there are no rounds, and training goes on.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gridloom.base.errors import BrokenError, InputError
from gridloom.model.parallel import MASKED_SITES_MIN
from gridloom.runtime.wan.contacts import Contacts
from gridloom.runtime.wan.history import Buffer, Given, Past
from gridloom.runtime.wan.keyring import Keyring, agreeing
from gridloom.runtime.wan.mask_messages import (
    Key,
    Masked,
    Member,
    Ready,
    Roster,
    Seed,
    Unseal,
)
from gridloom.runtime.wan.masks import sealed, summed, unsealed, weighed
from gridloom.runtime.wan.message_codec import AnyMessage
from gridloom.runtime.wan.messages import MessageError, Offer, State
from gridloom.runtime.wan.outcome import Offered, Outcome
from gridloom.runtime.wan.rounds import RoundPolicy, Rounds
from gridloom.runtime.wan.state import as_buffer, as_payload


@dataclass
class _Try:
    """One roster that this site has called.

    Attributes:
        label: Names it.
        roster: The roster.
        since_s: When it was called, or the seals were asked for.
        total: Of the parts so far, int32 ``[n]``.
        sent: The members whose parts are in it.
        seeds: Of the members that have sent theirs.
        is_full: All parts are there, and the seals were asked for.
    """

    label: str
    roster: Roster
    since_s: float
    total: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    sent: list[str] = field(default_factory=list)
    seeds: dict[str, bytes] = field(default_factory=dict)
    is_full: bool = False

    @property
    def sites(self) -> list[str]:
        """The members, by name."""
        return [member.site for member in self.roster.members]

    def add(self, site: str, part: Tensor) -> None:
        """Add a member's part, once."""
        if site not in self.sent:
            self.total = summed([self.total, part]) if self.sent else part
            self.sent.append(site)

    def lacks(self, known: Collection[str]) -> bool:
        """Return whether a member is not among these."""
        return any(site not in known for site in self.sites)


@dataclass(frozen=True)
class _Seal:
    """Of this site's part in one try: the leader who called for it, and the seed."""

    leader: str
    seed: bytes


class MaskedRounds(Rounds):
    """The rounds of one site whose offers, int32 ``[n]``, nobody else is to see.

    What is offered stays here. ``payload_bytes`` must be set.
    """

    def __init__(
        self, me: str, members: Sequence[str], settings: str, policy: RoundPolicy, keyring: Keyring
    ) -> None:
        """As ``Rounds``.

        Args:
            me: Name of this site.
            members: All sites that may take part.
            settings: Digest of what all sites must agree on.
            policy: How rounds are held.
            keyring: Of this process.
        """
        super().__init__(me, members, settings, policy, _never)
        self._contacts = self._enough = _Enough(me, members, policy.quorum)
        self._keyring = keyring
        self._readies: dict[str, Ready] = {}
        self._silent: set[str] = set()  # since the last try, which they were too late for
        self._try: _Try | None = None
        self._tries = 0
        self._seals: dict[str, _Seal] = {}
        self._used: dict[str, int] = {}
        self._open_label = ""
        self._now_s = self._stirred_s = 0.0

    def tick(self, now_s: float) -> None:
        """As ``Rounds``."""
        self._now_s = now_s
        if self.leader() != self._me:
            self._try = None
        super().tick(now_s)

    def up(self, peer: str, *, resumed: bool) -> None:
        """As ``Rounds``; a new process has a new key."""
        if not resumed:
            self._keyring.forget(peer)
            self._keys_changed()
        super().up(peer, resumed=resumed)
        if not self._has_left:
            self._send(peer, Key(public=self._keyring.public.hex()))

    def received(self, peer: str, message: AnyMessage, body: Buffer, now_s: float) -> None:
        """As ``Rounds``; a leader that says anything is at work."""
        self._now_s = now_s
        self._silent.discard(peer)
        if peer == self._offered_to:
            self._offered_s = now_s
        super().received(peer, message, body, now_s)

    def _take(self, peer: str, message: AnyMessage, body: Buffer, now_s: float) -> None:
        match message:
            case Key():
                self._learn(peer, message)
            case Ready():
                self._prepared(peer, message, now_s)
            case Roster():
                self._called(peer, message)
            case Masked():
                self._gathered(peer, message, body)
            case Unseal():
                self._unseal(peer, message)
            case Seed():
                self._seeded(peer, message)
            case Offer():
                raise MessageError("an offer that is not masked")
            case _:
                super()._take(peer, message, body, now_s)

    # What a site does that has something to offer.

    def _ready(self, own: Offered) -> Ready:
        return Ready(
            round=own.round,
            chain=own.chain,
            weight=own.given.weight,
            keys=self._keyring.prints(),
            is_open=bool(self._open_label),
        )

    def _hand_over(self, leader: str, now_s: float) -> None:
        """Tell a leader that does not know it yet that this site has a part."""
        own = self._offers.get(self._me)
        if own is None or self._offered_to == leader or leader not in self._equals():
            return
        self._offered_to, self._offered_s = leader, now_s
        self._send(leader, self._ready(own))

    def _doubt(self, now_s: float) -> None:
        """As ``Rounds``; a leader without whom there are no rounds is waited for."""
        leader = self._offered_to
        if leader in self._contacts.known and not self._enough.can_do_without(leader):
            self._offered_s = now_s
        super()._doubt(now_s)

    def _learn(self, peer: str, key: Key) -> None:
        try:
            self._keyring.learn(peer, bytes.fromhex(key.public))
        except InputError as error:
            raise MessageError(f"a key that {error}") from error
        self._keys_changed()

    def _keys_changed(self) -> None:
        """Let the leader know which keys this site holds, with its offer."""
        self._offered_to = ""

    def _called(self, leader: str, roster: Roster) -> None:
        """Send this site's part for a roster, if all is as it should be."""
        label = self._keyring.label(leader, roster)
        part = self._masked(leader, roster, label)
        if part is not None:
            self._send(leader, Masked(label=label), (_bytes_of(part),))

    def _masked(self, leader: str, roster: Roster, label: str) -> Tensor | None:
        """Return this site's part, int32 ``[n]``, as nobody can read it alone.

        Nothing if it must not be: it was opened before, the label was used, or the roster is of
        another state, of too few sites, or of a site whose key is not the one that this site has.
        """
        own = self._offers.get(self._me)
        if own is None or self._open_label or label in self._used:
            return None
        if not (own.round, own.chain) == (roster.round, roster.chain) == self._next_state():
            return None
        weights = {member.site: member.weight for member in roster.members}
        prints = self._keyring.prints()
        if weights.get(self._me) != own.given.weight or not _is_sound(roster, prints):
            return None
        self._used[label] = roster.round
        seal = self._seals[label] = _Seal(leader, self._keyring.seed())
        part = weighed(_whole(own.given.payload), _share(self._me, weights))
        return self._keyring.masked(sealed(part, seal.seed, label), list(weights), label)

    def _unseal(self, leader: str, asked: Unseal) -> None:
        """Give the seed of a seal away; of this part it is the only one."""
        seal = self._seals.get(asked.label)
        if seal is not None and seal.leader == leader and self._open_label in ("", asked.label):
            self._open_label, self._stirred_s = asked.label, self._now_s
            self._send(leader, Seed(label=asked.label, seed=seal.seed.hex()))

    def _next_state(self) -> tuple[int, str]:
        return self.version + 1, self.chain

    # What the leader does.

    def _prepared(self, peer: str, ready: Ready, now_s: float) -> None:
        """Note that a site has something to offer."""
        self._readies[peer] = ready
        if ready.is_open:
            self._stirred_s = now_s  # its last leader may still end the round
        offer = Offer(round=ready.round, chain=ready.chain, weight=ready.weight)
        self._note(peer, offer, b"", now_s)

    def _is_complete(self, now_s: float) -> bool:
        """Return whether there is something to do for the round that this site leads."""
        return self._try is not None or super()._is_complete(now_s)

    def _end(self) -> None:
        """Take the next step towards the end of the round that this site leads."""
        if self._try is None:
            self._call()
        else:
            self._carry_on(self._try)

    def _call(self) -> None:
        """Call a roster of those who are ready, if they are enough."""
        readies = self._ready_sites()
        names = agreeing({n: ready.keys for n, ready in readies.items() if not ready.is_open})
        if len(names) < MASKED_SITES_MIN:
            if self._is_overdue():
                self._stirred_s = self._now_s
                if any(ready.is_open for ready in readies.values()):
                    self._give_up()
                else:
                    self._hello_all()  # this site is at work, but has too few
            return
        members = tuple(
            Member(site=name, weight=readies[name].weight, key=readies[name].keys[name])
            for name in names
        )
        self._tries += 1
        number, chain = self._next_state()
        roster = Roster(round=number, chain=chain, number=self._tries, members=members)
        made = _Try(self._keyring.label(self._me, roster), roster, self._now_s)
        self._try = made
        for name in self._others(made):
            self._send(name, roster)
        if self._me in names:
            part = self._masked(self._me, roster, made.label)
            if part is None:
                raise BrokenError("a roster that its own leader finds wrong")
            made.add(self._me, part)

    def _ready_sites(self) -> dict[str, Ready]:
        """Return who is ready for the next round, in the order of the members."""
        there = self._current()
        readies = self._readies
        own = self._offers.get(self._me)
        if own is not None:
            readies = readies | {self._me: self._ready(own)}
        return {
            name: readies[name]
            for name in self._members
            if name in there
            and name in readies
            and name not in self._silent
            and (readies[name].round, readies[name].chain) == self._next_state()
        }

    def _is_overdue(self) -> bool:
        """Return whether nothing has come of the round for as long as the patience is."""
        since_s = max(self._stirred_s, self._opened_s or 0.0)
        return self._now_s >= since_s + self.patience_s

    def _others(self, one: _Try) -> list[str]:
        return [name for name in one.sites if name != self._me]

    def _gathered(self, peer: str, message: Masked, body: Buffer) -> None:
        """Add a member's part to the sum."""
        one = self._try
        if one is None or message.label != one.label or peer not in one.sites:
            return
        self._check_size(one.roster.round, len(body))
        one.add(peer, _whole(body))

    def _seeded(self, peer: str, message: Seed) -> None:
        """Take the seed of a member's seal."""
        one = self._try
        if one is not None and message.label == one.label and peer in one.sites:
            one.seeds[peer] = bytes.fromhex(message.seed)

    def _carry_on(self, one: _Try) -> None:
        """Do what is due in a try: ask for seeds, end the round, or begin another try."""
        if not one.is_full:
            if lost := self._lost(one):
                self._try = None
                self._silent.update(lost)  # they need not say once more that they are ready
                return
            if not one.lacks(one.sent):
                self._ask_for_seeds(one)
        if one.is_full and not one.lacks(one.seeds):
            weight = sum(member.weight for member in one.roster.members)
            total = unsealed(one.total, one.seeds.values(), one.label)
            self._conclude(Given(tuple(one.sites), weight, _bytes_of(total)))
        elif one.is_full and self._now_s >= one.since_s + self.patience_s:
            self._give_up()

    def _lost(self, one: _Try) -> list[str]:
        """Return the members, this site aside, whose parts will not all be there."""
        level = self._equals()
        late = self._now_s >= one.since_s + self.patience_s
        return [
            name
            for name in self._others(one)
            if name not in level or (late and name not in one.sent)
        ]

    def _ask_for_seeds(self, one: _Try) -> None:
        one.is_full, one.since_s = True, self._now_s
        for name in self._others(one):
            self._send(name, Unseal(label=one.label))
        if self._me in one.sites:
            self._open_label, self._stirred_s = one.label, self._now_s
            one.seeds[self._me] = self._seals[one.label].seed

    def _give_up(self) -> None:
        """End the round with nothing, so that nobody waits for parts that cannot be opened."""
        self._conclude(self._nothing())

    def _nothing(self) -> Given:
        """Return the sum of no parts."""
        size_bytes = self.payload_bytes(self.version + 1) if self.payload_bytes is not None else 0
        return Given((), 0.0, bytearray(size_bytes))

    def _conclude(self, given: Given) -> None:
        """End the round that this site leads with one payload."""
        number, chain = self._next_state()
        later = {name: one for name, one in self._offers.items() if one.round > number}
        self._offers = later | {self._me: Offered(number, chain, given)}
        super()._end()

    def _accept(self, past: Past, told: Sequence[str]) -> None:
        """As ``Rounds``; a part whose seal is open has been used, be it for nothing."""
        was_open = bool(self._open_label)
        super()._accept(past, told)
        last = self.settled[-1]
        if was_open and isinstance(last, Outcome):
            self.settled[-1] = dataclasses.replace(last, included=True)

    def _adopt(self, peer: str, state: State, body: Buffer) -> None:
        """As ``Rounds``; a part whose seal is open is given up first."""
        given_up = Outcome(self.version + 1, (self._nothing(),), included=True)
        was_open = bool(self._open_label)
        super()._adopt(peer, state, body)
        if was_open and not self._open_label:
            self.settled.insert(0, given_up)

    def _start_over(self) -> None:
        super()._start_over()
        self._try, self._open_label = None, ""
        self._seals.clear()
        self._used = {
            label: number for label, number in self._used.items() if number > self.version
        }
        self._readies = {n: one for n, one in self._readies.items() if one.round > self.version}


class _Enough(Contacts):
    """Contacts among whom a round needs three sites at least."""

    def has_quorum(self) -> bool:
        """As ``Contacts``."""
        return super().has_quorum() and len(self.present()) >= MASKED_SITES_MIN

    def can_do_without(self, peer: str) -> bool:
        """Return whether the others would be enough."""
        known = self.known
        self.known = {name: contact for name, contact in known.items() if name != peer}
        enough = self.has_quorum()
        self.known = known
        return enough


def _never(given: Sequence[Given]) -> Buffer:
    raise BrokenError(f"{len(given)} offers of masked rounds cannot be combined")


def _is_sound(roster: Roster, prints: Mapping[str, str]) -> bool:
    """Return whether a roster is of enough sites, all different, whose keys are these."""
    names = {member.site for member in roster.members}
    return len(names) == len(roster.members) >= MASKED_SITES_MIN and all(
        prints.get(member.site) == member.key for member in roster.members
    )


def _share(me: str, weights: Mapping[str, float]) -> float:
    """Return how much one part counts; as ``outer.average``, all alike if nobody has weight."""
    total = sum(weights.values())
    return weights[me] / total if total else 1 / len(weights)


def _whole(payload: Buffer) -> Tensor:
    return as_payload(bytearray(payload)).view(torch.int32)


def _bytes_of(vector: Tensor) -> Buffer:
    return as_buffer(vector.view(torch.uint8))
