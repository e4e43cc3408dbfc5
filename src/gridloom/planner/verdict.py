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

Outcome = Literal["impossible", "does_not_fit", "over_limit", "loses", "best", "better"]
"""``over_limit``: it fits, but takes longer or costs more than the goal allows; ``better``: it is
none of the plans that were compared, and beats them."""

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

_EQUAL = 1e-9
"""Plans whose objectives differ by a smaller share are equal: what is left is rounding."""

_SAME = 0.0005
"""A person is not told of a smaller share."""

_DOUBLINGS = 4
"""Of the devices, tried when nothing fits."""


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
    question = _Question(space, full_names(pins), costs, replace(goal or Goal(), top=1))
    found = question.search(question.pins)
    if not found.counts.evaluated:
        return _impossible(question, found)
    best = search(space, costs, question.goal)
    if found.leanest is not None and not found.counts.fitting:
        return _does_not_fit(question, found.leanest, best)
    if not found.plans:
        return _over_limit(question, best)
    return _compared(question, found.plans[0], best.plans[0])


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
        bool(block.valid.any()) and bool(np.any(costs.memory_bytes(block.cases) <= limit))
        for block in blocks(grid(space), BLOCK_ROWS)
    )


@dataclass(frozen=True)
class _Question:
    """What `why_not` was asked."""

    space: SearchSpace
    pins: Mapping[str, int | str]
    costs: CostModel
    goal: Goal

    @property
    def text(self) -> str:
        """The pinned values, for a person."""
        return ", ".join(f"{name}={value}" for name, value in self.pins.items())

    @property
    def limit_bytes(self) -> float:
        return self.space.accelerator.memory_bytes * self.goal.memory_share

    def search(self, pins: Mapping[str, int | str]) -> Found:
        """Return the best plan with other values."""
        return search(pinned(self.space, pins), self.costs, self.goal)


def _last_rule(found: Found) -> Rule | None:
    """Return the rule at which the last combination fell."""
    tokens = Rule.TOKENS if found.counts.pruned.get(Rule.TOKENS) else None
    return found.emptied_by or tokens


def _impossible(question: _Question, found: Found) -> Verdict:
    rule, remedies = _last_rule(found), _released(question)
    why = rule.sentence if rule else "some knob has no value left"
    return Verdict(
        outcome="impossible",
        sentence=f"{question.text} is no plan: {why}{_advice(remedies, 'be one')}",
        rule=rule,
        remedies=remedies,
    )


