"""Durations learned from a history: by hand, without a look ahead, and on logs made with a rule."""

import importlib.util
import math
import random
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from gridloom.base.errors import InputError
from gridloom.model.spec import Forecast
from gridloom.planner import durations
from gridloom.planner.durations import (
    LEARN_JOBS_MIN,
    SPREAD_MIN,
    SPREAD_UNKNOWN,
    Predictor,
    Refit,
    Rolling,
    best_method,
    fit,
    pinball,
)
from gridloom.planner.durations_evaluate import Score, evaluate
from gridloom.planner.durations_features import (
    COLUMNS,
    INTERVAL_SPREADS,
    KINDS,
    LAST,
    WINDOW,
    Ask,
    Finished,
    History,
    stem,
)

HOUR_S = 3_600.0
with_trees = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="needs gridloom[predict]"
)


def ended(end_s: float, duration_s: float, **more: object) -> Finished:
    known = {"submit_s": end_s - duration_s, **more}
    return msgspec.convert({**known, "end_s": end_s, "duration_s": duration_s}, Finished)


def told(history: History, ask: Ask, at_s: float) -> dict[str, float]:
    return dict(zip(COLUMNS, history.row(ask, at_s), strict=True))


def made(count: int, seed: int, *, requested: bool = False) -> list[Finished]:
    """Return a log in which each user and name has its own length.

    With ``requested``, a job runs for a fixed share of a request that varies from job to job, so
    that its kind's median tells little and the request nearly all.
    """
    rng = random.Random(seed)
    jobs, submit_s = [], 1_700_000_000.0
    for _ in range(count):
        submit_s += rng.expovariate(1 / 300.0)
        user, name = rng.randrange(6), rng.choice(["pretrain", "eval", "tune"])
        length = 200.0 * 1.7**user * len(name)
        request_s = 0.0
        if requested:
            request_s = rng.choice([600.0, 3_600.0, 36_000.0, 180_000.0])
            length = request_s * (0.15 + 0.1 * user)
        duration_s = length * math.exp(rng.gauss(0.0, 0.2))
        jobs.append(
            Finished(
                submit_s=submit_s,
                user=f"u{user}",
                name=f"{name}-{rng.randrange(10_000)}",
                devices=8,
                queue="a",
                requested_s=request_s,
                end_s=submit_s + 60.0 + duration_s,
                duration_s=duration_s,
            )
        )
    return jobs


def by_method(scores: tuple[Score, ...]) -> dict[str, Score]:
    return {score.method: score for score in scores}


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("", ""),
        ("train", "train"),
        ("Train_12", "train"),
        ("llama70b-lr3-run12-2024.05.01", "llama70b-lr-run"),
        ("resnet50/3fa9c1d2", "resnet50"),
        ("2024-05-01", ""),
        ("tune decade", "tune-decade"),  # letters alone are a word, be they hexadecimal or not
    ],
)
def test_stem_drops_what_changes_from_run_to_run(name: str, short: str) -> None:
    assert stem(name) == short


def test_row_tells_what_had_ended_by_then() -> None:
    history = History([ended(100.0, 50.0, user="a"), ended(200.0, 80.0, user="a")])
    ask = Ask(submit_s=150.0, user="a", devices=4, requested_s=math.e)
    early, late = told(history, ask, 150.0), told(history, ask, 200.0)
    assert early["last 1"] == pytest.approx(math.log(50.0))
    assert math.isnan(early["last 2"])
    assert early["jobs: whose"] == 1.0
    assert early["jobs: whose, devices"] == 0.0
    assert math.isnan(early["median: whose, devices"])
    assert early["log idle"] == pytest.approx(math.log1p(50.0))
    assert early["log2 devices"] == 2.0
    assert early["log requested"] == pytest.approx(1.0)
    assert [late["last 1"], late["last 2"]] == pytest.approx([math.log(80.0), math.log(50.0)])
    assert late["median: all"] == pytest.approx((math.log(80.0) + math.log(50.0)) / 2.0)
    reach = 0.8 * (math.log(80.0) - math.log(50.0))
    assert late["spread: all"] == pytest.approx(reach / (2 * INTERVAL_SPREADS))
    assert history.known(199.9) == 1
    assert len(history) == 2


def test_nothing_is_known_of_an_empty_history() -> None:
    row = told(History(), Ask(submit_s=0.0), 0.0)
    assert math.isnan(row["log requested"])
    assert math.isnan(row["log idle"])
    assert all(math.isnan(row[f"last {place + 1}"]) for place in range(LAST))
    assert all(math.isnan(row[f"median: {kind}"]) for kind in KINDS)


