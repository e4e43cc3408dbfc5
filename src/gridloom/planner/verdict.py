"""Why not this plan: it cannot be, does not fit, breaks a limit, or loses, and by what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from gridloom.base.units import format_bytes, format_duration
from gridloom.planner.costs import CostModel
from gridloom.planner.pins import Pins, full_names, pinned
from gridloom.planner.search import Found, Goal, Lean, RankedPlan, search
from gridloom.planner.search_grid import BLOCK_ROWS, blocks, cases_of, grid
from gridloom.planner.search_space import Rule, SearchSpace, divisors

Outcome = Literal["impossible", "does_not_fit", "over_limit", "loses", "best"]
"""``over_limit``: it fits, but takes longer or costs more than the goal allows."""

DEVICES_MAX = 4096
"""Up to so many devices are tried for the least hardware."""

_MEASURES: tuple[tuple[str, str], ...] = (
    ("micro_batch", "1"),
    ("sequence_parallel", "on"),
    ("recompute", "selective"),
    ("recompute", "full"),
    ("zero", "1"),
    ("zero", "2"),
    ("zero", "3"),
    ("optimizer", "adamw_8bit"),
    ("offload", "activations"),
    ("offload", "optimizer"),
    ("offload", "optimizer+gradients"),
    ("offload", "optimizer+gradients+parameters"),
    ("offload", "optimizer+gradients+parameters+activations"),
)
"""What saves memory, cheapest first, tried when nothing fits."""


@dataclass(frozen=True)
class Remedy:
    """One change after which a plan fits.

    Attributes:
        knob: What to change.
        value: To what.
        plan: The best plan then.
    """

    knob: str
    value: str
    plan: RankedPlan


@dataclass(frozen=True)
class Line:
    """One kind of time of a training step with the whole batch, in both plans, in seconds."""

    kind: str
    plan_s: float
    best_s: float

    @property
    def more_s(self) -> float:
        """What the plan takes more than the best one; negative when less."""
        return self.plan_s - self.best_s


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Why a plan with given values is not the one to take.

    Attributes:
        outcome: What became of it.
        sentence: The same, for a person.
        rule: The rule that the last combination broke; with ``impossible``.
        plan: The best plan with these values; nothing when none fits.
        best: The best plan of all.
        leanest: The plan with these values that needs least memory; with ``does_not_fit``.
        over_bytes: What it needs beyond the device's memory.
        stage: Its fullest stage, from 0.
        memory: What a rank of that stage holds, by kind, in bytes.
        ratio: The objective of ``plan`` over that of ``best``; 1 for the best.
        lines: Where the time goes in ``plan`` and in ``best``, the largest difference first.
        remedies: Single changes after which it fits, or is a plan, the fastest first.
    """

    outcome: Outcome
    sentence: str
    rule: Rule | None = None
    plan: RankedPlan | None = None
    best: RankedPlan | None = None
    leanest: Lean | None = None
    over_bytes: float = 0.0
    stage: int = 0
    memory: Mapping[str, float] = field(default_factory=dict)
    ratio: float = 1.0
    lines: tuple[Line, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def why_not(space: SearchSpace, pins: Pins, costs: CostModel, goal: Goal | None = None) -> Verdict:
    """Return why a plan with the values ``pins`` is not the best plan of ``space``.

    Args:
        space: All plans that are compared.
        pins: Knobs and their values, as ``pinned`` reads them; every other knob is free.
        costs: What plans need and take.
        goal: What is wanted; the shortest time when nothing.

    Raises:
        InputError: A knob or a value cannot be.
    """
    goal = replace(goal or Goal(), top=1)
    narrowed = pinned(space, pins)
    found = search(narrowed, costs, goal)
    best = search(space, costs, goal)
    asked = ", ".join(f"{name}={value}" for name, value in full_names(pins).items())
    if not found.counts.evaluated:
        return _impossible(space, pins, costs, goal, _last_rule(found), asked)
    if not found.counts.fitting:
        return _does_not_fit(space, pins, costs, goal, asked, found.leanest, best)
    if not found.plans:
        return _over_limit(narrowed, costs, goal, asked, best)
    return _compared(space, costs, goal, asked, found.plans[0], best.plans[0])


def least_hardware(
    space: SearchSpace,
    costs: CostModel,
    goal: Goal | None = None,
    progress: Callable[[int], None] | None = None,
    devices_max: int = DEVICES_MAX,
) -> RankedPlan | None:
    """Return the best plan on the fewest devices on which any plan fits; nothing if none does.

    Numbers of devices are tried one after the other: the divisors of a node, then whole nodes.

    Args:
        space: All plans but for its ``devices``.
        costs: What plans need and take.
        goal: What is wanted, on those devices; its limits but for memory are not applied.
        progress: Called with each number of devices before it is tried.
        devices_max: The largest number tried.
    """
    goal = goal or Goal()
    goal = replace(goal, top=1, deadline_s=0.0, price_max=0.0, devices_max=0)
    if goal.objective == "deadline":
        goal = replace(goal, objective="price")
    counts = [*divisors(space.node), *range(2 * space.node, devices_max + 1, space.node)]
    for count in counts:
        if count > devices_max:
            break
        if progress:
            progress(count)
        alone = replace(space, devices=(count,))
        if any_fits(alone, costs, goal.memory_share):
            found = search(alone, costs, goal)
            if found.plans:
                return found.plans[0]
    return None


def any_fits(space: SearchSpace, costs: CostModel, memory_share: float = 1.0) -> bool:
    """Return whether a plan of ``space`` fits into ``memory_share`` of a device's memory."""
    limit = space.accelerator.memory_bytes * memory_share
    return any(
        len(block.degree) > 0 and bool(np.any(costs.memory_bytes(block.cases) <= limit))
        for block in blocks(grid(space), BLOCK_ROWS)
    )


def _last_rule(found: Found) -> Rule | None:
    """Return the rule at which the last combination fell."""
    struck = [rule for rule in Rule if found.counts.pruned.get(rule)]
    return found.emptied_by or (Rule.TOKENS if Rule.TOKENS in struck else None)


def _impossible(
    space: SearchSpace,
    pins: Pins,
    costs: CostModel,
    goal: Goal,
    rule: Rule | None,
    asked: str,
) -> Verdict:
    remedies = _released(space, pins, costs, goal)
    why = rule.sentence if rule else "some knob has no value left"
    return Verdict(
        outcome="impossible",
        sentence=f"{asked} is no plan: {why}{_advice(remedies)}",
        rule=rule,
        remedies=remedies,
    )


def _does_not_fit(
    space: SearchSpace,
    pins: Pins,
    costs: CostModel,
    goal: Goal,
    asked: str,
    leanest: Lean | None,
    best: Found,
) -> Verdict:
    assert leanest is not None
    stage, lines = costs.memory_lines(cases_of(space, leanest.plan, leanest.global_batch))
    limit = space.accelerator.memory_bytes * goal.memory_share
    over = leanest.memory_bytes - limit
    largest = max(lines, key=lambda kind: lines[kind])
    remedies = _released(space, pins, costs, goal) + _measured(space, pins, costs, goal)
    sentence = (
        f"{asked} does not fit: the leanest such plan needs {format_bytes(leanest.memory_bytes)} on"
        f" stage {stage + 1} of {leanest.plan.pipeline}, {format_bytes(over)} more than the"
        f" {format_bytes(limit)} of {space.accelerator.title}; the largest part is {largest}"
        f" ({format_bytes(lines[largest])}){_advice(remedies)}"
    )
    return Verdict(
        outcome="does_not_fit",
        sentence=sentence,
        best=best.plans[0] if best.plans else None,
        leanest=leanest,
        over_bytes=over,
        stage=stage,
        memory=dict(lines),
        remedies=remedies,
    )


def _over_limit(
    narrowed: SearchSpace, costs: CostModel, goal: Goal, asked: str, best: Found
) -> Verdict:
    free = replace(goal, deadline_s=0.0, price_max=0.0)
    if goal.objective == "deadline":
        free = replace(free, objective="time")
    plan = search(narrowed, costs, free).plans[0]
    limits = []
    if goal.deadline_s:
        limits.append(f"{format_duration(goal.deadline_s)}")
    if goal.price_max:
        limits.append(f"a price of {goal.price_max:,.2f}")
    return Verdict(
        outcome="over_limit",
        sentence=f"{asked} fits, but its best plan takes {format_duration(plan.time_s)} and costs"
        f" {plan.price:,.2f}; the limit is {' and '.join(limits)}",
        plan=plan,
        best=best.plans[0] if best.plans else None,
    )


def _compared(
    space: SearchSpace,
    costs: CostModel,
    goal: Goal,
    asked: str,
    plan: RankedPlan,
    best: RankedPlan,
) -> Verdict:
    ratio = _objective(plan, goal) / (_objective(best, goal) or 1.0)
    lines = _lines(space, costs, plan, best)
    if plan.plan == best.plan:
        return Verdict(
            outcome="best",
            sentence=f"the best plan of all has {asked}",
            plan=plan,
            best=best,
            lines=lines,
        )
    word = {"time": "time", "energy": "energy"}.get(goal.objective, "price")
    sentence = f"the best plan with {asked} takes {ratio:.2f} times the {word} of the best of all"
    if lines and lines[0].more_s > 0:
        most = lines[0]
        sentence += (
            f"; the largest difference in a training step is {most.kind}:"
            f" {format_duration(most.plan_s)} against {format_duration(most.best_s)}"
        )
    if plan.devices != best.devices:
        sentence += f"; it uses {plan.devices} devices, the best of all {best.devices}"
    return Verdict(
        outcome="loses", sentence=sentence, plan=plan, best=best, ratio=ratio, lines=lines
    )


def _objective(plan: RankedPlan, goal: Goal) -> float:
    return {"time": plan.time_s, "energy": plan.energy_j}.get(goal.objective, plan.price)


def _lines(
    space: SearchSpace, costs: CostModel, plan: RankedPlan, best: RankedPlan
) -> tuple[Line, ...]:
    """Return both plans' seconds by kind for one whole batch, the largest excess first."""
    seconds = []
    for ranked in (plan, best):
        lines = costs.step_lines(cases_of(space, ranked.plan, ranked.global_batch))
        scale = space.global_batch / ranked.global_batch
        seconds.append({kind: value * scale for kind, value in lines.items()})
    found = [Line(kind, seconds[0][kind], seconds[1].get(kind, 0.0)) for kind in seconds[0]]
    return tuple(sorted(found, key=lambda line: (-line.more_s, line.kind)))


def _released(space: SearchSpace, pins: Pins, costs: CostModel, goal: Goal) -> tuple[Remedy, ...]:
    """Return for each pinned knob the value of the best plan without that pin, if one fits."""
    named, remedies = full_names(pins), []
    for name in named:
        rest = {other: value for other, value in named.items() if other != name}
        found = search(pinned(space, rest), costs, goal)
        if found.plans:
            plan = found.plans[0]
            remedies.append(Remedy(name, _value(plan, name), plan))
    return tuple(sorted(remedies, key=lambda remedy: (remedy.plan.time_s, remedy.knob)))


def _measured(space: SearchSpace, pins: Pins, costs: CostModel, goal: Goal) -> tuple[Remedy, ...]:
    """Return the memory measures outside the space with which the pinned values fit."""
    named, remedies = full_names(pins), []
    for name, value in _MEASURES:
        known = {remedy.knob for remedy in remedies}
        if name in named or name in known:
            continue
        found = search(pinned(space, {**named, name: value}), costs, goal)
        if found.plans:
            remedies.append(Remedy(name, value, found.plans[0]))
    return tuple(sorted(remedies, key=lambda remedy: (remedy.plan.time_s, remedy.knob)))


def _value(plan: RankedPlan, knob: str) -> str:
    value = plan.devices if knob == "devices" else getattr(plan.plan, knob)
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _advice(remedies: tuple[Remedy, ...]) -> str:
    if not remedies:
        return "; no single change of these knobs, and no memory measure alone, would help"
    changes = [f"{remedy.knob}={remedy.value}" for remedy in remedies[:3]]
    return f"; it would fit with {' or '.join(changes)}"
