"""The ranks of a site, acting as one towards the other sites.

The first rank speaks to the other sites; what it decides, all ranks of the site carry out together,
each on the numbers that it owns. Payloads are gathered at the first rank and handed out by it: a
fragment at a time and made small already, so the model is never gathered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gridloom.base.errors import BrokenError
from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.wan.agreement import Agreement, Moved, Parts
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.state import as_buffer, as_payload

_PARTS_MAX = 64
"""Payloads that one call hands out: as many as sites may offer."""


class _What(IntEnum):
    """What all ranks are to do."""

    END = 0
    OFFER = 1
    COMBINE = 2
    SETTLE = 3
    PACK = 4
    UNPACK = 5


@dataclass(frozen=True)
class _Call:
    """What all ranks are to do, and with what."""

    what: _What
    fragment: int = 0
    included: bool = False
    weights: tuple[float, ...] = ()


class SiteAgreement:
    """The agreement of a whole site (plays ``Agreement``): the first rank calls, the others follow.

    All ranks of the site must make one; ``train`` is called by all, everything else by the first
    rank, while the others are in ``follow``.
    """

    def __init__(self, own: Agreement, spread: Callable[[], None]) -> None:
        """Tell each other how much each rank owns.

        Args:
            own: This rank's part.
            spread: Gives weights that have changed to the ranks that have copies; all call it.
        """
        self._own, self._spread = own, spread
        self._rank, self._count = dist.get_rank(), dist.get_world_size()
        sizes = torch.tensor([own.payload_bytes(n) for n in range(len(own))])
        table = [torch.zeros_like(sizes) for _ in range(self._count)]
        with peers_guarded():
            dist.all_gather(table, sizes)
        self._sizes = torch.stack(table)  # [ranks, fragments]
        self._parts: Parts = ()
        self._body: Buffer = b""

    def __len__(self) -> int:
        """As ``Agreement``."""
        return len(self._own)

    def train(self, tokens: float) -> None:
        """As ``Agreement``, with the tokens of the whole site."""
        self._own.train(tokens)

    def payload_bytes(self, fragment: int) -> int:
        """As ``Agreement``."""
        return int(self._sizes[:, fragment].sum())

    def offer(self, fragment: int) -> tuple[float, Tensor]:
        """As ``Agreement``."""
        call = _Call(_What.OFFER, fragment)
        self._tell(call)
        return self._offer(call)

    def combine(self, fragment: int, parts: Parts) -> Tensor:
        """As ``Agreement``."""
        call = _Call(_What.COMBINE, fragment, weights=tuple(weight for weight, _ in parts))
        self._parts = parts
        self._tell(call)
        return self._combine(call)

    def settle(self, fragment: int, parts: Parts, *, included: bool) -> Moved:
        """As ``Agreement``; the cosine is that of the first rank's numbers."""
        weights = tuple(weight for weight, _ in parts)
        call = _Call(_What.SETTLE, fragment, included=included, weights=weights)
        self._parts = parts
        self._tell(call)
        return self._settle(call)

    def pack(self) -> Buffer:
        """As ``Agreement``."""
        call = _Call(_What.PACK)
        self._tell(call)
        return self._pack(call)

    def unpack(self, body: Buffer) -> None:
        """As ``Agreement``."""
        call = _Call(_What.UNPACK)
        self._body = body
        self._tell(call)
        self._unpack(call)

    def state_dict(self) -> dict[str, Any]:
        """As ``Agreement``: this rank's own."""
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Agreement``."""
        self._own.load_state_dict(state)

    def end(self) -> None:
        """Let the other ranks go on with their training."""
        self._tell(_Call(_What.END))

    def follow(self) -> None:
        """Carry out what the first rank calls for, until it lets go."""
        actions: Mapping[_What, Callable[[_Call], object]] = {
            _What.OFFER: self._offer,
            _What.COMBINE: self._combine,
            _What.SETTLE: self._settle,
            _What.PACK: self._pack,
            _What.UNPACK: self._unpack,
        }
        while (call := _heard()).what is not _What.END:
            actions[call.what](call)

    # What all ranks do; only the first rank's results are used.

    def _offer(self, call: _Call) -> tuple[float, Tensor]:
        tokens, payload = self._own.offer(call.fragment)
        return tokens, self._gather(payload, self._sizes[:, call.fragment])

    def _combine(self, call: _Call) -> Tensor:
        payload = self._own.combine(call.fragment, self._handed_out(call))
        return self._gather(payload, self._sizes[:, call.fragment])

    def _settle(self, call: _Call) -> Moved:
        moved = self._own.settle(call.fragment, self._handed_out(call), included=call.included)
        square = torch.tensor([moved.norm**2], dtype=torch.float64)
        with peers_guarded():
            dist.all_reduce(square)
        self._spread()
        return Moved(float(square.sqrt()), moved.cosine)

    def _pack(self, call: _Call) -> Buffer:
        """Return the lengths of all ranks' states (int64), and the states."""
        body = as_payload(bytearray(self._own.pack()))
        sizes = self._lengths(len(body))
        whole = self._gather(body, sizes)
        return as_buffer(torch.cat([sizes.view(torch.uint8), whole]))

    def _unpack(self, call: _Call) -> None:
        sizes = torch.zeros(self._count, dtype=torch.int64)
        whole = torch.zeros(0, dtype=torch.uint8)
        if self._rank == 0:
            received = as_payload(bytearray(self._body))
            head = sizes.nbytes
            sizes, whole = received[:head].clone().view(torch.int64), received[head:]
        with peers_guarded():
            dist.broadcast(sizes, 0)
        self._own.unpack(as_buffer(self._scatter(whole, sizes)))
        self._spread()

    def _handed_out(self, call: _Call) -> Parts:
        """Return this rank's share of the payloads that the first rank has."""
        sizes = self._sizes[:, call.fragment]
        own: Sequence[Tensor | None] = [payload for _, payload in self._parts]
        whole = own if self._rank == 0 else [None] * len(call.weights)
        empty = torch.zeros(0, dtype=torch.uint8)
        return [
            (weight, self._scatter(empty if payload is None else payload, sizes))
            for weight, payload in zip(call.weights, whole, strict=True)
        ]

    def _lengths(self, own: int) -> Tensor:
        table = [torch.zeros(1, dtype=torch.int64) for _ in range(self._count)]
        with peers_guarded():
            dist.all_gather(table, torch.tensor([own]))
        return torch.cat(table)

    def _gather(self, payload: Tensor, sizes: Tensor) -> Tensor:
        """Return all ranks' payloads end to end on the first rank; nothing on the others."""
        most = int(sizes.max())
        padded = torch.nn.functional.pad(payload, (0, most - len(payload)))
        into = [torch.empty_like(padded) for _ in range(self._count)] if self._rank == 0 else None
        with peers_guarded():
            dist.gather(padded, into)
        if into is None:
            return torch.zeros(0, dtype=torch.uint8)
        return torch.cat([row[:size] for row, size in zip(into, sizes.tolist(), strict=True)])

    def _scatter(self, whole: Tensor, sizes: Tensor) -> Tensor:
        """Return this rank's share of what the first rank has end to end."""
        most, own = int(sizes.max()), int(sizes[self._rank])
        rows = None
        if self._rank == 0:
            pieces = torch.split(whole, sizes.tolist())
            rows = [torch.nn.functional.pad(piece, (0, most - len(piece))) for piece in pieces]
        share = torch.empty(most, dtype=torch.uint8)
        with peers_guarded():
            dist.scatter(share, rows)
        return share[:own]

    def _tell(self, call: _Call) -> None:
        if len(call.weights) > _PARTS_MAX:
            raise BrokenError(f"{len(call.weights)} payloads in one round")
        header = torch.zeros(4 + _PARTS_MAX, dtype=torch.float64)
        header[:4] = torch.tensor(
            [call.what, call.fragment, call.included, len(call.weights)], dtype=torch.float64
        )
        header[4 : 4 + len(call.weights)] = torch.tensor(call.weights, dtype=torch.float64)
        with peers_guarded():
            dist.broadcast(header, 0)


def _heard() -> _Call:
    """Wait for the first rank's next call."""
    header = torch.zeros(4 + _PARTS_MAX, dtype=torch.float64)
    with peers_guarded():
        dist.broadcast(header, 0)
    what, fragment, included, count = (int(number) for number in header[:4])
    return _Call(
        _What(what),
        fragment,
        included=bool(included),
        weights=tuple(header[4 : 4 + count].tolist()),
    )
