"""From flags to the best plans: builds search spaces, asks the planner, says why nothing fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from msgspec import structs

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import format_bytes, format_duration
from gridloom.cli.plan_figures import NOMINAL_TOKENS, Candidate, Training, of_pool, of_pools
from gridloom.cli.plan_flags import Aims, Asked, Terms
from gridloom.cli.plan_grounds import Grounds, read_grounds
from gridloom.cli.plan_inputs import (
    Faults,
    Limits,
    Subject,
    read_limits,
    read_one,
    read_pins,
    read_resilience,
    read_subject,
    read_words,
)
from gridloom.cli.plan_progress import reported
from gridloom.cli.plan_stated import why_no_plan
from gridloom.cli.plan_trust import Trust, costs_of, read_trust
from gridloom.model.parallel import Optimizer, Precision
from gridloom.planner.costs import CostModel
from gridloom.planner.goodput import with_interruptions
from gridloom.planner.hardware import AcceleratorType
from gridloom.planner.pins import Pins, pinned
from gridloom.planner.pools import Pool, PoolSpace
from gridloom.planner.pools_search import devices_of, search_pools
from gridloom.planner.search import Counts, Found, Goal, RankedPlan, search
from gridloom.planner.search_space import Rule, SearchSpace
from gridloom.planner.verdict import least_hardware

_SEVERAL_TRIED = 50
"""Plans over several pools that are looked at again with the interruptions of all of them."""

_USUAL = {"optimizer": "adamw"}
"""Flags that say this when nobody writes them."""

_ALIKE = 12
"""Plans that differ in sharding or recomputation alone: so many are looked at for each shown."""

_JOINT_COUNTS = 2
"""Numbers of devices of one pool that are tried together with other pools: the largest ones."""


_CHAIN = 3
"""Pools that hold stages of one pipeline, at most."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """All that was asked, read and checked."""

    subject: Subject
    grounds: Grounds
    trust: Trust
    training: Training
    limits: Limits
    goal: Goal
    pins: Pins
    precisions: tuple[str, ...]
    optimizer: str
    head_room: float
    sync: Literal["auto", "every_step"] = "auto"

    def space(self, pool: Pool) -> SearchSpace:
        """Return all plans on one pool."""
        price = pool.price_per_device_hour
        if not price and self.goal.objective == "deadline":
            price = 1.0  # the fewest device-hours, where no price is known
        kind = pool.accelerator
        precisions = self.precisions or (usual_precision(kind),)
        space = SearchSpace(
            model=self.subject.model,
            accelerator=kind,
            fabric=pool.fabric,
            devices=pool.choices,
            global_batch=self.subject.global_batch,
            sequence=self.subject.sequence,
            price_per_device_hour=price,
            power_w=pool.watts,
            precision=precisions,  # type: ignore[arg-type]  # `read_words` has checked both
            optimizer=(self.optimizer,),  # type: ignore[arg-type]
        )
        return pinned(space, self.pins)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found.

    Attributes:
        best: The best plans, best first.
        front: Those that none beats in time and price, fastest first.
        counts: How many plans were looked at, over all pools.
    """

    best: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    counts: Counts


def usual_precision(kind: AcceleratorType) -> str:
    """Return what a device trains in when nobody says."""
    return "fp16" if kind.family == "v100" else "bf16"


def read_question(asked: Asked, aims: Aims, terms: Terms) -> Question:
    """Return what was asked.

    Raises:
        InputError: With everything that is wrong with the flags and files.
    """
    faults = Faults()
    subject = read_subject(asked, faults)
    grounds = faults.take(lambda: read_grounds(asked, terms, aims.objective))
    limits = read_limits(aims, faults)
    resilience = read_resilience(terms, faults)
    pins = read_pins("--fix", asked.fix, faults)
    precisions = read_words("--precision", asked.precision, Precision, faults)
    read_one("--optimizer", asked.optimizer, Optimizer, faults)
    for name, stated in (("precision", precisions), ("optimizer", (asked.optimizer,))):
        fixed = str(pins.get(name, "")).lower()
        clash = fixed and stated and fixed not in stated and stated != (_USUAL.get(name),)
        faults.need(f"--fix {name}", not clash, f"{fixed!r} is not what --{name} says", "write one")
    right = "write a share of memory below 1, as 0.1"
    faults.need("--head-room", 0 <= asked.head_room < 1, f"{asked.head_room:g} cannot be", right)
    trust = faults.take(lambda: read_trust(asked.measured))
    if grounds is not None:
        _check_precisions((*precisions, str(pins.get("precision", ""))), grounds, faults)
        _check_price(aims, grounds, faults)
    faults.end()
    assert subject is not None
    assert grounds is not None
    assert trust is not None
    tokens = limits.tokens or subject.tokens
    question = Question(
        subject=subject,
        grounds=grounds,
        trust=trust,
        training=Training(
            tokens=tokens or NOMINAL_TOKENS,
            stated=bool(tokens),
            resilience=resilience,
            pue=terms.pue,
        ),
        limits=limits,
        goal=Goal(
            objective=aims.objective,
            tokens=tokens or NOMINAL_TOKENS,
            deadline_s=limits.deadline_s,
            price_max=limits.budget,
            memory_share=1.0 - asked.head_room,
            top=aims.top,
        ),
        pins=pins,
        precisions=precisions,
        optimizer=asked.optimizer,
        head_room=asked.head_room,
        sync=asked.sync,
    )
    try:
        question.space(grounds.pools[0])
    except InputError as error:
        problems = [Problem(p.message, p.remedy, field=f"--fix {p.field}") for p in error.problems]
        raise InputError(problems) from error
    return question


