"""What a job has used: told when its Slurm's accounts are complete, or after a while."""

from pathlib import Path

import pytest
from tests.unit.sites.slurm.test_driver import Desk

from gridloom.model.life import SiteUse


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "runs")


def used(desk: Desk, seconds: float = 1.0) -> list[SiteUse] | None:
    desk.clock.advance(seconds)
    told = desk.driver.used("train-abc")
    return None if told is None else [*told]


def test_what_a_job_has_used_is_known_once_its_accounts_are_complete(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.accounts[7] = "RUNNING|5|00:01.5||0"
    assert [used(desk) for _ in range(3)] == [None] * 3
    desk.slurm.accounts[7] = "COMPLETED|9|00:03.5|2K|3600"
    said = {"elapsed_s": 9.0, "cpu_s": 3.5, "max_rss_bytes": 2048, "energy_j": 3600.0}
    use = SiteUse(site="hpc", attempt=2, site_job="7", **said)  # type: ignore[arg-type]
    seen = [used(desk) for _ in range(3)]
    assert next(one for one in seen if one is not None) == [use]
    assert desk.driver.used("another") == []


def test_accounts_that_lag_behind_are_not_waited_for_long(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.slurm.accounts[7] = "RUNNING|5|00:01.5||0"
    assert used(desk) is None
    assert used(desk) is None
    late = used(desk, 15.0)
    assert late is not None
    assert [one.elapsed_s for one in late] == [5]


def test_of_a_slurm_without_accounts_nothing_is_told(desk: Desk) -> None:
    desk.submit()
    desk.look()
    assert used(desk) is None
    assert used(desk) == []
    (desk.runs / "train-abc" / "attempts" / "2" / "gang.hpc" / "access.json").write_text("spoilt")
    desk.again()
    assert used(desk) == []


def test_accounts_that_do_not_answer_hold_up_nobody_else(desk: Desk) -> None:
    desk.submit()
    desk.look()
    desk.executor.is_slow = True
    assert used(desk) is None
    assert used(desk) is None
    assert len(desk.executor.left) == 1
    assert used(desk, 15.0) == []
