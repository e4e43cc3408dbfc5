"""The neighbours of a stage, over connections: who is met, who is out of contact, since when."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from gridloom.base.clock import Clock
from gridloom.runtime.wan.events import Down, LinkFacts, Received, Up
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.settings import Address
from gridloom.runtime.wan.stages_accord import AFTER, BEFORE
from gridloom.runtime.wan.stages_messages import (
    AnyMessage,
    Hello,
    Values,
    decode_message,
    encode_message,
)

_GOODBYE_S = 0.5
"""For the last word to leave; whether it arrives is of no matter."""


class Connections(Protocol):
    """What stages need of a transport (``gridloom.runtime.wan.transport.Transport``)."""

    def send(self, peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        """Send a message; returns its number at once."""
        ...

    def outstanding(self, peer: str) -> tuple[int, ...]:
        """Return the numbers of messages that the peer does not hold."""
        ...

    def discard(self, peer: str, keep: Collection[int] = ()) -> None:
        """Forget what the peer does not hold, but for some."""
        ...

    def meet(self, peer: str, address: Address | None) -> None:
        """Say where a peer is."""
        ...

    def events(self, timeout_s: float) -> Sequence[Up | Down | Received]:
        """Return what has happened since the last call, after waiting for the first."""
        ...

    def links(self) -> dict[str, LinkFacts]:
        """Return what is known of each connection."""
        ...

    def close(self, timeout_s: float = 0.0) -> None:
        """Send what is left, as far as the time allows, and end."""
        ...


class Alone:
    """The connections of a stage that is the whole pipeline: none."""

    def send(self, peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        """As ``Connections``; there is nobody."""
        raise LookupError(peer)

    def outstanding(self, peer: str) -> tuple[int, ...]:
        """As ``Connections``; there is nobody."""
        raise LookupError(peer)

    def discard(self, peer: str, keep: Collection[int] = ()) -> None:
        """As ``Connections``; there is nobody."""
        raise LookupError(peer)

    def meet(self, peer: str, address: Address | None) -> None:
        """As ``Connections``; there is nobody."""
        raise LookupError(peer)

    def events(self, timeout_s: float) -> Sequence[Up | Down | Received]:
        """As ``Connections``."""
        return ()

    def links(self) -> dict[str, LinkFacts]:
        """As ``Connections``."""
        return {}

    def close(self, timeout_s: float = 0.0) -> None:
        """As ``Connections``."""


class Neighbours:
    """The stages before and after this one.

    Attributes:
        names: By side.
        anew: Sides on which a process has come up that was not met yet; the caller removes them.
        met: Sides whose process has said hello.
    """

    def __init__(self, names: Mapping[int, str], connections: Connections, clock: Clock) -> None:
        """Remember whom to speak to.

        Args:
            names: The neighbouring sites, by side.
            connections: To them alone; started.
            clock: Time.
        """
        self.names = dict(names)
        self.anew: list[int] = []
        self.met: set[int] = set()
        self._sides = {name: side for side, name in names.items()}
        self._connections, self._clock = connections, clock
        self._values: dict[int, set[int]] = {side: set() for side in names}
        self._down_since_s = dict.fromkeys(names, clock.monotonic_s())
        self._why = dict.fromkeys(names, "not met yet")

    def meet(self, side: int, address: Address) -> None:
        """Say where a neighbour is."""
        self._connections.meet(self.names[side], address)

    def send(self, side: int, message: AnyMessage, body: Buffer = b"") -> None:
        """Send a message; returns at once. What is no tensor overtakes tensors."""
        is_values = isinstance(message, Values)
        peer = self.names[side]
        number = self._connections.send(peer, encode_message(message), body, urgent=not is_values)
        if is_values:
            self._values[side].add(number)

    def poll(self, timeout_s: float) -> list[tuple[int, AnyMessage, Buffer]]:
        """Return what has come, by side, after waiting for the first.

        Raises:
            MessageError: A neighbour speaks what cannot be understood.
        """
        came: list[tuple[int, AnyMessage, Buffer]] = []
        for event in self._connections.events(timeout_s):
            side = self._sides[event.peer]
            match event:
                case Up():
                    self._down_since_s.pop(side, None)
                    if not event.resumed:
                        self.met.discard(side)
                        self.anew.append(side)
                case Down():
                    self._down_since_s.setdefault(side, self._clock.monotonic_s())
                    self._why[side] = event.why
                case Received():
                    message = decode_message(event.header)
                    if isinstance(message, Hello):
                        self.met.add(side)
                    came.append((side, message, event.body))
        return came

    def down_s(self) -> float:
        """Return for how long some neighbour has been out of contact; 0 if none is."""
        now_s = self._clock.monotonic_s()
        return max((now_s - since_s for since_s in self._down_since_s.values()), default=0.0)

    def is_there(self) -> bool:
        """Return whether all neighbours are in contact and have said hello."""
        return not self._down_since_s and self.met == self.names.keys()

    def missing(self) -> str:
        """Return who is out of contact and why, for a sentence; empty if nobody is."""
        return ", ".join(
            f"{self.names[side]} ({self._why[side]})" for side in sorted(self._down_since_s)
        )

    def has_left(self) -> bool:
        """Return whether a neighbour has said goodbye and is not back."""
        return any(self._why[side] == "closed" for side in self._down_since_s)

    def forget_values(self) -> None:
        """Drop the tensors that are still on their way; what else is said goes on."""
        for side, peer in self.names.items():
            waiting = set(self._connections.outstanding(peer))
            self._connections.discard(peer, keep=waiting - self._values[side])
            self._values[side].clear()

    def settle(self) -> None:
        """Forget the numbers of the last step's tensors, all of which have arrived."""
        for numbers in self._values.values():
            numbers.clear()

    def delay_s(self, payload_bytes: int) -> tuple[float, float]:
        """Return the delay of a micro-batch on the link to the next stage, and its transfer.

        The delay is a round trip and a transfer each way; what has not been measured counts as 0.
        """
        if AFTER not in self.names:
            return 0.0, 0.0
        facts = self._connections.links()[self.names[AFTER]]
        bandwidth = facts.bandwidth_bytes_per_s
        transfer_s = payload_bytes / bandwidth if bandwidth else 0.0
        return (facts.rtt_s_min or 0.0) + 2 * transfer_s, transfer_s

    def links(self) -> dict[str, LinkFacts]:
        """Return what is known of each connection, by site."""
        return self._connections.links()

    def close(self, timeout_s: float = _GOODBYE_S) -> None:
        """Part from the neighbours, once they hold all that was said or the time is over."""
        self._connections.close(timeout_s)


def neighbours_of(sites: Sequence[str], site: str) -> dict[int, str]:
    """Return the sites before and after one, by side."""
    number = sites.index(site)
    names = {}
    if number > 0:
        names[BEFORE] = sites[number - 1]
    if number + 1 < len(sites):
        names[AFTER] = sites[number + 1]
    return names