def _does_not_fit(question: _Question, leanest: Lean, best: Found) -> Verdict:
    space, limit = question.space, question.limit_bytes
    cases = cases_of(space, leanest.plan, leanest.global_batch)
    stage, lines = question.costs.memory_lines(cases)
    over = leanest.memory_bytes - limit
    largest = max(lines, key=lambda kind: lines[kind])
    remedies = _sorted(_released(question) + _measured(question) + _enlarged(question))
    sentence = (
        f"{question.text} does not fit: the leanest such plan needs"
        f" {format_bytes(leanest.memory_bytes)} on stage {stage + 1} of {leanest.plan.pipeline},"
        f" {format_bytes(over)} more than the {format_bytes(limit)} of {space.accelerator.title};"
        f" the largest part is {largest} ({format_bytes(lines[largest])}){_advice(remedies, 'fit')}"
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


def _over_limit(question: _Question, best: Found) -> Verdict:
    goal = question.goal
    free = replace(goal, deadline_s=0.0, price_max=0.0)
    if goal.objective == "deadline":
        free = replace(free, objective="time")
    plan = search(pinned(question.space, question.pins), question.costs, free).plans[0]
    limits = [format_duration(goal.deadline_s)] if goal.deadline_s else []
    limits += [f"a price of {goal.price_max:,.2f}"] if goal.price_max else []
    return Verdict(
        outcome="over_limit",
        sentence=f"{question.text} fits, but its best plan takes {format_duration(plan.time_s)} and"
        f" costs {plan.price:,.2f}; the limit is {' and '.join(limits)}",
        plan=plan,
        best=best.plans[0] if best.plans else None,
    )


def _compared(question: _Question, plan: RankedPlan, best: RankedPlan) -> Verdict:
    goal = question.goal
    lines = _lines(question, plan, best)
    if plan == best:
        sentence = f"the best plan of all has {question.text}"
        return Verdict(outcome="best", sentence=sentence, plan=plan, best=best, lines=lines)
    ratio = _objective(plan, goal) / (_objective(best, goal) or 1.0)
    better = ratio < 1.0 - _EQUAL
    line = lines[-1] if better else lines[0]
    sentence = f"the best plan with {question.text} takes {_times(ratio, goal)} the best of all"
    if better:
        sentence += " that were compared: it was none of them"
    if line.more_s < 0 if better else line.more_s > 0:
        sentence += (
            f"; the largest difference in a training step is {line.kind}:"
            f" {_seconds(line.plan_s)} against {_seconds(line.best_s)}"
        )
    if plan.devices != best.devices:
        sentence += f"; it uses {plan.devices} devices, the best of all {best.devices}"
    return Verdict(
        outcome="better" if better else "loses",
        sentence=sentence,
        plan=plan,
        best=best,
        ratio=ratio,
        lines=lines,
    )


def _times(ratio: float, goal: Goal) -> str:
    word = {"time": "time", "energy": "energy"}.get(goal.objective, "price")
    if abs(ratio - 1.0) < _SAME:
        return f"about the same {word} as"
    return f"{ratio:.3g} times the {word} of"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{seconds * 1e3:.3g} ms"


def _objective(plan: RankedPlan, goal: Goal) -> float:
    price = plan.price or plan.devices * plan.time_s / 3600
    return {"time": plan.time_s, "energy": plan.energy_j}.get(goal.objective, price)


def _lines(question: _Question, plan: RankedPlan, best: RankedPlan) -> tuple[Line, ...]:
    """Return both plans' seconds by kind for one whole batch, the largest excess first."""
    space, seconds = question.space, []
    for ranked in (plan, best):
        lines = question.costs.step_lines(cases_of(space, ranked.plan, ranked.global_batch))
        scale = space.global_batch / ranked.global_batch
        seconds.append({kind: value * scale for kind, value in lines.items()})
    found = [Line(kind, value, seconds[1][kind]) for kind, value in seconds[0].items()]
    return tuple(sorted(found, key=lambda line: (-line.more_s, line.kind)))


def _released(question: _Question) -> tuple[Remedy, ...]:
    """Return for each pinned knob the value of the best plan without that pin, if one fits."""
    remedies: list[Remedy] = []
    for name in question.pins:
        rest = {other: value for other, value in question.pins.items() if other != name}
        plans = question.search(rest).plans
        remedies += [Remedy(name, _value(plan, name), plan) for plan in plans]
    return _sorted(tuple(remedies))


def _measured(question: _Question) -> tuple[Remedy, ...]:
    """Return the memory measures outside the space with which the pinned values fit."""
    remedies: dict[str, Remedy] = {}
    for name, value in _MEASURES:
        tried = getattr(question.space, name)
        measure = getattr(pinned(question.space, {name: value}), name)[0]
        if name in question.pins or name in remedies or measure in tried or not tried:
            continue
        for plan in question.search({**question.pins, name: value}).plans:
            remedies[name] = Remedy(name, value, plan)
    return tuple(remedies.values())


def _enlarged(question: _Question) -> tuple[Remedy, ...]:
    """Return the first of some doublings of the devices with which the pinned values fit."""
    if "devices" in question.pins:
        return ()
    count = max(question.space.devices)
    for _ in range(_DOUBLINGS):
        count *= 2
        for plan in question.search({**question.pins, "devices": count}).plans:
            return (Remedy("devices", str(count), plan),)
    return ()


def _sorted(remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    return tuple(sorted(remedies, key=lambda remedy: (remedy.plan.time_s, remedy.knob)))


def _value(plan: RankedPlan, knob: str) -> str:
    value = plan.devices if knob == "devices" else getattr(plan.plan, knob)
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _advice(remedies: tuple[Remedy, ...], verb: str) -> str:
    if not remedies:
        return "; no single change that was tried would help"
    changes = [f"{remedy.knob}={remedy.value}" for remedy in remedies[:3]]
    return f"; it would {verb} with {' or '.join(changes)}"
