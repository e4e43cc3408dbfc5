"""The other sites, as one rank of this site deals with them: rounds over connections."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from gridloom.base.clock import Clock
from gridloom.base.errors import InputError, Problem
from gridloom.runtime.wan.ahead import Incoming, Outgoing
from gridloom.runtime.wan.events import Down, LinkFacts, Received, Up
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.message_codec import AnyMessage, decode_message, encode_message
from gridloom.runtime.wan.messages import MessageError, State
from gridloom.runtime.wan.rounds import Rounds

LOOK_S = 0.05
"""How long one look for messages takes while there is nothing else to do."""

_GOODBYE_S = 0.5
"""For the last word to leave; whether it arrives is of no matter."""


class Connections(Protocol):
    """What rounds need of a transport (``gridloom.runtime.wan.transport.Transport``)."""

    def send(self, peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        """Send a message; returns at once."""
        ...

    def events(self, timeout_s: float) -> list[Up | Down | Received]:
        """Return what has happened since the last call, after waiting for the first."""
        ...

    def links(self) -> dict[str, LinkFacts]:
        """Return what is known of each connection."""
        ...

    def busy_s(self) -> float:
        """Return the seconds so far in which messages were on their way to or from any site."""
        ...

    def close(self, timeout_s: float = 0.0) -> None:
        """Send what is left, as far as the time allows, and end."""
        ...


class Peers:
    """Carries the messages of rounds; whoever trains calls ``pump`` between training steps.

    Attributes:
        rounds: The rounds.
        events: What happened to the connections since the caller last took it, a sentence each.
        check_state: Raises ``MessageError`` if a whole state that has come cannot be taken over.
    """

    def __init__(self, rounds: Rounds, connections: Connections, clock: Clock) -> None:
        self.rounds = rounds
        self.events: list[str] = []
        self.check_state: Callable[[Buffer], None] | None = None
        self._connections, self._clock = connections, clock
        self._exposed_s = 0.0
        self._outgoing = Outgoing()
        self._incoming: dict[str, Incoming] = {}

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take in what has come, wait up to ``timeout_s`` for it, and send what follows from it.

        A site that trains something else, or speaks what cannot be understood, is not listened to
        until a connection to it comes up anew; ``events`` says so.
        """
        self._send()
        for event in self._connections.events(timeout_s):
            match event:
                case Up():
                    self.events.append(f"{event.peer} is in contact")
                    if not event.resumed:
                        self._incoming[event.peer] = Incoming()
                        self._outgoing.forget(event.peer)
                    self.rounds.up(event.peer, resumed=event.resumed)
                case Down():
                    self.events.append(f"{event.peer} is out of contact: {event.why}")
                    self.rounds.down(event.peer, self.now_s())
                case Received():
                    self._take(event)
        self.rounds.tick(self.now_s())
        self._send()

    def send_ahead(self, part: Buffer, *, begins: bool) -> None:
        """Send a part of the payload that this site will offer next, to whom it will go.

        Args:
            part: Follows the part before.
            begins: It is the first.
        """
        if type(self.rounds) is not Rounds:
            return  # others may not send what a site offers as it is
        if begins:
            self._outgoing.begin()
        peer = self._awaits_offer()
        told = self._outgoing.add(peer, part)
        if told is not None:
            self._connections.send(peer, encode_message(told), part)

    def complete(self, payload: Buffer) -> None:
        """Say what the whole payload is, before it is offered."""
        self._outgoing.complete(payload)

    def require_same(self) -> None:
        """Raise ``InputError`` if a site in contact trains with other settings than this one.

        The connections are closed then, after what was sent has arrived: the other site is to
        hear of it, too, and not to wait for this one.
        """
        if self.rounds.strangers:
            self._connections.close(_GOODBYE_S)
            names = ", ".join(sorted(self.rounds.strangers))
            raise InputError(
                [
                    Problem(
                        f"{names} and this site do not train the same thing",
                        remedy="give all sites the same model, cut, seed, text and sync settings",
                        field="sync",
                    )
                ]
            )

    def links(self) -> dict[str, LinkFacts]:
        """Return what is known of each connection, by site."""
        return self._connections.links()

    def traffic_bytes(self) -> int:
        """Return the bytes that were sent to and received from the other sites."""
        return sum(link.sent_bytes + link.received_bytes for link in self.links().values())

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """Note that the training stands still meanwhile for what is on its way between sites."""
        before_s = self._connections.busy_s()
        try:
            yield
        finally:
            self._exposed_s += self._connections.busy_s() - before_s

    def exposed_s(self) -> float:
        """Return the seconds of travel so far for which the training stood still."""
        return self._exposed_s

    def hidden_s(self) -> float:
        """Return the seconds of travel so far while the training went on."""
        return self._connections.busy_s() - self._exposed_s

    def now_s(self) -> float:
        """Return the time that rounds are measured with."""
        return self._clock.monotonic_s()

    def close(self, timeout_s: float) -> None:
        """Part from the other sites; wait ``timeout_s`` at most for those that have not ended."""
        self.rounds.leave()
        deadline_s = self.now_s() + timeout_s
        while self.rounds.in_contact() and self.now_s() < deadline_s:
            self.pump(LOOK_S)
        self._connections.close(_GOODBYE_S)

    def break_off(self) -> None:
        """End without a word: the other sites find this one lost."""
        self._connections.close()

    def _take(self, event: Received) -> None:
        was_strange = event.peer in self.rounds.strangers
        try:
            message = decode_message(event.header)
            incoming = self._incoming.setdefault(event.peer, Incoming())
            whole = incoming.take(message, event.body, self._payload_bytes())
            if whole is not None:
                self._check(*whole)
                self.rounds.received(event.peer, *whole, self.now_s())
        except MessageError as error:
            self.events.append(f"{event.peer} is not listened to any more: {error}")
            self._incoming[event.peer] = Incoming()
            self.rounds.shun(event.peer, self.now_s())
        if event.peer in self.rounds.strangers and not was_strange:
            self.events.append(f"{event.peer} is not listened to: it trains something else")

    def _check(self, message: AnyMessage, body: Buffer) -> None:
        if isinstance(message, State) and self.check_state is not None:
            self.check_state(body)

    def _send(self) -> None:
        for sent in self.rounds.outbox:
            message, parts = self._outgoing.shortened(sent.peer, sent.message, sent.body)
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            try:
                self._connections.send(sent.peer, encode_message(message), body)
            except InputError as error:  # larger than the settings allow: no reason to stop here
                self.events.append(f"{sent.peer} does not get what it needs: {error}")
        self.rounds.outbox.clear()

    def _awaits_offer(self) -> str:
        """Return who will be sent this site's payload as it is; nobody (empty) if none will be."""
        leader = self.rounds.leader()
        others = [name for name in self.rounds.present() if name in self._incoming]
        if not leader or leader in others:
            return leader
        return others[0] if len(others) == 1 else ""  # of more, the average is sent

    def _payload_bytes(self) -> int:
        sizes = self.rounds.payload_bytes
        return 0 if sizes is None else sizes(self.rounds.version + 1)
