"""Quantities are read exactly, and written without loss."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.sites.kube.quantity import (
    amount,
    amount_text,
    bytes_quantity,
    cpu_quantity,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        (96, 96),
        (0.5, Fraction(1, 2)),
        ("8", 8),
        ("+1.5", Fraction(3, 2)),
        ("-2", -2),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("100m", Fraction(1, 10)),
        ("250u", Fraction(250, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("2k", 2000),
        ("1M", 10**6),
        ("1.5G", 1_500_000_000),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("12e-1", Fraction(6, 5)),
        ("87425380Ki", 87425380 * 1024),
        ("1Mi", 2**20),
        ("0.5Gi", 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
    ],
)
def test_a_quantity_is_exact(text: object, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Gi",
        "1K",
        "1ki",
        "1 Gi",
        "1Gib",
        "1e",
        "--1",
        "1,5",
        "nan",
        "\u0661",
        "1e9999",
        True,
        None,
        [],
    ],
    ids=repr,
)
def test_what_is_none_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity, as 8, 1500m or 80Gi"):
        parse_quantity(text)


@given(st.integers(0, 2**70))
def test_bytes_come_back(count: int) -> None:
    assert parse_quantity(bytes_quantity(count)) == count


@given(st.integers(0, 10**9))
def test_cores_come_back(millis: int) -> None:
    quantity = parse_quantity(cpu_quantity(millis))
    assert quantity * 1000 == millis
    assert amount("cpu", quantity) == millis


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1000, "1000"),
        (1024, "1Ki"),
        (80 * 2**30, "80Gi"),
        (2**60, "1Ei"),
        (2**70, "1024Ei"),
    ],
)
def test_bytes_have_the_largest_unit(count: int, text: str) -> None:
    assert bytes_quantity(count) == text


def test_quotas_round_up() -> None:
    assert amount("nvidia.com/gpu", Fraction(7, 2)) == 4
    assert amount("cpu", Fraction(1, 3000)) == 1


@pytest.mark.parametrize(
    ("resource", "count", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("memory", 3 * 2**30, "3Gi"),
        ("memory", 10**9, "0.93132Gi"),
        ("nvidia.com/gpu", 1000, "1000"),
    ],
)
def test_amounts_for_people(resource: str, count: int, text: str) -> None:
    assert amount_text(resource, count) == text
