"""Fit the constants that gridloom ships to tables of measured runs, and print them as a module.

    python -m bench.shipped_constants RUNS.csv [RUNS.csv ...] > src/gridloom/planner/shipped.py

Each group is left out in turn, for the errors that predictions carry. Takes some minutes.
"""

import csv
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from gridloom.planner.calibrate import fit, left_out, with_errors
from gridloom.planner.calibration import Calibration
from gridloom.planner.evaluate import scored
from gridloom.planner.published import Run
from gridloom.planner.published_table import read_table

_HEAD = '''"""Constants as they ship; ``python -m bench.shipped_constants`` prints this module."""

from gridloom.planner.calibration import Calibration

'''


def main(paths: list[str]) -> None:
    """Fit, cross-validate and print."""
    runs = [run for path in paths for run in _read(Path(path))]
    groups = sorted({run.group for run in runs})
    without = np.zeros(len(runs))
    with ProcessPoolExecutor() as pool:
        for index, predicted in pool.map(partial(left_out, runs), groups):
            without[index] = predicted
    calibration = with_errors(fit(runs), runs, without)
    note = f"{len(runs)} published runs of {len(groups)} groups"
    sys.stdout.write(_HEAD + _module(calibration, note))
    error = np.abs(without / np.array([run.step_s for run in runs]) - 1.0)
    sys.stderr.write(f"left out: mean {error.mean():.1%}, median {np.median(error):.1%}\n")


def _read(path: Path) -> list[Run]:
    with path.open(newline="") as lines:
        rows = read_table(list(csv.DictReader(lines)))
    return [row for row in rows if isinstance(row, Run) and scored(row)]


def _module(calibration: Calibration, note: str) -> str:
    lines = ["SHIPPED = Calibration(", f"    note={note!r},", "    shared={"]
    lines += [f'        "{name}": {value:.4g},' for name, value in calibration.shared.items()]
    lines += ["    },", "    families={"]
    for family, factors in calibration.families.items():
        inside = ", ".join(f'"{name}": {value:.3f}' for name, value in factors.items())
        lines.append(f'        "{family}": {{{inside}}},')
    lines.append("    },")
    for name, values in (
        ("runs", calibration.runs),
        ("groups", calibration.groups),
        ("error", {family: round(value, 3) for family, value in calibration.error.items()}),
    ):
        inside = ", ".join(f'"{key}": {value}' for key, value in values.items())
        lines.append(f"    {name}={{{inside}}},")
    lines += [")", '"""Fitted to published runs; see docs/how/planner.md for their errors."""']
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
