"""Made workloads: what is published comes out again, and what is asked for is met."""

import hashlib
import math
import os
import random
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridloom.base.codec import encode
from gridloom.base.errors import InputError
from gridloom.model.spec import GroupNeed
from gridloom.sim.generate import DAY_S, GeneratorSpec, generate
from gridloom.sim.generate_acme import CLUSTERS
from gridloom.sim.generate_fit import cells, fitted
from gridloom.sim.workload import ReadOptions, Workload

NAMES = ("seren", "kalos")
DIGEST = """
from tests.unit.sim.test_sim_generate import digest
print(digest())
"""


def made(seed: int = 1, **asked: Any) -> Workload:
    return generate(GeneratorSpec(**({"jobs": 2000, "devices": 2048} | asked)), random.Random(seed))


def digest() -> str:
    workload = made(jobs=300, elastic=0.5, forecast_spread=0.3, queues=("a", "b"))
    return hashlib.sha256(encode(workload)).hexdigest()


def kind(job_id: str) -> str:
    return job_id.rpartition("-")[0]


@pytest.mark.parametrize("name", NAMES)
def test_cells_have_the_published_margins(name: str) -> None:
    cluster, table = CLUSTERS[name], cells(name)
    total = sum(cell.weight * cell.devices * cell.mean_s for cell in table)
    assert sum(cell.weight for cell in table) == pytest.approx(1)
    for published in cluster.kinds:
        mine = [cell for cell in table if cell.kind == published.name]
        share = sum(cell.weight for cell in mine)
        assert share == pytest.approx(published.share, abs=1e-3)
        for power, pct in enumerate(published.duration_pct):
            below = sum(cell.weight for cell in mine if cell.high_s <= 2**power)
            assert 100 * below / share == pytest.approx(pct, abs=0.01)
    for size in cluster.sizes:
        mine = [cell for cell in table if cell.devices <= size.devices]
        assert sum(cell.weight for cell in mine) == pytest.approx(size.jobs_pct / 100, abs=1e-4)
        time = sum(cell.weight * cell.devices * cell.mean_s for cell in mine) / total
        assert time == pytest.approx(size.time_pct / 100, abs=1e-4)
    for place, ending in enumerate(cluster.endings):
        jobs = sum(cell.weight * cell.endings[place] for cell in table)
        assert jobs == pytest.approx(ending.jobs, abs=2e-3)  # printed shares add up to 1.001
        time = sum(c.weight * c.endings[place] * c.devices * c.mean_s for c in table) / total
        assert time == pytest.approx(ending.time, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [("seren", "pretrain", 0.695), ("kalos", "pretrain", 0.94), ("kalos", "evaluation", 0.008)],
)
def test_kinds_have_about_the_device_time_that_the_paper_states(
    name: str, kind: str, share: float
) -> None:
    time: Counter[str] = Counter()
    for cell in cells(name):
        time[cell.kind] += cell.weight * cell.devices * cell.mean_s  # type: ignore[assignment]
    assert time[kind] / sum(time.values()) == pytest.approx(share, rel=0.03)


@pytest.mark.parametrize(("name", "printed_s"), [("seren", 122), ("kalos", 124)])
def test_medians_are_the_published_ones(name: str, printed_s: float) -> None:
    """The printed median, and that of the digitised curve: 134 s and 125 s."""
    workload = made(jobs=40_000, cluster=name)
    median_s = statistics.median(arrival.work_s for arrival in workload.arrivals)
    assert median_s == pytest.approx(printed_s, rel=0.12)
    assert median_s == pytest.approx({"seren": 133.9, "kalos": 124.8}[name], rel=0.03)
    sizes = [arrival.spec.options[0].devices for arrival in workload.arrivals]
    assert statistics.median(sizes) == 1


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", NAMES)
def test_drawn_jobs_follow_the_curves(name: str) -> None:
    workload = made(jobs=40_000, cluster=name)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for arrival in workload.arrivals:
        by_kind[kind(arrival.job_id)].append(arrival.work_s)
    for published in CLUSTERS[name].kinds:
        drawn = by_kind[published.name]
        error = 4 / math.sqrt(len(drawn))  # well beyond the 1.95 that 1 in 1000 samples pass
        assert len(drawn) / 40_000 == pytest.approx(published.share, abs=0.01)
        for power in range(1, len(published.duration_pct)):
            below = sum(work_s <= 2**power for work_s in drawn) / len(drawn)
            assert abs(below - published.duration_pct[power] / 100) < error
    for size in CLUSTERS[name].sizes:
        below = sum(a.spec.options[0].devices <= size.devices for a in workload.arrivals) / 40_000
        assert below == pytest.approx(size.jobs_pct / 100, abs=0.01)
    states = Counter(arrival.state for arrival in workload.arrivals)
    for ending in CLUSTERS[name].endings:
        assert states[ending.state] / 40_000 == pytest.approx(ending.jobs, abs=0.01)  # type: ignore[index]
    failed = [a for a in workload.arrivals if a.state == "failed"]
    assert all(a.fail_after_s == a.work_s for a in failed)
    assert not any(a.fail_after_s for a in workload.arrivals if a.state != "failed")