def test_hours_and_weekdays_are_those_of_utc() -> None:
    # 2024-02-29 18:30 UTC was a Thursday
    row = told(History(), Ask(submit_s=1_709_231_400.0), 0.0)
    assert (round(row["hour"], 9), row["weekday"]) == (18.5, 3.0)


def test_only_the_latest_of_a_kind_count() -> None:
    old = [ended(float(i), 10.0) for i in range(10, 10 + WINDOW)]
    new = [ended(1_000.0 + i, 500.0) for i in range(WINDOW)]
    row = told(History(old + new), Ask(submit_s=5_000.0), 5_000.0)
    assert row["median: all"] == pytest.approx(math.log(500.0))
    assert (row["spread: all"], row["jobs: all"]) == (0.0, WINDOW)


def test_the_queue_stands_for_a_user_that_is_not_told() -> None:
    history = History([ended(10.0, 5.0, queue="a"), ended(20.0, 9.0, queue="b")])
    row = told(history, Ask(submit_s=30.0, queue="a"), 30.0)
    assert row["last 1"] == pytest.approx(math.log(5.0))
    other = told(history, Ask(submit_s=30.0, queue="a", user="a"), 30.0)
    assert math.isnan(other["last 1"])


def test_a_job_told_late_takes_its_place() -> None:
    first, second = ended(100.0, 50.0), ended(200.0, 20.0)
    late = History()
    late.append(second)
    late.append(first)
    ask = Ask(submit_s=300.0)
    assert told(late, ask, 300.0)["last 1"] == pytest.approx(math.log(20.0))
    in_order = History([second, first])
    assert late.ended(300.0, 9)[1].tolist() == in_order.ended(300.0, 9)[1].tolist()


def test_a_row_of_training_is_what_was_known_at_submission() -> None:
    jobs = made(200, seed=3)
    history = History(jobs)
    rows, logs = history.ended(math.inf, 200)
    by_end = sorted(jobs, key=lambda job: job.end_s)
    for number in (0, 17, 120, 199):
        job = by_end[number]
        before = History([other for other in jobs if other.end_s <= job.submit_s])
        np.testing.assert_array_equal(rows[number], before.row(job, job.submit_s))
        assert logs[number] == pytest.approx(math.log(job.duration_s))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("duration_s", {"duration_s": -1.0}),
        ("duration_s", {"duration_s": math.nan}),
        ("end_s", {"end_s": 5.0, "submit_s": 6.0}),
        ("submit_s", {"submit_s": -math.inf}),
        ("requested_s", {"requested_s": math.inf}),
    ],
)
def test_a_time_that_cannot_be_is_refused(field: str, change: dict[str, float]) -> None:
    job = msgspec.structs.replace(ended(100.0, 50.0), **change)
    history = History()
    with pytest.raises(InputError) as caught:
        history.append(job)
    assert caught.value.problems[0].field == field
    assert len(history) == 0


def test_medians_of_the_most_telling_kind_that_has_enough() -> None:
    jobs = [
        *(ended(10.0 + i, 40.0, user="a", name="x", devices=1) for i in range(4)),
        *(ended(20.0 + i, 90.0, user="a", name="y", devices=1) for i in range(5)),
        *(ended(30.0 + i, 700.0, user="b", name="x", devices=8) for i in range(9)),
    ]
    predictor = fit(History(jobs), 0, "medians")
    asks = [
        Ask(submit_s=100.0, user="a", name="y", devices=1),
        Ask(submit_s=100.0, user="b", name="x-3", devices=8),
        Ask(submit_s=100.0, user="a", name="x", devices=1),  # four are too few: a's, on 1 device
        Ask(submit_s=100.0, user="a", name="z", devices=2),
        Ask(submit_s=100.0, user="c"),
        Ask(submit_s=100.0, user="c", requested_s=60.0),
    ]
    found = [forecast.duration_s for forecast in predictor.predict(asks)]
    middle = math.exp((math.log(90.0) + math.log(700.0)) / 2.0)
    assert found == pytest.approx([90.0, 700.0, 90.0, 90.0, middle, 60.0])
    assert predictor.predict(asks)[0].spread == SPREAD_MIN
    assert predictor.predict([]) == []


