"""Failures by scale, checkpoint intervals and useful time: by hand, by law, and simulated."""

import random

import numpy as np
import pytest

from gridloom.model.parallel import ParallelPlan
from gridloom.planner.cases import Cases, model_columns, plan_columns, stack
from gridloom.planner.catalogue import accelerator
from gridloom.planner.constants import Constants
from gridloom.planner.costs import cost_model
from gridloom.planner.goodput import (
    DEVICE_MTBF_S,
    Checkpoint,
    Resilience,
    checkpoint,
    daly_interval_s,
    goodput,
    goodput_of,
    job_mtbf_s,
    state_bytes,
    with_interruptions,
    young_interval_s,
)
from gridloom.planner.hardware import Fabric, machine_columns
from gridloom.planner.models.parameters import count_parameters
from gridloom.planner.models.presets import preset

LLAMA_405B = preset("llama3.1-405b")


def cases(devices: int, *, tensor: int = 8, pipeline: int = 16) -> Cases:
    """Llama 3.1 405B on H100 as its authors cut it, with any number of copies."""
    plan = ParallelPlan(
        tensor=tensor, pipeline=pipeline, data=devices // (tensor * pipeline), zero=1, micro_batch=1
    )
    return Cases(
        model=model_columns(LLAMA_405B),
        plan=plan_columns(plan),
        machine=machine_columns(accelerator("h100"), Fabric()),
        sequence=8192,
        global_batch=2048,
    )


def test_one_interruption_in_three_hours_on_16384_devices() -> None:
    assert job_mtbf_s(16_384) / 3600 == pytest.approx(54 * 24 / 419)
    assert job_mtbf_s(1) == DEVICE_MTBF_S
    assert job_mtbf_s(1) / 3600 == pytest.approx(50_700, rel=0.001)
    assert job_mtbf_s(8) / 86_400 == pytest.approx(264, rel=0.01)


def test_young_and_daly_by_hand() -> None:
    # A checkpoint of 5 minutes, a failure a day: sqrt(2 x 300 x 86400) = 7200 s.
    assert young_interval_s(300.0, 86_400.0) == pytest.approx(7200.0)
    # d / 2M = 0.001736; 7200 (1 + 0.041667 / 3 + 0.001736 / 9) - 300.
    assert daly_interval_s(300.0, 86_400.0) == pytest.approx(7001.389, abs=0.01)
    assert daly_interval_s(500.0, 200.0) == 200.0


@pytest.mark.parametrize("write_s", [1.0, 30.0, 300.0, 1800.0])
@pytest.mark.parametrize("mtbf_s", [3_600.0, 11_000.0, 86_400.0])
def test_daly_is_the_best_interval(write_s: float, mtbf_s: float) -> None:
    intervals = np.geomspace(1.0, 10 * mtbf_s, 20_000)
    useful = goodput(mtbf_s, Checkpoint(blocking_s=write_s), 600.0, intervals).useful
    best = goodput(mtbf_s, Checkpoint(blocking_s=write_s), 600.0)
    assert best.useful >= useful.max() * 0.9999
    assert float(best.interval_s) == pytest.approx(float(intervals[useful.argmax()]), rel=0.03)


def test_higher_order_is_better_than_the_first_where_failures_are_frequent() -> None:
    written, mtbf_s = Checkpoint(blocking_s=1800.0), 7200.0
    young = goodput(mtbf_s, written, 600.0, young_interval_s(1800.0, mtbf_s))
    assert goodput(mtbf_s, written, 600.0).useful > young.useful


def test_shares_add_up_and_none_is_negative() -> None:
    devices = np.array([8.0, 512.0, 16_384.0, 1e6])
    written = Checkpoint(blocking_s=20.0, behind_s=60.0)
    found = goodput(job_mtbf_s(devices), written, 600.0)
    shares = np.array([found.useful, found.checkpoint, found.restart, found.lost])
    assert shares.sum(axis=0) == pytest.approx(np.ones(4))
    assert (shares >= 0).all()
    assert (np.diff(found.useful) < 0).all()


