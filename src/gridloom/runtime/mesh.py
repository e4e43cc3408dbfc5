"""Who talks to whom: the groups of ranks inside a site, between sites, and over all.

A site's ranks are one replica group with a process group of their own; the first rank of each
site represents it in the group between the sites. Sites may differ in their number of ranks. A
third group over all ranks carries control messages only, always over gloo.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import DeviceMesh

from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.traffic import open_sockets
from gridloom.wire.launch import Rank

T = TypeVar("T")

TIMEOUT_S = 300.0
"""How long a collective waits for a silent peer. A dead one is noticed at once; this must outlast
the longest honest wait: a rank that starts late, or writes a checkpoint to a slow disk."""

_GLOO_HERE = "gridloom_gloo"


class Mesh:
    """The groups that one rank is in. With one rank in all there are none.

    Attributes:
        device: Where this rank computes.
        site_ranks: The ranks of every site, in site order.
        site: Number of this rank's site.
        within: Group of the own site; ``None`` when the site has one rank.
        between: Group of the representatives; ``None`` on other ranks and with one site.
        inner: The own site as torch's device mesh, with one axis ``replica``.
        within_sockets: Connections of ``within``, by the kernel's names.
        between_sockets: Connections of ``between``.
    """

    def __init__(self, rank: Rank, device: torch.device) -> None:
        self.rank, self.world_size, self.device = rank.rank, rank.world_size, device
        self.site_ranks = ranks_by_site(rank.site_ranks)
        self.site = next(i for i, ranks in enumerate(self.site_ranks) if rank.rank in ranks)
        self.within: dist.ProcessGroup | None = None
        self.between: dist.ProcessGroup | None = None
        self.inner: DeviceMesh | None = None
        self.within_sockets: frozenset[str] = frozenset()
        self.between_sockets: frozenset[str] = frozenset()
        if rank.world_size > 1:
            with peers_guarded():
                self._join(rank)

    @property
    def representative(self) -> int:
        """Global rank of the first rank of this rank's site."""
        return self.site_ranks[self.site][0]

    def gather(self, value: T) -> list[T]:
        """Return every rank's ``value``, by rank; all ranks must call it."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        with peers_guarded():
            dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        """Leave all groups."""
        if dist.is_initialized():
            with suppress(RuntimeError):  # after a peer's death the groups may not even part
                dist.destroy_process_group()

    def _join(self, rank: Rank) -> None:
        timeout = timedelta(seconds=TIMEOUT_S)
        _register_gloo_at(rank.node_addresses[rank.node_rank])
        store = TCPStore(
            rank.master_address, rank.master_port, rank.world_size, rank.rank == 0, timeout
        )
        dist.init_process_group(
            _GLOO_HERE, store=store, rank=rank.rank, world_size=rank.world_size, timeout=timeout
        )
        for number, ranks in enumerate(self.site_ranks):
            group, sockets = self._new_group(ranks, f"site {number}")
            if number == self.site:
                self.within, self.within_sockets = group, sockets
        self.between, self.between_sockets = self._new_group(
            [ranks[0] for ranks in self.site_ranks], "between sites"
        )
        if self.within is not None:
            self.inner = DeviceMesh.from_group(
                self.within, self.device.type, mesh_dim_names=("replica",)
            )

    def _new_group(
        self, ranks: list[int], name: str
    ) -> tuple[dist.ProcessGroup | None, frozenset[str]]:
        """Build a group and make it connect, so that its connections can be told from others'."""
        if len(ranks) == 1:
            return None, frozenset()
        before = set(open_sockets())
        backend = "nccl" if self.device.type == "cuda" else _GLOO_HERE
        group = dist.new_group(
            ranks, timeout=timedelta(seconds=TIMEOUT_S), backend=backend, group_desc=name
        )
        if self.rank not in ranks:
            return None, frozenset()
        dist.all_reduce(torch.zeros(1, device=self.device), group=group)
        return group, frozenset(set(open_sockets()) - before)


def ranks_by_site(site_ranks: tuple[tuple[str, int], ...]) -> list[list[int]]:
    """Return the global ranks of every site: ``(("a", 2), ("b", 1))`` gives ``[[0, 1], [2]]``."""
    ranks, start = [], 0
    for _, count in site_ranks:
        ranks.append(list(range(start, start + count)))
        start += count
    return ranks


def _register_gloo_at(address: str) -> None:
    """Register a gloo that listens on ``address``: torch's own picks an address by itself.

    An address that is not this machine's (it may be translated on the way) leaves the choice to
    gloo.
    """
    gloo: Any = dist.ProcessGroupGloo  # torch's type hints do not know its options

    def create(wanted: Any, _: Any) -> Any:
        try:
            device = gloo.create_device(hostname=address)
        except RuntimeError:
            device = gloo.create_default_device()
        options = gloo._Options()
        options._devices = [device]
        options._timeout = wanted.timeout
        options.global_ranks_in_group = wanted.global_ranks_in_group
        options.group_name = wanted.group_id
        return gloo(wanted.store, wanted.group_rank, wanted.group_size, options)

    if not hasattr(dist.Backend, _GLOO_HERE.upper()):
        dist.Backend.register_backend(_GLOO_HERE, create, devices=["cpu"], extended_api=True)
