"""Bytes that averaging gradients sends in one training step, inside sites and between them.

Averaging is hierarchical. Each site's ranks reduce their gradients to the site's representative;
the representatives average among themselves around a ring; each hands the result back inside its
site. What crosses between sites therefore depends on the number of sites, not on that of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepBytes:
    """Bytes sent in one training step by all ranks together.

    Attributes:
        reduce: Inside sites, towards the representatives.
        between_sites: Around the ring of representatives.
        broadcast: Inside sites, from the representatives.
        per_representative: What one site sends to the next on the ring, on average.
    """

    reduce: int
    between_sites: int
    broadcast: int
    per_representative: float

    @property
    def within_sites(self) -> int:
        """Inside sites."""
        return self.reduce + self.broadcast

    @property
    def total(self) -> int:
        """Everything."""
        return self.within_sites + self.between_sites


STEP_NUMBERS = 5
"""fp32 numbers that ride along with the gradients: loss, tokens, wishes to stop, two counts."""
SITE_NUMBERS = 5
"""And for each site: the seconds of its ranks, by kind."""


def bucket_bytes(parameters: int, sites: int) -> int:
    """Return the size of the flat fp32 bucket that a training step of the recipe exchanges."""
    return 4 * (parameters + STEP_NUMBERS + SITE_NUMBERS * sites)


def bytes_per_step(payload_bytes: int, site_ranks: Sequence[int]) -> StepBytes:
    """Return what one average of ``N = payload_bytes`` a rank sends.

    * Reduce over a site's ``n`` ranks, as gloo does it: around a ring each rank sends
      ``(n - 1) / n N``, then the ``n - 1`` others send the representative their part of the sum,
      ``N / n`` each: ``(n - 1) (1 + 1 / n) N`` together.
    * Average among ``S`` representatives: each sends ``2 (S - 1) / S N`` around the ring
      (Patarasuk and Yuan, 2009), ``2 (S - 1) N`` together.
    * Broadcast: each rank but the representative receives ``N`` once.

    Args:
        payload_bytes: Size of the flat gradient bucket.
        site_ranks: Number of ranks at each site, all at least 1.
    """
    sites, others = len(site_ranks), sum(site_ranks) - len(site_ranks)
    gathered = sum(payload_bytes * (ranks - 1) // ranks for ranks in site_ranks)
    ring = 2 * (sites - 1) * payload_bytes
    return StepBytes(
        reduce=others * payload_bytes + gathered,
        between_sites=ring,
        broadcast=others * payload_bytes,
        per_representative=ring / sites,
    )
