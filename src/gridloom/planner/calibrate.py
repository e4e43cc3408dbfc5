"""Constants fitted to measured runs: robust, regularised, checked on groups that were left out.

The logarithm of predicted over measured step time is fitted by least squares with the soft-L1 loss
(Huber-like; Triggs et al., 1999), so that a strange row pulls little, and a Gaussian prior on the
logarithm of each constant, so that what no row tells stays where literature puts it. A constant is
shared by all accelerators, or shared and scaled by family: there is none for a row, a group or a
program. Rows of a large group count less each, so that one table does not decide alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from gridloom.base.errors import InputError, Problem
from gridloom.planner.calibration import Calibration, bounded, predicted_s, runs_as_cases
from gridloom.planner.cases import take
from gridloom.planner.constants import Constants
from gridloom.planner.priors import PRIORS, Prior
from gridloom.planner.published import Run
from gridloom.planner.step_time import step_time

NOISE = 0.06
"""Spread of the logarithm that no model removes: repeats, releases, what tables leave out."""

GROUP_POWER = 0.5
"""A row of a group of ``n`` counts ``n ** -0.5``."""

GUESSED_WEIGHT = 0.3
"""Of a row whose micro-batch or schedule had to be guessed."""

REFINE_SPREAD = 0.3
"""Of a prior's spread, that a grid's own runs may move a constant that was fitted before."""

_EVALUATIONS_MAX = 30

_DIFFERENCE = 1e-6
"""Step of a logarithm for a derivative."""

_ROWS_AT_ONCE = 16_384


def fit(runs: Sequence[Run], known: Calibration | None = None) -> Calibration:
    """Return the constants that ``runs`` suggest, beside ``known`` ones if given.

    Args:
        runs: Measured runs, each with its step time.
        known: Constants fitted before: the new ones stay near, as `REFINE_SPREAD` says.

    Raises:
        InputError: There is no run.
    """
    if not runs:
        raise InputError([Problem("there is no measured run to fit", "give a table with some")])
    problem = _Problem(runs, known)
    solved = least_squares(
        problem.residuals,
        np.zeros(len(problem.spreads)),
        jac=problem.jacobian,
        x_scale=problem.spreads,
        max_nfev=_EVALUATIONS_MAX,
        ftol=1e-4,
        xtol=1e-4,
    )
    return problem.calibration(solved.x)


def cross_validated(runs: Sequence[Run]) -> Iterator[tuple[str, list[int], np.ndarray]]:
    """Yield each group, its runs' indices and their step times predicted without that group."""
    for group in sorted({run.group for run in runs}):
        yield group, *left_out(runs, group)


def left_out(runs: Sequence[Run], group: str) -> tuple[list[int], np.ndarray]:
    """Return the indices of a group's runs, and their step times predicted by the other runs."""
    out = [index for index, run in enumerate(runs) if run.group == group]
    rest = [run for run in runs if run.group != group]
    return out, predicted_s(fit(rest), [runs[index] for index in out])


def with_errors(calibration: Calibration, runs: Sequence[Run], without: np.ndarray) -> Calibration:
    """Return ``calibration`` with the spread of errors on groups that were left out."""
    errors: dict[str, list[float]] = {}
    for run, predicted in zip(runs, without, strict=True):
        errors.setdefault(run.accelerator.family, []).append(abs(predicted / run.step_s - 1.0))
    spread = {family: float(np.quantile(found, 0.9)) for family, found in sorted(errors.items())}
    return msgspec.structs.replace(calibration, error=spread)


