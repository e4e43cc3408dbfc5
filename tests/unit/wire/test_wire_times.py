"""Moments and deadlines in documents."""

import pytest
from pydantic_core import PydanticCustomError

from gridloom.wire.documents_times import Deadline, DeadlineValue, TimeValue

EIGHT_S = 1898582400.0  # 2030-03-01 08:00 UTC


@pytest.mark.parametrize(
    "text",
    [
        "2030-03-01T08:00Z",
        "2030-03-01 08:00:00 Z",
        "2030-03-01T09:00+01:00",
        "2030-03-01T09:00:00.0 +0100",
        "2030-02-28T23:30-08:30",
    ],
)
def test_a_time_has_a_zone(text: str) -> None:
    assert TimeValue().parse(text) == EIGHT_S
    assert DeadlineValue().parse(text) == Deadline(at_s=EIGHT_S)


def test_a_time_may_be_in_seconds() -> None:
    assert TimeValue().parse(0) == 0.0
    assert TimeValue().parse(3600.5) == 3600.5


@pytest.mark.parametrize(
    ("value", "message", "remedy"),
    [
        ("2030-03-01T08:00", "a time without a zone", "2030-03-01T08:00Z"),
        ("2030-03-01", "a time without a zone", "2030-03-01T08:00Z"),
        ("2030-02-30T08:00Z", "not in the calendar", "correct it"),
        ("2030-03-01T25:00Z", "not in the calendar", "correct it"),
        ("2030-03-01T08:00+25:00", "not in the calendar", "correct it"),
        ("1969-12-31T08:00Z", "before 1970", "later"),
        ("tomorrow", "found `tomorrow`", "a time with its zone"),
        (True, "found `true`", "a time with its zone"),
        (-1, "found `-1`", "a time with its zone"),
        (float("nan"), "found `nan`", "a time with its zone"),
        (1e12, "found", "seconds since 1970"),
        ([], "found a list", "a time with its zone"),
        (None, "no value", "a time with its zone"),
    ],
)
def test_what_is_no_time_is_explained(value: object, message: str, remedy: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        TimeValue().parse(value)
    assert caught.value.context is not None
    assert message in caught.value.context["message"]
    assert remedy in caught.value.context["remedy"]


@pytest.mark.parametrize(
    ("text", "after_s"), [("8h", 28800.0), ("1h30m", 5400.0), ("2-00:00:00", 172800.0)]
)
def test_a_deadline_may_count_from_the_submission(text: str, after_s: float) -> None:
    deadline = DeadlineValue().parse(text)
    assert deadline == Deadline(after_s=after_s)
    assert deadline.resolved_s(1000.0) == 1000.0 + after_s


def test_a_deadline_at_a_time_stays_there() -> None:
    assert DeadlineValue().parse("2030-03-01T08:00Z").resolved_s(5.0) == EIGHT_S


@pytest.mark.parametrize("value", [3600, "7200", 0, "0h", "soon", None, True, "2030-03-01", "1e9d"])
def test_what_is_no_deadline_is_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError):
        DeadlineValue().parse(value)
