"""The law of the token bucket, and caps by time of day."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.wan.pace import Bucket, cap_bytes_per_s
from gridloom.runtime.wan.settings import CapWindow

BURST_S = 0.1


@given(
    rate=st.floats(1, 1e9),
    pieces=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 10**6)), min_size=1, max_size=40),
)
def test_no_more_leaves_than_the_rate_a_burst_and_one_piece(
    rate: float, pieces: list[tuple[float, int]]
) -> None:
    bucket, now_s, left = Bucket(rate, 0.0), 0.0, []
    for pause_s, size in pieces:
        now_s += pause_s
        if bucket.ready(now_s):
            bucket.spend(size, now_s)
            left.append((now_s, size))
    for first, (start_s, _) in enumerate(left):
        for last in range(first, len(left)):
            window = left[first : last + 1]
            total = sum(size for _, size in window)
            allowed = rate * (left[last][0] - start_s + BURST_S) + window[-1][1]
            assert total <= allowed * (1 + 1e-9) + 1e-6


@given(rate=st.floats(1, 1e9), sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_who_waits_as_told_gets_the_whole_rate(rate: float, sizes: list[int]) -> None:
    bucket, now_s = Bucket(rate, 0.0), 0.0
    for size in sizes:
        now_s += bucket.wait_s(now_s) + 1e-6
        assert bucket.ready(now_s)
        bucket.spend(size, now_s)
    slowest_s = sum(sizes) / rate + len(sizes) * (2e-6 + 1e-3)
    assert now_s <= slowest_s * (1 + 1e-9)


def test_without_a_cap_all_leaves() -> None:
    bucket = Bucket(None, 5.0)
    bucket.spend(10**12, 5.0)
    assert bucket.ready(5.0)
    assert bucket.wait_s(5.0) == 0.0


def test_a_cap_of_zero_never_lets_out_until_it_is_lifted() -> None:
    bucket = Bucket(0.0, 0.0)
    assert not bucket.ready(1e9)
    assert bucket.wait_s(1e9) == math.inf
    bucket.set_rate(100.0, 1e9)
    assert bucket.wait_s(1e9) == pytest.approx(1e-3)
    assert bucket.ready(1e9 + 1e-3)


def test_debts_outlive_a_change_of_the_cap() -> None:
    bucket = Bucket(1000.0, 0.0)
    bucket.spend(1100, 0.0)  # 100 of them saved up
    bucket.set_rate(500.0, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(2.0)


NIGHT = CapWindow("22:00", "06:30", 10.0)
NOON = CapWindow("12:00", "13:00", 0.0)
EVENING = CapWindow("18:00", "24:00", 20.0)


@pytest.mark.parametrize(
    ("time_of_day", "cap"),
    [
        ("00:00", 10.0),
        ("06:29", 10.0),
        ("06:30", 99.0),
        ("11:59", 99.0),
        ("12:00", 0.0),
        ("13:00", 99.0),
        ("18:00", 20.0),
        ("22:00", 10.0),  # the first that fits
        ("23:59", 10.0),
    ],
)
def test_the_first_window_that_fits_counts(time_of_day: str, cap: float) -> None:
    hours, minutes = map(int, time_of_day.split(":"))
    now_s = time.mktime((2026, 3, 10, hours, minutes, 30, 0, 0, -1))  # local time, as people write
    assert cap_bytes_per_s((NIGHT, NOON, EVENING), 99.0, now_s) == cap


def test_to_the_end_of_the_day_ends_at_midnight() -> None:
    before = time.mktime((2026, 3, 10, 23, 59, 59, 0, 0, -1))
    assert cap_bytes_per_s((EVENING,), None, before) == 20.0
    assert cap_bytes_per_s((EVENING,), None, before + 1) is None
