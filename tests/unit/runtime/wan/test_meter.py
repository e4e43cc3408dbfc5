"""Round trips and bandwidth, from heartbeats and acks with known truth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.wan.meter import BandwidthMeter, RttMeter


def test_nothing_is_known_before_the_first_answer() -> None:
    rtt, bandwidth = RttMeter(), BandwidthMeter()
    assert rtt.smoothed_s is None
    assert rtt.least_s is None
    assert bandwidth.bytes_per_s is None


@given(samples=st.lists(st.tuples(st.floats(0, 40), st.floats(1e-4, 10)), min_size=1))
def test_the_least_round_trip_is_that_of_the_last_minute(
    samples: list[tuple[float, float]],
) -> None:
    rtt, now_s, seen = RttMeter(), 0.0, []
    for pause_s, sample_s in samples:
        now_s += pause_s
        rtt.answered(sample_s, now_s)
        seen.append((now_s, sample_s))
        assert rtt.least_s == min(value for at_s, value in seen if at_s >= now_s - 60)
        values = [value for _, value in seen]
        assert rtt.smoothed_s is not None
        assert min(values) * (1 - 1e-9) <= rtt.smoothed_s <= max(values) * (1 + 1e-9)


def test_smoothing_takes_an_eighth_of_the_newest() -> None:
    rtt = RttMeter()
    rtt.answered(0.080, 0.0)
    rtt.answered(0.160, 1.0)
    assert rtt.smoothed_s == pytest.approx(0.090)


@given(
    rate=st.floats(1e6, 1e9),
    pauses=st.lists(st.floats(1e-3, 5), min_size=1, max_size=30),
    rtt_s=st.floats(0, 1),
)
def test_a_steady_rate_is_found_whatever_the_round_trip_and_the_acks(
    rate: float, pauses: list[float], rtt_s: float
) -> None:
    meter, receiver_s = BandwidthMeter(), 100.0 + rtt_s
    meter.acked(int(rate * 0.1), receiver_s)
    sent = int(rate * 0.1)
    for pause_s in pauses:
        receiver_s += pause_s
        sent += round(rate * pause_s)
        meter.acked(sent, receiver_s)
    assert meter.bytes_per_s == pytest.approx(rate, rel=1e-3)


def test_time_between_busy_times_does_not_count() -> None:
    meter = BandwidthMeter()
    for start_s in (0.0, 500.0, 9000.0):
        meter.acked(0, start_s)
        meter.acked(1000, start_s + 1)
        meter.idle()
    assert meter.bytes_per_s == pytest.approx(1000)


def test_ten_busy_seconds_outweigh_what_was_before() -> None:
    meter = BandwidthMeter()
    for second in range(100):
        meter.acked(1000 * second, float(second))
    for second in range(31):
        meter.acked(99_000 + 10 * second, 99.0 + second)
    assert meter.bytes_per_s is not None
    assert 10 < meter.bytes_per_s < 10 + 1000 * 0.05 * 1.1  # e to the minus three is 0.05


def test_a_new_link_whose_count_starts_again_gives_no_sample() -> None:
    meter = BandwidthMeter()
    meter.acked(5000, 1.0)
    meter.acked(10, 2.0)
    assert meter.bytes_per_s is None
