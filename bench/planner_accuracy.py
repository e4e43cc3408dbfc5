"""How far the planner's predictions are from published measurements, as Markdown tables.

    python -m bench.planner_accuracy --runs RUNS.csv --one-node ONE.csv --memory MEMORY.csv \
        --calculon CALCULON.csv

The tables are those of docs/how/planner.md. Each group of runs is predicted with constants that
were fitted without it, and by the constants as they ship; peers stand beside: Calculon's own
predictions, and the memory estimators of Megatron-LM and DeepSpeed, their published formulas
written down again. Some minutes, one process a core.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from gridloom.planner.calibrate import left_out
from gridloom.planner.evaluate import Errors, Report, by_calibration, evaluate, scored
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.published import Run, Unexpressed
from gridloom.planner.published_table import read_table
from gridloom.planner.shipped import SHIPPED

CORE = ("a100", "h100")


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("runs", "one-node", "memory", "calculon"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    paths = parser.parse_args()
    rows, one = _read(paths.runs), _read(paths.one_node)
    shipped = evaluate(rows, by_calibration(SHIPPED))
    runs = [row for row in (*rows, *one) if isinstance(row, Run) and scored(row)]
    without = _left_out(runs)
    _step_time(shipped, evaluate(one, by_calibration(SHIPPED)), runs, without)
    _by_group(shipped, runs, without)
    _calculon(shipped, paths.calculon)
    _ranks(shipped)
    _memory(rows, _read(paths.memory))


def _read(path: Path) -> list[Run | Unexpressed]:
    with path.open(newline="") as lines:
        return list(read_table(list(csv.DictReader(lines))))


def _left_out(runs: list[Run]) -> np.ndarray:
    without = np.zeros(len(runs))
    with ProcessPoolExecutor() as pool:
        groups = sorted({run.group for run in runs})
        for index, predicted in pool.map(partial(left_out, runs), groups):
            without[index] = predicted
    return without


def _sizes(runs: Sequence[Run], predicted: np.ndarray) -> np.ndarray:
    measured = np.array([run.step_s for run in runs])
    return np.asarray(np.abs(predicted / measured - 1.0))


def _row(name: str, size: np.ndarray) -> str:
    return f"| {name} | {len(size)} | {size.mean():.1%} | {np.median(size):.1%} |"


def _step_time(shipped: Report, one: Report, runs: list[Run], without: np.ndarray) -> None:
    size = _sizes(runs, without)
    one_node = {detail.run.group for detail in one.details}
    core = [r.accelerator.family in CORE and r.group not in one_node for r in runs]
    fitted = np.array([abs(d.step_s / d.run.step_s - 1) for d in shipped.details if scored(d.run)])
    fitted_core = np.array(
        [
            abs(d.step_s / d.run.step_s - 1)
            for d in shipped.details
            if scored(d.run) and d.run.accelerator.family in CORE
        ]
    )
    print("| step time | runs | mean error | median |\n|---|---:|---:|---:|")
    print(_row("A100 and H100, each group left out", size[np.array(core)]))
    print(_row("A100 and H100, as shipped", fitted_core))
    print(_row("all accelerators, as shipped", fitted))
    print(_row("one node, as shipped", _sizes_of(one)))
    print(_row("one node, left out", size[np.array([r.group in one_node for r in runs])]))
    targets = [row for row in shipped.unexpressed if row.grade in {"A", "B"}]
    total = len(targets) + len(fitted)
    print(f"\nexpressed: {len(fitted)} of {total} A and B rows ({len(fitted) / total:.1%})\n")


def _sizes_of(report: Report) -> np.ndarray:
    return np.array([abs(d.step_s / d.run.step_s - 1) for d in report.details if scored(d.run)])


def _by_group(shipped: Report, runs: list[Run], without: np.ndarray) -> None:
    size = _sizes(runs, without)
    families: dict[str, set[str]] = {}
    for run in runs:
        families.setdefault(run.accelerator.family, set()).add(run.group)
    print("| group | accelerators | runs | left out, mean | median | as shipped, mean | bias |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for group in sorted({run.group for run in runs}):
        for family in sorted({r.accelerator.family for r in runs if r.group == group}):
            mask = np.array([r.group == group and r.accelerator.family == family for r in runs])
            told = [
                d.step_s / d.run.step_s - 1
                for d in shipped.details
                if scored(d.run) and d.run.group == group and d.run.accelerator.family == family
            ]
            alone = " (only group)" if len(families[family]) == 1 else ""
            mean, bias = (
                (f"{np.mean(np.abs(told)):.1%}", f"{np.median(told):+.1%}") if told else ("", "")
            )
            print(
                f"| {group} | {family}{alone} | {mask.sum()} | {size[mask].mean():.1%} |"
                f" {np.median(size[mask]):.1%} | {mean} | {bias} |"
            )
    print()


def _calculon(shipped: Report, path: Path) -> None:
    with path.open(newline="") as lines:
        theirs = {
            row["id"]: abs(float(row["rel_error"]))
            for row in csv.DictReader(lines)
            if row["calculon_s"]
        }
    both = [
        (abs(d.step_s / d.run.step_s - 1), theirs[d.run.id])
        for d in shipped.details
        if d.run.id in theirs
    ]
    pairs = np.array(both)
    print("| rows that Calculon expresses | rows | mean error | median |\n|---|---:|---:|---:|")
    print(_row("gridloom, as shipped", pairs[:, 0]))
    print(_row("Calculon", pairs[:, 1]) + "\n")


def _ranks(shipped: Report) -> None:
    print("| plans of one model | on | plans | Spearman | first choice / best |")
    print("|---|---|---:|---:|---:|")
    for rank in shipped.rankings:
        print(
            f"| {rank.group}: {rank.model} | {rank.accelerator} | {rank.plans} |"
            f" {rank.correlation:.2f} | {rank.first_choice:.3f} |"
        )
    print(f"\nmean, by plans: {shipped.rank_correlation:.2f}\n")


# --- memory, and the estimators of others


def _memory(rows: list[Run | Unexpressed], memory: list[Run | Unexpressed]) -> None:
    known = {row.id for row in rows if isinstance(row, Run) and row.memory_bytes}
    joined = [*rows, *(row for row in memory if not _repeated(row, rows))]
    report = evaluate(joined, by_calibration(SHIPPED))
    _print_errors(f"measured peaks above 10 GB ({len(known)} in the runs)", report.memory)
    verdicts = report.verdicts
    print(
        f"\nruns that fitted: {verdicts.fitted}, of them predicted above the device"
        f" {verdicts.fitted_refused}, above by 5 % {verdicts.fitted_impossible}; ran out:"
        f" {verdicts.ran_out}, found {verdicts.ran_out_found}; precision"
        f" {verdicts.precision:.0%}, recall {verdicts.recall:.0%}\n"
    )
    measured = [d for d in report.details if d.run.memory_bytes >= 10e9]
    print("| memory estimator | rows | mean error | median |\n|---|---:|---:|---:|")
    for name, estimate in (("Megatron-LM's", megatron_bytes), ("DeepSpeed's", deepspeed_bytes)):
        found = [(estimate(d.run), d) for d in measured]
        theirs = np.array([abs(v / d.run.memory_bytes - 1) for v, d in found if v])
        ours = np.array([abs(d.memory_bytes / d.run.memory_bytes - 1) for v, d in found if v])
        print(_row(name, theirs))
        print(_row("gridloom, the same rows", ours))


def _repeated(row: Run | Unexpressed, rows: list[Run | Unexpressed]) -> bool:
    """Return whether a row of the memory table is a run of the other one."""
    if isinstance(row, Unexpressed):
        return False
    return any(
        isinstance(other, Run)
        and other.memory_bytes == row.memory_bytes
        and other.devices == row.devices
        and other.model == row.model
        for other in rows
        if row.memory_bytes
    )


def _print_errors(name: str, found: Errors) -> None:
    print("| memory | rows | mean error | median | bias |\n|---|---:|---:|---:|---:|")
    print(f"| {name} | {found.rows} | {found.mean:.1%} | {found.median:.1%} | {found.bias:+.1%} |")


def megatron_bytes(run: Run) -> float:
    """Return what Megatron-LM's theoretical_memory_usage.py says; 0 when it cannot express it."""
    model, plan = run.model, run.plan
    if model.experts or model.latent:
        return 0.0
    hidden, per_norm = model.hidden, 1 if model.norm == "rms" else 2
    query = model.heads * model.width_per_head
    layer = 2 * hidden * (
        model.ffn * (1.5 if model.gated else 1) + per_norm
    ) + 2 * hidden * query * (1 + model.kv_heads / model.heads)
    table = hidden * model.vocabulary
    twice = 0 if model.tied or plan.pipeline > 1 else table
    block = layer * model.layers + hidden * per_norm
    shard = (block / plan.pipeline + table + twice) / plan.tensor
    states = shard * (18 if plan.zero == 0 else 6 + 12 / plan.data)
    return states + _megatron_activations(run)


