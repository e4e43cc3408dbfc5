"""The ranks of a site, doing together what the first of them calls for.

The first rank speaks to the other sites. What it has of theirs it hands out, what it needs of its
own site's it gathers: payloads that are small already, never the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from gridloom.base.errors import BrokenError
from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.messages import MessageError
from gridloom.runtime.wan.outer import Parts
from gridloom.runtime.wan.state import as_buffer, as_payload

_PARTS_MAX = 64
"""Payloads that one call hands out: as many as sites may offer."""

_END = -1
"""The call that lets the others go on with their training."""


@dataclass(frozen=True)
class Call:
    """What all ranks are to do, and with what.

    Attributes:
        what: Which of the actions that all know.
        number: Of the part of the model that it is about.
        flag: Its one condition.
        weights: Of the payloads that are handed out with it.
    """

    what: int
    number: int = 0
    flag: bool = False
    weights: tuple[float, ...] = ()


class SiteRanks:
    """This rank among those of its site; every method is called by all of them at once.

    Only ``tell`` is the first rank's alone, while the others are in ``follow``.

    Attributes:
        rank: This rank.
        count: Ranks of the site.
    """

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that calls."""
        return self.rank == 0

    def tell(self, call: Call) -> None:
        """Let all ranks know what is to be done; this one does it by itself."""
        if len(call.weights) > _PARTS_MAX:
            raise BrokenError(f"{len(call.weights)} payloads in one round")
        head = [call.what, call.number, call.flag, len(call.weights), *call.weights]
        header = torch.zeros(4 + _PARTS_MAX, dtype=torch.float64)
        header[: len(head)] = torch.tensor(head, dtype=torch.float64)
        with peers_guarded():
            dist.broadcast(header, 0)

    def end(self) -> None:
        """Let the other ranks go on with their training."""
        self.tell(Call(_END))

    def follow(self, actions: Mapping[int, Callable[[Call], object]]) -> None:
        """Carry out what the first rank calls for, until it lets go."""
        while (call := _heard()).what != _END:
            actions[call.what](call)

    def table(self, own: Tensor) -> Tensor:
        """Return a row of whole numbers of every rank: int64 ``[ranks, len(own)]``."""
        rows = [torch.zeros_like(own) for _ in range(self.count)]
        with peers_guarded():
            dist.all_gather(rows, own)
        return torch.stack(rows)

    def sum(self, number: float) -> float:
        """Return the sum of a number over the ranks."""
        total = torch.tensor([number], dtype=torch.float64)
        with peers_guarded():
            dist.all_reduce(total)
        return float(total)

    def of_first(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        """Return what the first rank gives; all ranks give as many numbers."""
        if not numbers:
            return numbers
        given = torch.tensor(numbers, dtype=torch.float64)
        with peers_guarded():
            dist.broadcast(given, 0)
        return tuple(given.tolist())

    def gather(self, payload: Tensor, sizes: Tensor) -> Tensor:
        """Return all ranks' payloads end to end on the first rank; nothing on the others.

        Args:
            payload: This rank's, uint8; nothing is sent of an empty one.
            sizes: Of every rank's, in bytes.
        """
        if not self.is_first:
            if len(payload):
                with peers_guarded():
                    dist.send(payload.contiguous(), 0)
            return torch.zeros(0, dtype=torch.uint8)
        whole = torch.empty(int(sizes.sum()), dtype=torch.uint8)
        shares = whole.split(sizes.tolist())
        shares[0].copy_(payload)
        with peers_guarded():
            _wait([dist.irecv(one, src) for src, one in enumerate(shares) if src and len(one)])
        return whole

    def scatter(self, whole: Tensor, sizes: Tensor) -> Tensor:
        """Return this rank's share of what the first rank has end to end, as ``gather``."""
        if self.is_first:
            shares = whole.split(sizes.tolist())
            with peers_guarded():
                _wait([dist.isend(one, dst) for dst, one in enumerate(shares) if dst and len(one)])
            own: Tensor = shares[0]
            return own
        share = torch.empty(int(sizes[self.rank]), dtype=torch.uint8)
        if len(share):
            with peers_guarded():
                dist.recv(share, 0)
        return share

    def hand_out(self, call: Call, parts: Parts, sizes: Tensor) -> Parts:
        """Return this rank's share of the payloads that the first rank has.

        Args:
            call: Which has their weights.
            parts: The payloads, on the first rank.
            sizes: Of every rank's share, in bytes.
        """
        whole = [payload for _, payload in parts] or [torch.zeros(0, dtype=torch.uint8)]
        return [
            (weight, self.scatter(whole[place if self.is_first else 0], sizes))
            for place, weight in enumerate(call.weights)
        ]

    def pack(self, own: Buffer) -> Buffer:
        """Return the lengths of all ranks' states (int64), and the states, on the first rank."""
        body = as_payload(bytearray(own))
        sizes = self.table(torch.tensor([len(body)])).flatten()
        whole = self.gather(body, sizes)
        return as_buffer(torch.cat([sizes.view(torch.uint8), whole]))

    def of_first_state(self, body: Buffer) -> Buffer:
        """Return the state that the first rank has, on all of them."""
        size = torch.tensor([len(body)])
        with peers_guarded():
            dist.broadcast(size, 0)
            whole = torch.zeros(int(size), dtype=torch.uint8)
            if self.is_first:
                whole = as_payload(bytearray(body))
            dist.broadcast(whole, 0)
        return as_buffer(whole)

    def unpack(self, body: Buffer) -> Buffer:
        """Return this rank's state out of what another site's ``pack`` gave to the first rank."""
        sizes, whole = torch.zeros(self.count, dtype=torch.int64), torch.zeros(0, dtype=torch.uint8)
        if self.is_first:
            received = as_payload(bytearray(body))
            sizes, whole = (
                received[: sizes.nbytes].clone().view(torch.int64),
                received[sizes.nbytes :],
            )
        with peers_guarded():
            dist.broadcast(sizes, 0)
        return as_buffer(self.scatter(whole, sizes))


def shares_of(body: Buffer, count: int) -> list[Buffer]:
    """Return every rank's state out of what ``SiteRanks.pack`` gave at a site of ``count`` ranks.

    Raises:
        MessageError: It is not of as many ranks.
    """
    whole, head_bytes = memoryview(body), 8 * count
    sizes = whole[:head_bytes].cast("q").tolist() if len(whole) >= head_bytes else [-1]
    if min(sizes) < 0 or head_bytes + sum(sizes) != len(whole):
        raise MessageError(f"a state of {len(whole)} bytes that is not of {count} ranks")
    edges = accumulate(sizes, initial=head_bytes)
    return [whole[start:end] for start, end in pairwise(edges)]


def _heard() -> Call:
    """Wait for the first rank's next call."""
    header = torch.zeros(4 + _PARTS_MAX, dtype=torch.float64)
    with peers_guarded():
        dist.broadcast(header, 0)
    what, number, flag, count = (int(value) for value in header[:4])
    return Call(what, number, flag=bool(flag), weights=tuple(header[4 : 4 + count].tolist()))


def _wait(works: list[dist.Work | None]) -> None:
    for work in works:
        if work is not None:
            work.wait()
