"""How long a job will run, learned from the jobs that have ended.

Two methods. Running medians need no library: the median of the latest jobs most like the job, with
back-off to jobs less like it. The learned one adds gradient-boosted trees (histogram-based, as in
LightGBM, Ke et al., 2017) that predict the quantiles 0.1, 0.5 and 0.9 of the logarithm of the
duration over that median. The newest jobs are kept out of the trees and decide how far each
quantile follows the trees: where they tell nothing, the medians stay. The same jobs scale the
spread, as split conformal prediction does (Romano et al., 2019), for both methods.
"""

import importlib
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from gridloom.base.errors import InputError, Problem
from gridloom.model.spec import Forecast
from gridloom.planner.durations_features import (
    COLUMNS,
    INTERVAL_SPREADS,
    KINDS,
    Ask,
    Finished,
    History,
)

Method = Literal["learned", "medians"]

QUANTILES = (0.1, 0.5, 0.9)
"""That are predicted; the outer two bound the 80 % interval."""

BACK_OFF = (
    "whose, name, devices",
    "whose, stem, devices",
    "whose, devices",
    "whose",
    "all",
)
"""Jobs that a running median is taken over: the first kind of which enough have ended."""

ENOUGH = 5
"""Jobs of a kind for a median of their own."""

LEARN_JOBS_MIN = 300
"""With fewer jobs ended, only the medians are used."""

LEARN_JOBS_MAX = 20_000
"""The latest so many are learned from: older ones tell little of what is submitted now."""

KEPT_OUT = 0.2
"""Share of those, the newest, that weigh the trees against the medians and scale the spread."""

SPREAD_UNKNOWN = 2.0
"""Of the logarithm, before enough jobs have ended: over all jobs of the Philly log of 2017 the
quantiles 0.1 and 0.9 of the duration are 61 s and 10,773 s, a spread of 2.0."""

SPREAD_MIN = 0.05

_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)

_TREES = {
    "max_iter": 100,
    "learning_rate": 0.05,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 50,
    "early_stopping": False,
}
"""Small trees, slowly: on four cluster logs larger or faster ones fitted bursts of the past."""


class Trees(Protocol):
    """What has learned from rows of features."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the quantiles over the running median, one column each."""
        ...


@dataclass(frozen=True)
class Predictor:
    """Forecasts of jobs to come, by a history that may grow meanwhile.

    What ends after the fit moves the medians and the features at once, the trees only at the next
    fit.

    Attributes:
        history: Jobs that have ended.
        trees: None for medians alone.
        columns: Features that the trees read.
        weights: How far each quantile follows the trees, from 0 to 1.
        scale: Factor on the spread.
    """

    history: History
    trees: Trees | None = None
    columns: tuple[int, ...] = ()
    weights: tuple[float, ...] = (0.0, 0.0, 0.0)
    scale: float = 1.0

    def predict(self, asks: Sequence[Ask], at_s: float | None = None) -> list[Forecast]:
        """Return the forecast of each job, with duration 0 where nothing is known.

        Args:
            asks: Jobs.
            at_s: By what was known then; by default when each was submitted.
        """
        moments = [ask.submit_s if at_s is None else at_s for ask in asks]
        pairs = zip(asks, moments, strict=True)
        return self.forecasts(asks, [self.history.row(ask, moment) for ask, moment in pairs])

    def forecasts(self, asks: Sequence[Ask], rows: Sequence[Sequence[float]]) -> list[Forecast]:
        """Return the forecast of each job by its row of features."""
        if not asks:
            return []
        found = self._quantiles(np.array(rows, dtype=np.float64))
        spread = np.maximum((found[:, 2] - found[:, 0]) / (2.0 * INTERVAL_SPREADS), SPREAD_MIN)
        return [
            _forecast(ask, float(median), float(width) * self.scale)
            for ask, median, width in zip(asks, found[:, 1], spread, strict=True)
        ]

    def _quantiles(self, rows: np.ndarray) -> np.ndarray:
        by_medians = median_quantiles(rows)
        if self.trees is None:
            return by_medians
        by_trees = self.trees.predict(rows[:, self.columns]) + by_medians[:, 1:2]
        return _blend(by_trees, by_medians, np.array(self.weights))


