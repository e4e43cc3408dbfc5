"""What a sync method between sites costs in loss: from measured rows, else from literature.

The two are never mixed: a prediction says which of them it is, and how far it reaches beyond.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from gridloom.model.parallel import Codec, SiteSync, SyncKind

ONE_SEED_SPREAD = 0.005
"""Taken for the spread of a loss that was measured with one seed only: an assumption."""

_FAR = 10.0
"""A run so many times larger than the measured one is beyond the measurement."""


@dataclass(frozen=True, kw_only=True)
class LossRow:
    """A measured loss.

    Attributes:
        kind: Of the method.
        every: Its interval, training steps.
        fragments: Its fragments; 0 when not recorded.
        codec: Its codec.
        bits: Its bits; 0 when not recorded.
        parameters: Of the model.
        tokens: That it was trained on.
        loss: Loss over that of every step averaged whole, minus 1.
        seeds: Runs that this is the mean of.
        spread: Standard deviation over the seeds; 0 when unknown.
        source: Who measured it.
        command: How.
    """

    kind: SyncKind
    every: int
    fragments: int = 0
    codec: Codec = "plain"
    bits: int = 0
    parameters: int
    tokens: int
    loss: float
    seeds: int = 1
    spread: float = 0.0
    source: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A predicted loss.

    Attributes:
        share: Over that of every step averaged whole, minus 1.
        spread: How far off it may be, either way.
        source: What it rests on.
        extrapolated: It lies beyond what was measured.
    """

    share: float
    spread: float
    source: str
    extrapolated: bool = False

    @property
    def more_tokens(self) -> float:
        """How many times the tokens it takes to make up for it."""
        return math.pow(1 + self.share, 1 / TOKENS_EXPONENT)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What others have published of outer steps at a scale that was not measured here.

    Attributes:
        parameters: From this size on.
        tokens: And this length of training.
        least: From this interval on, below which nothing is known with this rule,
        every: up to this one
        loss: the loss stayed within this; taken to grow with the logarithm of the interval.
        bits: Of a number that was sent, at least.
        source: Where.
    """

    parameters: int
    tokens: int
    least: int
    every: int
    loss: float
    bits: int
    source: str


PUBLISHED_OUTER = Prior(
    parameters=35_000_000,
    tokens=1_000_000_000,
    least=30,
    every=100,
    loss=0.01,
    bits=4,
    source="published: DiLoCo (Douillard et al., 2023), Streaming DiLoCo (2025)",
)
"""Within 1 % of data parallelism at intervals of 30 to 100 steps, from 35 million parameters and
billions of tokens, with Nesterov's momentum 0.9 and learning rate 0.7."""

TOKENS_EXPONENT = 0.095
"""Loss falls with this power of the tokens (Kaplan et al., 2020, section 1.2). What a loss is worth
in tokens follows; and the bound for an accumulated gradient, were each update worth no more than
one on the tokens of a step."""

_ASSUMED: dict[tuple[Codec, int], tuple[float, str]] = {
    ("plain", 16): (0.001, "assumed: rounding, fed back"),
    ("blocks", 8): (0.002, "assumed: rounding, fed back"),
    ("blocks", 4): (0.005, "assumed: coarse rounding, fed back"),
    ("blocks", 1): (0.05, "assumed: signs, fed back"),
    ("top_k", 32): (
        0.02,
        "assumed: not measured; Lin et al. (2018) report none with warm-up and momentum correction",
    ),
    ("deep", 32): (0.005, "assumed: not measured; Lin et al. (2018) report none"),
    ("low_rank", 32): (0.02, "assumed: not measured; Vogels et al. (2019) report none at rank 4"),
}
"""Losses of gradients sent small at every step, where nothing was measured: cautious, and as far
off as they are large."""


def predicted_loss(
    how: SiteSync, every: float, parameters: int, tokens: float, rows: Sequence[LossRow]
) -> Loss:
    """Return what a method costs in loss.

    Args:
        how: The method.
        every: Its interval as it comes about, training steps.
        parameters: Of the model.
        tokens: That it is trained on.
        rows: What was measured.
    """
    if how.kind == "every_step" and how.codec == "plain" and how.bits == 32:
        return Loss(share=0.0, spread=0.0, source="exact")
    large = is_published(parameters, tokens) and how.bits >= PUBLISHED_OUTER.bits
    if how.kind == "outer" and large and how.outer_momentum > 0:
        return _published(every)
    curve = _nearest(_of_kind(how, rows), parameters, tokens)
    if curve is not None:
        return curve.at(every)
    if how.kind == "outer":
        return Loss(share=1.0, spread=1.0, source="nothing was measured", extrapolated=True)
    share, source = _ASSUMED.get((how.codec, how.bits), (0.0, "exact"))
    if how.kind == "accumulated":
        share += every**TOKENS_EXPONENT - 1
        source = "bound: an update counts as one on the tokens of a step (Kaplan et al., 2020)"
    return Loss(share=share, spread=share, source=source, extrapolated=True)