def _megatron_activations(run: Run) -> float:
    model, plan = run.model, run.plan
    stream = run.sequence * plan.micro_batch * model.hidden
    shared = plan.sequence_parallel and plan.recompute == "selective"
    width = 18 + 4 * model.ffn / model.hidden if shared else 10 + 24 / plan.tensor
    kept = stream * width * model.layers + (8 / model.hidden + 1) * stream * plan.pipeline
    batches = max(1, math.ceil(run.global_batch / (plan.data * plan.micro_batch)))
    if plan.virtual_stages > 1:
        kept *= 1 + (plan.pipeline - 1) / (plan.pipeline * plan.virtual_stages)
    elif plan.pipeline > 1:
        kept *= min(1, batches / plan.pipeline)
    if plan.pipeline == 1:
        wide = 4 * (1 + model.vocabulary / model.hidden)
        plain = 2 * (model.vocabulary / model.hidden / plan.tensor + 1)
        kept += stream * (wide if shared else plain)
    return kept / plan.tensor if shared else kept * 1.05


def deepspeed_bytes(run: Run) -> float:
    """Return what DeepSpeed's estimate_zero2/3_model_states say; 0 where they say nothing."""
    plan = run.plan
    if plan.replica_ranks > 1 or plan.zero < 2:
        return 0.0
    weights = float(count_parameters(run.model).total)
    largest = run.model.vocabulary * run.model.hidden
    if plan.zero == 2:
        return 4 * weights + 16 * weights / plan.data
    return 4 * largest + 18 * weights / plan.data


if __name__ == "__main__":
    main()
