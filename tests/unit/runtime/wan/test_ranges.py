"""Ranges behave as the set of their bytes."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gridloom.runtime.wan.ranges import Ranges

TOTAL = 40
BYTE = st.integers(0, TOTAL)
PIECES = st.lists(st.tuples(BYTE, BYTE), max_size=12)


def as_set(ranges: Ranges) -> set[int]:
    return {byte for start, end in ranges.items() for byte in range(start, end)}


@given(pieces=PIECES, start=BYTE, end=BYTE)
def test_ranges_are_the_set_of_their_bytes(
    pieces: list[tuple[int, int]], start: int, end: int
) -> None:
    ranges = Ranges(pieces)
    held = {byte for first, after in pieces for byte in range(first, after)}
    asked = set(range(start, end))
    assert as_set(ranges) == held
    assert ranges.total_bytes() == len(held)
    assert bool(ranges) == bool(held)
    assert ranges.covers(start, end) == (asked <= held)
    assert ranges.overlaps(start, end) == bool(asked & held)
    assert as_set(ranges.missing(TOTAL)) == set(range(TOTAL)) - held


@given(pieces=PIECES)
def test_ranges_are_few(pieces: list[tuple[int, int]]) -> None:
    items = Ranges(pieces).items()
    assert all(start < end for start, end in items)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(items))


@given(pieces=PIECES, size=st.integers(1, 9))
def test_taking_all_gives_each_byte_once_in_order(pieces: list[tuple[int, int]], size: int) -> None:
    ranges = Ranges(pieces)
    held = sorted(as_set(ranges))
    taken: list[int] = []
    while ranges:
        start, end = ranges.take(size)
        assert 0 < end - start <= size
        taken += range(start, end)
    assert taken == held
