"""Bytes of hierarchical averaging, by hand."""

import pytest

from gridloom.planner.collective import StepBytes, bytes_per_step


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        ([1], StepBytes(reduce=0, between_sites=0, broadcast=0, per_representative=0.0)),
        ([1, 1], StepBytes(reduce=0, between_sites=240, broadcast=0, per_representative=120.0)),
        ([4], StepBytes(reduce=720, between_sites=0, broadcast=0, per_representative=0.0)),
        (
            [2, 2],
            StepBytes(reduce=480, between_sites=240, broadcast=240, per_representative=120.0),
        ),
        (
            [2, 1, 3],
            StepBytes(reduce=720, between_sites=480, broadcast=360, per_representative=160.0),
        ),
    ],
)
def test_by_hand(sites: list[int], expected: StepBytes) -> None:
    found = bytes_per_step(120, sites)
    assert found == expected
    assert found.within_sites == found.reduce + found.broadcast
    assert found.total == found.within_sites + found.between_sites


def test_what_crosses_between_sites_does_not_depend_on_their_ranks() -> None:
    assert bytes_per_step(4, [8, 8]).between_sites == bytes_per_step(4, [1, 1]).between_sites
