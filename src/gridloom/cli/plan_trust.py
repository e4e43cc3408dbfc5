"""The constants that predictions are made with, and how far they can be trusted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from gridloom.base.codec import decode
from gridloom.base.errors import InputError, Problem
from gridloom.cli.plan_inputs import read_text
from gridloom.cli.plan_runs_file import read_runs
from gridloom.planner.calibration import Calibration
from gridloom.planner.cases import Cases, Column, MachineColumns
from gridloom.planner.constants import Constants
from gridloom.planner.costs import CostModel, cost_model
from gridloom.planner.evaluate import scored
from gridloom.planner.hardware import machine_columns
from gridloom.planner.pools import Pool
from gridloom.planner.shipped import SHIPPED


@dataclass(frozen=True, kw_only=True)
class Error:
    """How far predictions were off for one family of accelerators.

    Attributes:
        share: Relative error that nine of ten predictions kept within; 0 when unknown.
        runs: Measured runs that this comes from.
        groups: Sources of those runs: each was predicted without itself.
    """

    share: float = 0.0
    runs: int = 0
    groups: int = 0


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What predictions rest on.

    Attributes:
        constants: Of a family of accelerators.
        error: Of a family.
        source: Where the constants come from, for a person.
    """

    constants: Callable[[str], Constants]
    error: Callable[[str], Error]
    source: str


def read_trust(path: Path | None) -> Trust:
    """Return the constants of a file: fitted ones, or a table of runs to fit them to.

    Raises:
        InputError: The file cannot be used.
    """
    if path is None:
        return _of_calibration(SHIPPED, "published runs")
    return _of_calibration(read_calibration(path), str(path))


def read_calibration(path: Path) -> Calibration:
    """Return the calibration in a JSON file, or one fitted to the runs of a CSV file."""
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        runs = [run for run in read_runs(path).runs if scored(run)]
        if not runs:
            right = "add rows with a measured step time"
            raise InputError([Problem("no row can be fitted to", right, file=str(path))])
        fitted: Calibration = calibrator().fit(runs, SHIPPED)
        return fitted
    try:
        return decode(text, Calibration)
    except msgspec.DecodeError as error:
        right = "write it with `gridloom plan calibrate RUNS.csv --out FILE`"
        message = f"these are no fitted constants: {error}"
        raise InputError([Problem(message, right, file=str(path))]) from error


def calibrator() -> Any:
    """Return the module that fits constants, which needs scipy.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        from gridloom.planner import calibrate
    except ImportError as error:
        raise InputError("fitting needs scipy; pip install 'gridloom[plan]'") from error
    return calibrate


def _of_calibration(calibration: Calibration, source: str) -> Trust:
    def error(family: str) -> Error:
        return Error(
            share=calibration.error.get(family, 0.0),
            runs=calibration.runs.get(family, 0),
            groups=calibration.groups.get(family, 0),
        )

    return Trust(constants=calibration.constants, error=error, source=source)


def costs_of(pools: Sequence[Pool], trust: Trust) -> CostModel:
    """Return one cost model for all pools: each kind of device by its family's constants."""
    models = {
        _key(machine_columns(pool.accelerator, pool.fabric)): cost_model(
            trust.constants(pool.accelerator.family)
        )
        for pool in pools
    }
    first = next(iter(models.values()))
    if len({pool.accelerator.family for pool in pools}) == 1:
        return first

    def own(cases: Cases) -> CostModel:
        return models.get(_key(cases.machine), first)

    def step_s(cases: Cases) -> Column:
        return own(cases).step_s(cases)

    def step_lines(cases: Cases) -> Mapping[str, float]:
        return own(cases).step_lines(cases)

    return replace(first, step_s=step_s, step_lines=step_lines)


def _key(machine: MachineColumns) -> tuple[float, float]:
    """Return what tells one kind of device from another."""
    return (float(machine.flops_16), float(machine.hbm_bytes_per_s))
