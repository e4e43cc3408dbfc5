"""The plain numbers that ride at the end of the gradient bucket, so that a step exchanges once.

Every rank writes its own numbers, the exchange sums them, every rank reads the sums: the loss, the
tokens, how many ranks wish to stop, the bytes on the wire, and for each site the seconds of its
ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gridloom.base.errors import BrokenError
from gridloom.planner.collective import SITE_NUMBERS, STEP_NUMBERS


@dataclass
class RankSeconds:
    """Where one rank's time went; after the exchange, the mean over a site's ranks.

    Attributes:
        compute: Forward and backward passes.
        data: Fetching samples.
        within_site: Exchange inside the site, in the step before.
        between_site: Exchange between sites, in the step before.
        checkpoint: The checkpoint after the step before.
    """

    compute: float = 0.0
    data: float = 0.0
    within_site: float = 0.0
    between_site: float = 0.0
    checkpoint: float = 0.0


@dataclass(frozen=True)
class Totals:
    """The head of the tail, one rank's or everyone's.

    Attributes:
        loss_sum: Nats, summed over tokens.
        tokens: Tokens trained on.
        stop_wishes: Ranks that were asked to stop.
        within_bytes: Bytes sent inside sites since the last exchange; NaN if not measured.
        between_bytes: The same between sites.
    """

    loss_sum: float
    tokens: float
    stop_wishes: float
    within_bytes: float
    between_bytes: float


_HEAD = STEP_NUMBERS
_PER_SITE = SITE_NUMBERS
if (len(fields(Totals)), len(fields(RankSeconds))) != (_HEAD, _PER_SITE):
    raise BrokenError("the planner predicts another tail of the bucket than is exchanged")


def tail_length(sites: int) -> int:
    """Return how many numbers the tail has."""
    return _HEAD + sites * _PER_SITE


def write_tail(tail: Tensor, totals: Totals, site: int, seconds: RankSeconds) -> None:
    """Put one rank's numbers into ``tail`` ``[tail_length]``; other sites' places become 0."""
    numbers = torch.zeros(tail.shape)
    numbers[:_HEAD] = torch.tensor([getattr(totals, field.name) for field in fields(Totals)])
    start = _HEAD + site * _PER_SITE
    numbers[start : start + _PER_SITE] = torch.tensor(
        [getattr(seconds, field.name) for field in fields(RankSeconds)]
    )
    tail.copy_(numbers)


def read_tail(tail: Tensor, ranks_per_site: Sequence[int]) -> tuple[Totals, list[RankSeconds]]:
    """Return everyone's totals, and the mean seconds of each site's ranks."""
    numbers = tail.tolist()
    sites = [
        RankSeconds(*(n / ranks for n in numbers[start : start + _PER_SITE]))
        for ranks, start in zip(ranks_per_site, range(_HEAD, len(numbers), _PER_SITE), strict=True)
    ]
    return Totals(*numbers[:_HEAD]), sites


def whole_or_none(count: float) -> int | None:
    """Return a summed count as an integer, ``None`` when some rank did not measure it."""
    return None if math.isnan(count) else round(count)
