"""Constants fitted to runs that known constants made: recovered, refined, and left out."""

import random

import msgspec
import numpy as np
import pytest
from tests.unit.planner.measured_runs import RUN, TRUTH, relative, timed, varied_runs

from gridloom.base.errors import InputError
from gridloom.planner.calibrate import cross_validated, fit, with_errors
from gridloom.planner.calibration import Calibration, predicted_s
from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.priors import PRIORS
from gridloom.planner.published import Run

RUNS = varied_runs()
UNSEEN = varied_runs(40, seed=9)
TRUE_S = np.array([run.step_s for run in RUNS])
UNSEEN_S = np.array([run.step_s for run in UNSEEN])
PRIOR = Calibration(shared={name: prior.value for name, prior in PRIORS.items()}, families={})
# Each of a kind that other runs are of too: what no other run tells, no fit can know is absurd.
ABSURD = (4, 21, 40)


def noisy(runs: list[Run], seed: int = 1) -> list[Run]:
    """Return ``runs`` with 2 % of noise, and three of them ten times as slow."""
    rng = random.Random(seed)
    factors = [np.exp(rng.gauss(0.0, 0.02)) for _ in runs]
    return [
        timed(run, run.step_s * factor * (10 if index in ABSURD else 1))
        for index, (run, factor) in enumerate(zip(runs, factors, strict=True))
    ]


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    return fit(noisy(RUNS))


# --- recovery


def test_the_priors_alone_are_far_off() -> None:
    assert relative(predicted_s(PRIOR, RUNS), TRUE_S).mean() > 0.05


def test_exact_runs_are_recovered() -> None:
    found = fit(RUNS)
    error = relative(predicted_s(found, RUNS), TRUE_S)
    assert error.mean() < 0.01
    assert error.max() < 0.03
    for family in ("a100", "h100"):
        wanted = TRUTH.constants(family)
        assert found.constants(family).matrix_share == pytest.approx(wanted.matrix_share, rel=0.04)


def test_noise_and_absurd_rows_pull_little(fitted: Calibration) -> None:
    error = relative(predicted_s(fitted, RUNS), TRUE_S)
    assert error.mean() < 0.012
    assert error.max() < 0.04


def test_runs_that_were_not_fitted_are_predicted(fitted: Calibration) -> None:
    error = relative(predicted_s(fitted, UNSEEN), UNSEEN_S)
    assert error.mean() < 0.02
    assert np.quantile(error, 0.9) < 0.04
    assert error.mean() < relative(predicted_s(PRIOR, UNSEEN), UNSEEN_S).mean() / 4


def test_runs_and_groups_are_counted(fitted: Calibration) -> None:
    assert fitted.runs == {"a100": 30, "h100": 30}
    assert fitted.groups == {"a100": 3, "h100": 3}
    assert list(fitted.families) == ["a100", "h100"]
    assert set(fitted.shared) == set(PRIORS)
    scaled = {name for name, prior in PRIORS.items() if prior.family_spread}
    assert all(set(factors) == scaled for factors in fitted.families.values())


def test_the_same_runs_give_the_same_constants() -> None:
    few = RUNS[:16]
    assert fit(few) == fit(few)


def test_what_no_run_tells_stays_where_it_was() -> None:
    # No experts, no 8-bit products, no host that waits among the runs.
    found = fit(RUNS[:16]).shared
    for name in ("expert_imbalance", "permute_passes", "cast_passes", "blocking_s"):
        assert found[name] == pytest.approx(PRIORS[name].value, rel=1e-6)


# --- bounds


@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_no_constant_passes_its_bound(factor: float) -> None:
    found = fit([timed(run, run.step_s * factor) for run in RUNS[:6]])
    for name, value in found.shared.items():
        assert 0 < value <= (PRIORS[name].most or np.inf)
    for family in found.families:
        constants = found.constants(family)
        for name, prior in PRIORS.items():
            assert 0 < getattr(constants, name) <= (prior.most or np.inf)


# --- weights


def same(step_s: float, group: str, *, guessed: bool = False) -> Run:
    """Return the plain run with a step time of its own."""
    assumed = ("micro_batch=1",) if guessed else ()
    return timed(RUN, step_s, group=group, assumed=assumed)


def between(runs: list[Run]) -> float:
    return float(predicted_s(fit(runs), [RUN])[0])


def test_a_guessed_row_counts_less() -> None:
    base = float(predicted_s(PRIOR, [RUN])[0])
    fast, slow = 0.9 * base, 1.1 * base
    even = between([same(fast, "one"), same(slow, "two")])
    guessed = between([same(fast, "one"), same(slow, "two", guessed=True)])
    other = between([same(fast, "one", guessed=True), same(slow, "two")])
    assert fast < guessed < even < other < slow