@pytest.mark.parametrize("load", [0.3, 0.8, 1.5])
def test_load_is_what_was_asked_for(load: float) -> None:
    workload = made(load=load, day_swing=0.0)
    asked = sum(a.work_s * a.spec.options[0].devices for a in workload.arrivals)
    span_s = workload.arrivals[-1].submit_s
    assert asked / span_s / 2048 == pytest.approx(load, rel=0.01)
    times = [arrival.submit_s for arrival in workload.arrivals]
    assert times == sorted(times)
    assert times[0] >= 0
    assert f"{load:.0%} load of 2048 devices" in workload.notes[0]


def test_arrivals_are_a_poisson_process() -> None:
    """Counts of equal spans have the mean for variance, and gaps are exponential."""
    workload = made(jobs=20_000, day_swing=0.0)
    times = np.array([arrival.submit_s for arrival in workload.arrivals])
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.05)
    counts, _ = np.histogram(times, bins=400)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(("swing", "peak_h"), [(0.5, 15.0), (1.0, 3.0)])
def test_arrivals_go_up_and_down_over_the_day(swing: float, peak_h: float) -> None:
    workload = made(jobs=40_000, day_swing=swing, peak_h=peak_h, load=0.05)
    days = workload.arrivals[-1].submit_s / DAY_S
    assert days > 20
    turn = [2 * math.pi * (a.submit_s / DAY_S - peak_h / 24) for a in workload.arrivals]
    # A rate of 1 + swing cos(x) has a mean cosine of swing / 2 and a mean sine of 0
    assert statistics.fmean(map(math.cos, turn)) == pytest.approx(swing / 2, abs=0.02)
    assert statistics.fmean(map(math.sin, turn)) == pytest.approx(0, abs=0.02)


def test_users_submit_by_zipfs_law_and_have_a_queue_each() -> None:
    workload = made(jobs=20_000, users=10, user_skew=1.0, queues=("a", "b", "c"))
    counts = Counter(arrival.spec.user for arrival in workload.arrivals)
    assert len(counts) == 10
    harmonic = sum(1 / number for number in range(1, 11))
    for number in (1, 2, 5, 10):
        assert counts[f"user-{number:03d}"] / 20_000 == pytest.approx(
            1 / number / harmonic, rel=0.15
        )
    queues = {(a.spec.user, a.spec.queue) for a in workload.arrivals}
    assert len(queues) == 10
    assert {("user-001", "a"), ("user-002", "b"), ("user-004", "a")} <= queues
    assert {a.spec.queue for a in made(jobs=10).arrivals} == {""}


def test_elastic_jobs_may_take_a_quarter_to_twice_their_devices() -> None:
    workload = made(elastic=1.0, scaling=0.9)
    elastic = [arrival for arrival in workload.arrivals if arrival.spec.elastic]
    assert {kind(arrival.job_id) for arrival in elastic} == {"pretrain", "sft", "mllm"}
    eight = next(a for a in elastic if a.spec.options[0].devices == 8)
    assert [option.devices for option in eight.spec.options] == [8, 4, 2, 16]
    steps = [option.step_s for option in eight.spec.options]
    assert steps == pytest.approx([1, 1.8, 3.24, 1 / 1.8])
    largest = max(option.devices for a in elastic for option in a.spec.options)
    assert largest <= 2048
    half = sum(a.spec.elastic for a in made(elastic=0.5).arrivals)
    assert half / len(elastic) == pytest.approx(0.5, abs=0.1)
    assert not any(a.spec.elastic for a in made().arrivals)


def test_equal_shapes_are_one_object() -> None:
    workload = made(elastic=0.5)
    shapes = {id(arrival.spec.options) for arrival in workload.arrivals}
    kinds = {arrival.spec.options for arrival in workload.arrivals}
    assert len(shapes) == len(kinds) < 40


