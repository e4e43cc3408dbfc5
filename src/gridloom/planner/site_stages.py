"""Stages of one pipeline at different sites, beside copies of the model at each (pure).

What a cut comes to on given links: how long a step takes, which number format its activations
travel in, what a stage must hold so that the links are covered, and why it is no faster. The cut
itself is `pools_stages`'s; the law of a step is `stages_time`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from gridloom.model.parallel import SiteSync
from gridloom.planner.site_sync import SyncChoice, choose
from gridloom.planner.stages_time import StageLink, paced_step_s
from gridloom.planner.sync_forecast import (
    CODEC_S_PER_MILLION,
    TRANSPORT_S_PER_BYTE,
    SyncForecast,
    SyncLink,
    SyncSituation,
    codec_name,
    payload_bytes,
)
from gridloom.planner.sync_loss import Loss

_EXACT = Loss(share=0.0, spread=0.0, source="exact")

_ROUNDED: Mapping[int, Loss] = {
    16: Loss(share=0.001, spread=0.001, source="assumed: not measured", extrapolated=True),
    8: Loss(share=0.005, spread=0.005, source="assumed: not measured", extrapolated=True),
}
"""Of activations and their gradients sent with fewer bits than they are computed with. Nothing is
fed back (``runtime.wan.stages_wire``); gradients are exact in the mean."""

_WIRE: Mapping[int, SiteSync] = {
    32: SiteSync(),
    16: SiteSync(bits=16),
    8: SiteSync(codec="blocks", bits=8),
}
"""What numbers travel as, by bits, as ``StageOptions.bits`` of the runtime has it."""


@dataclass(frozen=True, kw_only=True)
class StageHop:
    """From the part of a pipeline at one place to the next.

    Attributes:
        link: The network between them, in each direction.
        is_between_sites: It is a link of the runtime's transport; else the site's own network.
    """

    link: SyncLink
    is_between_sites: bool = True

    def for_micro_batch(self, numbers: float, bits: int, copies: int) -> StageLink:
        """Return it with what a micro-batch of all copies sends; each copy sends by itself."""
        rate = self.link.bytes_per_s
        if self.is_between_sites:
            rate = self.link.rate_bytes_per_s(senders=copies)
        return StageLink(
            sent_bytes=payload_bytes(_WIRE[bits], numbers),
            bandwidth_bytes_per_s=rate,
            rtt_s=self.link.rtt_s,
        )


@dataclass(frozen=True, kw_only=True)
class SiteStages:
    """One model whose pipeline stages are divided over sites, in numbers.

    Attributes:
        sites: Where its parts are, in the order of the pipeline.
        layers: Of each part.
        fill_s: Of one micro-batch through all stages of a part, forward and backward.
        slot_s: Through the slowest of them.
        once_s: Of a training step, paid once.
        micro_batches: Of a training step.
        numbers: That cross from a part to the next with a micro-batch of all copies.
        copies: Of each stage.
        hops: From each part to the next.
        exact_bits: As many as activations are computed with.
        least_depths: Micro-batches that each part holds at least, as 1F1B does without a network.
        depths: That memory lets it hold.
        step_tokens: Of a training step.
        shares_cores: Payloads are made, sent and read by the cores that train.
        is_runnable: The runtime has it: at each site one stage, in whole copies.
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    fill_s: tuple[float, ...]
    slot_s: tuple[float, ...]
    once_s: float = 0.0
    micro_batches: int
    numbers: float
    copies: int = 1
    hops: tuple[StageHop, ...]
    exact_bits: int = 32
    least_depths: tuple[int, ...]
    depths: tuple[float, ...]
    step_tokens: float
    shares_cores: bool = False
    is_runnable: bool = True

    @property
    def without_network_s(self) -> float:
        """Seconds of a training step if all stages were at one site."""
        passes_s = sum(self.fill_s) + (self.micro_batches - 1) * max(self.slot_s)
        return passes_s + self.once_s

    def over(self, link: SyncLink) -> "SiteStages":
        """Return the same with another network between sites."""
        hops = (replace(hop, link=link) if hop.is_between_sites else hop for hop in self.hops)
        return replace(self, hops=tuple(hops))


