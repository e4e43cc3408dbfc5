"""``gridloom plan evaluate`` and ``calibrate``: predictions beside a table of measured runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from gridloom.base.codec import pretty
from gridloom.base.errors import InputError, Problem
from gridloom.cli.output import console, emit, pairs, say, table
from gridloom.cli.plan_inputs import write_text
from gridloom.cli.plan_progress import reported
from gridloom.cli.plan_runs_file import RunTable, read_runs
from gridloom.cli.plan_trust import calibrator, read_calibration
from gridloom.planner import evaluate
from gridloom.planner.calibration import Calibration, predicted_s
from gridloom.planner.evaluate import Errors, Report
from gridloom.planner.published import Run, Unexpressed
from gridloom.planner.shipped import SHIPPED
from gridloom.wire.documents_values import did_you_mean

GROUP = "group"
"""With ``--leave-out``: every group of runs is predicted by constants fitted to all others."""

_WORST_SHOWN = 8
_RUNS_MIN = 3


def show_evaluation(runs: Path, *, leave_out: str, constants: Path | None, as_json: bool) -> int:
    """Answer ``gridloom plan evaluate``."""
    read = read_runs(runs)
    scored = [run for run in read.runs if evaluate.scored(run)]
    if leave_out:
        judged, predict, how = _without(read, scored, leave_out, runs)
        report = evaluate.evaluate(judged, predict, _measured_once(scored, leave_out))
    else:
        calibration = read_calibration(constants) if constants else SHIPPED
        families = {run.accelerator.family for run in read.runs}
        fallback = sorted(families - set(calibration.families))
        how = f"constants of {constants}" if constants else "gridloom's own constants"
        rows: list[Run | Unexpressed] = [*read.runs, *read.unexpressed]
        report = evaluate.evaluate(rows, evaluate.by_calibration(calibration), fallback)
    if as_json:
        emit({**report_as_json(report), "constants": how, "file": str(runs)})
        return 0
    _show(report, how, str(runs))
    return 0


def show_calibration(runs: Path, *, out: Path | None, near: Path | None, as_json: bool) -> int:
    """Answer ``gridloom plan calibrate``."""
    read = read_runs(runs)
    calibrate = calibrator()
    scored = [run for run in read.runs if evaluate.scored(run)]
    _enough(scored, runs)
    known = read_calibration(near) if near else None
    fitted: Calibration = calibrate.fit(scored, known)
    groups = {run.group for run in scored}
    if len(groups) > 1:
        fitted = calibrate.with_errors(fitted, scored, _cross_validated(scored))
    fitted = _noted(fitted, f"{len(scored)} runs of {runs.name}")
    text = pretty(fitted)
    if out is not None:
        write_text(out, text)
    if as_json:
        emit({"file": str(out) if out else None, "runs": len(scored), "constants": fitted})
        return 0
    if out is None:
        print(text, end="")
        return 0
    rows = [
        (
            family,
            str(fitted.runs[family]),
            str(fitted.groups.get(family, 0)),
            f"±{fitted.error[family]:.0%}" if family in fitted.error else "unknown: one group",
        )
        for family in fitted.runs
    ]
    heads = ("family", "runs", "groups", "nine of ten within")
    console().print(table(heads, rows, right=heads[1:]))
    say(f"constants are in {out}; use them with `gridloom plan --constants {out}`")
    return 0


def report_as_json(report: Report) -> dict[str, Any]:
    """Return what machines are told of an evaluation."""
    verdicts = report.verdicts
    return {
        "rows": report.rows,
        "expressed": len(report.details),
        "unexpressed": [
            {"id": row.id, "grade": row.grade, "reason": row.reason} for row in report.unexpressed
        ],
        "step_time": _errors(report.step_time),
        "memory": _errors(report.memory),
        "oom": {
            "rows": verdicts.ran_out,
            "found": verdicts.ran_out_found,
            "precision": verdicts.precision,
            "recall": verdicts.recall,
            "fitted": verdicts.fitted,
            "fitted_refused": verdicts.fitted_refused,
            "fitted_impossible": verdicts.fitted_impossible,
        },
        "rank_correlation": report.rank_correlation,
        "rankings": [vars(ranking) for ranking in report.rankings],
        **{
            f"by_{kind}": {name: _errors(errors) for name, errors in parts.items()}
            for kind, parts in report.by.items()
        },
        "families_without_constants": list(report.fallback),
        "step_time_own_constants": _errors(report.apart(fallback=False)),
        "step_time_shared_constants": _errors(report.apart(fallback=True)),
        "rows_detail": [_detail(detail) for detail in report.details],
    }


def _errors(errors: Errors) -> dict[str, Any]:
    return {
        "rows": errors.rows,
        "mean_abs_error": errors.mean,
        "median_abs_error": errors.median,
        "bias": errors.bias,
    }


def _detail(detail: evaluate.Detail) -> dict[str, Any]:
    run = detail.run
    return {
        "id": run.id,
        "group": run.group,
        "grade": run.grade,
        "accelerator": run.accelerator.name,
        "predicted": detail.step_s,
        "measured": run.step_s or None,
        "error": detail.step_s / run.step_s - 1.0 if run.step_s else None,
        "predicted_memory_bytes": detail.memory_bytes,
        "measured_memory_bytes": run.memory_bytes or None,
        "assumed": list(run.assumed),
    }


def _without(
    read: RunTable, scored: Sequence[Run], leave_out: str, path: Path
) -> tuple[list[Run | Unexpressed], Callable[[Sequence[Run]], Any], str]:
    """Return the rows to judge, how they are predicted without themselves, and how in words."""
    calibrate = calibrator()
    _enough(scored, path)
    groups = sorted({run.group for run in scored})
    if leave_out == GROUP:
        if len(groups) < 2:
            right = "evaluate without --leave-out, or add runs of another group"
            raise InputError([Problem("all rows are of one group", right, file=str(path))])
        predicted = dict(zip([r.id for r in scored], _cross_validated(scored), strict=True))
        own = calibrate.fit(scored)

        def predict(runs: Sequence[Run]) -> Any:
            known = predicted_s(own, runs)
            return np.array(
                [predicted.get(run.id, step) for run, step in zip(runs, known, strict=True)]
            )

        how = "each group by constants fitted to the other groups"
        return [*read.runs, *read.unexpressed], predict, how
    if leave_out not in groups:
        near = did_you_mean(leave_out, groups) or f"write `group`, or one of {', '.join(groups)}"
        raise InputError([Problem(f"no group is called {leave_out!r}", near, field="--leave-out")])
    rest = [run for run in scored if run.group != leave_out]
    _enough(rest, path)
    fitted = calibrate.fit(rest)
    judged: list[Run | Unexpressed] = [run for run in read.runs if run.group == leave_out]
    how = f"constants fitted to the {len(groups) - 1} other groups"
    return judged, lambda runs: predicted_s(fitted, runs), how


def _measured_once(scored: Sequence[Run], leave_out: str) -> list[str]:
    """Return the families that nothing is known of once their one group is left out."""
    groups: dict[str, set[str]] = {}
    for run in scored:
        groups.setdefault(run.accelerator.family, set()).add(run.group)
    left_out = {leave_out} if leave_out != GROUP else {run.group for run in scored}
    return [family for family, found in groups.items() if len(found) == 1 and found <= left_out]


def _cross_validated(runs: Sequence[Run]) -> Any:
    predicted = np.zeros(len(runs))
    groups = len({run.group for run in runs})
    with reported("groups left out") as report:
        found = calibrator().cross_validated(runs)
        for done, (_, places, steps) in enumerate(found, start=1):
            predicted[places] = steps
            report(done, groups)
    return predicted


def _enough(scored: Sequence[Run], path: Path) -> None:
    if len(scored) < _RUNS_MIN:
        message = f"only {len(scored)} rows have a step time and all inputs"
        right = f"add runs: at least {_RUNS_MIN}"
        raise InputError([Problem(message, right, file=str(path))])


def _noted(calibration: Calibration, note: str) -> Calibration:
    return structs.replace(calibration, note=note)


def _show(report: Report, how: str, name: str) -> None:
    out = console()
    expressed = len(report.details)
    say(f"{name}: {report.rows} rows, {expressed} of them can be expressed; {how}")
    out.print()
    time, memory, verdicts = report.step_time, report.memory, report.verdicts
    facts = [
        (
            "step time",
            f"mean error {time.mean:.1%}, median {time.median:.1%}, bias {time.bias:+.1%},"
            f" over {time.rows} rows",
        )
        if time.rows
        else ("step time", "no row with a measured step time and all inputs"),
        (
            "memory",
            f"mean error {memory.mean:.1%}, median {memory.median:.1%}, bias {memory.bias:+.1%},"
            f" over {memory.rows} peaks",
        )
        if memory.rows
        else ("memory", "no row with a measured peak"),
        (
            "out of memory",
            f"{verdicts.ran_out_found} of {verdicts.ran_out} runs that did were predicted to;"
            f" {verdicts.fitted_refused} of {verdicts.fitted} that fitted were refused",
        ),
    ]
    if report.rankings:
        facts.append(
            (
                "order of plans",
                f"rank correlation {report.rank_correlation:.2f} over {len(report.rankings)}"
                " models with several plans",
            )
        )
    if report.fallback:
        own, shared = report.apart(fallback=False), report.apart(fallback=True)
        text = (
            f"{', '.join(report.fallback)}: judged by what all families share, mean error"
            f" {shared.mean:.1%} over {shared.rows} rows; {own.mean:.1%}, median {own.median:.1%}"
            f" over the {own.rows} others"
        )
        facts.append(("no constants of", text))
    out.print(pairs(facts))
    for kind in ("source", "accelerator"):
        _show_parts(kind, report.by[kind])
    _show_worst(report)
    reasons: dict[str, int] = {}
    for row in report.unexpressed:
        reasons[row.reason] = reasons.get(row.reason, 0) + 1
    if reasons:
        out.print()
        rows = sorted(((reason, str(n)) for reason, n in reasons.items()), key=lambda r: -int(r[1]))
        out.print(table(("not expressed because", "rows"), rows, right=("rows",)))


def _show_parts(kind: str, parts: dict[str, Errors]) -> None:
    if not parts:
        return
    out = console()
    out.print()
    rows = [
        (name, str(e.rows), f"{e.mean:.1%}", f"{e.median:.1%}", f"{e.bias:+.1%}")
        for name, e in parts.items()
    ]
    heads = (kind, "rows", "mean error", "median", "bias")
    out.print(table(heads, rows, right=heads[1:]))


def _show_worst(report: Report) -> None:
    timed = [detail for detail in report.details if evaluate.scored(detail.run)]
    timed.sort(key=lambda d: -abs(d.step_s / d.run.step_s - 1.0))
    if not timed:
        return
    rows = [
        (
            d.run.id,
            d.run.accelerator.name,
            f"{d.run.step_s:.4g} s",
            f"{d.step_s:.4g} s",
            f"{d.step_s / d.run.step_s - 1.0:+.0%}",
        )
        for d in timed[:_WORST_SHOWN]
    ]
    out = console()
    out.print()
    heads = ("furthest off", "accelerator", "measured", "predicted", "error")
    out.print(table(heads, rows, right=heads[2:]))
