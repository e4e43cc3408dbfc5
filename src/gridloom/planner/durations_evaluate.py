"""How good forecasts of durations would have been, in the order of time, beside plain guesses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gridloom.base.errors import InputError, Problem
from gridloom.model.spec import Forecast
from gridloom.planner.durations import (
    QUANTILES,
    Method,
    Predictor,
    Refit,
    Rolling,
    median_quantiles,
    pinball,
)
from gridloom.planner.durations_features import DURATION_S_MIN, INTERVAL_SPREADS, Ask, Finished

SKIPPED = 0.1
"""Share of the jobs, the first submitted, that are learned from and not judged."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How far the forecasts of one method were from the truth; errors are natural logarithms.

    Attributes:
        method: ``learned``, ``medians``, ``median of all`` or ``request``.
        jobs: Judged.
        error_median: Median of the absolute logarithm of predicted over true.
        error_mean: Mean of it.
        within_2: Share predicted within a factor of 2.
        pinball: Mean loss over the quantiles 0.1, 0.5 and 0.9; NaN without an interval.
        coverage: Share of jobs in the 80 % interval; NaN without one.
        bias: Median of the logarithm of predicted over true.
        rank: Spearman's correlation of predicted and true: what an order by length needs; NaN
            where all are predicted alike.
    """

    method: str
    jobs: int
    error_median: float
    error_mean: float
    within_2: float
    pinball: float
    coverage: float
    bias: float
    rank: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a log says of the methods.

    Attributes:
        scores: One a method, all over the same jobs.
        requested: The same, over those of the jobs that have a requested time; empty for none.
        fits: How often it was learned anew.
        skipped: Jobs that were not judged.
    """

    scores: tuple[Score, ...]
    requested: tuple[Score, ...]
    fits: int
    skipped: int


def evaluate(
    jobs: Sequence[Finished],
    *,
    seed: int,
    method: Method = "learned",
    refit: Refit | None = None,
    skipped: float = SKIPPED,
) -> Evaluation:
    """Predict each job when it is submitted, by the jobs that had ended by then, and score it.

    Args:
        jobs: A log, in any order.
        seed: Of the trees.
        method: ``medians`` leaves the learned one out.
        refit: When it is learned anew; by default as `Refit` says.
        skipped: Share of the jobs, the first submitted, that are not judged.

    Raises:
        InputError: A time of a job cannot be, no job is left to judge, or the method needs a
            library that is not installed.
    """
    methods: tuple[Method, ...] = ("learned", "medians") if method == "learned" else ("medians",)
    replay = _Replay(jobs, [Rolling(seed, one, refit or Refit()) for one in methods])
    replay.run(int(len(jobs) * skipped))
    if not replay.judged:
        right = "give a log with at least one job that is submitted after another has ended"
        raise InputError([Problem("there is no job to judge", right)])
    true = np.array([math.log(max(job.duration_s, DURATION_S_MIN)) for job in replay.judged])
    found = {name: _quantiles(made) for name, made in zip(methods, replay.forecasts, strict=True)}
    table: dict[str, np.ndarray] = {str(name): one for name, one in found.items()}
    table["median of all"] = median_quantiles(np.array(replay.rows), ("all",))
    limits = np.array([job.requested_s for job in replay.judged])
    limited = limits > 0
    asked: list[Score] = []
    if limited.any():
        asked = [_score(name, one[limited], true[limited]) for name, one in table.items()]
        asked.append(_score("request", np.log(limits[limited])[:, None], true[limited]))
    return Evaluation(
        scores=tuple(_score(name, one, true) for name, one in table.items()),
        requested=tuple(asked),
        fits=replay.fits,
        skipped=len(jobs) - len(replay.judged),
    )


class _Replay:
    """A log in the order of time: jobs are told when they end, and asked when they are submitted.

    Forecasts by one fit are made together, each from the features of its own moment.
    """

    def __init__(self, jobs: Sequence[Finished], rolling: list[Rolling]) -> None:
        self.jobs = jobs
        self.rolling = rolling
        self.judged: list[Finished] = []
        self.rows: list[tuple[float, ...]] = []
        self.forecasts: list[list[Forecast]] = [[] for _ in rolling]
        self.fits = 0

    def run(self, skipped: int) -> None:
        first, *others = self.rolling
        for one in others:
            one.history = first.history
        history = first.history
        ends = sorted(self.jobs, key=lambda job: (job.end_s, *_place(job)))
        told = 0
        asks: list[Finished] = []
        rows: list[tuple[float, ...]] = []
        predictors: list[Predictor] = []
        for number, job in enumerate(sorted(self.jobs, key=_place)):
            while told < len(ends) and ends[told].end_s <= job.submit_s:
                history.append(ends[told])
                told += 1
            if number < skipped or not told:
                continue
            if first.due(job.submit_s):
                self._predict(predictors, asks, rows)
                asks, rows = [], []
                predictors = [one.predictor(job.submit_s) for one in self.rolling]
                self.fits += 1
            asks.append(job)
            rows.append(history.row(job, job.submit_s))
        self._predict(predictors, asks, rows)

    def _predict(
        self,
        predictors: list[Predictor],
        asks: list[Finished],
        rows: list[tuple[float, ...]],
    ) -> None:
        for predictor, made in zip(predictors, self.forecasts, strict=False):
            made += predictor.forecasts(asks, rows)
        self.judged += asks
        self.rows += rows


def _place(job: Ask) -> tuple[float | int | str, ...]:
    end_s = job.end_s if isinstance(job, Finished) else 0.0
    return (job.submit_s, end_s, job.user, job.name, job.queue, job.devices)


def _quantiles(forecasts: Sequence[Forecast]) -> np.ndarray:
    """Return what the forecasts themselves say: quantiles of a log-normal, not those of trees."""
    median = np.log(np.array([forecast.duration_s for forecast in forecasts]))
    reach = INTERVAL_SPREADS * np.array([forecast.spread for forecast in forecasts])
    return np.stack([median - reach, median, median + reach], axis=1)


def _score(method: str, quantiles: np.ndarray, true: np.ndarray) -> Score:
    spread = quantiles.shape[1] == len(QUANTILES)
    low, median, high = (quantiles[:, place] for place in (0, quantiles.shape[1] // 2, -1))
    off = median - true
    losses = [
        pinball(quantile, true, quantiles[:, place])
        for place, quantile in enumerate(QUANTILES)
        if spread
    ]
    held = np.mean((low <= true) & (true <= high))
    return Score(
        method=method,
        jobs=len(true),
        error_median=float(np.median(np.abs(off))),
        error_mean=float(np.mean(np.abs(off))),
        within_2=float(np.mean(np.abs(off) <= math.log(2.0))),
        pinball=float(np.mean(losses)) if spread else math.nan,
        coverage=float(held) if spread else math.nan,
        bias=float(np.median(off)),
        rank=_rank_correlation(median, true),
    )


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    first, second = _ranks(one), _ranks(other)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks, equal values sharing the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[place])
