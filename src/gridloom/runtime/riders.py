"""The plain numbers that ride along with the gradients, so that sites exchange once a step.

Every rank has its own numbers. They are summed inside the site, ride from site to site at the end
of the gradients, and come back summed over all sites: the loss, the tokens, how many ranks wish to
stop, the bytes on the wire, and for each site the seconds of its ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from gridloom.base.errors import BrokenError
from gridloom.planner.collective import SITE_NUMBERS, STEP_NUMBERS


@dataclass
class RankSeconds:
    """Where one rank's time went; after the exchange, the mean over a site's ranks.

    Attributes:
        compute: Forward and backward passes.
        data: Fetching samples.
        within_site: Exchange inside the site; of the step before, once it has ridden along.
        between_site: Exchange between sites, in the step before.
        checkpoint: The checkpoint after the step before.
        forward: The forward part of ``compute``; NaN where it cannot be told.
        optimizer: Clipping and update, in the step before.
        between_hidden: Travel between sites behind the training, in the step before.
        step: All of the step before, without its checkpoint.
    """

    compute: float = 0.0
    data: float = 0.0
    within_site: float = 0.0
    between_site: float = 0.0
    checkpoint: float = 0.0
    forward: float = 0.0
    optimizer: float = 0.0
    between_hidden: float = 0.0
    step: float = 0.0


@dataclass(frozen=True)
class Totals:
    """What is summed over ranks: one rank's, a site's or everybody's.

    Attributes:
        loss_sum: Nats, summed over tokens.
        tokens: Tokens trained on.
        stop_wishes: Ranks that were asked to stop.
        within_bytes: Bytes sent inside sites since the last exchange; NaN if not measured.
        between_bytes: Bytes sent between sites since the last exchange.
        peak_flops: Peak rate of the devices, in flop/s; NaN if not known.
    """

    loss_sum: float
    tokens: float
    stop_wishes: float
    within_bytes: float
    between_bytes: float
    peak_flops: float

    @property
    def whole_within_bytes(self) -> int | None:
        """Bytes inside sites as an integer; ``None`` where some rank did not measure them."""
        return None if math.isnan(self.within_bytes) else round(self.within_bytes)


if (len(fields(Totals)), len(fields(RankSeconds))) != (STEP_NUMBERS, SITE_NUMBERS):
    raise BrokenError("the planner reckons with other numbers than ride with the gradients")


def count(sites: int) -> int:
    """Return how many numbers ride along."""
    return STEP_NUMBERS + sites * SITE_NUMBERS


def pack(totals: Totals, site: int, sites: int, seconds: RankSeconds) -> list[float]:
    """Return one rank's numbers; the places of other sites' seconds are 0.

    Args:
        totals: This rank's.
        site: Number of its site.
        sites: Of the job.
        seconds: This rank's.
    """
    before, after = site * SITE_NUMBERS, (sites - site - 1) * SITE_NUMBERS
    return [*astuple(totals), *[0.0] * before, *astuple(seconds), *[0.0] * after]


def unpack(
    numbers: Sequence[float], ranks_per_site: Sequence[int]
) -> tuple[Totals, list[RankSeconds]]:
    """Return the totals, and the mean seconds of each site's ranks; 0 for sites not summed in."""
    sites = [
        RankSeconds(*(n / ranks for n in numbers[start : start + SITE_NUMBERS]))
        for ranks, start in zip(
            ranks_per_site, range(STEP_NUMBERS, len(numbers), SITE_NUMBERS), strict=True
        )
    ]
    return Totals(*numbers[:STEP_NUMBERS]), sites
