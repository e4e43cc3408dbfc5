"""`simulate`: what was asked is read, run, and printed or written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridloom.base.errors import InputError, Problem
from gridloom.base.units import parse_duration_s
from gridloom.cli.output import emit, say
from gridloom.cli.plan_inputs import write_text
from gridloom.cli.simulate_figures import as_json, over_seeds
from gridloom.cli.simulate_flags import Asked, Jobs, World
from gridloom.cli.simulate_forecast import read_outlook
from gridloom.cli.simulate_progress import Bar, Stop, stoppable
from gridloom.cli.simulate_run import Done, Plan, Run, journal_file
from gridloom.cli.simulate_setup import read_policies, read_setup
from gridloom.cli.simulate_table import show_dropped, show_results
from gridloom.model.policy import Policy
from gridloom.sim.report_html import page

_INTERRUPTED = 130
_SEEDS_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What is wanted of the results; fields as the flags."""

    events: Path | None
    report: Path | None
    dropped: bool
    laws: str
    as_json: bool


def show_simulation(jobs: Jobs, world: World, asked: Asked, outputs: Outputs) -> int:
    """Run what was asked; print, and write, what came of it.

    Raises:
        InputError: With what is wrong with the flags and the files.
    """
    plan = _read(jobs, world, asked, outputs)
    with stoppable() as stop:
        done = list(_all(plan, outputs.events, stop))
    currency = plan.setup.inventory.currency
    if outputs.report is not None:
        sections = [run.section for run in done if run.section is not None]
        told = [plan.setup.source, *plan.setup.notes]
        write_text(outputs.report, page(sections, notes=told, currency=currency))
    results = _results(done, currency)
    if outputs.as_json:
        emit(results)
    else:
        _show(plan, results, outputs)
    return _INTERRUPTED if stop.asked else 0


def _show(plan: Plan, results: Sequence[dict[str, Any]], outputs: Outputs) -> None:
    workload = plan.setup.jobs(plan.seeds[0])
    show_results(results, plan.setup, workload, listed=outputs.dropped)
    if outputs.dropped:
        show_dropped(workload)
    if outputs.report is not None:
        say(f"report: {outputs.report}")


def _read(jobs: Jobs, world: World, asked: Asked, outputs: Outputs) -> Plan:
    problems = []
    if not 1 <= asked.seeds <= _SEEDS_MAX:
        message = f"{asked.seeds} seeds cannot be"
        problems.append(Problem(message, f"write 1 to {_SEEDS_MAX}", field="--seeds"))
    until_s = _until_s(world.until)
    if until_s == 0:
        message = f"{world.until!r} cannot be"
        problems.append(Problem(message, "write a duration, as 7d", field="--until"))
    for flag, path in (("--events", outputs.events), ("--report", outputs.report)):
        if path is not None and path.is_dir():
            problems.append(Problem(f"{path} is a directory", "name a file", field=flag))
        elif path is not None and not path.absolute().parent.is_dir():
            message = f"there is no directory {path.parent}"
            problems.append(Problem(message, "name one that is there", field=flag))
    if problems:
        raise InputError(problems)
    outlook = read_outlook(jobs.forecast)
    setup = read_setup(jobs, world)
    return Plan(
        setup=setup,
        policies=read_policies(asked.policy, setup.inventory),
        seeds=tuple(range(asked.seed, asked.seed + asked.seeds)),
        outlook=outlook,
        world=world,
        until_s=until_s,
        laws=outputs.laws,
        drawn=outputs.report is not None,
    )


def _until_s(text: str) -> float | None:
    """Return the seconds; 0 when the text is no time above 0, nothing when there is no text."""
    try:
        return parse_duration_s(text) if text else None
    except ValueError:
        return 0.0


def _all(plan: Plan, events: Path | None, stop: Stop) -> Iterator[Done]:
    """Yield each run once it is done; none more once a person asked to stop."""
    pairs = [(policy, seed) for policy in plan.policies for seed in plan.seeds]
    bar = Bar(len(pairs) * len(plan.setup.jobs(plan.seeds[0]).arrivals))
    before = 0
    try:
        for policy, seed in pairs:
            if stop.asked:
                return
            workload = plan.setup.jobs(seed)
            run = Run(plan, policy, seed, workload)
            path = _own(events, policy, seed, plan) if events else None
            with journal_file(path) as write:
                yield run.go(bar=bar, stop=stop, before=before, write=write)
            before += len(workload.arrivals)
    finally:
        bar.close()


def _own(events: Path, policy: Policy, seed: int, plan: Plan) -> Path:
    """Return the file of one of several runs: ``out.jsonl`` is ``out.fifo.1.jsonl`` then."""
    parts = [policy.name] if len(plan.policies) > 1 else []
    parts += [str(seed)] if len(plan.seeds) > 1 else []
    return events.with_name(".".join((events.stem, *parts)) + events.suffix)


def _results(done: Sequence[Done], currency: str) -> list[dict[str, Any]]:
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for run in done:
        told = {**as_json(run.summary, currency), "never": run.never}
        by_policy.setdefault(run.summary.policy, []).append(told)
    return [runs[0] if len(runs) == 1 else over_seeds(runs) for runs in by_policy.values()]
