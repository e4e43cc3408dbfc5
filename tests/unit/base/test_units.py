"""What people write for durations, bytes, rates, power and counts, and how they are told them."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.units import (
    format_bit_rate,
    format_bytes,
    format_count,
    format_duration,
    parse_bit_rate,
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_power_w,
)

GOOD: list[tuple[Callable[[str], Any], str, float]] = [
    (parse_duration_s, "90", 90),
    (parse_duration_s, " 1.5 ", 1.5),
    (parse_duration_s, "1e3", 1000),
    (parse_duration_s, "1.5h", 5400),
    (parse_duration_s, "20ms", 0.02),
    (parse_duration_s, "5us", 5e-6),
    (parse_duration_s, "1h30m", 5400),
    (parse_duration_s, "1h 30min", 5400),
    (parse_duration_s, "2 d 3 h", 183_600),
    (parse_duration_s, "90:00", 5400),
    (parse_duration_s, "1:30:00", 5400),
    (parse_duration_s, "2-12:30:00", 217_800),
    (parse_duration_s, "2-12:30", 217_800),
    (parse_bytes, "0", 0),
    (parse_bytes, "512", 512),
    (parse_bytes, "512B", 512),
    (parse_bytes, "1kB", 1000),
    (parse_bytes, "80GB", 80 * 1000**3),
    (parse_bytes, "80GiB", 80 * 1024**3),
    (parse_bytes, "80 G", 80 * 1024**3),
    (parse_bytes, "1.5TiB", 3 * 1024**4 // 2),
    (parse_bytes, "2PB", 2 * 1000**5),
    (parse_bytes, "9007199254740993", 2**53 + 1),
    (parse_bytes, "9007199254740993 KiB", (2**53 + 1) * 1024),
    (parse_bit_rate, "5 bit/s", 5),
    (parse_bit_rate, "100Mbit/s", 1e8),
    (parse_bit_rate, "10 Gbit/s", 1e10),
    (parse_bit_rate, "10Gbps", 1e10),
    (parse_bit_rate, "10gbit", 1e10),
    (parse_bit_rate, "0.5Tbit", 5e11),
    (parse_power_w, "15", 15),
    (parse_power_w, "15W", 15),
    (parse_power_w, "0.7 kW", 700),
    (parse_power_w, "1.2MW", 1.2e6),
    (parse_count, "2000000", 2_000_000),
    (parse_count, "2_000_000", 2_000_000),
    (parse_count, "2M", 2_000_000),
    (parse_count, "1.5B", 1_500_000_000),
    (parse_count, "1e6", 1_000_000),
    (parse_count, "9007199254740993", 2**53 + 1),
]

BAD: dict[Callable[[str], Any], list[str]] = {
    parse_duration_s: [
        "",
        "soon",
        "-1",
        "1x",
        "1h soon",
        "h",
        "1e3s",
        "1e400",
        "1:2",
        "1:2:3:4",
        "9" * 400 + ":00",
        "9" * 400 + "h",
    ],
    parse_bytes: ["", "GB", "1 XB", "-1", "1GB2", "0x10", "1e400", "1e999999999", "1e300PB", "nan"],
    parse_bit_rate: ["", "100", "10GB/s", "10GBps", "10 Gb", "fast", "1e400bit/s"],
    parse_power_w: ["", "1 hp", "W", "inf", "1e309"],
    parse_count: ["", "1.5", "0.0001k", "two", "1e400", "1k k"],
}


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_what_people_write_is_read(parse: Callable[[str], Any], text: str, value: float) -> None:
    assert parse(text) == value
    assert type(parse(text)) is (int if parse in (parse_bytes, parse_count) else float)


@pytest.mark.parametrize(("parse", "text"), [(p, t) for p, texts in BAD.items() for t in texts])
def test_anything_else_is_refused_by_its_name(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|is too large"):
        parse(text)


TOLD: list[tuple[Callable[[float], str], float, str]] = [
    (format_duration, 0, "0ms"),
    (format_duration, 0.85, "850ms"),
    (format_duration, 0.9994, "999ms"),
    (format_duration, 0.9996, "1s"),
    (format_duration, 42.4, "42s"),
    (format_duration, 59.7, "1m 00s"),
    (format_duration, 200, "3m 20s"),
    (format_duration, 7500, "2h 05m"),
    (format_duration, 273_600, "3d 04h"),
    (format_bytes, 0, "0 B"),
    (format_bytes, 999, "999 B"),
    (format_bytes, 1000, "1 kB"),
    (format_bytes, 1500, "1.5 kB"),
    (format_bytes, 999_600, "1.0 MB"),
    (format_bytes, 3.2e9, "3.2 GB"),
    (format_bytes, 5e15, "5.0 PB"),
    (format_bytes, -1500, "-1.5 kB"),
    (format_bit_rate, 1e8, "100 Mbit/s"),
    (format_count, 0, "0"),
    (format_count, 950, "950"),
    (format_count, 999.7, "1.0k"),
    (format_count, 1500, "1.5k"),
    (format_count, 999_999, "1.0M"),
    (format_count, 2.1e6, "2.1M"),
    (format_count, 7e9, "7.0B"),
    (format_count, 3e13, "30.0T"),
]


@pytest.mark.parametrize(("tell", "value", "text"), TOLD)
def test_numbers_are_told_as_people_read_them(
    tell: Callable[[float], str], value: float, text: str
) -> None:
    assert tell(value) == text


@given(st.integers(0, 10**18), st.sampled_from(["", "B", "kB", "MiB", "G", "TB"]))
def test_bytes_are_exact(count: int, unit: str) -> None:
    assert parse_bytes(f"{count}{unit}") == count * parse_bytes(f"1{unit}")


@given(st.integers(0, 10**18))
def test_counts_are_exact(count: int) -> None:
    assert parse_count(str(count)) == parse_count(f"{count:_}") == count
    assert parse_count(f"{count}k") == count * 1000


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_durations_mean_the_same_in_every_spelling(hours: int, minutes: int, seconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds
    days, hour = divmod(hours, 24)
    for text in (
        str(total),
        f"{hours}h{minutes}m{seconds}s",
        f"{hours} h {minutes} min {seconds} s",
        f"{hours}:{minutes:02}:{seconds:02}",
        f"{days}-{hour:02}:{minutes:02}:{seconds:02}",
    ):
        assert parse_duration_s(text) == total


@given(st.floats(0, 1e9))
def test_a_told_duration_is_read_back_to_within_its_last_unit(duration_s: float) -> None:
    text = format_duration(duration_s)
    unit_s = {"ms": 1e-3, "d": 3600, "h": 60}.get(
        "ms" if "ms" in text else text.lstrip("0123456789")[0], 1
    )
    assert abs(parse_duration_s(text) - duration_s) <= unit_s + 0.5


@given(st.floats(0, 1e17))
def test_a_told_number_of_bytes_is_read_back_within_a_twentieth(count: float) -> None:
    text = format_bytes(count)
    assert parse_bytes(text) == pytest.approx(count, rel=0.05, abs=0.5)
    assert format_bit_rate(count) == text.replace("B", "bit/s")


@given(st.text(max_size=12))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for parse in BAD:
        try:
            assert parse(text) >= 0
        except ValueError:
            continue
