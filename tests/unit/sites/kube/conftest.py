"""A driver beside a pretended cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.sites.kube.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    try:
        yield made
    finally:
        made.close()