@dataclass(frozen=True, kw_only=True)
class Refit:
    """When a rolling predictor learns anew: whichever comes first.

    Attributes:
        jobs: So many more jobs have ended; at the start, as many more as had (but no fewer than
            `LEARN_JOBS_MIN`).
        every_s: So many seconds have passed since, and at least one has ended.
    """

    jobs: int = 3_000
    every_s: float = 7 * 86_400.0


@dataclass
class Rolling:
    """A predictor that learns on as jobs end; never from one that ends after ``now``.

    Attributes:
        seed: Of the trees.
        method: With or without trees.
        refit: When it learns anew.
        history: Jobs that have ended.
    """

    seed: int
    method: Method = "medians"
    refit: Refit = Refit()
    history: History = field(default_factory=History)
    _predictor: Predictor | None = None
    _fitted_jobs: int = 0
    _fitted_s: float = -math.inf

    def finished(self, job: Finished) -> None:
        """Take in a job that has ended.

        Raises:
            InputError: A time of it cannot be.
        """
        self.history.append(job)

    def due(self, now: float) -> bool:
        """Say whether the next forecast comes from a new fit."""
        new = self.history.known(now) - self._fitted_jobs
        return (
            self._predictor is None
            or new >= min(self.refit.jobs, max(self._fitted_jobs, LEARN_JOBS_MIN))
            or (new > 0 and now - self._fitted_s >= self.refit.every_s)
        )

    def predictor(self, now: float) -> Predictor:
        """Return what predicts now, fitted anew if that is due.

        Raises:
            InputError: The method needs a library that is not installed.
        """
        if self._predictor is None or self.due(now):
            self._predictor = fit(self.history, self.seed, self.method, now)
            self._fitted_jobs, self._fitted_s = self.history.known(now), now
        return self._predictor

    def predict_at(self, ask: Ask, now: float) -> Forecast:
        """Return the forecast of a job by what is known now.

        Raises:
            InputError: The method needs a library that is not installed.
        """
        return self.predictor(now).predict([ask], now)[0]


def fit(
    history: History, seed: int, method: Method = "learned", at_s: float = math.inf
) -> Predictor:
    """Return a predictor that has learned from the jobs that had ended at ``at_s``.

    Raises:
        InputError: The method is ``learned`` and scikit-learn is not installed.
    """
    libraries = _libraries() if method == "learned" else None
    rows, logs = history.ended(at_s, LEARN_JOBS_MAX)
    told = np.isfinite(median_quantiles(rows)[:, 1])
    rows, logs = rows[told], logs[told]
    if len(rows) < LEARN_JOBS_MIN:
        return Predictor(history)
    cut = len(rows) - int(len(rows) * KEPT_OUT)
    plain = median_quantiles(rows)
    kept, true = plain[cut:], logs[cut:]
    columns = _telling(rows[:cut])
    if libraries is None or not columns:
        return Predictor(history, scale=_scale(kept, true))
    target = logs[:cut] - plain[:cut, 1]
    trees = _Boosted(rows[:cut][:, columns], target, seed, libraries)
    by_trees = trees.predict(rows[cut:][:, columns]) + kept[:, 1:2]
    weights = _weigh(by_trees, kept, true)
    scale = _scale(_blend(by_trees, kept, np.array(weights)), true)
    return Predictor(history, trees, columns, weights, scale)


def best_method() -> Method:
    """Return ``learned`` where its library is installed, else ``medians``."""
    return "learned" if importlib.util.find_spec("sklearn") else "medians"


def median_quantiles(rows: np.ndarray, back_off: Sequence[str] = BACK_OFF) -> np.ndarray:
    """Return the quantiles, one column each, that running medians give; NaN where none is known.

    Args:
        rows: Features, one row a job.
        back_off: Kinds of jobs, the most telling first.
    """
    median, spread = np.full(len(rows), np.nan), np.full(len(rows), SPREAD_UNKNOWN)
    for name in back_off:
        kind = KINDS.index(name)
        counted = rows[:, _JOBS + kind]
        first = np.isnan(median) & (counted >= ENOUGH)
        median[first], spread[first] = rows[first, _MEDIAN + kind], rows[first, _SPREAD + kind]
    few = np.isnan(median)
    median[few] = rows[few, _MEDIAN + KINDS.index("all")]
    reach = INTERVAL_SPREADS * spread
    return np.stack([median - reach, median, median + reach], axis=1)


