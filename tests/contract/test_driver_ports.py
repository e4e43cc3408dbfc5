"""Every driver: where rank 0 may listen."""

import socket

import pytest
from tests.contract.harness import DriverHarness

from gridloom.base.errors import SiteError

HOME = "127.0.0.1"


@pytest.fixture(autouse=True)
def _knows_its_nodes(harness: DriverHarness) -> None:
    """Where the site chooses nodes, those who have come up tell which ports are free there."""
    driver = harness.driver()
    if driver.chooses_nodes:
        with pytest.raises(SiteError, match="not known before a task is there"):
            driver.free_port(HOME, (40000, 40001), frozenset())
        pytest.skip("the site chooses its nodes")


def listener() -> socket.socket:
    busy = socket.socket()
    busy.bind((HOME, 0))
    busy.listen()
    return busy


def test_a_free_port_is_neither_used_nor_taken(harness: DriverHarness) -> None:
    with listener() as busy:
        first = busy.getsockname()[1]
        taken = frozenset({first + 1})
        port = harness.driver().free_port(HOME, (first, first + 50), taken)
        assert first + 1 < port <= first + 50
        assert port not in taken


def test_ports_in_a_row_are_all_free(harness: DriverHarness) -> None:
    with listener() as busy:
        middle = busy.getsockname()[1]
        driver = harness.driver()
        port = driver.free_port(HOME, (middle - 3, middle + 40), frozenset({middle + 5}), 4)
        assert {middle, middle + 5}.isdisjoint(range(port, port + 4))
        assert middle - 3 <= port <= middle + 37
        with pytest.raises(SiteError, match=f"every row of 4 ports of {middle}-{middle + 5}"):
            driver.free_port(HOME, (middle, middle + 5), frozenset({middle + 4}), 4)


def test_no_free_port_is_told(harness: DriverHarness) -> None:
    with listener() as busy:
        port = busy.getsockname()[1]
        with pytest.raises(
            SiteError, match=rf"every port of {port}-{port + 1} at {HOME} is in use"
        ):
            harness.driver().free_port(HOME, (port, port + 1), frozenset({port + 1}))


@pytest.mark.parametrize("address", ["192.0.2.1", "not..a.name", "::2"])
def test_an_address_of_another_machine_is_told(harness: DriverHarness, address: str) -> None:
    with pytest.raises(SiteError, match="no process of this machine can listen at"):
        harness.driver().free_port(address, (40000, 40001), frozenset())
