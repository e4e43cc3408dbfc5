"""Rows, curves and stays: nothing is lost in columns, and integrals stay exact when thinned."""

import math
from itertools import pairwise

import pytest
from tests.fakes.simulated import Played, arrival, grid

from gridloom.model.life import JobState
from gridloom.sim.record import JobRow, Point, SimRecord, Span
from gridloom.sim.terms import SimTerms


def row(job_id: str, i: int) -> JobRow:
    return JobRow(
        job_id=job_id,
        submit_s=i + 0.5,
        first_start_s=i + 1.5,
        end_s=math.inf,
        attempts=i,
        wait_s=1.0,
        running_s=2.0,
        device_s=3.0,
        useful_device_s=4.0,
        lost_device_s=5.0,
        overhead_device_s=6.0,
        preemptions=2**40 + i,
        cost=7.0,
        energy_kwh=8.0,
        co2_kg=9.0,
        state=JobState.FAILED if i % 2 else JobState.SUCCEEDED,
        queue=f"q{i % 3}",
        devices=i * 8,
        sites=("a", "b")[: i % 3],
    )


def test_rows_come_back_as_they_were() -> None:
    record = SimRecord(spans=True, curve_points_max=10)
    rows = [row(f"j{i}", i) for i in range(3000)]
    for i, one in enumerate(rows):
        assert record.add(one.job_id) == i
    assert record.add("j5") is None
    for i, one in reversed(list(enumerate(rows))):
        record.write(i, one)
    assert list(record.jobs()) == rows
    assert record.job("j1234") == rows[1234]
    assert record.column("submit_s") == [one.submit_s for one in rows]
    assert record.column("attempts") == [one.attempts for one in rows]
    record.write(7, row("j7", 8))
    assert record.job("j7").submit_s == 8.5
    assert len(record) == 3000
    with pytest.raises(KeyError):
        record.job("nobody")


def point(at_s: float, used: int = 0, available: int = 8) -> Point:
    return Point(at_s=at_s, used=used, available=available, waiting_jobs=0, waiting_devices=0)


def test_curves_are_thinned_evenly_and_integrals_are_not() -> None:
    record = SimRecord(spans=True, curve_points_max=50)
    gauged = []

    def gauge() -> float:
        gauged.append(1)
        return 0.25

    for i in range(10_001):
        record.sample(point(i * 0.5, used=i % 5), gauge)
    points = record.curve()
    assert 20 <= len(points) <= 51
    assert (points[0].at_s, points[-1].at_s) == (0.0, 5000.0)
    gaps = [b.at_s - a.at_s for a, b in pairwise(points[:-1])]
    assert max(gaps) <= 2 * min(gaps)
    assert len(gauged) < 1000
    assert points[3].fragmentation == 0.25
    assert record.used_device_s == pytest.approx(sum(i % 5 * 0.5 for i in range(10_000)))
    assert record.available_device_s == pytest.approx(40_000.0)


def test_the_last_point_of_an_instant_counts() -> None:
    record = SimRecord(spans=True, curve_points_max=50)
    for used in (1, 2, 3):
        record.sample(point(5.0, used))
    record.sample(point(6.0, 4))
    assert [(one.at_s, one.used) for one in record.curve()] == [(5.0, 3), (6.0, 4)]
    assert record.used_device_s == 3.0
    assert math.isnan(record.curve()[0].fragmentation)
    assert SimRecord(spans=True, curve_points_max=50).curve() == []


def test_thinned_points_are_those_at_the_end_of_their_instants() -> None:
    record = SimRecord(spans=True, curve_points_max=10)
    for i in range(1000):
        for used in (7, i % 3):
            record.sample(point(float(i), used))
    assert all(one.used == one.at_s % 3 for one in record.curve())


def test_the_curve_of_a_small_story() -> None:
    jobs = [arrival("a", 0.0, devices=2, work_s=10.0), arrival("b", 4.0, devices=3, work_s=10.0)]
    played = Played(grid(2, 2), jobs)
    told = [
        (one.at_s, one.used, one.available, one.waiting_jobs, one.waiting_devices)
        for one in played.sim.record.curve()
    ]
    assert told == [
        (0.0, 2, 4, 0, 0),
        (4.0, 2, 4, 1, 3),
        (10.0, 3, 4, 0, 0),
        (20.0, 0, 4, 0, 0),
    ]
    assert played.sim.record.used_device_s == 50.0


def test_who_was_where() -> None:
    job = arrival("a", 1.0, devices=3, work_s=10.0)
    played = Played(grid(2, 2), [job])
    assert played.sim.record.spans() == [
        Span(job_id="a", domain="s/n0", devices=2, start_s=1.0, end_s=11.0),
        Span(job_id="a", domain="s/n1", devices=1, start_s=1.0, end_s=11.0),
    ]
    assert Played(grid(2, 2), [job], terms=SimTerms(spans=False)).sim.record.spans() == []


def test_fragmentation_is_what_a_gauge_says() -> None:
    played = Played(grid(1), [arrival()], gauge=lambda: 0.5)
    assert {one.fragmentation for one in played.sim.record.curve()} == {0.5}
