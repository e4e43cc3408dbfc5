"""The sentences that a person reads, each with its numbers."""

import pytest
from tests.unit.core.grids import grid, shape, site, spec
from tests.unit.core.yard import Yard

from gridloom.core import explain, sentences
from gridloom.model.reason import Reason, Why


def never(*sizes: str, **asks: object) -> str:
    """Return why a job of one shape never runs on one site of such nodes."""
    option = asks.pop("option", shape(2))
    reason = explain.ever_fits(
        spec(option, **asks),  # type: ignore[arg-type]
        grid(*(site(f"s{number}", size) for number, size in enumerate(sizes))),
    )
    assert reason is not None
    return reason.sentence


def test_what_is_too_large_is_told_the_largest_site() -> None:
    assert never("1") == ("asks for 2 cpu at one site; the largest site that it may use has 1")
    assert never("1", "1", option=shape(3), max_sites=2) == (
        "asks for 3 cpu at up to 2 sites; the largest two sites that it may use have 1 + 1"
    )


def test_sites_that_are_missing_count_as_nothing() -> None:
    assert never("1", option=shape(4), min_sites=2, max_sites=3) == (
        "asks for 4 cpu at 2 to 3 sites; the largest three sites that it may use have 1 + 0 + 0"
    )


def test_more_sites_than_groups_or_than_allowed_is_said_first() -> None:
    assert never("1", min_sites=3, max_sites=2) == "asks for 3 sites at least and 2 at most"
    assert never("1", min_sites=3, max_sites=3) == (
        "asks for 3 sites at least, but a site takes whole replica groups and the job has 2"
    )


def test_many_sites_are_counted_in_figures() -> None:
    told = never(*["1"] * 3, option=shape(99), min_sites=12, max_sites=12)
    assert told.startswith("asks for 99 cpu at 12 sites; the largest 12 sites that it may use")


def test_whole_groups_are_said_where_they_matter() -> None:
    assert never("3", option=shape(2, tensor=2)) == (
        "asks for 4 cpu at one site; the largest site that it may use has 2 in whole groups of 2"
    )


def test_several_users_of_a_site_are_counted() -> None:
    yard = Yard(site("a", "3"))
    for name in ("one", "two", "three"):
        yard.asks(name, 1)
    yard.asks("waits", 1)
    assert yard.reason("waits").sentence == (
        "waits for 1 cpu at one site: a has 0 of 3 free (job one and two more run there)"
    )


def test_many_kept_nodes_are_counted() -> None:
    yard = Yard(site("a", *["1"] * 6))
    yard.asks("low", 6, grace_s=30.0)
    yard.asks("high", 6, priority=1)
    assert yard.reason("high").sentence == (
        "waits for its places on a/n0, a/n1, a/n2, a/n3 and 2 more nodes,"
        " which are kept for it for 1m 34s more"
    )
    assert yard.why("high") is Why.HOLDING_PLACES


@pytest.mark.parametrize(("count", "words"), [(1, "one site"), (0, "0 sites"), (3, "3 sites")])
def test_sites_are_counted(count: int, words: str) -> None:
    assert sentences.number_of_sites(count) == words


def test_no_shape_and_no_grid_are_told_plainly() -> None:
    assert sentences.shapeless() == Reason(
        code=Why.NEVER_FITS,
        sentence="has no shape that could be placed",
        remedy="ask for a number of accelerators that the model can be cut for",
    )
    assert sentences.no_inventory().remedy == ""
