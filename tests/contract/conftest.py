"""The kinds of site that the contract is tried on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.harness import DriverHarness, KubeHarness, LocalHarness

HARNESSES: dict[str, type[DriverHarness]] = {"local": LocalHarness, "kubernetes": KubeHarness}


@pytest.fixture(params=HARNESSES.values(), ids=list(HARNESSES))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverHarness]:
    kind: type[DriverHarness] = request.param
    made = kind(tmp_path)
    try:
        yield made
    finally:
        made.close()
