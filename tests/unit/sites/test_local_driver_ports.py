"""Which port a local site gives to rank 0."""

from pathlib import Path

from tests.fakes.clock import FakeClock

from gridloom.sites.local.driver import LocalDriver


def port(runs: str) -> int:
    driver = LocalDriver(Path(runs), "python", FakeClock(), sweep=lambda token: 0)
    return driver.free_port("127.0.0.1", (20000, 29999), frozenset())


def test_state_directories_begin_at_different_ports() -> None:
    assert port("/a/runs") != port("/b/runs")
    assert port("/a/runs") == port("/a/runs")
