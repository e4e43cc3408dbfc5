"""The gradients of a site of several ranks, which the first of them brings to the other sites.

Every rank encodes what it owns. So a gradient is summed inside the site, averaged between sites in
parts that lie where the sums were made, and spread inside the site again.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from gridloom.runtime.compress import NotFiniteError
from gridloom.runtime.wan.averaged import OwnAveraged
from gridloom.runtime.wan.history import Buffer
from gridloom.runtime.wan.outer import Parts
from gridloom.runtime.wan.site_ranks import Call, SiteRanks, shares_of
from gridloom.runtime.wan.state import as_buffer, as_payload


class _What(IntEnum):
    """What all ranks are to do."""

    ENCODE = 1
    TAKE_BACK = 2
    DROP = 3
    COMBINE = 4
    TAKE = 5
    UPDATE = 6
    GO_ALONE = 7
    PACK = 8
    UNPACK = 9
    AT = 10


class SiteGradients:
    """The gradients of a whole site (plays ``Averaged``): the first rank calls, the others follow.

    All ranks of the site must make one; ``begin``, ``keep`` and ``let_go`` are called by all,
    everything else by the first rank, while the others are in ``follow``.
    """

    def __init__(
        self, own: OwnAveraged, spread: Callable[[], None], *, alike: bool = False
    ) -> None:
        """Tell each other how much each rank owns.

        Args:
            own: This rank's part; it has as many buckets on every rank.
            spread: Gives weights that were taken over to the ranks that have copies.
            alike: Every rank has a whole copy of the model, and the first one owns it: a state
                is good for sites of any number of ranks.
        """
        self._own, self._spread, self._alike = own, spread, alike
        self._ranks = SiteRanks()
        self._tables = {  # of each stage: [ranks, buckets]
            stage: self._ranks.table(torch.tensor(own.sizes_bytes(stage))) for stage in own.stages()
        }
        self._sizes = self._tables[1]
        self._parts: Parts = ()
        self._body: Buffer = b""
        self._trouble: NotFiniteError | None = None
        self._encoded: dict[int, Tensor] = {}

    def stages(self) -> list[int]:
        """As ``Averaged``."""
        return list(self._tables)

    def at(self, stage: int) -> None:
        """As ``Averaged``."""
        self._at(self._told(Call(_What.AT, stage)))

    def sizes_bytes(self, stage: int = 1) -> list[int]:
        """As ``Averaged``."""
        return [int(size) for size in self._tables[stage].sum(dim=0)]

    def begin(self, sums: int) -> None:
        """As ``Averaged``."""
        self._own.begin(sums)

    def keep(self) -> list[int]:
        """As ``Averaged``."""
        changed = self._own.keep()
        if self._encoded:  # on all ranks alike, for all are called
            table = torch.zeros(self._sizes.shape[1], dtype=torch.int64)
            table[changed] = 1
            changed = self._ranks.table(table).sum(dim=0).nonzero().flatten().tolist()
            self._encoded = {n: one for n, one in self._encoded.items() if n not in changed}
        return changed

    def let_go(self) -> None:
        """As ``Averaged``."""
        self._own.let_go()
        self._encoded.clear()

    def encode(self, bucket: int) -> Tensor:
        """As ``Averaged``."""
        if bucket not in self._encoded:
            self._encode(self._told(Call(_What.ENCODE, bucket)))
            if self._trouble is not None:
                raise self._trouble
        return self._encoded[bucket]

    def take_back(self) -> None:
        """As ``Averaged``."""
        self._take_back(self._told(Call(_What.TAKE_BACK)))

    def drop(self) -> None:
        """As ``Averaged``."""
        self._drop(self._told(Call(_What.DROP)))

    def combine(self, bucket: int, parts: Parts) -> Tensor:
        """As ``Averaged``."""
        return self._combine(self._told(_with(parts, _What.COMBINE, bucket), parts))

    def take(self, bucket: int, parts: Parts) -> None:
        """As ``Averaged``."""
        self._take(self._told(_with(parts, _What.TAKE, bucket), parts))

    def update(self) -> None:
        """As ``Averaged``."""
        self._update(self._told(Call(_What.UPDATE)))

    def go_alone(self, *, as_sent: bool) -> Buffer:
        """As ``Averaged``."""
        return self._go_alone(self._told(Call(_What.GO_ALONE, flag=as_sent)))

    def pack(self) -> Buffer:
        """As ``Averaged``."""
        return self._pack(self._told(Call(_What.PACK)))

    def check(self, body: Buffer) -> None:
        """As ``Averaged``, by the first rank's part: all were made by one program."""
        self._own.check(body if self._alike else shares_of(body, self._ranks.count)[0])

    def unpack(self, body: Buffer) -> None:
        """As ``Averaged``."""
        self._body = body
        self._unpack(self._told(Call(_What.UNPACK)))

    def state_dict(self) -> dict[str, Any]:
        """As ``Averaged``: this rank's own."""
        return self._own.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As ``Averaged``."""
        self._own.load_state_dict(state)

    def of_first(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        """Return what the first rank gives; all ranks call it, with as many numbers."""
        return self._ranks.of_first(numbers)

    def end(self) -> None:
        """Let the other ranks go on with their training."""
        self._trouble = None
        self._ranks.end()

    def follow(self) -> None:
        """Carry out what the first rank calls for, until it lets go.

        Raises:
            NotFiniteError: As the first rank's ``encode``.
        """
        self._ranks.follow(
            {
                _What.ENCODE: self._encode,
                _What.TAKE_BACK: self._take_back,
                _What.DROP: self._drop,
                _What.COMBINE: self._combine,
                _What.TAKE: self._take,
                _What.UPDATE: self._update,
                _What.GO_ALONE: self._go_alone,
                _What.PACK: self._pack,
                _What.UNPACK: self._unpack,
                _What.AT: self._at,
            }
        )
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    # What all ranks do; only the first rank's results are used.

    def _encode(self, call: Call) -> None:
        sizes = self._sizes[:, call.number]
        try:
            payload, trouble = self._own.encode(call.number), None
        except NotFiniteError as error:
            payload, trouble = torch.zeros(0, dtype=torch.uint8), error
        if self._ranks.sum(float(trouble is not None)):
            self._trouble = trouble or NotFiniteError("another rank's gradients are not finite")
        else:
            self._encoded[call.number] = self._ranks.gather(payload, sizes)

    def _at(self, call: Call) -> None:
        self._own.at(call.number)
        self._sizes = self._tables[call.number]
        self._encoded.clear()

    def _take_back(self, _: Call) -> None:
        self._own.take_back()

    def _drop(self, _: Call) -> None:
        self._own.drop()
        self._encoded.clear()

    def _combine(self, call: Call) -> Tensor:
        sizes = self._sizes[:, call.number]
        payload = self._own.combine(call.number, self._ranks.hand_out(call, self._parts, sizes))
        return self._ranks.gather(payload, sizes)

    def _take(self, call: Call) -> None:
        sizes = self._sizes[:, call.number]
        self._own.take(call.number, self._ranks.hand_out(call, self._parts, sizes))

    def _update(self, _: Call) -> None:
        self._own.update()

    def _go_alone(self, call: Call) -> Buffer:
        if not call.flag:
            self._encoded.clear()
        digest = as_payload(bytearray(self._own.go_alone(as_sent=call.flag)))
        sizes = torch.full((self._ranks.count,), len(digest))
        return as_buffer(self._ranks.gather(digest, sizes))

    def _pack(self, _: Call) -> Buffer:
        own = self._own.pack()
        return own if self._alike else self._ranks.pack(own)

    def _unpack(self, _: Call) -> None:
        if not self._alike:
            self._own.unpack(self._ranks.unpack(self._body))
        elif self._ranks.is_first:
            self._own.unpack(self._ranks.of_first_state(self._body))
        else:
            self._own.follow_up(self._ranks.of_first_state(b""))
        self._spread()

    def _told(self, call: Call, parts: Parts = ()) -> Call:
        self._parts = parts
        self._ranks.tell(call)
        return call


def _with(parts: Parts, what: _What, bucket: int) -> Call:
    return Call(what, bucket, weights=tuple(weight for weight, _ in parts))
