"""``gridloom plan memory``: what every stage of one plan holds, and where it would run out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import format_count, parse_count
from gridloom.cli.output import console, emit, say, table
from gridloom.cli.plan_accounts import (
    STAGES,
    Account,
    accounts_as_json,
    accounts_table,
    held_bytes,
    read_accounts,
)
from gridloom.cli.plan_figures import cases_in, plan_as_json
from gridloom.cli.plan_flags import Asked, Degrees, Terms
from gridloom.cli.plan_grounds import Grounds, read_grounds
from gridloom.cli.plan_inputs import Faults, Subject, read_one, read_pins, read_subject, read_words
from gridloom.cli.plan_search import usual_precision
from gridloom.cli.plan_stated import stated_pins, stated_plan
from gridloom.cli.plan_words import gigabytes
from gridloom.model.parallel import Optimizer, ParallelPlan, Precision
from gridloom.planner.memory import StageMemory, memory_by_stage
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.pins import SHORT, Pins
from gridloom.planner.pools import Pool
from gridloom.planner.search_space import SearchSpace

_STAGES_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one plan holds.

    Attributes:
        pool: On what.
        plan: How the model is cut.
        stages: Memory of each stage.
    """

    pool: Pool
    plan: ParallelPlan
    stages: tuple[StageMemory, ...]

    @property
    def limit_bytes(self) -> float:
        """Memory of a device."""
        return self.pool.accelerator.memory_bytes

    @property
    def first_to_overflow(self) -> StageMemory | None:
        """The first stage that does not fit; its first rank would end the run."""
        return next((stage for stage in self.stages if not stage.fits), None)

    @property
    def ranks_a_stage(self) -> int:
        """Ranks of one stage; stages follow each other in blocks of so many."""
        return self.plan.tensor * self.plan.context * self.plan.data


def show_memory(
    asked: Asked, degrees: Degrees, *, params: str, bytes_per_parameter: str, as_json: bool
) -> int:
    """Answer ``gridloom plan memory``."""
    accounts = read_accounts(bytes_per_parameter)
    if params:
        return _show_accounts(asked, degrees, params, accounts, as_json=as_json)
    subject, grounds, pins, precision = _read(asked, degrees)
    pool = grounds.pools[0]
    if subject.plan is not None and degrees == Degrees() and not asked.fix:
        held = _held_by_file(subject, pool, subject.plan)
    else:
        held = _held(asked, subject, pool, pins, precision)
    weights = count_parameters(subject.model)
    share = float(weights.total) / (held.plan.tensor * held.plan.pipeline)
    ranks = held.plan.data * held.plan.context
    if as_json:
        emit({**_as_json(held), "accounts": accounts_as_json(accounts, share, ranks)})
        return 0
    out = console()
    plan = held.plan
    say(
        f"{subject.model.name} on {plan.world_size:,} {held.pool.accelerator.title}: tensor"
        f" {plan.tensor} x pipeline {plan.pipeline} x context {plan.context} x data {plan.data},"
        f" ZeRO-{plan.zero}, micro-batch {plan.micro_batch}, {subject.sequence:,} tokens,"
        f" recompute {plan.recompute}, {plan.precision}"
    )
    out.print()
    _print_stages(out, held)
    say(_sentence(held, asked.head_room))
    out.print()
    say(
        f"by convention, for the {format_count(share)} parameters of tensor {plan.tensor} x"
        f" pipeline {plan.pipeline}, shared by data {plan.data} x context {plan.context}:"
    )
    out.print(accounts_table(accounts, share, ranks))
    return 0


def _read(asked: Asked, degrees: Degrees) -> tuple[Subject, Grounds, Pins, tuple[str, ...]]:
    faults = Faults()
    subject = read_subject(asked, faults, batch=False)
    grounds = faults.take(lambda: _grounds(asked, degrees))
    pins = {**stated_pins(degrees), **read_pins("--fix", asked.fix, faults)}
    precision = read_words("--precision", asked.precision, Precision, faults)
    faults.need("--precision", len(precision) < 2, "is one too many", "write one")
    read_one("--optimizer", asked.optimizer, Optimizer, faults)
    faults.end()
    assert subject is not None
    assert grounds is not None
    return subject, grounds, pins, precision


