"""A job that goes on elsewhere waits for what it has saved, as long as that makes sense."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.executor import Now
from tests.fakes.remote_files import FakeFiles, fake_host
from tests.unit.sites.remote.test_checkpoints import save

from gridloom.sites.remote.bringer import PATIENCE_S, Bringer, FarShelf
from gridloom.sites.remote.errors import LinkDownError
from gridloom.sites.remote.places import Places


class Desk:
    """A run directory here and at two sites."""

    def __init__(self, place: Path) -> None:
        self.place, self.run_dir = place, place / "runs" / "j"
        self.run_dir.mkdir(parents=True)
        self.clock, self.executor = FakeClock(), Now()
        self.files = {"hpc": FakeFiles(), "far": FakeFiles()}
        self.bringer = Bringer(self.clock, self.executor)
        self.policy = True

    def at(self, site: str) -> Path:
        """Return where a site has its checkpoints."""
        return self.place / site / "runs" / "j" / "ckpt" / site

    def shelf(self, site: str) -> FarShelf:
        to = Places(
            runs=str(self.run_dir.parent),
            runs_there=str(self.place / site / "runs"),
            work="/work",
            work_there="/there",
        )
        host = fake_host(self.files[site])
        return FarShelf(site=site, host=lambda: host, to=to, is_fetched=self.policy)

    def bring(self, *sites: str, far: Sequence[str] = ("hpc",), after_s: float = 6.0) -> str:
        self.clock.advance(after_s)
        return self.bringer.bring(self.run_dir, 2, sites, [self.shelf(site) for site in far])

    def here(self) -> list[str]:
        found = self.run_dir.glob("ckpt/*/*")
        return sorted(path.relative_to(self.run_dir / "ckpt").as_posix() for path in found)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_it_becomes_that_of_a_site_that_looks_here(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    assert desk.bring("lab", "other") == (
        "its checkpoint of training step 40 is fetched from hpc: 100 % of 176 B"
    )
    assert desk.bring("lab", "other") == ""
    assert desk.here() == ["lab/step-00000040"]


def test_where_nobody_looks_here_it_stays_its_sites_own(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    desk.bring("far", far=("hpc", "far"))
    assert desk.bring("far", far=("hpc", "far")) == ""
    assert desk.here() == ["hpc/step-00000040"]


@pytest.mark.parametrize(
    ("sites", "policy"), [(("hpc",), True), (("hpc", "lab"), True), (("lab",), False)]
)
def test_nothing_is_fetched_that_is_found_anyhow_or_is_to_stay(
    desk: Desk, sites: tuple[str, ...], policy: bool
) -> None:
    save(desk.at("hpc"), 40)
    desk.policy = policy
    assert desk.bring(*sites) == ""
    assert desk.here() == []
    assert desk.files["hpc"].calls == []


def test_nothing_older_is_fetched(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    save(desk.run_dir / "ckpt" / "lab", 60)
    desk.bring("lab")
    assert desk.bring("lab") == ""
    assert desk.here() == ["lab/step-00000060"]


def test_a_site_that_has_a_newer_one_itself_needs_none(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    save(desk.at("far"), 60)
    desk.bring("far", far=("hpc", "far"))
    assert desk.bring("far", far=("hpc", "far")) == ""
    assert desk.here() == []


def test_a_job_that_has_saved_nothing_waits_for_nothing(desk: Desk) -> None:
    assert desk.bring("lab") == "what it has saved elsewhere is looked for"
    assert desk.bring("lab") == ""


def test_nobody_waits_for_the_transfer(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    desk.executor.is_slow = True
    for _ in range(3):
        assert desk.bring("lab") == "what it has saved elsewhere is looked for"
    assert len(desk.executor.left) == 1
    desk.executor.answer()
    assert desk.bring("lab") == ""


def test_a_dead_link_is_waited_for_a_while(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    desk.files["hpc"].error = LinkDownError("login is not reached")
    desk.bring("lab")
    said = "what it has saved cannot be fetched: login is not reached"
    assert desk.bring("lab", after_s=1.0) == said
    calls = len(desk.files["hpc"].calls)
    assert desk.bring("lab", after_s=1.0) == said
    assert len(desk.files["hpc"].calls) == calls, "not without a pause"
    assert desk.bring("lab", after_s=PATIENCE_S - 9.0) == said
    desk.files["hpc"].error = None
    desk.bring("lab")
    assert desk.bring("lab") == ""
    assert desk.here() == ["lab/step-00000040"]


def test_in_the_end_it_goes_on_without(desk: Desk) -> None:
    desk.files["hpc"].error = LinkDownError("login is not reached")
    desk.bring("lab")
    desk.bring("lab", after_s=1.0)
    assert desk.bring("lab", after_s=PATIENCE_S) != ""
    assert desk.bring("lab", after_s=1.0) == ""


def test_a_disk_that_is_full_here_is_told(desk: Desk) -> None:
    save(desk.at("hpc"), 40)
    (desk.run_dir / "ckpt").write_text("a file where a directory should be")
    desk.bring("lab")
    said = desk.bring("lab", after_s=1.0)
    assert said.startswith(f"what it has saved cannot be fetched: {desk.run_dir}/ckpt/lab")
