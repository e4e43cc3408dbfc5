"""How the sites of a plan stay one model: what was chosen, and what else there is."""

from typing import Any

from rich.console import Console

from gridloom.cli.plan_figures import Candidate
from gridloom.cli.plan_search import Question
from gridloom.cli.sync_words import (
    choice_as_json,
    choice_table,
    forecast_words,
    links_table,
    method_words,
)
from gridloom.planner.site_sync import by_link, choose
from gridloom.planner.sync_forecast import SyncForecast, SyncLink, SyncSituation, forecast
from gridloom.planner.sync_pools import pools_situation

_LINKS = tuple(SyncLink(bytes_per_s=rate, rtt_s=0.04) for rate in (1.25e6, 12.5e6, 125e6, 1.25e9))
"""10 Mbit/s to 10 Gbit/s, as the table of links shows them."""


def sync_fact(question: Question, candidate: Candidate) -> list[tuple[str, str]]:
    """Return the line on the method of a plan; nothing where its pools are at one site."""
    situation = _situation(question, candidate)
    if situation is None:
        return []
    found = _found(candidate, situation)
    words = f"{method_words(found.how)}: {forecast_words(found)}"
    return [("between sites", f"{words} ({found.loss.source})")]


def sync_as_json(question: Question, candidate: Candidate) -> dict[str, Any] | None:
    """Return what machines are told of it."""
    situation = _situation(question, candidate)
    if situation is None:
        return None
    return choice_as_json(choose(situation), _found(candidate, situation), situation)


def show_sync(out: Console, question: Question, candidate: Candidate) -> None:
    """Print the methods side by side, and which one is for which link."""
    situation = _situation(question, candidate)
    if situation is None:
        return
    choice = choose(situation)
    out.print("\nbetween sites", style="bold")
    out.print(choice_table(choice, taken=_found(candidate, situation)))
    for reason in _found(candidate, situation).reasons:
        out.print(reason, soft_wrap=not out.is_terminal)
    out.print("\nwhich method for which link, with this plan", style="bold")
    out.print(links_table(by_link(situation, _LINKS)))


def _found(candidate: Candidate, situation: SyncSituation) -> SyncForecast:
    return forecast(candidate.plan.site_sync, situation)


def _situation(question: Question, candidate: Candidate) -> SyncSituation | None:
    devices: dict[str, int] = {}
    for part in candidate.parts:
        devices[part.pool.site] = devices.get(part.pool.site, 0) + part.devices
    if candidate.way != "replicas" or len(devices) == 1:
        return None
    return pools_situation(
        question.space(candidate.parts[0].pool),
        question.grounds.links,
        devices,
        candidate.step_s - candidate.between_s,
        question.goal.tokens,
    )
