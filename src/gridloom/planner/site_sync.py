"""Which sync method between sites to take: the least loss at nearly full speed (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from gridloom.model.parallel import OUTER_FRAGMENTS, SiteSync
from gridloom.planner.sync_forecast import SyncForecast, SyncSituation, forecast
from gridloom.planner.sync_loss import PUBLISHED_OUTER, LossRow, is_published
from gridloom.planner.sync_measured import LOSS_ROWS

LOSS_BOUND = 0.01
"""Loss over that of every step averaged whole, minus 1, that a chosen method may cost."""

SPEED_ENOUGH = 0.95
"""Of the tokens a second without a network: what is as fast leaves no wish but the least loss."""

MEASURED_RULE = (1.0, 0.0)
"""Learning rate and momentum of the outer optimiser in our own measurements of loss."""
PUBLISHED_RULE = (0.7, 0.9)
"""Those of the published ones."""

_MUCH = 2.0
"""So many times sooner a method is at an equal loss before the bound gives way."""

_INTERVALS = (
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    16,
    20,
    24,
    30,
    32,
    40,
    50,
    64,
    80,
    100,
    150,
    200,
    300,
    500,
)
_FRAGMENTS = (OUTER_FRAGMENTS, 2 * OUTER_FRAGMENTS)


@dataclass(frozen=True, kw_only=True)
class SyncChoice:
    """A choice between methods.

    Attributes:
        within: The one with the least loss of those that are fast enough, within the bound; where
            none is, the one that is at an equal loss soonest.
        beyond: One outside of it that is at an equal loss more than twice as soon; mostly nothing.
        rivals: The best of each kind and format, and outer steps as frequent as can be.
        bound: Loss that a method may cost.
    """

    within: SyncForecast
    beyond: SyncForecast | None
    rivals: tuple[SyncForecast, ...]
    bound: float

    @property
    def best(self) -> SyncForecast:
        """The one to take."""
        return self.beyond or self.within


def choose(
    situation: SyncSituation, bound: float = LOSS_BOUND, rows: Sequence[LossRow] = LOSS_ROWS
) -> SyncChoice:
    """Return the best method of those whose loss is within a bound.

    That is the one with the least loss of those that train at nearly the speed that there is
    without a network (``SPEED_ENOUGH``); where there is none, the one that is at an equal loss
    soonest. Of methods as good, to a thousandth, the one that is sooner, that sends fewer bytes,
    that costs less in loss; then the earlier one of ``candidates``. Every step averaged whole costs
    none: there is always one to choose. Where a link is so slow that a method beyond the bound is
    at an equal loss in less than half of the time, that one is named, too. An interval of 0 is
    among the rivals and never chosen: it follows the processor as it turns out to be, so that
    nobody can say beforehand what it costs in loss.
    """
    found = [forecast(how, situation, rows) for how in candidates(situation)]

    def order(one: SyncForecast) -> tuple[float, ...]:
        is_fast = one.tokens_ratio >= SPEED_ENOUGH
        spent = round(one.loss.share, 3) if is_fast else 0.0
        return (not is_fast, spent, -round(one.worth, 3), one.bytes_per_token, one.loss.share)

    families: dict[tuple[object, ...], list[SyncForecast]] = {}
    for one in found:
        alike = one.how.kind == "outer"
        family = (one.how.kind, 0 if alike else one.how.bits, "" if alike else one.how.codec)
        families.setdefault(family, []).append(one)

    def named(one: SyncForecast) -> SyncForecast:  # what is chosen is called by what comes about
        if one.every <= one.how.every:
            return one
        return forecast(structs.replace(one.how, every=one.every), situation, rows)

    within = named(min((one for one in found if one.loss.share <= bound), key=order))
    soonest = named(max(found, key=lambda one: one.worth))
    rivals = []
    for some in families.values():
        allowed = [one for one in some if one.loss.share <= bound]
        best = min(allowed, key=order) if allowed else max(some, key=lambda one: one.worth)
        rivals.append(named(best))
    rivals.append(forecast(adaptive(situation), situation, rows))
    return SyncChoice(
        within=within,
        beyond=soonest if soonest.worth > _MUCH * within.worth else None,
        rivals=tuple(rivals),
        bound=bound,
    )


def candidates(situation: SyncSituation) -> Iterator[SiteSync]:
    """Yield the methods worth a forecast."""
    yield SiteSync()
    yield SiteSync(bits=16)
    for bits in (8, 4):
        yield SiteSync(codec="blocks", bits=bits)
    yield SiteSync(codec="top_k")
    if not situation.is_sharded:
        yield SiteSync(codec="low_rank")
    for every in (2, 4, 8, 16):
        yield SiteSync(kind="accumulated", every=every)
    outer = adaptive(situation)
    # of large models is known what others have published: 4 bits or more, not too often
    large = is_published(situation.parameters, situation.tokens)
    widths, least = ((PUBLISHED_OUTER.bits,), PUBLISHED_OUTER.least) if large else ((4, 1), 1)
    for every in (interval for interval in _INTERVALS if interval >= least):
        for fragments in _FRAGMENTS:
            if every % fragments == 0:
                for bits in widths:
                    yield structs.replace(outer, every=every, fragments=fragments, bits=bits)


def adaptive(situation: SyncSituation) -> SiteSync:
    """Return outer steps as frequent as link and processor allow."""
    rate, momentum = rule_for(situation)
    return SiteSync(
        kind="outer",
        every=0,
        codec="blocks",
        bits=4,
        fragments=OUTER_FRAGMENTS,
        outer_learning_rate=rate,
        outer_momentum=momentum,
    )


def rule_for(situation: SyncSituation) -> tuple[float, float]:
    """Return learning rate and momentum of the outer optimiser: those whose loss is known here."""
    large = is_published(situation.parameters, situation.tokens)
    return PUBLISHED_RULE if large else MEASURED_RULE
