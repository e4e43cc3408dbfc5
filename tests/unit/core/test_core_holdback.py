"""Which nodes are kept for a job whose start nobody can promise."""

from typing import Any

from tests.unit.core.grids import must, shape, site
from tests.unit.core.yard import Yard

from gridloom.model.inventory import Site
from gridloom.model.policy import Preemption
from gridloom.model.reason import Why

PAIRS = (shape(4, groups=(must(2, "node"),)),)


def holding(*sites: Site, **more: Any) -> Yard:
    calm = Preemption(priority=False)
    settings: dict[str, Any] = {"blocked": "hold", "patience_s": 0.0, "preemption": calm} | more
    return Yard(*sites, **settings)


def fill(yard: Yard, *names: str, ranks: int = 1) -> None:
    """Let jobs hold devices of the nodes named."""
    for name in names:
        yard.asks(name.replace("/", "-"), ranks, nodes=(name,))


def kept_for(yard: Yard, job_id: str, *domains: str) -> list[str]:
    """Return on which of the nodes a job of one rank is told that they are kept."""
    found = []
    for number, domain in enumerate(domains):
        name = f"probe-{job_id}-{number}"
        if not yard.asks(name, 1, nodes=(domain,)):
            found.append(domain)
            assert yard.why(name) is Why.HELD_FOR_EARLIER_JOB
        else:
            yard.ends(name)
    return found


def test_the_fewest_nodes_are_kept_those_with_most_free_first() -> None:
    yard = holding(site("a", "4", "4", "4", "4", "4", "4"))
    fill(yard, "a/n0", "a/n1", ranks=3)
    fill(yard, "a/n2", "a/n3", "a/n4", "a/n5", ranks=2)
    yard.asks("wide", 12)
    nodes = [f"a/n{number}" for number in range(6)]
    assert kept_for(yard, "wide", *nodes) == ["a/n2", "a/n3", "a/n4"]


def test_a_site_where_it_would_not_fit_is_not_kept_however_much_is_free() -> None:
    yard = holding(site("a", "3", "1", "1", "1"), site("b", "2", "2"))
    fill(yard, "b/n0")
    yard.asks("pairs", options=PAIRS)
    assert kept_for(yard, "pairs", "a/n0", "a/n1", "b/n0", "b/n1") == ["b/n0", "b/n1"]


def test_where_groups_do_not_fit_beside_what_is_kept_another_domain_is() -> None:
    """The freest rack has four devices beside the node that is kept, but on these only one pair."""
    yard = holding(site("a", "r0/3", "r0/3", "r0/1", "r1/2", "r1/2", levels="rack"))
    fill(yard, "a/n0", "a/n1", "a/n3", "a/n4")
    yard.asks("solo", options=(shape(3, groups=(must(3, "node"),)),))
    in_rack = (shape(4, groups=(must(2, "node"), must(4, "rack"))),)
    assert yard.asks("four", options=in_rack) == []
    nodes = [f"a/n{number}" for number in range(5)]
    assert kept_for(yard, "four", *nodes) == ["a/n0", "a/n3", "a/n4"]


def test_the_shape_with_the_largest_part_free_is_kept_for() -> None:
    yard = holding(site("a", "4 h100"), site("b", "4"))
    yard.asks("x", options=(shape(3, accelerator="h100"),))
    yard.asks("y", 1, sites=("b",))
    both = (shape(4), shape(4, accelerator="h100"))
    yard.asks("wide", options=both)
    assert kept_for(yard, "wide", "b/n0") == ["b/n0"]
    assert yard.asks("gpu", options=(shape(1, accelerator="h100"),)) == ["gpu"]


def test_what_is_kept_for_one_is_not_kept_for_another() -> None:
    yard = holding(site("a", "2", "2", "2"))
    fill(yard, "a/n0", "a/n1", "a/n2")
    yard.asks("one", options=(shape(2, groups=(must(2, "node"),)),))
    yard.asks("two", options=(shape(2, groups=(must(2, "node"),), step_s=1.0),))
    assert kept_for(yard, "both", "a/n0", "a/n1", "a/n2") == ["a/n0", "a/n1"]


def test_who_fits_nowhere_beside_what_is_kept_keeps_nothing() -> None:
    yard = holding(site("a", "2", "2"))
    fill(yard, "a/n0", "a/n1")
    yard.asks("one", 3)
    yard.asks("all", 4)
    assert yard.ends("a-n0") == ["one"]
    assert yard.why("all") is Why.IN_USE


def test_over_several_sites_all_that_it_could_use_is_kept() -> None:
    yard = holding(site("a", "2"), site("b", "2"), site("c", "2"))
    fill(yard, "a/n0")
    yard.asks("wide", 6, max_sites=3)
    assert kept_for(yard, "wide", "a/n0", "b/n0", "c/n0") == ["a/n0", "b/n0", "c/n0"]
    small = holding(site("a", "2"), site("b", "2"))
    fill(small, "a/n0")
    small.asks("one", 4, max_sites=2, priority=1)
    small.asks("two", 3, max_sites=2)
    assert small.why("two") is Why.HELD_FOR_EARLIER_JOB
