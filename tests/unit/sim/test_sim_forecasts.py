"""Who predicts durations: exact, with errors of a known law, by what has ended so far."""

import math
import statistics

import pytest
from tests.fakes.simulated import arrival, grid, option

from gridloom.core.machine import Machine
from gridloom.model.life import JobState
from gridloom.model.spec import Forecast
from gridloom.sim.forecasts import Learned, erring, exact, unknown
from gridloom.sim.simulation import Simulation
from gridloom.sim.terms import SimTerms

JOBS = [
    arrival(f"j{i}", 10.0 * i, work_s=100.0 + i, forecast={"duration_s": 5.0}) for i in range(4000)
]


def test_exact_and_unknown() -> None:
    fails = arrival("f", work_s=100.0, fail_after_s=30.0, forecast={"checkpoint_s": 3.0})
    assert [one.spec.forecast.duration_s for one in exact([JOBS[3], fails])] == [103.0, 30.0]
    assert exact([fails])[0].spec.forecast.checkpoint_s == 3.0
    assert unknown(JOBS[:1])[0].spec.forecast == Forecast()
    assert unknown(JOBS[:1])[0].work_s == JOBS[0].work_s


def test_errors_are_log_normal_with_median_one_and_each_job_has_its_own() -> None:
    told = erring(JOBS, 0.5, seed=3)
    logs = [
        math.log(job.work_s / one.spec.forecast.duration_s)
        for job, one in zip(JOBS, told, strict=True)
    ]
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.03)
    assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.05)
    assert {one.spec.forecast.spread for one in told} == {0.5}
    assert erring(JOBS[7:8], 0.5, seed=3) == told[7:8]
    assert erring(JOBS[7:8], 0.5, seed=4) != told[7:8]


def test_who_learns_knows_only_what_has_ended() -> None:
    """A user's jobs run 50 s each; six have ended before the last two are handed in."""
    now = [0.0]
    learner = Learned(0, "medians", lambda: now[0])
    spec = arrival("x", user="u", forecast={"checkpoint_s": 9.0}).spec
    assert learner.predict_at("j0", spec, 0.0).duration_s == 0.0
    for number in range(6):
        learner.predict_at(f"j{number}", spec, 0.0)
    for number in range(6):
        now[0] = 50.0 * (number + 1)
        learner.finished(f"j{number}", spec, 50.0, JobState.SUCCEEDED)
    found = learner.predict_at("late", spec, 400.0)
    assert found.duration_s == pytest.approx(50.0)
    assert found.checkpoint_s == 9.0
    assert len(learner.rolling.history) == 6
    learner.finished("late", spec, 70.0, JobState.STOPPED)  # cut short: no duration
    learner.finished("late", spec, 70.0, JobState.SUCCEEDED)  # told of already
    learner.predict_at("idle", spec, 400.0)
    learner.finished("idle", spec, 0.0, JobState.CANCELLED)  # never ran
    assert len(learner.rolling.history) == 6


def test_learning_goes_along_with_a_simulation() -> None:
    jobs = [
        arrival(f"j{i}", 100.0 * i, work_s=50.0, user="u", options=(option(1),)) for i in range(12)
    ]
    machine = Machine(terms=SimTerms().lease_terms())
    sims: list[Simulation] = []
    learner = Learned(0, "medians", lambda: sims[0].now_s)
    sims.append(Simulation(grid(1), jobs, seed=0, machine=machine, forecasts=learner))
    sims[0].run()
    told = [machine.state.jobs[f"j{i}"].spec.forecast.duration_s for i in range(12)]
    assert told[0] == 0.0
    assert told[-1] == pytest.approx(50.0)