def answer(question: Question, *, front: bool = False) -> Answer:
    """Return the best plans.

    Raises:
        InputError: No plan fits, or none is within the limits; the least that would do is named.
    """
    pools = question.grounds.pools
    found: list[Found] = []
    best: list[Candidate] = []
    edge: list[Candidate] = []
    plain = costs_of(pools, question.trust)
    costs = with_interruptions(plain, question.training.resilience)
    with reported("plans") as report:
        for place, pool in enumerate(pools):
            space = question.space(pool)
            one = search(
                space,
                costs,
                replace(question.goal, top=question.goal.top * _ALIKE),
                lambda p, place=place: report(place + p.done / max(1, p.total), len(pools)),  # type: ignore[misc]
            )
            found.append(one)
            told = _without_worse(one.plans)[: question.goal.top]
            best += [of_pool(r, space, pool, plain, question.training) for r in told]
            edge += [of_pool(r, space, pool, plain, question.training) for r in one.front]
    if len(pools) > 1 and not question.pins:
        joint = _joint(question, plain)
        best += joint
        edge += joint
    if not best:
        raise InputError([_why_nothing(question, found, costs)])
    best.sort(key=lambda candidate: _objective(candidate, question.goal))
    counts = _added(found)
    return Answer(
        best=tuple(best[: question.goal.top]),
        front=_front(edge) if front else (),
        counts=counts,
    )


def _without_worse(plans: Sequence[RankedPlan]) -> list[RankedPlan]:
    """Return the plans, best first, without those that a better one makes pointless.

    That is one which differs from a better plan in sharding or recomputation alone, and needs no
    less memory: nobody has a reason to take it.
    """
    least: dict[tuple[object, ...], float] = {}
    kept: list[RankedPlan] = []
    for ranked in plans:
        alike = structs.replace(ranked.plan, zero=0, shard=0, recompute="none", recompute_layers=0)
        key = (ranked.devices, ranked.global_batch, *structs.astuple(alike))
        if ranked.memory_bytes < least.get(key, float("inf")):
            least[key] = ranked.memory_bytes
            kept.append(ranked)
    return kept


def _joint(question: Question, plain: CostModel) -> list[Candidate]:
    """Return the best plans over several pools."""
    pools = question.grounds.pools
    goal = replace(question.goal, top=max(_SEVERAL_TRIED, question.goal.top))
    space = question.space(pools[0])
    asked = PoolSpace(
        space=space,
        pools=tuple(replace(pool, counts=pool.choices[-_JOINT_COUNTS:]) for pool in pools),
        links=question.grounds.links,
        costs=plain,
        goal=goal,
        chain=_CHAIN,
        runnable_first=True,
        sync="auto" if question.sync == "auto" else None,
    )
    with reported("plans over several pools") as report:
        found = search_pools(asked, report)
    by_name = {pool.name: pool for pool in pools}
    made = [
        of_pools(plan, space, by_name, question.training, found.by_devices[devices_of(plan)])
        for plan in found.plans
        if plan.way != "one_pool"
    ]
    limits = question.limits
    return [
        candidate
        for candidate in made
        if isfinite(candidate.bill.time_s)
        and not (limits.deadline_s and candidate.bill.time_s > limits.deadline_s)
        and not (limits.budget and candidate.bill.price > limits.budget)
    ]


def _objective(candidate: Candidate, goal: Goal) -> float:
    """Return what is to be smallest, at an equal loss."""
    bill = candidate.bill
    found = bill.energy_kwh if goal.objective == "energy" else bill.price or bill.device_hours
    if goal.objective == "time":
        found = bill.time_s
    return float(found) * candidate.more_tokens