def test_where_nothing_has_ended_a_request_is_all_that_is_known() -> None:
    predictor = fit(History(), 0, "medians")
    asks = [Ask(submit_s=0.0), Ask(submit_s=0.0, requested_s=70.0)]
    assert predictor.predict(asks) == [
        Forecast(duration_s=0.0, spread=SPREAD_UNKNOWN),
        Forecast(duration_s=70.0, spread=SPREAD_UNKNOWN),
    ]


def test_what_ends_after_the_moment_is_not_known() -> None:
    history = History([ended(10.0, 5.0), ended(90.0, 60.0)])
    ask = Ask(submit_s=20.0)
    predictor = fit(history, 0, "medians")
    assert predictor.predict([ask])[0].duration_s == pytest.approx(5.0)
    assert predictor.predict([ask], 95.0)[0].duration_s == pytest.approx(math.sqrt(300.0))


def test_the_spread_is_scaled_to_what_came_true() -> None:
    rng = random.Random(5)
    # of its kind, each job is of the kind's length: but that length drifts, and the window lags
    jobs = [
        ended(1_000.0 * i + 9e5, math.exp(5.0 + i / 500.0 + rng.gauss(0.0, 0.1)), user="a")
        for i in range(1_500)
    ]
    predictor = fit(History(jobs), 0, "medians")
    assert predictor.scale > 1.2
    few = fit(History(jobs[: LEARN_JOBS_MIN - 1]), 0, "medians")
    assert few.scale == 1.0


def test_learning_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(InputError, match=r"scikit-learn; pip install 'gridloom\[predict\]'"):
        fit(History(), 0, "learned")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert best_method() == "medians"


@with_trees
def test_the_best_method_is_the_learned_one_where_it_can_be() -> None:
    assert best_method() == "learned"


@pytest.mark.unmeasured
@with_trees
def test_trees_learn_what_medians_cannot_tell() -> None:
    judged = evaluate(made(2_500, 1, requested=True), seed=0)
    found = by_method(judged.scores)
    learned, medians = found["learned"], found["medians"]
    assert learned.error_mean < 0.5 * medians.error_mean
    assert learned.rank > 0.85 > medians.rank
    assert 0.7 < learned.coverage < 0.9
    asked = by_method(judged.requested)
    assert learned.error_mean < 0.7 * asked["request"].error_mean


@pytest.mark.unmeasured
@with_trees
def test_trees_do_no_harm_where_medians_tell_all() -> None:
    found = by_method(evaluate(made(2_500, 2), seed=0).scores)
    assert found["learned"].error_mean < 1.05 * found["medians"].error_mean
    assert found["medians"].error_mean < 0.2 * found["median of all"].error_mean


@with_trees
def test_a_fit_looks_at_nothing_that_ends_later() -> None:
    jobs = made(900, 4, requested=True)
    now = sorted(job.end_s for job in jobs)[600]
    other = [
        job
        if job.end_s <= now
        else msgspec.structs.replace(job, duration_s=1.0, end_s=job.end_s + 5e6)
        for job in jobs
    ]
    asks = [job for job in jobs if job.submit_s > now][:40]
    first, second = (fit(History(log), 7, "learned", now) for log in (jobs, other))
    assert first.trees
    assert first.predict(asks, now) == second.predict(asks, now)


