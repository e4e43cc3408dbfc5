"""Quantities: every way of writing one size gives one value, and what is shown reads back."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kube_api.quantity import quantity, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        (12, 12),
        ("0.5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("1k", 1000),
        ("1Ki", 1024),
        ("2Gi", 2 * 1024**3),
        ("1M", 10**6),
        ("3u", Fraction(3, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("1e3", 1000),
        ("-2", -2),
        ("1Ei", 1024**6),
        ("5E", 5 * 10**18),
    ],
)
def test_values(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@given(st.integers(0, 10**9))
def test_thousandths_survive_a_round_trip(thousandths: int) -> None:
    value = Fraction(thousandths, 1000)
    assert quantity(shown(value)) == value


def test_what_is_finer_is_shown_rounded_up() -> None:
    assert shown(Fraction(1, 10**6)) == "1m"


@pytest.mark.parametrize("text", ["", "much", "1KiB"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid literal"):
        quantity(text)
