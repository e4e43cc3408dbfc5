"""Ports of this machine."""

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridloom.base.sockets import can_listen, rows


@given(st.sets(st.integers(1, 40)))
def test_rows_are_the_numbers_in_as_few_pieces_as_can_be(numbers: set[int]) -> None:
    found = rows(sorted(numbers))
    assert [one for first, last in found for one in range(first, last + 1)] == sorted(numbers)
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(found))


def test_a_port_on_which_somebody_listens_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not can_listen("127.0.0.1", taken.getsockname()[1])
    assert can_listen("127.0.0.1", 0)


def test_an_address_of_another_machine_is_no_place_to_listen() -> None:
    with pytest.raises(OSError, match="Cannot assign"):
        can_listen("192.0.2.1", 0)