@pytest.mark.unmeasured
@with_trees
def test_same_seed_same_forecasts_whatever_the_hash_seed() -> None:
    program = (
        "from tests.unit.planner.test_planner_durations import made\n"
        "from gridloom.planner.durations_evaluate import evaluate\n"
        "print(evaluate(made(700, 9, requested=True), seed=3))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    ]
    assert said[0] == said[1]
    assert "learned" in said[0]


@with_trees
def test_rows_that_tell_nothing_leave_the_medians() -> None:
    # all alike but for their ends: hour and last durations are the only features that vary
    jobs = [ended(86_400.0 * 7 * i, 60.0, submit_s=86_400.0 * 7 * i - 60.0) for i in range(600)]
    predictor = fit(History(jobs), 0, "learned")
    assert predictor.predict([Ask(submit_s=1e9)])[0].duration_s == pytest.approx(60.0)


def test_no_column_tells_anything_of_rows_that_are_alike() -> None:
    rows = np.array([[1.0, np.nan, 2.0], [1.0, np.nan, 3.0], [1.0, 5.0, np.nan]])
    assert durations._telling(rows) == (2,)


def test_rolling_learns_anew_when_enough_has_ended_or_passed() -> None:
    rolling = Rolling(seed=0, refit=Refit(jobs=3, every_s=100.0))
    ask = Ask(submit_s=0.0)
    assert rolling.predict_at(ask, 0.0).duration_s == 0.0
    fits = [rolling.predictor(0.0)]
    rolling.finished(ended(10.0, 5.0))
    rolling.finished(ended(500.0, 5.0))
    assert rolling.predict_at(ask, 20.0).duration_s == pytest.approx(5.0)  # medians move at once
    assert rolling.predictor(99.0) is fits[0]  # one has ended by now, too few and too soon
    fits.append(rolling.predictor(100.0))
    assert fits[1] is not fits[0]
    assert rolling.predictor(400.0) is fits[1]  # nothing has ended since
    for moment in (401.0, 402.0, 403.0):
        rolling.finished(ended(moment, 7.0))
    assert rolling.predictor(402.5) is not fits[1]  # the time has passed
    last = rolling.predictor(402.6)
    rolling.finished(ended(402.7, 7.0))
    rolling.finished(ended(402.8, 7.0))
    assert rolling.predictor(402.9) is last
    assert rolling.predictor(403.0) is not last  # three more


def test_an_evaluation_is_that_of_a_replay() -> None:
    jobs = [
        ended(100.0, 100.0, submit_s=0.0),
        ended(130.0, 20.0, submit_s=100.0),
        ended(400.0, 100.0, submit_s=120.0, requested_s=60.0),
        ended(500.0, 40.0, submit_s=390.0, requested_s=80.0),
    ]
    found = evaluate(jobs[::-1], seed=0, method="medians", skipped=0.0)
    # the second and third are told 100 s, the third no more than its limit; the last by both ended
    expected = [math.log(5.0), math.log(0.6), math.log(math.sqrt(100.0 * 20.0) / 40.0)]
    medians = by_method(found.scores)["medians"]
    assert (medians.jobs, found.skipped, found.fits) == (3, 1, 1)
    assert medians.error_mean == pytest.approx(np.mean(np.abs(expected)))
    assert medians.error_median == pytest.approx(-math.log(0.6))
    assert medians.bias == pytest.approx(sorted(expected)[1])
    assert medians.within_2 == pytest.approx(2 / 3)
    asked = by_method(found.requested)
    assert asked["request"].error_mean == pytest.approx((math.log(2.0) - math.log(0.6)) / 2.0)
    assert asked["request"].jobs == asked["medians"].jobs == 2
    assert math.isnan(asked["request"].pinball)
    assert math.isnan(asked["request"].coverage)


def test_a_log_in_any_order_is_the_same_log() -> None:
    jobs = made(400, 6)
    shuffled = jobs.copy()
    random.Random(1).shuffle(shuffled)
    assert evaluate(jobs, seed=0, method="medians") == evaluate(shuffled, seed=0, method="medians")


def test_an_order_is_not_told_where_all_are_predicted_alike() -> None:
    jobs = [ended(10.0 * i, 9.0, submit_s=10.0 * i - 9.0) for i in range(1, 20)]
    found = by_method(evaluate(jobs, seed=0, method="medians").scores)
    assert math.isnan(found["medians"].rank)
    assert found["medians"].error_mean == pytest.approx(0.0)
    assert found["medians"].coverage == 1.0


def test_a_log_without_a_job_to_judge_is_refused() -> None:
    with pytest.raises(InputError, match="no job to judge"):
        evaluate([ended(100.0, 50.0), ended(110.0, 90.0)], seed=0, method="medians")


def test_pinball_loss_is_least_at_the_quantile() -> None:
    true = np.arange(1.0, 12.0)
    losses = [pinball(0.9, true, np.full(11, guess)) for guess in (9.0, 10.0, 11.0)]
    assert losses[1] == min(losses)
    assert pinball(0.9, np.array([2.0]), np.array([1.0])) == pytest.approx(0.9)
    assert pinball(0.9, np.array([1.0]), np.array([2.0])) == pytest.approx(0.1)


def test_crossed_quantiles_are_put_in_order() -> None:
    class Flat:
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return np.array([[0.5, 0.1, -0.3] for _ in rows])

    history = History([ended(float(i), 60.0) for i in range(60, 70)])
    crossed = Predictor(history, Flat(), (0,), (1.0, 1.0, 1.0))
    forecast = crossed.predict([Ask(submit_s=100.0)])[0]
    assert forecast.duration_s == pytest.approx(60.0 * math.exp(0.1))
    assert forecast.spread == pytest.approx(0.8 / (2 * INTERVAL_SPREADS))
