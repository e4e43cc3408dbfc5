"""Manifests stay as they are read and agreed upon in `tests/golden/kube`."""

import pytest
from tests.golden.kube_manifests import HERE, texts


def test_no_file_is_left_over() -> None:
    assert {path.name for path in HERE.iterdir()} == set(texts())


@pytest.mark.parametrize("name", texts())
def test_manifests_are_as_agreed(name: str) -> None:
    assert (HERE / name).read_text(encoding="utf-8") == texts()[name]
