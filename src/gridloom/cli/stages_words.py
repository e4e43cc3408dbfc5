"""Stages of one pipeline at different sites, in words, beside copies at each (pure)."""

from collections.abc import Sequence
from typing import Any

from gridloom.cli.sync_tables import Line, method_line
from gridloom.cli.sync_words import method_words, predicted_as_json, share_words, speed_words
from gridloom.planner.site_stages import StagesForecast, Weighed
from gridloom.planner.sync_forecast import SyncForecast, SyncLink

_WHOLE_BITS = 32


def stages_words(found: StagesForecast) -> str:
    """Return a cut as a person would say it: ``stages, 16 micro-batches, 16 bits``."""
    bits = f", {found.bits} bits" if found.bits != _WHOLE_BITS else ""
    return f"stages, {found.stages.micro_batches} micro-batches{bits}"


def stages_line(found: StagesForecast, *, is_taken: bool = False) -> Line:
    """Return a cut for a table."""
    return Line(stages_words(found), found, is_taken)


def weighed_words(weighed: Weighed) -> str:
    """Return why stages have won or lost, in one line."""
    stages, choice = weighed.stages, weighed.choice
    if stages is None:
        return (
            "stages: none fit these devices, as the runtime has them: one at each site, in as many"
            " whole copies at each"
        )
    why = f": {stages.reason}" if stages.reason else ""
    words = f"stages: {speed_words(stages)} of the speed{why}"
    if choice is None:
        return f"{words}; copies of the model do not fit at each of these sites: the only way"
    rival = f"{share_words(choice.best.worth)} of {method_words(choice.best.how)}"
    outcome = "win" if weighed.is_won_by_stages else "lose"
    return f"{words}; they {outcome}, {share_words(stages.worth)} at an equal loss against {rival}"


def program_words(found: StagesForecast) -> str:
    """Return what trains so: a call in a program of one's own, for the recipe does not yet."""
    stages = found.stages
    if not stages.is_runnable:
        return (
            "stages: not in the runtime yet: `gl.pipeline` holds whole copies of one stage at each"
            " site, and no such cut fits"
        )
    layers = ", ".join(f"{count}" for count in stages.layers)
    options = [f"micro_batches={stages.micro_batches}", f"stage_layers=({layers})"]
    options += [f"bits={found.bits}"] if found.bits != _WHOLE_BITS else []
    bounds = "".join(f", in_flight={count} at {site}" for site, count in found.bounds)
    return (
        f"stages: `gl.pipeline(layers, loss, gl.StageOptions({', '.join(options)}))` in a program"
        f" of your own{bounds}, sites in the order {', '.join(stages.sites)}; not for the recipe"
        " yet"
    )


def winner_line(weighed: Weighed) -> Line | None:
    """Return what is soonest at an equal loss; nothing where nothing fits."""
    match weighed.winner:
        case SyncForecast() as method:
            return method_line(method)
        case StagesForecast() as stages:
            return stages_line(stages)
        case None:
            return None


def winner_lines(chosen: Sequence[tuple[SyncLink, Weighed]]) -> list[tuple[SyncLink, Line]]:
    """Return what is soonest for each link, for a table."""
    lines = ((link, winner_line(weighed)) for link, weighed in chosen)
    return [(link, line) for link, line in lines if line is not None]


def stages_as_json(found: StagesForecast) -> dict[str, Any]:
    """Return what machines are told of stages."""
    stages = found.stages
    return {
        "sites": list(stages.sites),
        "layers": list(stages.layers),
        "micro_batches": stages.micro_batches,
        "in_flight": list(found.depths),
        "in_flight_bounds": dict(found.bounds),
        "bits": found.bits,
        "step_s": found.step_s,
        "travel_s": found.travel_s,
        "reason": found.reason,
        "in_the_runtime": stages.is_runnable,
        "in_the_recipe": False,
        **predicted_as_json(found),
    }
