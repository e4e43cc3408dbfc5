"""Bytes that averaging gradients sends in one training step, inside sites and between them.

Averaging is hierarchical. Each site's ranks sum their gradients around a ring; the first rank of
each speaks for it: one of them takes in the sums of the other sites, and sends each what it needs
for the average; each hands the result on inside its site. What crosses between sites therefore
depends on the number of sites, not on that of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepBytes:
    """Bytes sent in one training step by all ranks together.

    Attributes:
        reduce: Inside sites, to sum their gradients.
        between_sites: To the site that leads, and from it.
        broadcast: Inside sites, from the ranks that speak for them.
        per_representative: What one site sends to others, on average.
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


STEP_NUMBERS = 6
"""fp64 numbers that ride along with the gradients: loss, tokens, wishes to stop, two counts, and
the devices' peak rate."""
SITE_NUMBERS = 9
"""And for each site: the seconds of its ranks, by kind."""


def bucket_bytes(parameters: int, sites: int) -> int:
    """Return the size of what a site offers in a training step: fp32 gradients, and the rest."""
    return 4 * parameters + 8 * (STEP_NUMBERS + SITE_NUMBERS * sites)


def bytes_per_step(payload_bytes: int, site_ranks: Sequence[int]) -> StepBytes:
    """Return what one average of ``N = payload_bytes`` a rank sends.

    * Sum over a site's ``n`` ranks: each sends ``2 (n - 1) / n N`` around a ring (Patarasuk and
      Yuan, 2009), ``2 (n - 1) N`` together.
    * Average over ``S`` sites: the others send their sum to the one that leads, ``N`` each, and
      get as much from it: with two sites its own sum, with more the average.
    * Broadcast, where there are several sites: each rank but the first receives ``N`` once.

    Args:
        payload_bytes: Size of the gradients and what goes with them.
        site_ranks: Number of ranks at each site, all at least 1.
    """
    sites, others = len(site_ranks), sum(site_ranks) - len(site_ranks)
    between = 2 * (sites - 1) * payload_bytes
    return StepBytes(
        reduce=2 * others * payload_bytes,
        between_sites=between,
        broadcast=others * payload_bytes if sites > 1 else 0,
        per_representative=between / sites,
    )
