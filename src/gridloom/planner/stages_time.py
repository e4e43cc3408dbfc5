"""Seconds of a training step of one pipeline whose stages stand at different sites.

Inside a site a hop costs next to nothing and 1F1B holds as many micro-batches as there are stages.
Between sites a micro-batch is longer on its way than a stage computes; more of them are held, so
that the stages compute meanwhile, and what remains is the time of one round trip a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gridloom.planner.cases import Column


@dataclass(frozen=True, kw_only=True)
class StageLink:
    """A link between two stages, for one micro-batch.

    Attributes:
        sent_bytes: Of its activations, as they are sent; gradients are as many.
        bandwidth_bytes_per_s: In each direction.
        rtt_s: Round trip.
    """

    sent_bytes: Column
    bandwidth_bytes_per_s: Column
    rtt_s: Column

    @property
    def transfer_s(self) -> Column:
        """Of a micro-batch, one way."""
        return self.sent_bytes / self.bandwidth_bytes_per_s

    @property
    def delay_s(self) -> Column:
        """There and back."""
        return self.rtt_s + 2.0 * self.transfer_s


def stages_depth(stage_s: Sequence[Column], links: Sequence[StageLink]) -> Column:
    """Return how many micro-batches the first stage must hold so that the links are covered.

    That is as many as begin, one a period, before the first comes back.

    Args:
        stage_s: Forward and backward of a micro-batch, by stage.
        links: From each stage to the next.
    """
    return np.ceil(_round_s(stage_s, links) / _period_s(stage_s, links))


def stages_step_s(
    stage_s: Sequence[Column],
    links: Sequence[StageLink],
    *,
    micro_batches: Column,
    depth: Column = np.inf,
) -> Column:
    """Return the seconds from the first forward of a step to the last backward.

    The first micro-batch takes a round through all stages and links; each one more takes a
    period, that of the slowest stage or link, as in a pipeline without latency (Narayanan et al.,
    2021, section 2.2). If the first stage holds too few of them, it stands still once in
    ``depth`` until the first of these is back.

    Args:
        stage_s: Forward and backward of a micro-batch, by stage; compressing included.
        links: From each stage to the next.
        micro_batches: Of a step.
        depth: Micro-batches that the first stage holds at most; as many as it likes by default.
    """
    round_s, period_s = _round_s(stage_s, links), _period_s(stage_s, links)
    return paced_step_s(round_s, period_s, micro_batches=micro_batches, depth=depth)


def paced_step_s(
    round_s: Column, period_s: Column, *, micro_batches: Column, depth: Column = np.inf
) -> Column:
    """Return the same from what of all stages counts.

    Args:
        round_s: Of one micro-batch from its first forward to its last backward.
        period_s: From one micro-batch to the next, where nobody waits for too few.
        micro_batches: Of a step.
        depth: Micro-batches that the first stage holds at most.
    """
    held = np.minimum(depth, micro_batches)
    windows = np.floor((micro_batches - 1) / held)
    left = micro_batches - 1 - windows * held
    return round_s + windows * np.maximum(round_s, held * period_s) + left * period_s


def _round_s(stage_s: Sequence[Column], links: Sequence[StageLink]) -> Column:
    """Return the seconds of one micro-batch from its first forward to its last backward."""
    total: Column = sum(stage_s) + sum(link.delay_s for link in links)
    return total


def _period_s(stage_s: Sequence[Column], links: Sequence[StageLink]) -> Column:
    """Return the seconds from one micro-batch to the next, where nobody waits for too few."""
    period: Column = np.float64(0.0)
    for one in (*stage_s, *(link.transfer_s for link in links)):
        period = np.maximum(period, one)
    return period
