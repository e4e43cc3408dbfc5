"""The best few of a stream, and the front of time and price, against sorting all at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridloom.planner.pareto import Entries, Front, Top, rounded


def entries(rows: list[tuple[float, ...]]) -> Entries:
    """Return entries of (objective, devices, memory, number, time, price)."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    objective, devices, memory, number, time, price = table.T
    return Entries(objective, devices, memory, number.astype(np.int64), time, price, time)


small = st.integers(1, 4).map(float)
streams = st.lists(st.lists(st.tuples(small, small, small, small, small), max_size=6), max_size=6)


def numbered(stream: list[list[tuple[float, ...]]]) -> list[list[tuple[float, ...]]]:
    """Give each row its place in the stream as its number."""
    place, blocks = 0, []
    for block in stream:
        rows = []
        for row in block:
            rows.append((*row[:3], float(place), *row[3:]))
            place += 1
        blocks.append(rows)
    return blocks


@given(streams, st.integers(1, 8))
@settings(deadline=None)
def test_the_top_of_a_stream_is_that_of_all(
    stream: list[list[tuple[float, ...]]], count: int
) -> None:
    top, blocks = Top(count), numbered(stream)
    for block in blocks:
        top.offer(entries(block))
    expected = sorted(row for block in blocks for row in block)[:count]
    assert top.entries.number.tolist() == [row[3] for row in expected]


@given(streams)
@settings(deadline=None)
def test_the_front_of_a_stream_is_what_nothing_beats(
    stream: list[list[tuple[float, ...]]],
) -> None:
    front, blocks = Front(), numbered(stream)
    for block in blocks:
        front.offer(entries(block))
    rows = [row for block in blocks for row in block]
    points = {(row[4], row[5]) for row in rows}
    unbeaten = sorted(
        (time, price)
        for time, price in points
        if not any(t <= time and p <= price and (t, p) != (time, price) for t, p in points)
    )
    found = front.entries
    assert list(zip(found.time_s.tolist(), found.price.tolist(), strict=True)) == unbeaten
    for number, time, price in zip(found.number, found.time_s, found.price, strict=True):
        equal = [row for row in rows if row[4:] == (time, price)]
        assert number == min(equal, key=lambda row: row[1:4])[3]


def test_no_rows_leave_everything_empty() -> None:
    top, front = Top(3), Front()
    top.offer(entries([]))
    front.offer(entries([]))
    assert len(top.entries) == len(front.entries) == 0


@given(st.floats(1e-9, 1e15))
def test_rounding_keeps_eleven_digits_and_joins_what_sums_leave_apart(value: float) -> None:
    kept = float(rounded(np.array(value)))
    assert kept == pytest.approx(value, rel=2e-11)
    assert float(rounded(np.array(kept))) == kept
    assert rounded(np.array(0.1 + 0.2)) == rounded(np.array(0.3))


def test_rounding_leaves_infinity() -> None:
    assert rounded(np.array([np.inf, 0.0])).tolist() == [np.inf, 0.0]