def _front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return those that no other one beats in time and price (device-hours without a price)."""

    def price(candidate: Candidate) -> float:
        return float(candidate.bill.price or candidate.bill.device_hours)

    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.bill.time_s, price(c))):
        if not kept or price(candidate) < price(kept[-1]) * (1 - 1e-9):
            kept.append(candidate)
    return tuple(kept)


def _added(found: Sequence[Found]) -> Counts:
    counts = [one.counts for one in found]
    pruned = {rule: 0 for one in counts for rule in one.pruned}
    for one in counts:
        for rule, number in one.pruned.items():
            pruned[rule] += number
    return Counts(
        asked=sum(one.asked for one in counts),
        pruned=pruned,
        evaluated=sum(one.evaluated for one in counts),
        fitting=sum(one.fitting for one in counts),
        accepted=sum(one.accepted for one in counts),
    )


# --- why nothing


def _why_nothing(question: Question, found: Sequence[Found], costs: CostModel) -> Problem:
    if not any(one.counts.evaluated for one in found):
        return _impossible(question, found[0])
    if not any(one.counts.fitting for one in found):
        return _does_not_fit(question, found, costs)
    return _over_limit(question, costs)


def _impossible(question: Question, found: Found) -> Problem:
    rules = sorted(found.counts.pruned, key=lambda rule: -found.counts.pruned[rule])
    rule = found.emptied_by or (rules[0] if rules else Rule.DEVICES)
    fixed = ", ".join(f"{name}={value}" for name, value in question.pins.items())
    why = why_no_plan(rule, question.space(question.grounds.pools[0]))
    right = "change the value that breaks the rule"
    if not question.pins:
        right = "choose a global batch that more numbers divide, or another number of devices"
    return Problem(f"no plan exists{f' with {fixed}' if fixed else ''}: {why}", right)


def _does_not_fit(question: Question, found: Sequence[Found], costs: CostModel) -> Problem:
    pairs = [(one.leanest, pool) for one, pool in zip(found, question.grounds.pools, strict=True)]
    lean, pool = min(
        ((lean, pool) for lean, pool in pairs if lean is not None),
        key=lambda pair: pair[0].memory_bytes / pair[1].accelerator.memory_bytes,
    )
    usable = pool.accelerator.memory_bytes * question.goal.memory_share
    tried = sum(one.counts.evaluated for one in found)
    message = (
        f"{question.subject.model.name} fits nowhere: of {tried:,} plans the leanest needs"
        f" {format_bytes(lean.memory_bytes)} a device on {lean.devices} {pool.accelerator.title},"
        f" and {format_bytes(usable)} may be used"
    )
    enough = []
    for pool in {pool.accelerator.name: pool for pool in question.grounds.pools}.values():
        with reported(f"least number of {pool.accelerator.name}") as report:
            least = least_hardware(
                question.space(pool), costs, question.goal, lambda n: report(n, 4096)
            )
        if least is not None:
            plan = least.plan
            enough.append(
                f"{pool.accelerator.name}:{least.devices} (tp={plan.tensor}, pp={plan.pipeline},"
                f" cp={plan.context}, dp={plan.data}, zero={plan.zero},"
                f" recompute={plan.recompute})"
            )
    right = f"it needs at least {' or '.join(enough)}"
    if not enough:
        right = "no number of these devices would do: shorten the sequence, or use larger devices"
    return Problem(message, right)


def _over_limit(question: Question, costs: CostModel) -> Problem:
    free = replace(question.goal, deadline_s=0.0, price_max=0.0, top=1)
    fastest: list[float] = []
    cheapest: list[float] = []
    for pool in question.grounds.pools:
        space = question.space(pool)
        for objective, values in (("time", fastest), ("price", cheapest)):
            plans = search(space, costs, replace(free, objective=objective)).plans  # type: ignore[arg-type]
            values += [plans[0].time_s if objective == "time" else plans[0].price] if plans else []
    if not fastest:
        message = "no training would ever end: devices are interrupted faster than a job gets on"
        right = "raise --device-mtbf or --checkpoint-rate, lower --restart, or use fewer devices"
        return Problem(message, right)
    limits = question.limits
    wanted = [f"ends in {format_duration(limits.deadline_s)}"] if limits.deadline_s else []
    currency = question.grounds.currency
    wanted += [f"costs at most {limits.budget:,.0f} {currency}"] if limits.budget else []
    have = [f"the fastest takes {format_duration(min(fastest))}"]
    if min(cheapest):
        have.append(f"the cheapest costs {min(cheapest):,.0f} {currency}")
    message = f"no plan {' and '.join(wanted)}: {', '.join(have)}"
    return Problem(message, "raise the limit, lower --tokens, or allow more devices")


def _check_precisions(words: Sequence[str], grounds: Grounds, faults: Faults) -> None:
    for pool in grounds.pools:
        kind = pool.accelerator
        if not kind.flops_8 and any(word.startswith("fp8") for word in words):
            message = f"{kind.title} has no 8-bit matrix products"
            faults.need("--precision", False, message, f"write {usual_precision(kind)}")
        if kind.family == "v100" and any(word.startswith("bf16") for word in words):
            faults.need("--precision", False, f"{kind.title} has no bf16 products", "write fp16")


def _check_price(aims: Aims, grounds: Grounds, faults: Faults) -> None:
    priced = all(pool.price_per_device_hour for pool in grounds.pools)
    if aims.objective == "price" or aims.budget:
        right = "write --price, of a device and hour, or name prices in the grid file"
        faults.need("--price", priced, "is needed: the grid names no price", right)
