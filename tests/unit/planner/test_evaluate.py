"""Predictions beside measurements: every number of a report by hand on small tables."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import spearmanr
from tests.unit.planner.measured_runs import MODEL, PLAN, RUN, TRUTH, timed

from gridloom.planner.calibration import predicted_s, runs_as_cases
from gridloom.planner.catalogue import ACCELERATORS
from gridloom.planner.evaluate import (
    MEMORY_MIN_BYTES,
    TOLERATED_SHARE,
    Detail,
    Errors,
    Report,
    Verdicts,
    by_calibration,
    errors,
    evaluate,
    peak_shares,
    scored,
    spearman,
)
from gridloom.planner.memory import Counter, peak_bytes
from gridloom.planner.published import Run, Unexpressed

NOTHING = Errors(0, 0.0, 0.0, 0.0)
# Of H100s with 80 GB: the first fits, the second does not.
FITS = structs.replace(PLAN, zero=3)
HUGE = structs.replace(PLAN, tensor=1, data=8, zero=0)


def predicting(*seconds: float) -> Callable[[Sequence[Run]], np.ndarray]:
    return lambda runs: np.array(seconds[: len(runs)])


def run(step_s: float = 10.0, **changes: Any) -> Run:
    return timed(RUN, step_s, **changes)


def peak(one: Run, counter: Counter = "device") -> float:
    return float(peak_bytes(runs_as_cases([one]), counter)[0])


def report(rows: Sequence[Run | Unexpressed], *seconds: float) -> Report:
    return evaluate(rows, predicting(*seconds))


# --- step times


def test_errors_by_hand() -> None:
    details = [
        Detail(run(10.0), 11.0, 0.0),
        Detail(run(10.0), 12.0, 0.0),
        Detail(run(10.0), 7.0, 0.0),
        Detail(run(10.0), 10.0, 0.0),
    ]
    found = errors(details)
    assert found.rows == 4
    assert found.mean == pytest.approx((0.1 + 0.2 + 0.3 + 0.0) / 4)
    assert found.median == pytest.approx(0.15)
    assert found.bias == pytest.approx(0.05)
    assert errors([]) == NOTHING


@pytest.mark.parametrize(
    ("grade", "step_s", "counts"),
    [("A", 1.0, True), ("B", 1.0, True), ("C", 1.0, False), ("OOM", 1.0, False), ("A", 0.0, False)],
)
def test_rows_are_scored_by_their_grade(grade: str, step_s: float, counts: bool) -> None:
    one = run(step_s, grade=grade)
    assert scored(one) is counts
    assert report([one], 2.0).step_time.rows == int(counts)


def test_rows_that_are_no_case_are_kept_apart() -> None:
    odd = Unexpressed("x", "A", "no plan names this")
    found = report([run(10.0, id="a"), odd, run(10.0, id="b")], 11.0, 9.0)
    assert found.rows == 3
    assert found.unexpressed == (odd,)
    assert [detail.run.id for detail in found.details] == ["a", "b"]
    assert [detail.step_s for detail in found.details] == [11.0, 9.0]
    assert vars(found.step_time) == pytest.approx(
        {"rows": 2, "mean": 0.1, "median": 0.1, "bias": 0.0}
    )


def test_errors_are_split_by_kind() -> None:
    a100 = ACCELERATORS["a100"]
    rows = [
        run(10.0, group="one", program="p"),
        run(10.0, group="two", program="p", accelerator=ACCELERATORS["h800"], grade="B"),
        run(10.0, group="two", program="q", accelerator=a100),
        run(10.0, group="three", grade="C"),
    ]
    found = report(rows, 11.0, 12.0, 13.0, 99.0).by
    means = {
        kind: {name: part.mean for name, part in parts.items()} for kind, parts in found.items()
    }
    assert means == {
        "source": {"one": pytest.approx(0.1), "two": pytest.approx(0.25)},
        "accelerator": {
            "a100": pytest.approx(0.3),
            "h100": pytest.approx(0.1),
            "h800": pytest.approx(0.2),
        },
        "family": {"a100": pytest.approx(0.3), "h100": pytest.approx(0.15)},
        "program": {"p": pytest.approx(0.15), "q": pytest.approx(0.3)},
        "completeness": {"A": pytest.approx(0.2), "B": pytest.approx(0.2)},
    }
    assert list(found["source"]) == ["one", "two"]
    assert sum(part.rows for part in found["source"].values()) == 3


def test_families_without_constants_of_their_own_are_named_in_order() -> None:
    found = evaluate([], predicting(), fallback=["tpu", "ada"])
    assert found.fallback == ("ada", "tpu")


def test_fixed_constants_predict() -> None:
    rows = [run(), run(accelerator=ACCELERATORS["a100"])]
    assert np.array_equal(by_calibration(TRUTH)(rows), predicted_s(TRUTH, rows))


def test_an_empty_table() -> None:
    def never(runs: Sequence[Run]) -> np.ndarray:
        raise AssertionError(runs)

    for rows in ([], [Unexpressed("x", "A", "why")]):
        found = evaluate(rows, never)
        assert (found.rows, found.details) == (len(rows), ())
        assert found.step_time == found.memory == NOTHING
        assert found.verdicts == Verdicts(0, 0, 0, 0, 0)
        assert (found.verdicts.precision, found.verdicts.recall) == (0.0, 0.0)
        assert (found.rankings, found.rank_correlation) == ((), 0.0)
        assert all(parts == {} for parts in found.by.values())
    assert peak_shares([]) == []


# --- memory


@pytest.mark.parametrize("counter", ["allocated", "reserved", "device"])
def test_memory_is_compared_as_the_rows_counter_sees_it(counter: Counter) -> None:
    one = run(counter=counter, plan=FITS)
    measured = run(counter=counter, plan=FITS, memory_bytes=peak(one, counter) / 1.25)
    other = run(counter="reserved", plan=FITS)
    found = report([measured, other], 10.0, 10.0)
    assert found.details[0].memory_bytes == pytest.approx(peak(one, counter))
    assert vars(found.memory) == pytest.approx(
        {"rows": 1, "mean": 0.25, "median": 0.25, "bias": 0.25}
    )


def test_small_and_unmeasured_peaks_do_not_count() -> None:
    rows = [run(memory_bytes=size) for size in (0.0, 0.99 * MEMORY_MIN_BYTES, MEMORY_MIN_BYTES)]
    assert report(rows, 1.0, 1.0, 1.0).memory.rows == 1
    # Memory counts for rows of any grade.
    assert report([run(memory_bytes=40e9, grade="C")], 1.0).memory.rows == 1


def with_memory(one: Run, share: float) -> Run:
    """Return ``one`` on a device of which its predicted peak takes ``share``."""
    device = structs.replace(one.accelerator, memory_bytes=peak(one) / share)
    return timed(one, one.step_s, accelerator=device)


@pytest.mark.parametrize("share", [0.5, 1.02, 2.0])
def test_shares_of_the_device(share: float) -> None:
    one = with_memory(run(), share)
    assert peak_shares([Detail(one, 1.0, 0.0)]) == [pytest.approx(share)]


def test_verdicts_are_counted() -> None:
    within, above = 1.0 + TOLERATED_SHARE / 2, 1.0 + 2 * TOLERATED_SHARE
    oom = run(grade="OOM", step_s=0.0)
    rows = [
        with_memory(run(), 0.9),
        with_memory(run(grade="B"), within),
        with_memory(run(), above),
        with_memory(run(grade="C"), 2.0),  # its inputs are not stated
        with_memory(run(assumed=("recompute=none",)), 2.0),  # nor are those memory hangs on
        with_memory(run(assumed=("micro_batch=1",)), 2.0),
        with_memory(run(assumed=("heads=32",)), 0.8),  # that one may be guessed
        with_memory(oom, 1.2),
        with_memory(oom, 1.01),
        with_memory(oom, 0.7),
    ]
    found = report(rows, *[10.0] * 10).verdicts
    assert found == Verdicts(
        fitted=4, fitted_refused=2, fitted_impossible=1, ran_out=3, ran_out_found=2
    )
    assert found.precision == pytest.approx(2 / 4)
    assert found.recall == pytest.approx(2 / 3)


def test_plans_of_one_model_on_real_devices() -> None:
    rows = [run(plan=FITS), run(plan=HUGE, grade="OOM")]
    shares = peak_shares([Detail(one, 1.0, 0.0) for one in rows])
    assert shares[0] < 1.0 < shares[1]
    assert report(rows, 1.0, 1.0).verdicts == Verdicts(1, 0, 0, 1, 1)


# --- ranks


def plans(*seconds: float, group: str = "group") -> list[Run]:
    """Return runs of different plans with these step times."""
    return [
        run(step, group=group, plan=structs.replace(PLAN, micro_batch=index + 1))
        for index, step in enumerate(seconds)
    ]


def test_a_ranking_by_hand() -> None:
    rows = plans(1.0, 2.0, 3.0, 4.0, 5.0)
    # The two fastest are swapped: 1 - 6 * 2 / (5 * 24)
    (found,) = report(rows, 2.0, 1.0, 3.0, 4.0, 5.0).rankings
    assert (found.group, found.model, found.accelerator) == ("group", "model 32x4096", "h100")
    assert found.plans == 5
    assert found.correlation == pytest.approx(0.9)
    assert found.first_choice == pytest.approx(2.0)


def test_the_best_plan_predicted_best_costs_nothing() -> None:
    (found,) = report(plans(2.0, 1.0, 3.0, 4.0), 20.0, 10.0, 40.0, 30.0).rankings
    assert found.first_choice == 1.0
    assert found.correlation == pytest.approx(0.8)


def test_plans_are_ranked_by_device_seconds_a_token() -> None:
    rows = plans(1.0, 1.0, 1.0, 1.0)
    batches = (64, 128, 256, 512)
    rows = [timed(one, 1.0, global_batch=batch) for one, batch in zip(rows, batches, strict=True)]
    (found,) = report(rows, 1.0, 1.0, 1.0, 1.0).rankings
    assert found.correlation == pytest.approx(1.0)
    # A prediction that only sees steps picks the smallest batch, at eight times the price.
    (found,) = report(rows, 1.0, 3.0, 9.0, 27.0).rankings
    assert found.first_choice == pytest.approx(8.0)


def test_fewer_than_four_plans_are_no_ranking() -> None:
    assert report(plans(1.0, 2.0, 3.0), 1.0, 2.0, 3.0).rankings == ()
    assert len(report(plans(1.0, 2.0, 3.0, 4.0), 1.0, 2.0, 3.0, 4.0).rankings) == 1


def test_repeats_of_a_plan_are_one_plan() -> None:
    first = plans(1.0, 2.0, 3.0)
    repeats = [*first, *(timed(one, one.step_s + 0.5) for one in first)]
    assert report(repeats, *[1.0] * 6).rankings == ()
    four = plans(1.0, 2.0, 3.0, 4.0)
    # The second, measured at 2 and at 6, is the fourth on average but predicted second.
    rows = [*four, timed(four[1], 6.0)]
    (found,) = report(rows, 1.0, 2.0, 3.0, 3.9, 2.0).rankings
    assert found.plans == 4
    measured, predicted = [1.0, 4.0, 3.0, 4.0], [1.0, 2.0, 3.0, 3.9]
    assert found.correlation == pytest.approx(spearmanr(measured, predicted).statistic)


def test_models_clusters_and_devices_are_ranked_apart() -> None:
    a100 = ACCELERATORS["a100"]
    wide = structs.replace(MODEL, hidden=8192)
    rows = [
        *plans(1.0, 2.0, 3.0, 4.0),
        *plans(1.0, 2.0, 3.0, 4.0, group="other"),
        *(timed(one, one.step_s, accelerator=a100) for one in plans(1.0, 2.0, 3.0, 4.0, 5.0)),
        *(timed(one, one.step_s, model=wide) for one in plans(1.0, 2.0)),
    ]
    ups, downs = [1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]
    found = report(rows, *ups, *downs, *ups, 5.0, 1.0, 2.0)
    assert [(each.group, each.accelerator, each.plans) for each in found.rankings] == [
        ("group", "a100", 5),
        ("group", "h100", 4),
        ("other", "h100", 4),
    ]
    assert [each.correlation for each in found.rankings] == pytest.approx([1.0, 1.0, -1.0])
    assert found.rank_correlation == pytest.approx((5 + 4 - 4) / 13)


def test_rows_that_are_not_scored_are_not_ranked() -> None:
    rows = plans(1.0, 2.0, 3.0, 4.0)
    rows[3] = timed(rows[3], 4.0, grade="C")
    assert report(rows, 1.0, 2.0, 3.0, 4.0).rankings == ()


# --- Spearman


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
        ([1, 2, 2, 3], [1, 2, 3, 4], 3 / 10**0.5),  # ranks 1, 2.5, 2.5, 4
        ([1, 1, 1, 1], [1, 2, 3, 4], 0.0),
        ([1, 2, 3, 4], [7, 7, 7, 7], 0.0),
    ],
)
def test_spearman_by_hand(one: list[float], other: list[float], expected: float) -> None:
    found = spearman(np.array(one, dtype=float), np.array(other, dtype=float))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_spearman_is_scipys_with_and_without_ties(seed: int) -> None:
    rng = random.Random(seed)
    size, values = rng.randint(3, 40), rng.choice((4, 10, 10**6))
    one, other = (np.array([float(rng.randrange(values)) for _ in range(size)]) for _ in range(2))
    one[0], other[0] = -1.0, -2.0  # never all the same
    assert spearman(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_only_the_order_matters() -> None:
    rng = random.Random(4)
    one, other = (np.array([rng.random() for _ in range(30)]) for _ in range(2))
    assert spearman(np.exp(7 * one), other**3) == pytest.approx(spearman(one, other))
    assert spearman(-one, other) == pytest.approx(-spearman(one, other))