def pinball(quantile: float, true: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean pinball loss (Koenker and Bassett, 1978), least at the true quantile."""
    over = true - predicted
    return float(np.mean(np.maximum(quantile * over, (quantile - 1.0) * over)))


_MEDIAN = COLUMNS.index(f"median: {KINDS[0]}")
_SPREAD = COLUMNS.index(f"spread: {KINDS[0]}")
_JOBS = COLUMNS.index(f"jobs: {KINDS[0]}")


def _forecast(ask: Ask, median: float, spread: float) -> Forecast:
    limit_s = ask.requested_s if ask.requested_s > 0 else math.inf
    if math.isnan(median):
        known_s = limit_s if math.isfinite(limit_s) else 0.0
        return Forecast(duration_s=known_s, spread=SPREAD_UNKNOWN)
    return Forecast(duration_s=min(math.exp(median), limit_s), spread=spread)


def _blend(by_trees: np.ndarray, by_medians: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted quantiles, sorted where they cross (Chernozhukov et al., 2010)."""
    return np.asarray(np.sort(weights * by_trees + (1.0 - weights) * by_medians, axis=1))


def _weigh(by_trees: np.ndarray, by_medians: np.ndarray, true: np.ndarray) -> tuple[float, ...]:
    """Return for each quantile the weight of the trees that would have lost least."""
    chosen = []
    for place, quantile in enumerate(QUANTILES):
        losses = [
            pinball(quantile, true, _blend(by_trees, by_medians, np.full(3, weight))[:, place])
            for weight in _WEIGHTS
        ]
        chosen.append(_WEIGHTS[losses.index(min(losses))])
    return tuple(chosen)


def _scale(quantiles: np.ndarray, true: np.ndarray) -> float:
    """Return the factor on the spread with which the interval would have held 80 % of ``true``."""
    spread = np.maximum((quantiles[:, 2] - quantiles[:, 0]) / (2.0 * INTERVAL_SPREADS), SPREAD_MIN)
    off = np.abs(true - quantiles[:, 1]) / spread
    return float(np.quantile(off, QUANTILES[2] - QUANTILES[0])) / INTERVAL_SPREADS


def _telling(rows: np.ndarray) -> tuple[int, ...]:
    """Return the columns with more than one value: the binning of the trees needs two."""
    values = [column[np.isfinite(column)] for column in rows.T]
    return tuple(i for i, column in enumerate(values) if len(column) and np.ptp(column) > 0)


class _Boosted:
    """Histogram-based gradient boosting, one model a quantile.

    All of it runs on one thread: sums are taken in one order, and where cores are shared a second
    thread makes it slower, as the threads wait for each other at every node of a tree.
    """

    def __init__(self, rows: np.ndarray, target: np.ndarray, seed: int, libraries: Any) -> None:
        ensemble, pools = libraries
        self._pools = pools.ThreadpoolController()
        with self._pools.limit(limits=1):
            self._models = [
                ensemble.HistGradientBoostingRegressor(
                    loss="quantile", quantile=quantile, random_state=seed, **_TREES
                ).fit(rows, target)
                for quantile in QUANTILES
            ]

    def predict(self, rows: np.ndarray) -> np.ndarray:
        with self._pools.limit(limits=1):
            return np.stack([model.predict(rows) for model in self._models], axis=1)


def _libraries() -> tuple[Any, Any]:
    """Return scikit-learn's ensembles and the control of threads that comes with it.

    Raises:
        InputError: They are not installed.
    """
    try:
        ensemble = importlib.import_module("sklearn.ensemble")
        return ensemble, importlib.import_module("threadpoolctl")
    except ImportError as error:
        message = "learning how long jobs run needs scikit-learn"
        raise InputError([Problem(message, "pip install 'gridloom[predict]'")]) from error