@pytest.mark.parametrize(("behind_s", "interval_s"), [(0.0, 300.0), (120.0, 300.0)])
def test_formula_agrees_with_a_simulated_run(behind_s: float, interval_s: float) -> None:
    """Failures strike at random; a checkpoint counts once it is written."""
    mtbf_s, blocking_s, restart_s, rng = 4000.0, 20.0, 200.0, random.Random(7)
    written = Checkpoint(blocking_s=blocking_s, behind_s=behind_s)
    now = fail = rng.expovariate(1 / mtbf_s)
    now, safe, work, restart_spent = 0.0, 0.0, 0.0, 0.0
    pending: list[tuple[float, float]] = []  # moment from which it counts, work it holds
    while now < 40_000_000:
        end = now + interval_s + blocking_s
        if end <= fail:
            now, work = end, work + interval_s
            pending.append((now + behind_s, work))
            continue
        safe = max([safe, *(held for counts, held in pending if counts <= fail)])
        pending, work = [], safe
        now = fail
        while True:
            fail = now + rng.expovariate(1 / mtbf_s)
            if fail > now + restart_s:
                now += restart_s
                restart_spent += restart_s
                break
            restart_spent += fail - now
            now = fail
    found = goodput(mtbf_s, written, restart_s, interval_s)
    assert work / now == pytest.approx(float(found.useful), abs=0.006)
    assert restart_spent / now == pytest.approx(float(found.restart), abs=0.003)


def test_llama_405b_is_useful_for_more_than_nine_tenths_as_published() -> None:
    """Llama 3, section 3.3.4: more than 90 % effective training time."""
    found = goodput_of(cases(16_384), Resilience())
    assert 0.90 < found.useful < 0.95
    written = checkpoint(cases(16_384), Resilience())
    weights = count_parameters(LLAMA_405B).total
    assert written.state_bytes == weights * 14
    assert written.blocking_s == pytest.approx(weights * 14 / 16_384 / 0.125e9)


def test_writing_behind_training_is_worth_it() -> None:
    slow = Resilience(storage_bytes_per_s=2e6)
    behind = Resilience(storage_bytes_per_s=2e6, in_background=True)
    assert goodput_of(cases(16_384), behind).useful > goodput_of(cases(16_384), slow).useful
    found = goodput_of(cases(16_384), behind)
    # 5.67 TB / 16384 / 2 MB/s = 173 s is more than the best interval of a checkpoint of 14 ms.
    assert float(found.interval_s) == pytest.approx(
        float(state_bytes(cases(16_384))) / 16_384 / 2e6
    )


def test_columns_agree_with_single_cases() -> None:
    alone = [cases(devices) for devices in (128, 1024, 16_384)]
    together = goodput_of(stack(alone), Resilience())
    for place, one in enumerate(alone):
        expected = goodput_of(one, Resilience())
        assert together.useful[place] == pytest.approx(float(expected.useful))
        assert together.interval_s[place] == pytest.approx(float(expected.interval_s))


def test_interruptions_draw_a_step_out_and_get_their_line() -> None:
    costs = cost_model(Constants())
    case, resilience = cases(16_384), Resilience()
    drawn_out = with_interruptions(costs, resilience)
    useful = float(goodput_of(case, resilience).useful)
    assert float(drawn_out.step_s(case)) == pytest.approx(float(costs.step_s(case)) / useful)
    lines = drawn_out.step_lines(case)
    assert sum(lines.values()) == pytest.approx(float(drawn_out.step_s(case)))
    assert lines["interruptions"] > 0


def test_a_job_that_always_fails_does_nothing_useful() -> None:
    found = goodput(1.0, Checkpoint(blocking_s=1e6), 10.0)
    assert 0 <= found.useful < 1e-200


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("device_mtbf_s", [1e-3, 1.0, 3600.0])
def test_a_training_that_never_ends_takes_for_ever(device_mtbf_s: float) -> None:
    drawn_out = with_interruptions(cost_model(Constants()), Resilience(device_mtbf_s=device_mtbf_s))
    case = cases(16_384)
    assert float(drawn_out.step_s(case)) == float("inf")
    assert all(np.isfinite(seconds) for seconds in drawn_out.step_lines(case).values())
