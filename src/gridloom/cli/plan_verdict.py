"""Why not this plan: the planner's verdict, as text and for machines."""

from typing import Any

from rich.console import Console

from gridloom.base.errors import InputError, Problem
from gridloom.cli.output import say, table
from gridloom.cli.plan_figures import plan_as_json
from gridloom.cli.plan_search import Answer, Question
from gridloom.cli.plan_table import (
    STEP_NAMES,
    memory_rows,
    shares_table,
)
from gridloom.cli.plan_trust import costs_of
from gridloom.cli.plan_words import (
    gigabytes,
    short_seconds,
)
from gridloom.planner.goodput import with_interruptions
from gridloom.planner.pins import Pins
from gridloom.planner.search import RankedPlan
from gridloom.planner.verdict import Verdict, why_not

_NEGLIGIBLE = 0.001
"""Of the best plan's time: smaller differences are left out."""


def verdict_of(question: Question, found: Answer, pins: Pins) -> Verdict:
    """Return why a plan with the values ``pins`` is not the best, on the best plan's pool.

    Raises:
        InputError: A knob or a value cannot be.
    """
    pool = found.best[0].parts[0].pool
    costs = with_interruptions(costs_of([pool], question.trust), question.training.resilience)
    try:
        return why_not(question.space(pool), pins, costs, question.goal)
    except InputError as error:
        problems = [
            Problem(p.message, p.remedy, field=f"--why-not {p.field}") for p in error.problems
        ]
        raise InputError(problems) from error


def verdict_text(out: Console, verdict: Verdict, *, plain: bool) -> None:
    """Print the verdict, and the figures that it rests on."""
    say(verdict.sentence)
    if verdict.memory:
        out.print()
        head = f"memory on stage {verdict.stage + 1}, the fullest"
        out.print(shares_table(memory_rows(verdict.memory), heads=(head, "size"), plain=plain))
        say(f"too much by {gigabytes(verdict.over_bytes)}")
    if verdict.lines and verdict.best is not None and verdict.outcome in ("loses", "better"):
        least = sum(line.best_s for line in verdict.lines) * _NEGLIGIBLE
        rows = [
            (
                STEP_NAMES.get(line.kind, line.kind),
                short_seconds(line.plan_s),
                short_seconds(line.best_s),
                f"{'+' if line.more_s > 0 else '-'}{short_seconds(abs(line.more_s))}",
            )
            for line in verdict.lines
            if abs(line.more_s) > least
        ]
        out.print()
        heads = ("a training step", "this plan", "the best", "difference")
        out.print(table(heads, rows, right=heads[1:]))
    if verdict.plan is not None:
        say(f"this plan: {_words(verdict.plan)}")
    if verdict.best is not None and verdict.outcome != "best":
        say(f"the best:  {_words(verdict.best)}")


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    """Return what machines are told of the verdict."""
    return {
        "outcome": verdict.outcome,
        "sentence": verdict.sentence,
        "rule": verdict.rule.value if verdict.rule else None,
        "ratio": verdict.ratio,
        "plan": _ranked(verdict.plan),
        "best": _ranked(verdict.best),
        "leanest": {
            "plan": plan_as_json(verdict.leanest.plan),
            "devices": verdict.leanest.devices,
            "memory_bytes": verdict.leanest.memory_bytes,
        }
        if verdict.leanest
        else None,
        "over_bytes": verdict.over_bytes,
        "stage": verdict.stage,
        "memory_lines_bytes": dict(verdict.memory),
        "step_lines_s": {
            line.kind: {"plan": line.plan_s, "best": line.best_s} for line in verdict.lines
        },
        "remedies": [
            {"knob": one.knob, "value": one.value, "plan": _ranked(one.plan)}
            for one in verdict.remedies
        ],
    }


def _ranked(plan: RankedPlan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "plan": plan_as_json(plan.plan),
        "devices": plan.devices,
        "memory_bytes": plan.memory_bytes,
        "time_s": plan.time_s,
        "price": plan.price,
    }


def _words(ranked: RankedPlan) -> str:
    plan = ranked.plan
    values = {
        "tp": plan.tensor,
        "pp": plan.pipeline,
        "cp": plan.context,
        "dp": plan.data,
        "ep": plan.expert,
        "vpp": plan.virtual_stages,
        "zero": plan.zero,
        "mbs": plan.micro_batch,
    }
    words = [f"{name}={value}" for name, value in values.items()]
    return f"{' '.join(words)} recompute={plan.recompute}, {gigabytes(ranked.memory_bytes)}"
