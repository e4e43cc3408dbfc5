"""How the sites of a plan are one model: what was chosen, and what else there is."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from gridloom.cli.plan_figures import Candidate
from gridloom.cli.plan_search import Question
from gridloom.cli.stages_words import (
    program_words,
    stages_as_json,
    stages_line,
    stages_words,
    weighed_words,
    winner_lines,
)
from gridloom.cli.sync_tables import choice_lines, choice_table, links_table
from gridloom.cli.sync_words import (
    choice_as_json,
    forecast_as_json,
    forecast_words,
    method_words,
)
from gridloom.planner.site_stages import SiteStages, Weighed, weigh, weighed_by_link
from gridloom.planner.sync_forecast import SyncForecast, SyncLink, SyncSituation, forecast
from gridloom.planner.sync_pools import pools_situation

_LINKS = tuple(SyncLink(bytes_per_s=rate, rtt_s=0.04) for rate in (1.25e6, 12.5e6, 125e6, 1.25e9))
"""10 Mbit/s to 10 Gbit/s, as the table of links shows them."""


@dataclass(frozen=True)
class _Asked:
    """The sites of a plan.

    Attributes:
        situation: Were they to hold copies; nothing where these do not fit.
        stages: Were they to hold stages; nothing where none fit.
        weighed: Both, side by side.
        method: Of copies, as the plan has it; nothing where it has stages.
    """

    situation: SyncSituation | None
    stages: SiteStages | None
    weighed: Weighed
    method: SyncForecast | None


def sync_fact(question: Question, candidate: Candidate) -> list[tuple[str, str]]:
    """Return the lines on how the sites of a plan are one model; nothing at one site."""
    asked = _asked(question, candidate)
    if asked is None:
        return []
    if asked.method is not None:
        words = f"{method_words(asked.method.how)}: {forecast_words(asked.method)}"
        return [("between sites", f"{words} ({asked.method.loss.source})")]
    found = asked.weighed.stages
    assert found is not None  # the plan has them
    rows = [("between sites", f"{stages_words(found)}: {forecast_words(found)}")]
    return [*rows, ("", weighed_words(asked.weighed)), ("", program_words(found))]


def sync_as_json(question: Question, candidate: Candidate) -> dict[str, Any] | None:
    """Return what machines are told of it."""
    asked = _asked(question, candidate)
    if asked is None:
        return None
    weighed, situation = asked.weighed, asked.situation
    told: dict[str, Any] = {"taken": None, "soonest": None, "stages": None}
    if situation is not None and weighed.choice is not None:
        told |= choice_as_json(weighed.choice, situation)
    if weighed.stages is not None:
        told["stages"] = stages_as_json(weighed.stages)
    told["taken"] = forecast_as_json(asked.method) if asked.method else told["stages"]
    told["soonest"] = "stages" if weighed.is_won_by_stages else "copies"
    return told


def show_sync(out: Console, question: Question, candidate: Candidate) -> None:
    """Print copies by each method and stages side by side, and which one is for which link."""
    asked = _asked(question, candidate)
    if asked is None:
        return
    weighed, soft = asked.weighed, not out.is_terminal
    lines = choice_lines(weighed.choice, asked.method) if weighed.choice else []
    if weighed.stages is not None:
        lines.append(stages_line(weighed.stages, is_taken=asked.method is None))
    out.print("\nbetween sites", style="bold")
    out.print(choice_table(lines))
    for reason in asked.method.reasons if asked.method else ():
        out.print(reason, soft_wrap=soft)
    out.print(weighed_words(weighed), soft_wrap=soft)
    if weighed.stages is not None:
        out.print(program_words(weighed.stages), soft_wrap=soft, markup=False)
    out.print("\nwhich way for which link, with this plan", style="bold")
    out.print(links_table(winner_lines(weighed_by_link(asked.situation, asked.stages, _LINKS))))


def _asked(question: Question, candidate: Candidate) -> _Asked | None:
    if len({part.pool.site for part in candidate.parts}) == 1:
        return None
    situation, stages = _situation(question, candidate), candidate.stages
    method = None
    if candidate.way == "replicas" and situation is not None:
        method = forecast(candidate.plan.site_sync, situation)
    return _Asked(situation, stages, weigh(situation, stages), method)


def _situation(question: Question, candidate: Candidate) -> SyncSituation | None:
    copies = candidate.copies
    if copies is None:
        return None
    devices: dict[str, int] = {}
    for part in candidate.parts:
        devices[part.pool.site] = devices.get(part.pool.site, 0) + part.devices
    return pools_situation(
        question.space(candidate.parts[0].pool),
        question.grounds.links,
        devices,
        copies.step_s - copies.between_s,
        question.goal.tokens,
    )
