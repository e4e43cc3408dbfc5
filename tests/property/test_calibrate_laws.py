"""Laws of calibration: any measurements give possible constants, the same in every process."""

import hashlib
import math
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planner.measured_runs import RUN, TRUTH, timed, varied_runs

from gridloom.base import codec
from gridloom.planner.calibrate import fit
from gridloom.planner.calibration import Calibration, predicted_s
from gridloom.planner.priors import PRIORS

RUNS = varied_runs(10, seed=5)
# A fit is a thousand predictions of a table.
FEW = settings(max_examples=3)


@cache
def known() -> Calibration:
    return fit(RUNS)


@FEW
@given(st.lists(st.floats(-8.0, 8.0), min_size=1, max_size=len(RUNS)))
def test_any_measurements_give_possible_constants(logarithms: list[float]) -> None:
    runs = [
        timed(run, run.step_s * math.exp(power))
        for run, power in zip(RUNS, logarithms, strict=False)
    ]
    found = fit(runs)
    for name, prior in PRIORS.items():
        assert 0 < found.shared[name] <= (prior.most or math.inf)
        assert math.isfinite(found.shared[name])
    assert np.all(predicted_s(found, RUNS) > 0)
    assert np.all(np.isfinite(predicted_s(found, RUNS)))


@FEW
@given(st.permutations(range(len(RUNS))))
def test_the_order_of_runs_does_not_matter(order: list[int]) -> None:
    other = fit([RUNS[index] for index in order])
    assert np.allclose(predicted_s(known(), RUNS), predicted_s(other, RUNS), rtol=2e-3)


@FEW
@given(st.floats(0.8, 1.25))
def test_slower_measurements_give_slower_predictions(factor: float) -> None:
    moved = fit([timed(run, run.step_s * factor) for run in RUNS])
    ratio = np.exp(np.mean(np.log(predicted_s(moved, RUNS) / predicted_s(known(), RUNS))))
    # A prior holds back, and never more than the measurements ask for.
    low, high = sorted((1.0, factor))
    assert low * 0.99 <= ratio <= high * 1.01
    assert abs(math.log(factor)) < 0.05 or abs(math.log(ratio)) > 0.5 * abs(math.log(factor))


@FEW
@given(st.integers(1, 4), st.floats(0.5, 2.0))
def test_refining_with_more_of_the_same_follows_it_further(count: int, factor: float) -> None:
    base = float(predicted_s(TRUTH, [RUN])[0])
    measured = base * factor

    def distance(calibration: Calibration) -> float:
        return abs(math.log(float(predicted_s(calibration, [RUN])[0]) / measured))

    few, more = (
        fit([timed(RUN, measured, group=str(index)) for index in range(n)], TRUTH)
        for n in (count, 4 * count)
    )
    assert distance(few) <= abs(math.log(factor)) + 1e-6
    assert distance(more) <= distance(few) + 1e-3


def digest() -> str:
    """Return a hash of a fit."""
    return hashlib.sha256(codec.encode(known())).hexdigest()


@pytest.mark.parametrize("seed", ["0", "1"])
def test_every_process_fits_alike(seed: str) -> None:
    # As many threads as we have: sums of products in another order round otherwise
    ours = dict(os.environ)  # noqa: TID251
    env = ours | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from tests.property.test_calibrate_laws import digest; print(digest())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == digest()
