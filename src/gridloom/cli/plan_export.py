"""``gridloom plan export``: a plan as the settings of a framework that trains."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from gridloom.base.codec import pretty
from gridloom.base.errors import InputError, Problem
from gridloom.cli.output import emit, say
from gridloom.cli.plan_figures import cases_in, plan_as_json
from gridloom.cli.plan_flags import Aims, Asked, Terms
from gridloom.cli.plan_inputs import Faults, read_pins, write_text
from gridloom.cli.plan_search import Question, answer, read_question
from gridloom.cli.plan_stated import stated_plan
from gridloom.cli.plan_trust import costs_of
from gridloom.model.parallel import ParallelPlan
from gridloom.model.transformer import Transformer
from gridloom.planner.frameworks import accelerate, deepspeed, megatron, torchtitan
from gridloom.planner.frameworks import common as frameworks
from gridloom.planner.goodput import with_interruptions
from gridloom.planner.pins import full_names
from gridloom.planner.search import RankedPlan, search

Framework = Literal["megatron", "deepspeed", "torchtitan", "torchtitan-args", "accelerate"]

_TRIED = 2000
"""Best plans that are offered to the framework, one after the other."""

_SIDE = ("sequence_parallel", "overlap_gradients", "overlap_parameters", "gradient_bytes")
"""Knobs that may give way to what a framework can, unless somebody states them."""

_NARROWER: Mapping[str, dict[str, tuple[Any, ...]]] = {
    "megatron": {"schedule": ("1f1b", "interleaved"), "sequence_parallel": (True,)},
    "deepspeed": {
        "schedule": ("1f1b",),
        "sequence_parallel": (False,),
        "recompute": ("none", "full"),
    },
    "torchtitan": {"zero": (0, 2, 3), "sequence_parallel": (True,)},
    "torchtitan-args": {"zero": (0, 2, 3), "sequence_parallel": (True,)},
    "accelerate": {
        "pipeline": (1,),
        "expert": (1,),
        "zero": (0, 2, 3),
        "sequence_parallel": (False,),
        "recompute": ("none", "full"),
    },
}
"""What each framework can do at all: the search is done again within this when nothing is taken."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A plan in the words of a framework.

    Attributes:
        text: As a file.
        plan: Which plan.
        place: Its place among the best plans; 0 when it was stated, or is beyond those tried.
        best: It is the best plan of all.
        slower: Its time over that of the best plan of all, less 1.
        refused: What the framework cannot do of the best plan; empty when nothing was in its way.
        changed: Switches in which the plan gave way to the framework.
    """

    text: str
    plan: ParallelPlan
    place: int = 0
    best: bool = True
    slower: float = 0.0
    refused: str = ""
    changed: tuple[str, ...] = ()


def show_export(
    asked: Asked,
    aims: Aims,
    terms: Terms,
    *,
    to: Framework,
    plan: str,
    out: Path | None,
    as_json: bool,
) -> int:
    """Answer ``gridloom plan export``."""
    made = _stated(asked, aims, terms, to, plan) if plan else _best(asked, aims, terms, to)
    if out is not None:
        write_text(out, made.text)
    if as_json:
        emit(
            {
                "framework": to,
                "plan": plan_as_json(made.plan),
                "place": made.place or None,
                "slower": made.slower,
                "file": str(out) if out else None,
                "text": made.text,
            }
        )
        return 0
    if out is None:
        print(made.text, end="")
    if not made.best:
        say(_compromise(made, to), stderr=True)
    return 0


def _compromise(made: Export, to: Framework) -> str:
    """Return what a framework could not do of the best plan, in a sentence."""
    slower = f"{made.slower:.1%} slower" if made.slower >= 0.0005 else "as fast"
    if made.place == 1:
        return f"{to} runs the best plan but for {', '.join(made.changed)}; it is {slower}"
    why = f" ({made.refused})" if made.refused else ""
    return f"{to} cannot run the best plan{why}; this one is {slower}"


def _stated(asked: Asked, aims: Aims, terms: Terms, to: Framework, text: str) -> Export:
    faults = Faults()
    pins = read_pins("--plan", text, faults)
    faults.need("--plan", pins, "names nothing", "write values, as tp=4,pp=2,dp=8")
    faults.end()
    if not asked.grid and not asked.devices:
        asked = replace(asked, devices=f"h100:{_ranks(pins)}")
    question = read_question(asked, aims, terms)
    pool = question.grounds.pools[0]
    devices = _ranks(pins) if "data" in full_names(pins) else pool.choices[-1]
    if devices > pool.count:
        message = f"makes {devices} ranks, and {pool.name} has {pool.count} devices"
        raise InputError([Problem(message, "lower a degree", field="--plan")])
    space = replace(question.space(pool), devices=(devices,))
    plan, batch = stated_plan(space, pins)
    stated = full_names(pins)
    variants = [
        one
        for one in _variants(plan)
        if all(name not in stated or getattr(one, name) == getattr(plan, name) for name in _SIDE)
    ]
    text, plan = _written(question, variants, batch, to)
    return Export(text=text, plan=plan)


def _ranks(pins: Mapping[str, int | str]) -> int:
    names = full_names(pins)
    count = 1
    for name in ("tensor", "pipeline", "context", "data"):
        value = str(names.get(name, 1))
        if not value.isdecimal() or int(value) < 1:
            right = "write a whole number above 0"
            raise InputError([Problem(f"{value!r} is no value of {name}", right, field="--plan")])
        count *= int(value)
    return count


def _best(asked: Asked, aims: Aims, terms: Terms, to: Framework) -> Export:
    question = read_question(asked, aims, terms)
    best = answer(replace(question, goal=replace(question.goal, top=1))).best[0]
    pool = question.grounds.pools[0]
    costs = costs_of([pool], question.trust)
    refusal: InputError | None = None
    for narrower in ({}, _NARROWER[to]):
        for place, ranked in enumerate(_plans(question, narrower), start=1):
            batch = ranked.global_batch
            try:
                text, plan = _written(question, _variants(ranked.plan), batch, to)
            except InputError as error:
                refusal = refusal or error
                continue
            step_s = float(costs.step_s(cases_in(question.space(pool), pool, plan, batch)))
            return Export(
                text=text,
                plan=plan,
                place=place if not narrower else 0,
                best=place == 1 and plan == ranked.plan and not narrower,
                refused=refusal.problems[0].sentence() if refusal else "",
                changed=tuple(n for n in _SIDE if getattr(plan, n) != getattr(ranked.plan, n)),
                slower=max(0.0, step_s / batch / (best.step_s / best.global_batch) - 1.0),
            )
    problems = refusal.problems if refusal else (Problem("no plan was found"),)
    known = f"{to} can run none of the best plans: of the first one, "
    raise InputError([Problem(known + p.sentence()) for p in problems])


def _variants(plan: ParallelPlan) -> Iterator[ParallelPlan]:
    """Yield the plan, then the same with what frameworks differ in at the side."""
    both = (True, False)
    for tokens, overlap, gather, width in product(both, both, both, (0, 2, 4)):
        yield structs.replace(
            plan,
            sequence_parallel=plan.sequence_parallel and tokens,
            overlap_gradients=plan.overlap_gradients and overlap,
            overlap_parameters=plan.overlap_parameters and gather,
            gradient_bytes=width or plan.gradient_bytes,
        )


def _plans(question: Question, narrower: Mapping[str, tuple[Any, ...]]) -> tuple[RankedPlan, ...]:
    pool = question.grounds.pools[0]
    costs = with_interruptions(costs_of([pool], question.trust), question.training.resilience)
    space = question.space(pool)
    fixed = full_names(question.pins)
    free = {name: values for name, values in narrower.items() if name not in fixed}
    goal = replace(question.goal, top=_TRIED)
    return search(replace(space, **free), costs, goal).plans  # type: ignore[arg-type]


def _written(
    question: Question, plans: Iterable[ParallelPlan], batch: int, to: Framework
) -> tuple[str, ParallelPlan]:
    """Return the first of some plans that the framework takes, in its words.

    Raises:
        InputError: It takes none; says why not the first.
    """
    pool = question.grounds.pools[0]
    node = pool.fabric.node or pool.accelerator.node
    goal = _goal(question, batch)
    refusal: InputError | None = None
    for plan in plans:
        try:
            return _WRITERS[to](question.subject.model, plan, goal, node), plan
        except InputError as error:
            refusal = refusal or error
    assert refusal is not None  # there is always a first plan
    raise refusal


def _goal(question: Question, batch: int) -> frameworks.Goal:
    tokens = question.training.tokens if question.training.stated else 0
    return frameworks.Goal(
        sequence_length=question.subject.sequence, global_batch=batch, tokens=tokens
    )


Writer = Callable[[Transformer, ParallelPlan, frameworks.Goal, int], str]


def _megatron(model: Transformer, plan: ParallelPlan, goal: frameworks.Goal, _: int) -> str:
    words = megatron.to_arguments(model, plan, goal)
    variables = megatron.environment(plan)
    note = "".join(f", with {name}={value}" for name, value in variables.items())
    return f"# {plan.world_size} processes of Megatron-LM{note}\n{_lines(words)}"


def _deepspeed(model: Transformer, plan: ParallelPlan, goal: frameworks.Goal, _: int) -> str:
    return pretty(deepspeed.to_config(model, plan, goal))


def _torchtitan(model: Transformer, plan: ParallelPlan, goal: frameworks.Goal, _: int) -> str:
    return torchtitan.to_toml(model, plan, goal)


def _torchtitan_args(model: Transformer, plan: ParallelPlan, goal: frameworks.Goal, _: int) -> str:
    words = torchtitan.to_arguments(model, plan, goal)
    return f"# {plan.world_size} processes of torchtitan\n{_lines(words)}"


def _accelerate(model: Transformer, plan: ParallelPlan, goal: frameworks.Goal, node: int) -> str:
    return accelerate.to_yaml(model, plan, goal, node=node)


_WRITERS: Mapping[str, Writer] = {
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "torchtitan": _torchtitan,
    "torchtitan-args": _torchtitan_args,
    "accelerate": _accelerate,
}


def _lines(words: tuple[str, ...]) -> str:
    """Return arguments as lines, each flag with its values."""
    lines: list[str] = []
    for word in words:
        # torchtitan's last words choose variants, as `activation-checkpoint:none`
        if word.startswith("--") or ":" in word or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return "".join(f"{line}\n" for line in lines)