def _grounds(asked: Asked, degrees: Degrees) -> Grounds:
    """Return the devices; where only their kind is named, as many as the degrees take."""
    text = asked.devices or asked.grid
    if text and ":" not in text and not asked.grid and not text[:1].isdigit():  # only the kind
        count = max(1, degrees.tp * degrees.pp * degrees.cp)
        asked = replace(asked, devices=f"{text}:{count}")
    return read_grounds(asked, Terms(), "time")


def _held_by_file(subject: Subject, pool: Pool, plan: ParallelPlan) -> Held:
    """Return what the plan holds that came with the model, as arguments of Megatron-LM do."""
    space = SearchSpace(
        model=subject.model,
        accelerator=pool.accelerator,
        fabric=pool.fabric,
        devices=(plan.world_size,),
        global_batch=subject.global_batch,
        sequence=subject.sequence,
    )
    cases = cases_in(space, pool, plan, subject.global_batch)
    return Held(pool=pool, plan=plan, stages=memory_by_stage(cases))


def _held(
    asked: Asked, subject: Subject, pool: Pool, pins: Pins, precision: tuple[str, ...]
) -> Held:
    devices = pool.choices[-1]
    values = {name: int(pins[name]) for name in ("tp", "pp", "cp", "micro_batch")}
    copies = max(1, devices // max(1, values["tp"] * values["pp"] * values["cp"]))
    # Without a batch, as many micro-batches as fill the pipeline.
    filled = copies * max(1, values["micro_batch"]) * max(1, values["pp"])
    space = SearchSpace(
        model=subject.model,
        accelerator=pool.accelerator,
        fabric=pool.fabric,
        devices=(devices,),
        global_batch=subject.global_batch or filled,
        sequence=subject.sequence,
        precision=precision or (usual_precision(pool.accelerator),),  # type: ignore[arg-type]
        optimizer=(asked.optimizer,),  # type: ignore[arg-type]  # `read_words` has checked both
    )
    try:
        plan, batch = stated_plan(space, pins)
    except InputError as error:
        problems = [Problem(p.message, p.remedy, field=_flag(p.field)) for p in error.problems]
        raise InputError(problems) from error
    cases = cases_in(space, pool, plan, batch)
    return Held(pool=pool, plan=plan, stages=memory_by_stage(cases))


def _flag(knob: str) -> str:
    """Return the flag that states a knob, given by its full name or as a flag."""
    if knob.startswith("--"):
        return knob
    flags = {SHORT[short]: short for short in ("tp", "pp", "cp", "ep", "vpp")}
    flags |= {name: name for name in ("zero", "micro_batch", "recompute", "sequence_parallel")}
    return f"--{flags[knob]}".replace("_", "-") if knob in flags else f"--fix {knob}"


def _print_stages(out: Console, held: Held) -> None:
    shown = _shown(held.stages)
    heads = [f"stage {stage.stage + 1}" for stage in shown]
    rows = [
        (kind, *(gigabytes(stage.lines[kind]) for stage in shown))
        for kind in shown[0].lines
        if any(stage.lines[kind] for stage in held.stages)
    ]
    rows.append(("all", *(gigabytes(stage.peak_bytes) for stage in shown)))
    out.print(table(("a rank holds", *heads), rows, right=heads))
    left_out = len(held.stages) - len(shown)
    if left_out:
        say(f"{left_out} stages between these are left out; --json has all")
    out.print()


def _shown(stages: Sequence[StageMemory]) -> list[StageMemory]:
    """Return the stages to show: all of a few; else the first ones, the fullest and the last."""
    if len(stages) <= _STAGES_SHOWN:
        return list(stages)
    fullest = max(stages, key=lambda stage: stage.peak_bytes).stage
    overflow = next((stage.stage for stage in stages if not stage.fits), 0)
    kept = sorted({0, 1, fullest, overflow, len(stages) - 1})
    return [stages[index] for index in kept]


def _sentence(held: Held, head_room: float) -> str:
    limit = held.limit_bytes
    overflow = held.first_to_overflow
    if overflow is not None:
        largest = max(overflow.lines, key=lambda kind: overflow.lines[kind])
        rank = overflow.stage * held.ranks_a_stage
        return (
            f"does not fit: rank {rank} (stage {overflow.stage + 1}) runs out first; it needs"
            f" {gigabytes(overflow.peak_bytes)} of {gigabytes(limit)}, and the largest part is"
            f" {largest} with {gigabytes(overflow.lines[largest])}"
        )
    fullest = max(held.stages, key=lambda stage: stage.peak_bytes)
    free = limit - fullest.peak_bytes
    tight = "" if free >= limit * head_room else f", less than the head-room of {head_room:.0%}"
    return (
        f"fits: stage {fullest.stage + 1} is the fullest with {gigabytes(fullest.peak_bytes)} of"
        f" {gigabytes(limit)}, {gigabytes(free)} free{tight}"
    )


def _as_json(held: Held) -> dict[str, object]:
    overflow = held.first_to_overflow
    return {
        "accelerator": held.pool.accelerator.name,
        "devices": held.plan.world_size,
        "plan": plan_as_json(held.plan),
        "limit_bytes": held.limit_bytes,
        "fits": overflow is None,
        "peak_bytes": max(stage.peak_bytes for stage in held.stages),
        "first_to_overflow": {
            "stage": overflow.stage,
            "rank": overflow.stage * held.ranks_a_stage,
            "bytes": overflow.peak_bytes,
        }
        if overflow
        else None,
        "stages": [
            {"stage": s.stage, "peak_bytes": s.peak_bytes, "fits": s.fits, "lines": s.lines}
            for s in held.stages
        ],
    }


def _show_accounts(
    asked: Asked, degrees: Degrees, params: str, accounts: Sequence[Account], *, as_json: bool
) -> int:
    """Answer for a bare number of parameters."""
    faults = Faults()
    faults.need("--params", not asked.model, "stands beside --model", "write one of them")
    count = faults.read("--params", params, parse_count, "write a count, as 100B")
    faults.need("--params", count is None or count > 0, "is 0", "write a count, as 100B")
    ranks = _ranks(asked, degrees, faults)
    faults.need("--zero", degrees.zero in STAGES, f"{degrees.zero} cannot be", "write 0 to 3")
    faults.end()
    assert count is not None
    shared = degrees.tp * degrees.pp
    if as_json:
        emit(
            {
                "parameters": count,
                "devices": ranks * shared,
                "accounts": accounts_as_json(accounts, count / shared, ranks),
            }
        )
        return 0
    out = console()
    cut = f", of which each holds 1/{shared} (tensor x pipeline)" if shared > 1 else ""
    say(f"{format_count(count)} parameters{cut}, shared by {ranks:,} devices")
    out.print()
    out.print(accounts_table(accounts, count / shared, ranks))
    zero = next((stage for stage in STAGES if stage == degrees.zero), STAGES[0])
    each = [
        f"{gigabytes(sum(held_bytes(account, count / shared, ranks, zero).values()))} by"
        f" {account.name}"
        for account in accounts
    ]
    out.print()
    say(f"at ZeRO-{zero} a device holds {', '.join(each)}")
    return 0


def _ranks(asked: Asked, degrees: Degrees, faults: Faults) -> int:
    """Return how many devices share each parameter."""
    text = (asked.devices or asked.grid or "1").rpartition(":")[2]
    count = faults.read("--devices", text, parse_count, "write a count, as 64") or 0
    shared = degrees.tp * degrees.pp
    whole = count > 0 and shared > 0 and count % max(1, shared) == 0
    message = f"{count} devices are no whole number of {shared} (tensor x pipeline)"
    faults.need("--devices", whole, message, "write a multiple of tp x pp")
    return count // shared if whole else 1
