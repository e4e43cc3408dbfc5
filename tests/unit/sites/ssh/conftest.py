"""A login host for the tests of this room, and a user who has no files of OpenSSH."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.login_host import LoginHost


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    (place / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return place


@pytest.fixture
def host(tmp_path: Path, home: Path) -> Iterator[LoginHost]:
    with LoginHost(tmp_path / "host") as made:
        yield made
