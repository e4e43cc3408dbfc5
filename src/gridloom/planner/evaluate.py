"""Predictions beside measurements: step time, memory, ranks, and who runs out of memory."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gridloom.planner.calibration import Calibration, predicted_s, runs_as_cases
from gridloom.planner.memory import peak_bytes
from gridloom.planner.published import Run, Unexpressed

SCORED = ("A", "B")
"""Grades that are scored: every input stated, or one or two missing and named."""

MEMORY_MIN_BYTES = 10e9
"""Measured peaks below are dominated by what no plan changes."""

TOLERATED_SHARE = 0.05
"""Of a device's memory, by which a run that fitted may be predicted above it."""

RANKED_MIN = 4
"""Plans of one model that are enough for a rank correlation."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of predictions.

    Attributes:
        rows: How many.
        mean: Of their absolute values.
        median: Of their absolute values.
        bias: Their median, signed: above zero when predictions are too slow or too large.
    """

    rows: int
    mean: float
    median: float
    bias: float


@dataclass(frozen=True)
class Detail:
    """One row.

    Attributes:
        run: What was measured.
        step_s: Predicted seconds of a training step.
        memory_bytes: Predicted peak memory of the fullest rank, as the row's counter sees it.
    """

    run: Run
    step_s: float
    memory_bytes: float


@dataclass(frozen=True)
class Ranking:
    """Plans of one model on one cluster, in the order predicted and measured.

    Attributes:
        group: Where they were measured.
        model: Its name.
        accelerator: On what.
        plans: How many.
        correlation: Spearman's, of device-seconds a token.
        first_choice: Measured device-seconds of the plan predicted best over those of the best.
    """

    group: str
    model: str
    accelerator: str
    plans: int
    correlation: float
    first_choice: float


@dataclass(frozen=True)
class Verdicts:
    """Whether runs fit, predicted and seen.

    Attributes:
        fitted: Runs that fitted and whose inputs are stated.
        fitted_refused: Of those, predicted above the device's memory.
        fitted_impossible: Of those, predicted above it by more than `TOLERATED_SHARE`.
        ran_out: Runs that ran out of memory.
        ran_out_found: Of those, predicted above the device's memory.
    """

    fitted: int
    fitted_refused: int
    fitted_impossible: int
    ran_out: int
    ran_out_found: int

    @property
    def precision(self) -> float:
        """Share of refused runs that did run out; 0 when none was refused."""
        refused = self.ran_out_found + self.fitted_refused
        return self.ran_out_found / refused if refused else 0.0

    @property
    def recall(self) -> float:
        """Share of runs that ran out which were refused; 0 without such runs."""
        return self.ran_out_found / self.ran_out if self.ran_out else 0.0


@dataclass(frozen=True)
class Report:
    """What a table of measured runs says of the planner.

    Attributes:
        rows: Lines of the table.
        unexpressed: Those that are no case, and why.
        details: Those that are.
        step_time: Errors over the scored rows.
        memory: Errors over measured peaks that are large enough.
        verdicts: Who fits.
        rankings: Of models with several plans.
        fallback: Families of accelerators that were judged by the constants of all.
    """

    rows: int
    unexpressed: tuple[Unexpressed, ...]
    details: tuple[Detail, ...]
    step_time: Errors
    memory: Errors
    verdicts: Verdicts
    rankings: tuple[Ranking, ...]
    fallback: tuple[str, ...] = ()
    by: dict[str, dict[str, Errors]] = field(default_factory=dict)

    def apart(self, *, fallback: bool) -> Errors:
        """Return the errors of families that stand on the constants of all, or of the others."""
        return errors(
            [
                detail
                for detail in self.details
                if scored(detail.run)
                and (detail.run.accelerator.family in self.fallback) == fallback
            ]
        )

    @property
    def rank_correlation(self) -> float:
        """Mean of the rankings' correlations, each counted by its plans; 0 without rankings."""
        plans = sum(ranking.plans for ranking in self.rankings)
        total = sum(ranking.plans * ranking.correlation for ranking in self.rankings)
        return total / plans if plans else 0.0


Predict = Callable[[Sequence[Run]], np.ndarray]
"""From runs to seconds of a training step."""


def evaluate(
    rows: Sequence[Run | Unexpressed], predict: Predict, fallback: Iterable[str] = ()
) -> Report:
    """Return how far predictions are from what ``rows`` measured.

    Args:
        rows: As `published.read_run` returns them.
        predict: How step times are predicted.
        fallback: Families without constants of their own.
    """
    runs = [row for row in rows if isinstance(row, Run)]
    steps = predict(runs) if runs else np.zeros(0)
    peaks = _peaks(runs)
    details = tuple(
        Detail(run, float(step), float(peak))
        for run, step, peak in zip(runs, steps, peaks, strict=True)
    )
    timed = [detail for detail in details if scored(detail.run)]
    return Report(
        rows=len(rows),
        unexpressed=tuple(row for row in rows if isinstance(row, Unexpressed)),
        details=details,
        step_time=errors(timed),
        memory=_memory_errors(details),
        verdicts=_verdicts(details),
        rankings=_rankings(timed),
        fallback=tuple(sorted(fallback)),
        by={
            "source": _by(timed, lambda run: run.group),
            "accelerator": _by(timed, lambda run: run.accelerator.name),
            "family": _by(timed, lambda run: run.accelerator.family),
            "program": _by(timed, lambda run: run.program),
            "completeness": _by(timed, lambda run: run.grade),
        },
    )


