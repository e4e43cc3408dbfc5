"""A found plan with all that is told of it: one record for tables, explanations and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs, to_builtins

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import Cases, model_columns, plan_columns
from gridloom.planner.costs import CostModel
from gridloom.planner.flops import flops_per_token, model_flops_use
from gridloom.planner.goodput import Checkpoint, Goodput, Resilience, checkpoint, goodput
from gridloom.planner.goodput import goodput_of as goodput_of_cases
from gridloom.planner.hardware import machine_columns
from gridloom.planner.pools import Pool, PoolPart, PoolPlan, Way
from gridloom.planner.price import Bill, Tariff, bill, training_s
from gridloom.planner.search import RankedPlan
from gridloom.planner.search_space import SearchSpace
from gridloom.planner.site_stages import SiteStages

NOMINAL_TOKENS = 1_000_000_000
"""Figures of a whole training are for so many tokens when nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one pool does in a plan; the only one in most plans."""

    pool: Pool
    plan: ParallelPlan
    devices: int
    layers: int
    sequences: int
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan with its predictions.

    Attributes:
        way: What each pool holds: ``one_pool``, ``replicas`` or ``stages``.
        parts: What each pool does.
        global_batch: Sequences a training step.
        step_s: Of a training step, without interruptions.
        between_s: Of these, for what crosses between pools.
        goodput: Where the time of the whole training goes.
        checkpoint: What one checkpoint takes.
        bill: Of the whole training.
        tokens_per_s: Of all devices together, while training steps.
        mfu: Model flops over the 16-bit peak of the devices.
        more_tokens: How many times the tokens it takes to the loss of every step averaged whole.
        copies: The best plan with copies of the model on these devices, of several pools.
        stages: Their best pipeline over several pools, in numbers.
    """

    way: str
    parts: tuple[Part, ...]
    global_batch: int
    step_s: float
    between_s: float = 0.0
    goodput: Goodput
    checkpoint: Checkpoint
    bill: Bill
    tokens_per_s: float
    mfu: float
    more_tokens: float = 1.0
    copies: PoolPlan | None = None
    stages: SiteStages | None = None

    @property
    def devices(self) -> int:
        """All devices used."""
        return sum(part.devices for part in self.parts)

    @property
    def plan(self) -> ParallelPlan:
        """How the model is cut, of the first part."""
        return self.parts[0].plan

    @property
    def fullest(self) -> Part:
        """The part whose devices are fullest."""
        return max(self.parts, key=lambda p: p.memory_bytes / p.pool.accelerator.memory_bytes)


def of_pool(
    ranked: RankedPlan, space: SearchSpace, pool: Pool, costs: CostModel, about: "Training"
) -> Candidate:
    """Return a plan that a search over one pool found; ``costs`` without interruptions."""
    cases = cases_in(space, pool, ranked.plan, ranked.global_batch)
    part = Part(
        pool=pool,
        plan=ranked.plan,
        devices=ranked.devices,
        layers=space.model.layers,
        sequences=ranked.global_batch,
        memory_bytes=ranked.memory_bytes,
    )
    step_s = float(costs.step_s(cases))
    found = _plain(goodput_of_cases(cases, about.resilience))
    written = _plain(checkpoint(cases, about.resilience))
    return _candidate("one_pool", (part,), step_s, (found, written), space, about)