class _Problem:
    """The fit as a function of the logarithms of the constants over their priors."""

    def __init__(self, runs: Sequence[Run], known: Calibration | None) -> None:
        self.cases = runs_as_cases(runs)
        self.measured = np.array([run.step_s for run in runs])
        self.families = sorted({run.accelerator.family for run in runs})
        self.family_of = np.array([self.families.index(r.accelerator.family) for r in runs])
        self.priors = _priors(known)
        self.known = known
        self.scaled = [name for name, prior in self.priors.items() if prior.family_spread]
        shared = [prior.spread for prior in self.priors.values()]
        scaled = [self.priors[name].family_spread for name in self.scaled for _ in self.families]
        self.spreads = np.array(shared + scaled)
        self.weights = _weights(runs)
        everyone = np.arange(len(runs))
        self.rows = [everyone for _ in self.priors]
        for _ in self.scaled:
            self.rows += [everyone[self.family_of == index] for index in range(len(self.families))]
        self.counted = runs

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """Return what least squares makes small: errors of runs, then distances from priors."""
        everyone = np.arange(len(self.measured))
        predicted = step_time(self.cases, self.constants(x)).total_s
        return np.concatenate([self._errors(predicted, everyone), x / self.spreads])

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Return the residuals' derivatives, by differences, many constants in one evaluation."""
        count = len(self.measured)
        before = self.residuals(x)[:count]
        found = np.zeros((count + len(x), len(x)))
        found[count:] = np.diag(1.0 / self.spreads)
        for block in self._blocks():
            rows = np.concatenate([self.rows[place] for place in block])
            moved = [self._moved(x, place) for place in block]
            names = [field.name for field in fields(Constants)]
            columns = {name: np.concatenate([one[name] for one in moved]) for name in names}
            predicted = step_time(take(self.cases, rows), Constants(**columns)).total_s
            change = (self._errors(predicted, rows) - before[rows]) / _DIFFERENCE
            starts = np.cumsum([0, *(len(self.rows[place]) for place in block)])
            for place, start, end in zip(block, starts, starts[1:], strict=False):
                found[rows[start:end], place] = change[start:end]
        return found

    def _errors(self, predicted: np.ndarray, rows: np.ndarray) -> np.ndarray:
        error = np.log(predicted / self.measured[rows]) / NOISE * self.weights[rows]
        return np.asarray(np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error * error) - 1.0)))

    def _blocks(self) -> Iterator[list[int]]:
        """Yield constants whose rows fit into one evaluation."""
        block: list[int] = []
        for place, rows in enumerate(self.rows):
            if block and sum(len(self.rows[one]) for one in block) + len(rows) > _ROWS_AT_ONCE:
                yield block
                block = []
            block.append(place)
        yield block

    def _moved(self, x: np.ndarray, place: int) -> dict[str, np.ndarray]:
        """Return the constants of the rows that one of them concerns, after a small step of it."""
        point = x.copy()
        point[place] += _DIFFERENCE
        rows, count = self.rows[place], len(self.measured)
        constants = vars(self.constants(point))
        return {name: np.broadcast_to(value, count)[rows] for name, value in constants.items()}

    def constants(self, x: np.ndarray) -> Constants:
        values: dict[str, Any] = {}
        shared, factors = self._split(x)
        for name, value in shared.items():
            scale = factors[name][self.family_of] if name in factors else 1.0
            most = self.priors[name].most
            values[name] = np.minimum(value * scale, most) if most else value * scale
        return Constants(**values)

    def calibration(self, x: np.ndarray) -> Calibration:
        shared, factors = self._split(x)
        families = {
            family: {name: float(factors[name][index]) for name in self.scaled}
            for index, family in enumerate(self.families)
        }
        counted = Counter(run.accelerator.family for run in self.counted)
        pairs = {(run.accelerator.family, run.group) for run in self.counted}
        groups = Counter(family for family, _ in pairs)
        if self.known:
            families = {**self.known.families, **families}
        return Calibration(
            shared={name: bounded(name, float(value)) for name, value in shared.items()},
            families=families,
            runs=dict(sorted(counted.items())),
            groups=dict(sorted(groups.items())),
        )

    def _split(self, x: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        count, width = len(self.priors), len(self.families)
        values = zip(self.priors.items(), np.exp(x[:count]), strict=True)
        shared = {name: prior.value * float(factor) for (name, prior), factor in values}
        factors = {}
        for index, name in enumerate(self.scaled):
            start = count + index * width
            before = [self._known_factor(family, name) for family in self.families]
            factors[name] = np.exp(x[start : start + width]) * np.array(before)
        return shared, factors

    def _known_factor(self, family: str, name: str) -> float:
        if self.known is None:
            return 1.0
        return self.known.families.get(family, {}).get(name, 1.0)


def _priors(known: Calibration | None) -> dict[str, Prior]:
    """Return the priors, around the ``known`` constants and tighter when there are such."""
    if known is None:
        return PRIORS
    return {
        name: replace(
            prior,
            value=known.shared.get(name, prior.value),
            spread=prior.spread * REFINE_SPREAD,
        )
        for name, prior in PRIORS.items()
    }


def _weights(runs: Sequence[Run]) -> np.ndarray:
    sizes = Counter(run.group for run in runs)
    weights: np.ndarray = np.array(
        [
            sizes[run.group] ** -GROUP_POWER * (GUESSED_WEIGHT if run.guessed else 1.0)
            for run in runs
        ]
    )
    return np.asarray(weights / weights.mean())