def by_calibration(calibration: Calibration) -> Predict:
    """Return predictions by fixed constants."""
    return lambda runs: predicted_s(calibration, runs)


def scored(run: Run) -> bool:
    """Return whether the run's step time counts."""
    return run.grade in SCORED and run.step_s > 0


def errors(details: Sequence[Detail]) -> Errors:
    """Return the errors of step times."""
    return _errors([detail.step_s / detail.run.step_s - 1.0 for detail in details])


def _errors(found: Sequence[float]) -> Errors:
    if not found:
        return Errors(0, 0.0, 0.0, 0.0)
    error = np.array(found)
    size = np.abs(error)
    return Errors(len(found), float(size.mean()), float(np.median(size)), float(np.median(error)))


def _by(details: Sequence[Detail], key: Callable[[Run], str]) -> dict[str, Errors]:
    parts: dict[str, list[Detail]] = defaultdict(list)
    for detail in details:
        parts[key(detail.run)].append(detail)
    return {name: errors(part) for name, part in sorted(parts.items())}


# --- memory


def _peaks(runs: Sequence[Run]) -> np.ndarray:
    """Return the predicted peak of each run, as its own counter sees it."""
    if not runs:
        return np.zeros(0)
    cases = runs_as_cases(runs)
    seen = {counter: peak_bytes(cases, counter) for counter in {run.counter for run in runs}}
    return np.array([seen[run.counter][index] for index, run in enumerate(runs)])


def _memory_errors(details: Sequence[Detail]) -> Errors:
    measured = [
        detail.memory_bytes / detail.run.memory_bytes - 1.0
        for detail in details
        if detail.run.memory_bytes >= MEMORY_MIN_BYTES
    ]
    return _errors(measured)


def _verdicts(details: Sequence[Detail]) -> Verdicts:
    whole = peak_shares(details)
    fitted = [
        share
        for share, detail in zip(whole, details, strict=True)
        if detail.run.grade in SCORED and not _unsure(detail.run)
    ]
    ran_out = [
        share for share, detail in zip(whole, details, strict=True) if detail.run.grade == "OOM"
    ]
    return Verdicts(
        fitted=len(fitted),
        fitted_refused=sum(share > 1.0 for share in fitted),
        fitted_impossible=sum(share > 1.0 + TOLERATED_SHARE for share in fitted),
        ran_out=len(ran_out),
        ran_out_found=sum(share > 1.0 for share in ran_out),
    )


def peak_shares(details: Sequence[Detail]) -> list[float]:
    """Return each predicted peak, all that the device gives away, over the device's memory."""
    if not details:
        return []
    runs = [detail.run for detail in details]
    peaks = peak_bytes(runs_as_cases(runs), "device")
    return [
        float(peak / run.accelerator.memory_bytes) for peak, run in zip(peaks, runs, strict=True)
    ]


def _unsure(run: Run) -> bool:
    """Return whether an input that memory hangs on was assumed."""
    return any(text.startswith(("recompute", "micro_batch")) for text in run.assumed)


# --- ranks


def _rankings(details: Sequence[Detail]) -> tuple[Ranking, ...]:
    """Return a ranking for each model of a group with enough different plans."""
    parts: dict[tuple[str, str, str], list[Detail]] = defaultdict(list)
    for detail in details:
        run = detail.run
        size = f"{run.model.name} {run.model.layers}x{run.model.hidden}"
        parts[run.group, size, run.accelerator.name].append(detail)
    found = (_ranking(key, part) for key, part in sorted(parts.items()))
    return tuple(ranking for ranking in found if ranking.plans >= RANKED_MIN)


def _ranking(key: tuple[str, str, str], details: Sequence[Detail]) -> Ranking:
    plans: dict[object, list[Detail]] = defaultdict(list)
    for detail in details:
        plans[_same_plan(detail.run)].append(detail)
    predicted = np.array(
        [np.mean([_device_seconds_a_token(d.run, d.step_s) for d in p]) for p in plans.values()]
    )
    measured = np.array(
        [np.mean([_device_seconds_a_token(d.run, d.run.step_s) for d in p]) for p in plans.values()]
    )
    choice = measured[int(np.argmin(predicted))] / measured.min()
    return Ranking(*key, len(plans), spearman(predicted, measured), float(choice))


def _same_plan(run: Run) -> object:
    """Return what repeats of one measurement share."""
    return run.plan, run.model.heads, run.devices, run.global_batch, run.sequence


def _device_seconds_a_token(run: Run, step_s: float) -> float:
    return run.devices * step_s / (run.global_batch * run.sequence)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation: Pearson's, of ranks, ties sharing their mean rank."""
    ranks = [_mean_ranks(values) for values in (one, other)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values), dtype=float)
    for value in np.unique(values):
        same = values == value
        ranks[same] = ranks[same].mean()
    return ranks
