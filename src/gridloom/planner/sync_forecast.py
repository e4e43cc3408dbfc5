"""How fast a sync method between sites is on given links (pure).

Times are those of the runtime as it stands: gradients are waited for, whole, before an update;
outer steps travel behind training, and where a fragment's journey is longer than its slot, the
interval is stretched. Losses come from ``sync_loss``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gridloom.model.parallel import OUTER_WORK_SHARE, WAN_STREAMS, SiteSync
from gridloom.planner.sync_loss import Loss, LossRow, predicted_loss
from gridloom.planner.sync_measured import LOSS_ROWS

CODEC_S_PER_MILLION: Mapping[str, float] = {
    "plain 32": 0.004, "plain 16": 0.005,
    "blocks 8": 0.0115, "blocks 4": 0.0115, "blocks 1": 0.01,
    "top_k": 0.025, "deep": 0.025, "low_rank": 0.030,
}  # fmt: skip
"""Seconds of a CPU core that a round takes for a million numbers, all in all; measured roughly, on
one machine."""

TRANSPORT_S_PER_BYTE = 6.7e-9
"""Seconds of a CPU core for a byte sent or received; measured as above. One process of a site does
all of it (of a pipeline's stage each copy its own), which bounds the rate, too."""

SEGMENT_BYTES = 1448
"""Of a TCP segment on Ethernet, with time stamps."""


@dataclass(frozen=True, kw_only=True)
class SyncLink:
    """The network between two sites.

    Attributes:
        bytes_per_s: In one direction.
        rtt_s: There and back.
        loss: Share of the packets that are lost.
    """

    bytes_per_s: float
    rtt_s: float = 0.0
    loss: float = 0.0

    def rate_bytes_per_s(self, streams: int = WAN_STREAMS, senders: int = 1) -> float:
        """Return what so many processes of a site get through, with so many TCP streams each.

        A stream with losses reaches ``sqrt(3/2) segment / (rtt sqrt(loss))`` (Mathis et al., 1997,
        *The macroscopic behavior of the TCP congestion avoidance algorithm*); CUBIC does better
        where losses are rare and the pipe is long, so that this is the lower end.
        """
        rate = min(self.bytes_per_s, senders / TRANSPORT_S_PER_BYTE)
        waits_s = self.rtt_s * math.sqrt(self.loss)
        together = senders * streams * math.sqrt(1.5) * SEGMENT_BYTES
        return together / waits_s if rate * waits_s > together else rate


@dataclass(frozen=True, kw_only=True)
class SyncSituation:
    """What the sites of a job have to exchange, and by what links.

    Attributes:
        parameters: Of the model.
        width: Of its matrices, as ``low_rank`` finds them; the residual stream.
        tokens: That it is trained on in all.
        step_s: Of a training step, as if the sites were one.
        step_tokens: Of a training step, over all sites.
        sites: How many.
        links: Between them.
        ranks: Of a site; each makes payloads of its own part.
        is_sharded: Ranks have parts of matrices, which ``low_rank`` cannot take.
        shares_cores: Payloads are made, sent and read by the cores that train.
        codec_s_per_million: As ``CODEC_S_PER_MILLION``.
    """

    parameters: int
    width: int = 1024
    tokens: float
    step_s: float
    step_tokens: float
    sites: int = 2
    links: tuple[SyncLink, ...]
    ranks: int = 1
    is_sharded: bool = False
    shares_cores: bool = True
    codec_s_per_million: Mapping[str, float] = field(default_factory=lambda: CODEC_S_PER_MILLION)


@dataclass(frozen=True, kw_only=True)
class SyncForecast:
    """What is predicted of a method.

    Attributes:
        how: The method.
        tokens_ratio: Tokens a second over those without a network between the sites, up to 1.
        bytes_per_token: Over all links, of all sites' payloads, a token of all sites.
        every: Training steps from one exchange of a parameter to the next, as it comes about.
        travel_s: Of one exchange, there and back.
        loss: What it costs in loss.
        reasons: Why it is as fast as it is, a sentence each.
    """

    how: SiteSync
    tokens_ratio: float
    bytes_per_token: float
    every: int
    travel_s: float
    loss: Loss
    reasons: tuple[str, ...] = ()

    @property
    def worth(self) -> float:
        """Speed at equal loss: what it lacks is made up for by more tokens."""
        return self.tokens_ratio / self.loss.more_tokens


def forecast(
    how: SiteSync, situation: SyncSituation, rows: Sequence[LossRow] = LOSS_ROWS
) -> SyncForecast:
    """Return what is predicted of a method in a situation of two sites or more."""
    if how.kind == "outer":
        return _outer(how, situation, rows)
    payload = payload_bytes(how, situation.parameters, situation.width)
    travel_s = _travel_s(payload, situation)
    waits_s = travel_s + _codec_s(how, situation.parameters, situation)
    every = max(1, how.every)
    ratio = situation.step_s / (situation.step_s + waits_s / every)
    loss = predicted_loss(how, every, situation.parameters, situation.tokens, rows)
    often = "every step waits" if every == 1 else f"every {every}th step waits"
    return SyncForecast(
        how=how,
        tokens_ratio=ratio,
        bytes_per_token=_sent_bytes(payload, situation) / (every * situation.step_tokens),
        every=every,
        travel_s=travel_s,
        loss=loss,
        reasons=(f"{often} {waits_s:.3g} s beside {every * situation.step_s:.3g} s of training",),
    )


def payload_bytes(how: SiteSync, numbers: float, width: int = 1024) -> float:
    """Return the bytes of a payload of so many numbers.

    ``blocks`` has a byte of scale for 64 numbers, and of signs two for 256; ``top_k`` and
    ``deep`` have the bits of a value and about 2.5 bits beyond ``log2(1 / share)`` for its place
    (``runtime.compress``); ``low_rank`` has two factors of fp32 for each matrix of ``width`` by
    ``width``.
    """
    match how.codec:
        case "plain":
            return numbers * how.bits / 8
        case "blocks":
            return numbers * (how.bits + 8 / 64) / 8
        case "top_k" | "deep":
            return numbers * how.share * (how.bits + 2.5 + math.log2(1 / how.share)) / 8
        case "low_rank":
            return min(numbers, 2 * how.rank * numbers / width) * 4


def _outer(how: SiteSync, situation: SyncSituation, rows: Sequence[LossRow]) -> SyncForecast:
    step_s, fragments = situation.step_s, how.fragments
    numbers = situation.parameters / fragments
    payload = payload_bytes(how, numbers)
    travel_s = _travel_s(payload, situation)
    moved = (
        2 * payload * (situation.sites - 1)
    )  # the leader's: all others send to it and hear of it
    sent_s = moved * TRANSPORT_S_PER_BYTE if situation.shares_cores else 0.0
    busy_s = _codec_s(how, numbers, situation) + sent_s
    slot = max(1, round(how.every / fragments))
    if how.every == 0:  # as often as the processor allows
        slot = max(1, math.ceil(busy_s / (OUTER_WORK_SHARE * step_s)))
    # What rounds cost is counted as if the link let them be as frequent as wanted: an upper end.
    ratio = slot * step_s / (slot * step_s + busy_s)
    steps = max(slot, math.ceil((travel_s + busy_s) / step_s))
    every = steps * fragments
    what = "all parameters" if fragments == 1 else f"a fragment of {fragments}"
    behind = f"{what}: {payload / 1e6:.3g} MB, {travel_s:.3g} s behind {slot * step_s:.3g} s"
    reasons = [f"{behind} of training"]
    if steps > slot:
        reasons.append(f"the link stretches the interval to {every} training steps")
    if busy_s:
        reasons.append(f"making, sending and reading it takes {busy_s:.3g} s of a core")
    return SyncForecast(
        how=how,
        tokens_ratio=ratio,
        bytes_per_token=_sent_bytes(payload, situation) / (steps * situation.step_tokens),
        every=every,
        travel_s=travel_s,
        loss=predicted_loss(how, every, situation.parameters, situation.tokens, rows),
        reasons=tuple(reasons),
    )


def _travel_s(payload: float, situation: SyncSituation) -> float:
    """Return the seconds from the offers to the result at all sites, by the slowest link.

    Offers go to the leader, its answer comes back: with two sites its own offer, with more one
    payload for the average. Which site leads is not known before: any link may be in use.
    """
    wire_s = max(2 * payload / link.rate_bytes_per_s() for link in situation.links)
    return wire_s + max(link.rtt_s for link in situation.links)


def _sent_bytes(payload: float, situation: SyncSituation) -> float:
    """Return the bytes of one exchange over all links: to the leader and back."""
    return 2 * (situation.sites - 1) * payload


def _codec_s(how: SiteSync, numbers: float, situation: SyncSituation) -> float:
    """Return the seconds of training that making and reading payloads takes."""
    if not situation.shares_cores:
        return 0.0
    return situation.codec_s_per_million[codec_name(how)] * numbers / 1e6 / situation.ranks


def codec_name(how: SiteSync) -> str:
    """Return under which name ``CODEC_S_PER_MILLION`` has a codec."""
    return f"{how.codec} {how.bits}" if how.codec in ("plain", "blocks") else how.codec
