"""Constants that were fitted to runs, and what they predict."""

from collections.abc import Sequence
from dataclasses import fields

import msgspec
import numpy as np

from gridloom.planner.cases import Cases, stack
from gridloom.planner.constants import Constants
from gridloom.planner.priors import PRIORS
from gridloom.planner.published import Run, case_of
from gridloom.planner.step_time import step_time


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Constants that were fitted, and how far to trust them.

    Attributes:
        shared: Constants by name.
        families: Factors on some of them, by family of accelerators.
        runs: How many runs of each family were fitted.
        groups: From how many groups those came.
        error: Spread of relative errors on groups left out, by family (90th percentile).
        note: Where the runs came from.
    """

    shared: dict[str, float]
    families: dict[str, dict[str, float]]
    runs: dict[str, int] = {}
    groups: dict[str, int] = {}
    error: dict[str, float] = {}
    note: str = ""

    def constants(self, family: str) -> Constants:
        """Return the constants of a family; those shared by all when it was never measured."""
        factors = self.families.get(family, {})
        values = {
            name: bounded(name, value * factors.get(name, 1.0))
            for name, value in self.shared.items()
        }
        return Constants(**values)


def runs_as_cases(runs: Sequence[Run]) -> Cases:
    """Return ``runs`` as columns."""
    return stack([case_of(run) for run in runs])


def predicted_s(calibration: Calibration, runs: Sequence[Run]) -> np.ndarray:
    """Return the predicted seconds of a training step of each run."""
    by_family = {run.accelerator.family: None for run in runs}
    constants = {family: calibration.constants(family) for family in by_family}
    columns = {
        field.name: np.array([getattr(constants[r.accelerator.family], field.name) for r in runs])
        for field in fields(Constants)
    }
    return np.asarray(step_time(runs_as_cases(runs), Constants(**columns)).total_s)


def bounded(name: str, value: float) -> float:
    """Return ``value`` of the constant ``name``, no more than it can be."""
    most = PRIORS[name].most
    return min(value, most) if most else value