def test_predictions_are_off_by_their_spread() -> None:
    workload = made(forecast_spread=0.5)
    errors = [math.log(a.spec.forecast.duration_s / a.work_s) for a in workload.arrivals]
    assert statistics.fmean(errors) == pytest.approx(0, abs=0.05)
    assert statistics.stdev(errors) == pytest.approx(0.5, abs=0.05)
    assert workload.arrivals[0].spec.forecast.spread == 0.5
    exact = made().arrivals
    assert all(a.spec.forecast.duration_s == a.work_s for a in exact)


def test_only_training_saves_checkpoints() -> None:
    for arrival in made(checkpoint_every_s=600.0, checkpoint_s=5.0, restart_s=60.0).arrivals:
        forecast = arrival.spec.forecast
        costs = (forecast.checkpoint_every_s, forecast.checkpoint_s, forecast.restart_s)
        training = kind(arrival.job_id) in {"pretrain", "sft", "mllm"}
        assert costs == ((600, 5, 60) if training else (0, 0, 0))


def test_jobs_fit_the_grid_and_have_its_kind_and_gang() -> None:
    options = ReadOptions(accelerators=("h100",), gang="packed")
    workload = made(devices=16, options=options)
    sizes = Counter(arrival.spec.options[0].devices for arrival in workload.arrivals)
    assert set(sizes) == {1, 2, 4, 8, 16}
    for arrival in workload.arrivals:
        option = arrival.spec.options[0]
        block = min(8, option.devices)
        assert option.accelerator == "h100"
        assert option.groups == ((GroupNeed(ranks=block, level="node"),) if block > 1 else ())


def test_all_complete_where_that_is_asked_for() -> None:
    workload = made(endings=False)
    assert {(a.state, a.fail_after_s) for a in workload.arrivals} == {("completed", 0.0)}


def test_names_are_unique_and_rows_count() -> None:
    workload = made(jobs=1000)
    assert len({arrival.job_id for arrival in workload.arrivals}) == 1000
    assert [arrival.row for arrival in workload.arrivals] == list(range(1, 1001))
    assert (workload.format, workload.devices, workload.dropped) == ("generated", 2048, ())
    assert len(made(jobs=1).arrivals) == 1


def test_same_seed_same_workload_whatever_the_hash_seed() -> None:
    assert made(7) == made(7)
    assert made(7) != made(8)
    digests = {digest()}
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("wrong", "fields"),
    [
        ({"jobs": 0}, ["jobs"]),
        ({"devices": -1}, ["devices"]),
        ({"load": 0.0}, ["load"]),
        ({"load": math.nan}, ["load"]),
        ({"day_swing": 1.1, "users": 0}, ["day_swing", "users"]),
        ({"user_skew": -1.0}, ["user_skew"]),
        ({"elastic": 2.0}, ["elastic"]),
        ({"scaling": 0.1}, ["scaling"]),
        ({"forecast_spread": math.inf}, ["forecast_spread"]),
        ({"cluster": "titan"}, ["cluster"]),
    ],
)
def test_values_that_mean_nothing_are_refused_together(
    wrong: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        made(**wrong)
    assert [problem.field for problem in caught.value.problems] == fields
    assert all(problem.remedy for problem in caught.value.problems)


def test_a_fit_meets_margins_and_means() -> None:
    rows, values = np.array([1.0, 2.0, 1.0]), np.array([1.0, 10.0, 100.0])
    columns, odds = np.array([3.0, 1.0]), np.ones((3, 2))
    mean = float(rows @ values) / 4
    joint = fitted(rows, values, columns, np.array([mean / 2, mean * 2.5]), odds)
    assert joint.sum(axis=1) == pytest.approx(rows / 4)
    assert joint.sum(axis=0) == pytest.approx(columns / 4)
    assert values @ joint / joint.sum(axis=0) == pytest.approx([mean / 2, mean * 2.5])


def test_a_mean_that_no_row_reaches_is_met_as_nearly_as_it_can_be() -> None:
    rows, values = np.array([1.0, 1.0]), np.array([1.0, 2.0])
    joint = fitted(rows, values, np.array([1.0, 1.0]), np.array([1.0, 900.0]), np.ones((2, 2)))
    assert joint.sum() == pytest.approx(1)
    assert joint[1, 1] > 0.4