def is_published(parameters: int, tokens: float) -> bool:
    """Return whether a training is as large as those that others published."""
    return parameters >= PUBLISHED_OUTER.parameters and tokens >= PUBLISHED_OUTER.tokens


@dataclass(frozen=True)
class _Curve:
    """Loss by interval at one scale; grows nowhere less than measured.

    Attributes:
        points: Interval, loss, spread; intervals rise from 1, losses never fall.
        source: What it rests on.
        is_beyond: The run that it is asked for is far from the measured scale.
    """

    points: tuple[tuple[float, float, float], ...]
    source: str
    is_beyond: bool

    def at(self, every: float) -> Loss:
        """Return the loss at an interval: linear in its logarithm, beyond the last as steep."""
        intervals = [interval for interval, _, _ in self.points]
        place = min(max(bisect_left(intervals, every), 1), len(self.points) - 1)
        (low, below, one), (high, above, other) = self.points[place - 1 : place + 1]
        steep = (above - below) / math.log(high / low)
        outside = every > intervals[-1]
        if outside:  # no flatter than on the whole way there
            low, below = high, above
            steep = max(steep, above / math.log(high / intervals[0]))
        return Loss(
            share=below + steep * math.log(max(every, 1.0) / low),
            spread=max(one, other),
            source=self.source,
            extrapolated=outside or self.is_beyond,
        )


def _published(every: float) -> Loss:
    prior = PUBLISHED_OUTER
    return Loss(
        share=prior.loss * math.log(max(every, prior.least)) / math.log(prior.every),
        spread=prior.loss,
        source=prior.source,
        extrapolated=not prior.least <= every <= prior.every,
    )


def _of_kind(how: SiteSync, rows: Sequence[LossRow]) -> list[LossRow]:
    """Return the rows of the method's kind that tell of it.

    Of outer steps those with as many bits, or with the next fewer, for more of them do no harm; and
    with at most twice the fragments, for few of them do. Of these those with as many, where there
    are enough.
    """
    kind = [row for row in rows if row.kind == how.kind]
    if how.kind != "outer":
        return [row for row in kind if (row.codec, row.bits) == (how.codec, how.bits)]
    dense = {how.codec, "blocks"} if how.codec == "plain" else {how.codec}
    kind = [
        row
        for row in kind
        if row.codec in dense and row.bits <= how.bits and row.fragments <= 2 * how.fragments
    ]
    own = [row for row in kind if row.bits == max(one.bits for one in kind)]
    parts = [row for row in own if row.fragments == how.fragments]
    return parts if len(parts) > 1 else own


def _nearest(rows: Sequence[LossRow], parameters: int, tokens: float) -> _Curve | None:
    """Return the curve of the largest measured scale that is no larger, else of the smallest."""
    scales = sorted({(row.tokens, row.parameters) for row in rows})
    if not scales:
        return None
    within = [at for at in scales if at[0] <= tokens and at[1] <= parameters]
    scale = within[-1] if within else scales[0]
    here = [row for row in rows if (row.tokens, row.parameters) == scale]
    points = [(1.0, 0.0, 0.0)]
    for every in sorted({row.every for row in here} - {1}):
        alike = [row for row in here if row.every == every]
        mean = sum(row.loss for row in alike) / len(alike)
        spread = max(row.spread or ONE_SEED_SPREAD for row in alike)
        points.append((float(every), max(mean, points[-1][1]), spread))
    if len(points) == 1:  # measured at every step only
        row = here[0]
        points = [(1.0, row.loss, row.spread or ONE_SEED_SPREAD)]
        points.append((2.0, *points[0][1:]))
    measured = f"{here[0].source}, at {_short(scale[1])} parameters and {_short(scale[0])} tokens"
    far = parameters > _FAR * scale[1] or tokens > _FAR * scale[0]
    return _Curve(tuple(points), measured, far or not within)


def _short(count: float) -> str:
    return f"{count / 1e9:g}B" if count >= 1e9 else f"{count / 1e6:g}M"
