"""Where tasks meet whose nodes their sites have chosen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.nouns import attempt

from gridloom.control.meeting import common_port, rendezvous
from gridloom.core.state import party
from gridloom.model.life import Arrival


def arrival(*free: tuple[int, int]) -> Arrival:
    return Arrival(node="n", address="a", free_ports=free)


@pytest.mark.parametrize(
    ("rows", "count", "port"),
    [
        ([((4000, 4003),), ((4002, 4009),)], 2, 4002),
        ([((4000, 4003), (4006, 4009)), ((4003, 4006),)], 1, {4003, 4006}),
        ([((4000, 4003), (4006, 4009))], 4, {4000, 4006}),
        ([((4000, 4003), (4006, 4009))], 5, None),
        ([((4000, 4003),), ()], 1, None),
        ([], 1, None),
    ],
)
def test_the_port_is_free_at_every_node(
    rows: list[tuple[tuple[int, int], ...]], count: int, port: int | set[int] | None
) -> None:
    arrivals = [arrival(*free) for free in rows]
    found = common_port(arrivals, frozenset(), count, "seed")
    assert found in (port if isinstance(port, set) else {port})


@given(
    free=st.lists(st.sets(st.integers(4000, 4015)), min_size=1, max_size=3),
    taken=st.sets(st.integers(4000, 4015)),
    count=st.integers(1, 4),
    seed=st.text(max_size=3),
)
def test_a_port_is_found_if_and_only_if_there_is_one(
    free: list[set[int]], taken: set[int], count: int, seed: str
) -> None:
    arrivals = [arrival(*((port, port) for port in sorted(ports))) for ports in free]
    good = set.intersection(*free) - taken
    starts = {port for port in good if good.issuperset(range(port, port + count))}
    found = common_port(arrivals, taken, count, seed)
    assert found in starts if starts else found is None


def test_two_control_planes_seldom_begin_at_the_same_port() -> None:
    ports = [common_port([arrival((29400, 29999))], set(), 4, f"/home/{n}") for n in range(50)]
    assert len(set(ports)) > 40


def test_who_is_told_and_of_whom() -> None:
    one = attempt()
    assert [task.placement.domain for task in party(one, 1, "")] == list(one.tasks)
    south = one.tasks["south/s1"]
    south.life, south.arrival = 2, Arrival(node="s9", address="10.0.9.9")
    assert party(one, 2, "south") == [south]
    assert rendezvous(one, 4001).addresses == ("10.0.0.1", "10.0.0.2", "10.0.9.9")
