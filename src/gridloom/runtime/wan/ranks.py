"""The ranks of a site, acting as one towards the other sites.

The first rank speaks to the other sites; what it decides, all ranks of the site carry out together,
each on the numbers that it owns. Payloads are gathered at the first rank and handed out by it: a
fragment at a time and made small already, so the model is never gathered.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.wan.agreement import OwnAgreement
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.outer import Moved, Parts
from gridloom.runtime.wan.site_ranks import Call, SiteRanks, shares_of


class _What(IntEnum):
    """What all ranks are to do."""

    OFFER = 1
    COMBINE = 2
    SETTLE = 3
    PACK = 4
    UNPACK = 5
    LEVEL = 6


class SiteAgreement:
    """The agreement of a whole site (plays ``Agreement``): the first rank calls, the others follow.

    All ranks of the site must make one; ``train`` is called by all, everything else by the first
    rank, while the others are in ``follow``.
    """

    def __init__(
        self, own: OwnAgreement, spread: Callable[[], None], *, alike: bool = False
    ) -> None:
        """Tell each other how much each rank owns.

        Args:
            own: This rank's part.
            spread: Gives weights that have changed to the ranks that have copies; all call it.
            alike: Every rank has a whole copy of the model, and the first one owns it: a state
                is good for sites of any number of ranks.
        """
        self._own, self._spread, self._alike = own, spread, alike
        self._ranks = SiteRanks()
        sizes = torch.tensor([own.payload_bytes(n) for n in range(len(own))])
        self._sizes = self._ranks.table(sizes)  # [ranks, fragments]
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
        call = Call(_What.OFFER, fragment)
        self._ranks.tell(call)
        return self._offer(call)

    def combine(self, fragment: int, parts: Parts) -> Tensor:
        """As ``Agreement``."""
        call = Call(_What.COMBINE, fragment, weights=tuple(weight for weight, _ in parts))
        self._parts = parts
        self._ranks.tell(call)
        return self._combine(call)

    def settle(self, fragment: int, parts: Parts, *, included: bool) -> Moved:
        """As ``Agreement``; the cosine is that of the first rank's numbers."""
        weights = tuple(weight for weight, _ in parts)
        call = Call(_What.SETTLE, fragment, flag=included, weights=weights)
        self._parts = parts
        self._ranks.tell(call)
        return self._settle(call)

    def level(self) -> None:
        """As ``Agreement``."""
        call = Call(_What.LEVEL)
        self._ranks.tell(call)
        self._level(call)

    def pack(self) -> Buffer:
        """As ``Agreement``."""
        call = Call(_What.PACK)
        self._ranks.tell(call)
        return self._pack(call)

    def check(self, body: Buffer) -> None:
        """As ``Agreement``, by the first rank's part: all were made by one program."""
        self._own.check(body if self._alike else shares_of(body, self._ranks.count)[0])

    def unpack(self, body: Buffer) -> None:
        """As ``Agreement``."""
        call = Call(_What.UNPACK)
        self._body = body
        self._ranks.tell(call)
        self._unpack(call)

    def state_dict(self) -> dict[str, Any]:
        """As ``Agreement``: this rank's own."""
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Agreement``."""
        self._own.load_state_dict(state)

    def end(self) -> None:
        """Let the other ranks go on with their training."""
        self._ranks.end()

    def follow(self) -> None:
        """Carry out what the first rank calls for, until it lets go."""
        self._ranks.follow(
            {
                _What.OFFER: self._offer,
                _What.COMBINE: self._combine,
                _What.SETTLE: self._settle,
                _What.PACK: self._pack,
                _What.UNPACK: self._unpack,
                _What.LEVEL: self._level,
            }
        )

    # What all ranks do; only the first rank's results are used.

    def _offer(self, call: Call) -> tuple[float, Tensor]:
        tokens, payload = self._own.offer(call.number)
        return tokens, self._ranks.gather(payload, self._sizes[:, call.number])

    def _combine(self, call: Call) -> Tensor:
        sizes = self._sizes[:, call.number]
        payload = self._own.combine(call.number, self._ranks.hand_out(call, self._parts, sizes))
        return self._ranks.gather(payload, sizes)

    def _settle(self, call: Call) -> Moved:
        parts = self._ranks.hand_out(call, self._parts, self._sizes[:, call.number])
        moved = self._own.settle(call.number, parts, included=call.flag)
        norm = self._ranks.sum(moved.norm**2) ** 0.5
        self._spread()
        return Moved(norm, moved.cosine)

    def _level(self, call: Call) -> None:
        self._own.level()
        self._spread()

    def _pack(self, call: Call) -> Buffer:
        own = self._own.pack()
        return own if self._alike else self._ranks.pack(own)

    def _unpack(self, call: Call) -> None:
        if not self._alike:
            self._own.unpack(self._ranks.unpack(self._body))
        elif self._ranks.is_first:
            self._own.unpack(self._ranks.of_first_state(self._body))
        else:
            self._own.follow_up(self._ranks.of_first_state(b""))
        self._spread()
