"""How far a job is and when it ends, by table."""

import math
from typing import Any

import pytest
from tests.unit.core.grids import shape, spec

from gridloom.core import progress
from gridloom.model.life import Attempt, Job, Placement
from gridloom.model.spec import Forecast, Option, Speed

SPEEDS = (Speed(level="node", step_s=1.0), Speed(level="site", step_s=2.0))


def job(
    *options: Option, kept_s: float = 0.0, tries: int = 0, elastic: bool = False, **forecast: Any
) -> Job:
    asked = spec(*(options or (shape(4),)), forecast=Forecast(**forecast), elastic=elastic)
    made = Job(job_id="j", spec=asked, submitted_s=0.0, kept_s=kept_s)
    made.attempts.extend(attempt() for _ in range(tries))
    return made


def attempt(option: Option | None = None, step_s: float = 0.0, **more: Any) -> Attempt:
    placement = Placement(option=option or shape(4), tasks=(), step_s=step_s)
    settings: dict[str, Any] = {"number": 1, "epoch": 1, "tasks": {}, "started_s": 100.0}
    return Attempt(placement=placement, **settings | more)


@pytest.mark.parametrize(
    ("options", "elastic", "option", "step_s", "want"),
    [
        ((shape(4, step_s=2.0),), False, shape(4), 4.0, 0.5),  # against the first option's own
        ((shape(4, step_s=2.0),), False, shape(4), 1.0, 2.0),
        ((shape(4, speeds=SPEEDS),), False, shape(4), 2.0, 0.5),  # or its shortest
        ((shape(4, step_s=2.0),), True, shape(2), 0.0, 0.5),  # unknown: by ranks, if elastic
        ((shape(4),), True, shape(8), 3.0, 2.0),
        ((shape(4),), False, shape(8), 3.0, 1.0),
        ((shape(4), shape(2)), False, shape(2), 0.0, 1.0),
    ],
)
def test_speed(
    options: tuple[Option, ...], elastic: bool, option: Option, step_s: float, want: float
) -> None:
    assert progress.speed(job(*options, elastic=elastic), option, step_s) == want


def test_what_remains_is_what_no_checkpoint_holds() -> None:
    assert progress.remaining_s(job(duration_s=50.0)) == 50.0
    assert progress.remaining_s(job(duration_s=50.0, kept_s=20.0)) == 30.0
    assert progress.remaining_s(job(duration_s=50.0, kept_s=60.0)) == 0.0
    assert progress.remaining_s(job(kept_s=60.0)) == math.inf
    assert progress.remaining_s_at_start(job(), attempt()) == math.inf
    assert progress.remaining_s_at_start(job(duration_s=50.0), attempt(kept_s=20.0)) == 30.0
    assert progress.remaining_s_at_start(job(duration_s=50.0), attempt(kept_s=70.0)) == 0.0


def test_caution_covers_nine_of_ten() -> None:
    assert progress.caution(job(duration_s=1.0)) == 1.0
    wide = progress.caution(job(duration_s=1.0, spread=0.5))
    below = 0.5 * (1 + math.erf(math.log(wide) / 0.5 / math.sqrt(2)))
    assert below == pytest.approx(0.9, abs=1e-5)


def test_how_long_an_attempt_would_run() -> None:
    fresh = job(shape(4, step_s=2.0), duration_s=50.0, restart_s=7.0)
    assert progress.run_s(fresh, shape(4), 4.0) == 100.0
    again = job(shape(4, step_s=2.0), duration_s=50.0, restart_s=7.0, kept_s=30.0, tries=1)
    assert progress.run_s(again, shape(4), 4.0) == 47.0
    assert progress.run_s(job(restart_s=7.0), shape(4), 0.0) == math.inf


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, 150.0),
        ({"kept_s": 20.0, "resumed": True}, 137.0),
        ({"kept_s": 20.0}, 130.0),
        ({"stop_sent": True, "grace_until_s": 120.0}, 120.0),
        ({"stop_sent": True, "grace_until_s": 999.0}, 150.0),
    ],
)
def test_when_an_attempt_ends(more: dict[str, Any], want: float) -> None:
    running = job(duration_s=50.0, restart_s=7.0)
    assert progress.end_s(running, attempt(**more)) == pytest.approx(want)


def test_a_job_that_outlives_its_prediction_needs_a_tenth_more_than_it_has_had() -> None:
    assert progress.overrun_end_s(attempt(), 200.0) == pytest.approx(210.0)


def test_the_end_of_what_nobody_predicted_is_unknown_until_it_is_stopped() -> None:
    assert progress.end_s(job(), attempt()) == math.inf
    assert progress.end_s(job(), attempt(stop_sent=True, grace_until_s=130.0)) == 130.0


def test_a_faster_place_ends_sooner() -> None:
    running = job(shape(4, step_s=2.0), duration_s=50.0)
    assert progress.end_s(running, attempt(step_s=1.0)) == 125.0


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, 0.0),  # it has not begun to train
        ({"ready_s": 105.0}, 15.0),
        ({"ready_s": 105.0, "kept_s": 40.0, "resumed": True}, 55.0),
        ({"ready_s": 130.0, "kept_s": 40.0}, 40.0),
        ({"kept_s": 40.0, "resumed": True}, 40.0),
    ],
)
def test_what_is_done(more: dict[str, Any], want: float) -> None:
    assert progress.done_s(job(restart_s=7.0), attempt(**more), 120.0) == want
    half = job(shape(4, step_s=2.0), restart_s=7.0)
    kept_s = more.get("kept_s", 0.0)
    done_s = progress.done_s(half, attempt(step_s=4.0, **more), 120.0)
    assert done_s == kept_s + (want - kept_s) / 2


def test_what_an_attempt_has_still_to_do_does_not_depend_on_what_it_has_saved() -> None:
    made = job(duration_s=100.0)
    made.attempts.append(attempt(kept_s=20.0, ready_s=100.0))
    assert progress.left_s(made, 130.0) == 50.0
    made.kept_s = 40.0  # a checkpoint, reported 20 s after it was ready
    assert progress.left_s(made, 130.0) == 50.0
    assert progress.left_s(made, 200.0) == 0.0
    made.spec = job().spec
    assert progress.left_s(made, 130.0) == math.inf
