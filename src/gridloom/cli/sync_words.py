"""How sites stay one model, in words: a method, what is predicted of it, tables of them (pure)."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from rich.table import Table

from gridloom.base.units import format_bit_rate, format_bytes
from gridloom.cli.output import table
from gridloom.model.parallel import SiteSync
from gridloom.planner.site_sync import SyncChoice
from gridloom.planner.sync_forecast import SyncForecast, SyncLink, SyncSituation

_WHOLE_BITS = 32


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
        "blocks": f"{how.bits} bits",
        "top_k": f"the largest {how.share:.2g} of the numbers",
        "deep": f"the largest {how.share:.2g} of the numbers, gathered by momentum",
        "low_rank": f"rank {how.rank}",
    }[how.codec]
    return ", ".join(part for part in (when, parts, small) if part)


def forecast_words(found: SyncForecast) -> str:
    """Return what is predicted of a method, in one line."""
    return f"{speed_words(found)} of the speed without a network between, loss {loss_words(found)}"


def speed_words(found: SyncForecast) -> str:
    """Return the share of the speed."""
    share = found.tokens_ratio
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def loss_words(found: SyncForecast) -> str:
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


def choice_table(choice: SyncChoice, taken: SyncForecast) -> Table:
    """Return the best method of each kind and format, fastest first.

    Args:
        choice: Of them.
        taken: The one that is marked; it has a line in any case.
    """
    rivals = [one for one in choice.rivals if one.how != taken.how]
    rows = [
        (
            "*" if one is taken else "",
            method_words(one.how),
            speed_words(one),
            f"{format_bytes(one.bytes_per_token)}",
            loss_words(one),
        )
        for one in sorted([taken, *rivals], key=lambda one: -one.tokens_ratio)
    ]
    heads = ("", "between sites", "speed", "a token", "loss")
    return table(heads, rows, right=heads[2:4])


def links_table(chosen: Sequence[tuple[SyncLink, SyncForecast]]) -> Table:
    """Return which method is for which link."""
    rows = [
        (
            format_bit_rate(link.bytes_per_s * 8),
            f"{link.rtt_s * 1000:g} ms",
            f"{link.loss:.2g}" if link.loss else "",
            method_words(one.how),
            speed_words(one),
            loss_words(one),
        )
        for link, one in chosen
    ]
    heads = ("link", "RTT", "lost", "between sites", "speed", "loss")
    return table(heads, rows, right=heads[:3])


def choice_as_json(
    choice: SyncChoice, taken: SyncForecast, situation: SyncSituation
) -> dict[str, Any]:
    """Return what machines are told of a choice, and of the method that was taken."""
    return {
        "parameters": situation.parameters,
        "step_s": situation.step_s,
        "links": [
            {"bytes_per_s": link.bytes_per_s, "rtt_s": link.rtt_s, "loss": link.loss}
            for link in situation.links
        ],
        "taken": forecast_as_json(taken),
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
        "tokens_ratio": found.tokens_ratio,
        "bytes_per_token": found.bytes_per_token,
        "every": found.every,
        "travel_s": found.travel_s,
        "loss": found.loss.share,
        "loss_spread": found.loss.spread,
        "loss_source": found.loss.source,
        "loss_extrapolated": found.loss.extrapolated,
        "reasons": list(found.reasons),
    }
