"""How sites are one model, in words and for machines: a method, what is predicted (pure)."""

from typing import Any, Protocol

from msgspec import to_builtins

from gridloom.model.parallel import SiteSync
from gridloom.planner.site_sync import SyncChoice
from gridloom.planner.sync_forecast import SyncForecast, SyncSituation
from gridloom.planner.sync_loss import Loss

_WHOLE_BITS = 32


class Predicted(Protocol):
    """What is predicted of copies by a method, and of stages: as ``SyncForecast`` has it."""

    @property
    def tokens_ratio(self) -> float:
        """Speed over that without a network."""

    @property
    def bytes_per_token(self) -> float:
        """Over all links."""

    @property
    def loss(self) -> Loss:
        """What it costs in loss."""

    @property
    def worth(self) -> float:
        """Speed at equal loss."""


def method_words(how: SiteSync) -> str:
    """Return a method as a person would say it: ``outer, every 7 steps, 4 bits``."""
    if how.kind == "outer":
        often = f"every {how.every} steps" if how.every else "as often as the link allows"
        when = f"outer, {often}"
    elif how.kind == "accumulated":
        when = f"gradients of {how.every} steps"
    else:
        when = "every step"
    parts = f"in {how.fragments} fragments" if how.fragments > 1 else ""
    small = {
        "plain": "" if how.bits == _WHOLE_BITS else f"{how.bits} bits",
        "blocks": f"{how.bits} bits" if how.bits > 1 else "1 bit",
        "top_k": f"the largest {how.share:.2g} of the numbers",
        "deep": f"the largest {how.share:.2g} of the numbers, gathered by momentum",
        "low_rank": f"rank {how.rank}",
    }[how.codec]
    return ", ".join(part for part in (when, parts, small) if part)


def forecast_words(found: Predicted) -> str:
    """Return what is predicted, in one line."""
    return f"{speed_words(found)} of the speed without a network between, loss {loss_words(found)}"


def speed_words(found: Predicted) -> str:
    """Return the share of the speed."""
    return share_words(found.tokens_ratio)


def share_words(share: float) -> str:
    """Return a share of a speed: ``94%``, ``4.7%``."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def loss_words(found: Predicted) -> str:
    """Return what a method costs in loss: ``+0.8% ± 0.5%``, ``the same``."""
    loss = found.loss
    if not loss.share and not loss.spread:
        return "the same"
    beyond = ", extrapolated" if loss.extrapolated else ""
    return f"{loss.share:+.1%} ± {loss.spread:.1%}{beyond}"


def choice_words(choice: SyncChoice) -> str:
    """Return the chosen method and why, in one line."""
    best = choice.best
    words = f"{method_words(best.how)}: {forecast_words(best)}"
    if choice.beyond is not None:
        words += (
            f"; within {choice.bound:.0%} of the loss nothing is faster than"
            f" {method_words(choice.within.how)}, {speed_words(choice.within)}"
        )
    return words


def choice_as_json(choice: SyncChoice, situation: SyncSituation) -> dict[str, Any]:
    """Return what machines are told of a choice between methods."""
    return {
        "parameters": situation.parameters,
        "step_s": situation.step_s,
        "links": [
            {"bytes_per_s": link.bytes_per_s, "rtt_s": link.rtt_s, "loss": link.loss}
            for link in situation.links
        ],
        "best": forecast_as_json(choice.best),
        "best_within_bound": forecast_as_json(choice.within),
        "loss_bound": choice.bound,
        "methods": [forecast_as_json(one) for one in choice.rivals],
    }


def forecast_as_json(found: SyncForecast) -> dict[str, Any]:
    """Return what machines are told of a method."""
    how = {name: getattr(found.how, name) for name in found.how.__struct_fields__}
    return {
        "method": to_builtins(how),
        "every": found.every,
        "travel_s": found.travel_s,
        "reasons": list(found.reasons),
        **predicted_as_json(found),
    }


def predicted_as_json(found: Predicted) -> dict[str, Any]:
    """Return what machines are told of any way."""
    return {
        "tokens_ratio": found.tokens_ratio,
        "ratio_at_equal_loss": found.worth,
        "bytes_per_token": found.bytes_per_token,
        "loss": found.loss.share,
        "loss_spread": found.loss.spread,
        "loss_source": found.loss.source,
        "loss_extrapolated": found.loss.extrapolated,
    }