def of_pools(
    found: PoolPlan,
    space: SearchSpace,
    pools: Mapping[str, Pool],
    about: "Training",
    ways: Mapping[Way, PoolPlan],
) -> Candidate:
    """Return a plan over several pools; each writes its share of a checkpoint at the same rate.

    Args:
        found: The plan.
        space: The model and its batch.
        pools: By name.
        about: What is asked of the training.
        ways: The best plan of each way on the same devices.
    """
    parts = tuple(_part(part, pools[part.pool]) for part in found.parts)
    # A checkpoint is of the whole model, written by all devices: as if they were one pool.
    whole = structs.replace(
        parts[0].plan, tensor=1, pipeline=1, context=1, expert=1, data=found.devices
    )
    cases = cases_in(space, parts[0].pool, whole, space.global_batch)
    written = _plain(checkpoint(cases, about.resilience))
    mtbf_s = float(about.resilience.device_mtbf_s) / found.devices
    useful = _plain(goodput(mtbf_s, written, about.resilience.restart_s))
    made = _candidate(found.way, parts, found.step_s, (useful, written), space, about)
    pipeline = found if found.way == "stages" else ways.get("stages")
    return replace(
        made,
        between_s=found.between_s,
        more_tokens=found.more_tokens,
        copies=found if found.way == "replicas" else ways.get("replicas"),
        stages=pipeline.stages if pipeline is not None else None,
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """What of the whole training is asked.

    Attributes:
        tokens: To train on in all.
        stated: Somebody said how many.
        resilience: What the job meets.
        pue: Power of the data centre over that of its machines.
    """

    tokens: int
    stated: bool
    resilience: Resilience
    pue: float


def cases_in(space: SearchSpace, pool: Pool, plan: ParallelPlan, global_batch: int) -> Cases:
    """Return one plan on devices of ``pool`` in numbers."""
    return Cases(
        model=model_columns(space.model),
        plan=plan_columns(plan),
        machine=machine_columns(pool.accelerator, pool.fabric),
        sequence=space.sequence,
        global_batch=global_batch,
    )


def as_json(candidate: Candidate) -> dict[str, Any]:
    """Return what machines are told of a plan."""
    useful = candidate.goodput
    return {
        "way": candidate.way,
        "devices": candidate.devices,
        "parts": [_part_as_json(part) for part in candidate.parts],
        "global_batch": candidate.global_batch,
        "step_s": candidate.step_s,
        "between_pools_s": candidate.between_s,
        "more_tokens": candidate.more_tokens,
        "tokens_per_s": candidate.tokens_per_s,
        "tokens_per_s_per_device": candidate.tokens_per_s / candidate.devices,
        "mfu": candidate.mfu,
        "memory_bytes": candidate.fullest.memory_bytes,
        "goodput": {
            "useful": useful.useful,
            "checkpoint": useful.checkpoint,
            "restart": useful.restart,
            "lost": useful.lost,
            "mtbf_s": useful.mtbf_s,
            "checkpoint_interval_s": useful.interval_s,
            "checkpoint_write_s": candidate.checkpoint.blocking_s + candidate.checkpoint.behind_s,
            "checkpoint_bytes": candidate.checkpoint.state_bytes,
        },
        "training": {
            "time_s": candidate.bill.time_s,
            "days": candidate.bill.days,
            "device_hours": candidate.bill.device_hours,
            "price": candidate.bill.price,
            "energy_kwh": candidate.bill.energy_kwh,
            "carbon_kg": candidate.bill.carbon_kg,
        },
    }


def plan_as_json(plan: ParallelPlan) -> dict[str, Any]:
    """Return every field of a plan, those at their defaults too."""
    return {
        name: list(value) if isinstance(value, tuple) else to_builtins(value)
        for name, value in structs.asdict(plan).items()
    }


def _candidate(
    way: str,
    parts: tuple[Part, ...],
    step_s: float,
    lasting: tuple[Goodput, Checkpoint],
    space: SearchSpace,
    about: Training,
) -> Candidate:
    batch = sum(part.sequences for part in parts) if way != "stages" else parts[0].sequences
    a_step = batch * space.sequence
    devices = sum(part.devices for part in parts)
    found, written = lasting
    time_s = training_s(step_s, about.tokens, a_step, found.useful)
    bills = [bill(time_s, part.devices, _tariff(part.pool, about.pue)) for part in parts]
    peak = sum(part.devices * part.pool.accelerator.flops_16 for part in parts) / devices
    rate = a_step / step_s
    return Candidate(
        way=way,
        parts=parts,
        global_batch=batch,
        step_s=step_s,
        goodput=found,
        checkpoint=written,
        bill=Bill(
            time_s=time_s,
            device_hours=sum(one.device_hours for one in bills),
            price=sum(one.price for one in bills),
            energy_kwh=sum(one.energy_kwh for one in bills),
            carbon_kg=sum(one.carbon_kg for one in bills),
        ),
        tokens_per_s=rate,
        mfu=model_flops_use(rate, flops_per_token(space.model, space.sequence), devices, peak),
    )


def _part(part: PoolPart, pool: Pool) -> Part:
    return Part(
        pool=pool,
        plan=part.plan,
        devices=part.devices,
        layers=part.layers,
        sequences=part.sequences,
        memory_bytes=part.memory_bytes,
    )


def _part_as_json(part: Part) -> dict[str, Any]:
    return {
        "pool": part.pool.name,
        "site": part.pool.site,
        "accelerator": part.pool.accelerator.name,
        "devices": part.devices,
        "layers": part.layers,
        "sequences": part.sequences,
        "memory_bytes": part.memory_bytes,
        "memory_limit_bytes": part.pool.accelerator.memory_bytes,
        "plan": plan_as_json(part.plan),
    }


def _tariff(pool: Pool, pue: float) -> Tariff:
    return Tariff(
        per_device_hour=pool.price_per_device_hour,
        power_w=pool.watts,
        pue=pue,
        carbon_g_per_kwh=pool.carbon_g_per_kwh,
    )


def _plain(record: Any) -> Any:
    """Return the record with plain numbers in place of arrays without dimensions."""
    return replace(record, **{name: float(value) for name, value in vars(record).items()})
