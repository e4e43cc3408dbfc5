"""Connections between sites in one process, that deliver at once or, when cut or slow, later."""

from collections import deque

from gridloom.runtime.wan.events import Down, LinkFacts, Received, Up
from gridloom.runtime.wan.history import Buffer


class Network:
    """All wires; a site's end of them plays `gridloom.runtime.wan.peers.Connections`.

    Attributes:
        large_bytes: Messages with a body above this wait for `release`, and are overtaken.
        carried: Headers of all messages so far.
    """

    def __init__(self) -> None:
        self.ends: dict[str, End] = {}
        self.large_bytes: int | None = None
        self.carried: list[bytes] = []
        self._large: list[tuple[str, Received]] = []
        self._joined: set[frozenset[str]] = set()
        self._waiting: dict[tuple[str, str], deque[Received]] = {}

    def end(self, name: str) -> "End":
        """Return the end of a new process of a site, in contact with all others."""
        others = [other for other in self.ends if other != name]
        for other in others:
            self.cut(name, other)
            self._waiting.pop((name, other), None)
            self._waiting.pop((other, name), None)
        self._large = [one for one in self._large if name not in (one[0], one[1].peer)]
        self.ends[name] = End(self, name)
        for other in others:
            self.join(name, other, resumed=False)
        return self.ends[name]

    def join(self, one: str, two: str, *, resumed: bool = True) -> None:
        self._joined.add(frozenset((one, two)))
        for here, there in ((one, two), (two, one)):
            self.ends[here].happened.append(Up(there, "session", resumed))
            self.ends[here].happened.extend(self._waiting.pop((there, here), ()))

    def cut(self, one: str, two: str) -> None:
        if frozenset((one, two)) in self._joined:
            self._joined.remove(frozenset((one, two)))
            for here, there in ((one, two), (two, one)):
                self.ends[here].happened.append(Down(there, "silent"))

    def carry(self, source: str, target: str, header: bytes, body: Buffer) -> None:
        message = Received(source, header, memoryview(bytearray(body)))
        self.carried.append(header)
        if self.large_bytes is not None and len(message.body) > self.large_bytes:
            self._large.append((target, message))
        else:
            self._deliver(target, message)

    def release(self) -> None:
        """Let the large messages arrive that have waited."""
        waiting, self._large = self._large, []
        for target, message in waiting:
            self._deliver(target, message)

    def _deliver(self, target: str, message: Received) -> None:
        source = message.peer
        if frozenset((source, target)) in self._joined:
            self.ends[target].happened.append(message)
        else:
            self._waiting.setdefault((source, target), deque()).append(message)


class End:
    """A site's end of all its wires.

    Attributes:
        travelled_s: What it says of the time in which messages were on their way.
    """

    def __init__(self, network: Network, name: str) -> None:
        self._network, self._name = network, name
        self.happened: list[Up | Down | Received] = []
        self.sent_bytes = 0
        self.travelled_s = 0.0

    def send(self, peer: str, header: bytes, body: Buffer = b"", *, urgent: bool = False) -> int:
        self.sent_bytes += len(header) + len(body)
        self._network.carry(self._name, peer, header, body)
        return 0

    def events(self, timeout_s: float) -> list[Up | Down | Received]:
        happened, self.happened = self.happened, []
        return happened

    def links(self) -> dict[str, LinkFacts]:
        return {}

    def busy_s(self) -> float:
        return self.travelled_s

    def close(self, timeout_s: float = 0.0) -> None:
        for other in self._network.ends:
            if other != self._name:
                self._network.cut(self._name, other)
