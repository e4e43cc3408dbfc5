"""Summing one bucket over all ranks, site by site.

Inside a site the bucket is summed to the site's representative, the representatives sum among
themselves, and each hands the sum back inside its site: a link between sites carries each
site's sum once, however many ranks the site has.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from gridloom.base.clock import Clock
from gridloom.runtime.accelerator import synchronize
from gridloom.runtime.failure import peers_guarded
from gridloom.runtime.mesh import Mesh

FLOAT_BYTES = 4

_REDUCE_PIECE = 2 * 2**20 // FLOAT_BYTES
"""Numbers a rank of a site that are reduced at once: two of gloo's segments of 1 MiB. With ``s``
segments a rank, gloo (as in torch 2.13) sends about ``(s-2)/s`` of the bucket in vain."""


@dataclass(frozen=True)
class Seconds:
    """Seconds that this rank spent in the two phases, waiting for slower ranks included."""

    within_site: float
    between_sites: float


class Exchange:
    """The hierarchical sum over the groups of a mesh."""

    def __init__(self, mesh: Mesh, clock: Clock) -> None:
        self._mesh, self._clock = mesh, clock

    def sum(self, bucket: Tensor) -> Seconds:
        """Replace ``bucket`` on every rank with its sum over all ranks, the same bits everywhere.

        Raises:
            PeerLostError: Another rank went away.
        """
        mesh = self._mesh
        with peers_guarded():
            start = self._now_s()
            if mesh.within is not None:
                for piece in torch.split(bucket, _REDUCE_PIECE * mesh.within.size()):
                    dist.reduce(piece, mesh.representative, group=mesh.within)
            reduced = self._now_s()
            if mesh.between is not None:
                dist.all_reduce(bucket, group=mesh.between)
            agreed = self._now_s()
            if mesh.within is not None:
                dist.broadcast(bucket, mesh.representative, group=mesh.within)
            end = self._now_s()
        return Seconds((reduced - start) + (end - agreed), agreed - reduced)

    def _now_s(self) -> float:
        synchronize(self._mesh.device)
        return self._clock.monotonic_s()