def test_rows_of_a_large_group_count_less_each() -> None:
    base = float(predicted_s(PRIOR, [RUN])[0])
    fast, slow = 0.9 * base, 1.1 * base
    apart = between([same(fast, f"group {index}") for index in range(8)] + [same(slow, "two")])
    together = between([same(fast, "one")] * 8 + [same(slow, "two")])
    assert fast < apart < together < slow


# --- refinement


def test_a_grids_own_runs_move_predictions_towards_them(fitted: Calibration) -> None:
    own = [timed(run, run.step_s * 1.15) for run in UNSEEN[:6]]
    measured = np.array([run.step_s for run in own])
    refined = fit(own, known=fitted)
    before = relative(predicted_s(fitted, own), measured)
    after = relative(predicted_s(refined, own), measured)
    assert after.mean() < before.mean() / 2
    # What was known before is not forgotten for six runs.
    for name, value in refined.shared.items():
        moved = abs(np.log(value / fitted.shared[name]))
        assert moved < PRIORS[name].spread
    assert relative(predicted_s(refined, RUNS), TRUE_S).mean() < 0.2


def test_own_runs_that_agree_change_nothing(fitted: Calibration) -> None:
    own = [timed(run, step) for run, step in zip(RUNS, predicted_s(fitted, RUNS), strict=True)][:6]
    refined = fit(own, known=fitted)
    assert np.allclose(predicted_s(refined, RUNS), predicted_s(fitted, RUNS), rtol=1e-6)


def test_refining_keeps_the_families_that_were_not_measured(fitted: Calibration) -> None:
    own = [run for run in UNSEEN if run.accelerator.family == "h100"][:4]
    refined = fit(own, known=fitted)
    assert refined.families["a100"] == fitted.families["a100"]
    assert refined.runs == {"h100": 4}


def test_a_family_that_was_never_fitted_starts_from_the_shared_constants(
    fitted: Calibration,
) -> None:
    faster = predicted_s(fitted, [RUN])[0] / 2
    own = timed(RUN, faster, accelerator=ACCELERATORS["b200"])
    refined = fit([own], known=fitted)
    assert set(refined.families) == {"a100", "b200", "h100"}
    assert all(0.5 < factor < 2.0 for factor in refined.families["b200"].values())


def test_known_constants_may_lack_a_name() -> None:
    partial = Calibration(shared={"matrix_share": 0.7}, families={"h100": {"hbm_share": 0.9}})
    refined = fit([timed(RUN, float(predicted_s(PRIOR, [RUN])[0]))], known=partial)
    assert set(refined.shared) == set(PRIORS)
    assert refined.shared["matrix_share"] == pytest.approx(0.7, rel=0.05)
    assert refined.shared["step_fixed_s"] == pytest.approx(PRIORS["step_fixed_s"].value, rel=0.2)


# --- groups left out


def test_each_run_is_predicted_once_without_its_group() -> None:
    some = [run for run in RUNS if run.group in {"a100-0", "a100-2", "h100-1"}][:12]
    found = list(cross_validated(some))
    groups = [group for group, _, _ in found]
    assert groups == sorted({run.group for run in some})
    indices = [index for _, out, _ in found for index in out]
    assert sorted(indices) == list(range(len(some)))
    for group, out, predicted in found:
        assert {some[index].group for index in out} == {group}
        assert len(predicted) == len(out)
    group, out, predicted = found[-1]
    rest = [run for run in some if run.group != group]
    assert np.array_equal(predicted, predicted_s(fit(rest), [some[index] for index in out]))


def test_a_group_that_is_absurd_does_not_predict_itself() -> None:
    some = [
        timed(run, run.step_s * (3 if index < 4 else 1), group="odd" if index < 4 else "even")
        for index, run in enumerate(RUNS[:20])
    ]
    by_group = {group: (out, predicted) for group, out, predicted in cross_validated(some)}
    out, predicted = by_group["odd"]
    assert np.all(predicted < 0.5 * np.array([some[index].step_s for index in out]))


def test_errors_by_family_are_the_ninth_decile() -> None:
    runs = [timed(RUN, 10.0) for _ in range(11)]
    runs += [timed(RUN, 10.0, accelerator=ACCELERATORS["a100"])]
    without = np.array([*(10.0 + index for index in range(11)), 8.0])
    found = with_errors(msgspec.structs.replace(TRUTH, note="kept"), runs, without)
    assert found.error == {"a100": pytest.approx(0.2), "h100": pytest.approx(0.9)}
    assert (found.note, found.shared) == ("kept", TRUTH.shared)


def test_errors_need_a_prediction_for_each_run() -> None:
    with pytest.raises(ValueError, match="shorter"):
        with_errors(TRUTH, [RUN, RUN], np.array([1.0]))


def test_nothing_to_fit_is_a_clear_error() -> None:
    with pytest.raises(InputError, match="no measured run"):
        fit([])