@dataclass(frozen=True, kw_only=True)
class StagesForecast:
    """What is predicted of stages at different sites.

    Attributes:
        stages: The cut.
        bits: Of a number on the way.
        step_s: Of a training step.
        depths: Micro-batches that each part holds at most.
        tokens_ratio: Tokens a second over those of copies without a network between them; where
            copies do not fit, over those of the same stages without one.
        bytes_per_token: Over all links between sites.
        travel_s: Of one micro-batch over all links, there and back.
        loss: What it costs in loss.
        reason: What costs most of the speed; empty when nothing does.
    """

    stages: SiteStages
    bits: int
    step_s: float
    depths: tuple[int, ...]
    tokens_ratio: float
    bytes_per_token: float
    travel_s: float
    loss: Loss
    reason: str = ""

    @property
    def worth(self) -> float:
        """Speed at equal loss, as ``SyncForecast.worth``."""
        return self.tokens_ratio / self.loss.more_tokens

    @property
    def bounds(self) -> tuple[tuple[str, int], ...]:
        """Sites that can hold fewer micro-batches than would cover the links, and how many."""
        wanted = wanted_depths(self.stages, self.bits)
        parts = zip(self.stages.sites, self.depths, wanted, strict=True)
        return tuple((site, held) for site, held, most in parts if held < most)


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Copies of the model at each site beside stages of one over all of them.

    Attributes:
        choice: The methods by which copies stay one model; nothing where copies do not fit.
        stages: The stages; nothing where none fit.
    """

    choice: SyncChoice | None
    stages: StagesForecast | None

    @property
    def is_won_by_stages(self) -> bool:
        """Whether stages are at an equal loss sooner than the best method of copies."""
        return self.winner is self.stages and self.stages is not None

    @property
    def winner(self) -> SyncForecast | StagesForecast | None:
        """What is at an equal loss soonest; of equals, the copies."""
        if self.choice is None:
            return self.stages
        if self.stages is not None and self.stages.worth > self.choice.best.worth:
            return self.stages
        return self.choice.best


def weigh(situation: SyncSituation | None, stages: SiteStages | None) -> Weighed:
    """Return copies beside stages on the same devices.

    Args:
        situation: Of sites that hold copies; nothing where copies do not fit.
        stages: The best cut; nothing where none fits.
    """
    alone_s = situation.step_s if situation is not None else 0.0
    return Weighed(
        choice=choose(situation) if situation is not None else None,
        stages=stages_forecast(stages, alone_s) if stages is not None else None,
    )


def weighed_by_link(
    situation: SyncSituation | None, stages: SiteStages | None, links: Sequence[SyncLink]
) -> tuple[tuple[SyncLink, Weighed], ...]:
    """Return copies beside stages for each link, all else as it is."""
    return tuple(
        (
            link,
            weigh(
                replace(situation, links=(link,)) if situation is not None else None,
                stages.over(link) if stages is not None else None,
            ),
        )
        for link in links
    )


def stages_forecast(stages: SiteStages, alone_s: float = 0.0) -> StagesForecast:
    """Return what is predicted of stages, in the number format that is at an equal loss soonest.

    Args:
        stages: The cut, and its links.
        alone_s: Of a training step of copies, without a network between them; 0 where they do not
            fit.
    """
    alone_s = alone_s or stages.without_network_s
    found = [_forecast(stages, bits, alone_s) for bits in wire_bits(stages.exact_bits)]
    return max(found, key=lambda one: one.worth)  # of equals the first, with most bits


def exact_bits(precision: str) -> int:
    """Return how many bits activations need on the way to lose nothing; fp16 travels as fp32."""
    return 32 if precision in ("fp32", "fp16") else 16


def wire_bits(exact: int) -> tuple[int, ...]:
    """Return the bits that a number may have on the way, most first."""
    return tuple(bits for bits in _WIRE if bits <= exact)


def wire_loss(bits: int, exact: int) -> Loss:
    """Return what so many bits cost in loss."""
    return _EXACT if bits >= exact else _ROUNDED[bits]


def stages_s(stages: SiteStages, bits: int) -> float:
    """Return the seconds of a training step.

    Each part paces what follows it: it holds no more micro-batches than it may.
    """
    links, slots = _links(stages, bits), _slots_s(stages, bits)
    parts = zip(stages.fill_s, slots, stages.slot_s, strict=True)
    fills = [fill + slot - own for fill, slot, own in parts]
    step_s = before_s = 0.0
    for place, depth in enumerate(stages.depths):
        behind = links[place:]
        round_s = sum(fills[place:]) + sum(float(link.delay_s) for link in behind)
        period_s = max([*slots[place:], *(float(link.transfer_s) for link in behind)])
        took_s = paced_step_s(
            round_s, period_s, micro_batches=stages.micro_batches, depth=max(1.0, depth)
        )
        step_s = max(step_s, before_s + float(took_s))
        if behind:
            before_s += fills[place] + float(behind[0].delay_s)
    return step_s + stages.once_s


def wanted_depths(stages: SiteStages, bits: int) -> tuple[int, ...]:
    """Return how many micro-batches each part must hold so that the links are covered.

    As ``depth_for`` of the runtime's ``stages_schedule``: those without a network, and as many as
    begin while one travels.
    """
    links, slots = _links(stages, bits), _slots_s(stages, bits)
    period_s = max(*slots, *(float(link.transfer_s) for link in links))
    wanted = []
    for place, least in enumerate(stages.least_depths):
        travel_s = sum(float(link.delay_s) for link in links[place:])
        wanted.append(min(stages.micro_batches, least + ceil(travel_s / period_s)))
    return tuple(wanted)


def _forecast(stages: SiteStages, bits: int, alone_s: float) -> StagesForecast:
    links, step_s = _links(stages, bits), stages_s(stages, bits)
    wanted = wanted_depths(stages, bits)
    pairs = list(zip(stages.hops, links, strict=True))
    sent = sum(2.0 * float(link.sent_bytes) for hop, link in pairs if hop.is_between_sites)
    return StagesForecast(
        stages=stages,
        bits=bits,
        step_s=step_s,
        depths=tuple(int(min(most, d)) for most, d in zip(wanted, stages.depths, strict=True)),
        tokens_ratio=alone_s / step_s,
        bytes_per_token=sent * stages.micro_batches / stages.step_tokens,
        travel_s=sum(float(link.delay_s) for hop, link in pairs if hop.is_between_sites),
        loss=wire_loss(bits, stages.exact_bits),
        reason=_reason(stages, bits, alone_s),
    )


def _reason(stages: SiteStages, bits: int, alone_s: float) -> str:
    """Return what costs most of the time of a step beyond that of copies without a network."""
    links, slots = _links(stages, bits), _slots_s(stages, bits)
    turns, slowest_s, own_s = stages.micro_batches, max(slots), max(stages.slot_s)
    place = max(range(len(links)), key=lambda n: float(links[n].transfer_s))
    link, transfer_s = links[place], float(links[place].transfer_s)
    trips_s = sum(float(one.delay_s) for one in links)
    idle_s = sum(stages.fill_s) - own_s
    free_s = stages_s(replace(stages, depths=(inf,) * len(slots)), bits)
    pairs = list(zip(stages.depths, wanted_depths(stages, bits), strict=True))
    held, wanted = next(((d, most) for d, most in pairs if d < most), pairs[0])
    costs = (
        (
            (turns - 1) * (transfer_s - slowest_s),
            f"{float(link.sent_bytes) / 1e6:.3g} MB a micro-batch over"
            f" {float(link.bandwidth_bytes_per_s) * 8 / 1e6:,.4g} Mbit/s take {transfer_s:.3g} s,"
            f" each way, and the slowest stage {slowest_s:.3g} s",
        ),
        (
            stages_s(stages, bits) - free_s,
            f"memory holds {held:.0f} micro-batches, and {wanted} would cover the links",
        ),
        (trips_s, f"each step waits {trips_s:.3g} s for a micro-batch there and back"),
        (
            idle_s,
            f"with {turns} micro-batches, stages stand still for {idle_s:.3g} s a step while they"
            " fill and empty",
        ),
        (
            stages.once_s + turns * own_s - alone_s,
            f"cut so, the slowest part computes for {turns * own_s:.3g} s a step, copies for"
            f" {alone_s:.3g} s",
        ),
    )
    most_s, words = max(costs, key=lambda cost: cost[0])
    return words if most_s > 0 else ""


def _links(stages: SiteStages, bits: int) -> list[StageLink]:
    """Return the hops with what a micro-batch sends; inside a site it travels as it is."""
    exact = stages.exact_bits
    return [
        hop.for_micro_batch(stages.numbers, bits if hop.is_between_sites else exact, stages.copies)
        for hop in stages.hops
    ]


def _slots_s(stages: SiteStages, bits: int) -> list[float]:
    """Return the seconds of a micro-batch at each part's slowest stage, with what it sends."""
    if not stages.shares_cores:
        return list(stages.slot_s)
    how = _WIRE[bits]
    own = stages.numbers / stages.copies
    codec_s = CODEC_S_PER_MILLION[codec_name(how)] * own / 1e6
    one_s = codec_s + 2.0 * payload_bytes(how, own) * TRANSPORT_S_PER_BYTE
    ends = [int(place > 0) + int(place < len(stages.hops)) for place in range(len(stages.slot_s))]
    return [slot + one_s * count for slot, count in zip(stages.slot_s, ends, strict=True)]
