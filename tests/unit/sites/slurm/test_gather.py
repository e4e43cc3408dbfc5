"""What is asked of a Slurm that only its slurmrestd tells of."""

import os
import pwd

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.unit.sites.slurm.test_inventory import REAL
from tests.unit.sites.slurm.test_probe import SITE, Played

from gridloom.model.inventory import SlurmAccess, SlurmRest
from gridloom.sites.slurm.diagnose import diagnose
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.gather import gather
from gridloom.sites.slurm.inventory import with_nodes
from gridloom.sites.slurm.records import Node, Partition

REST = SlurmRest(url="https://login.example.org:6820", user="ann", token_file="/t")
FAR = replace(SITE, slurm=SlurmAccess(rest=REST))


class Real(Played):
    """Has what a real cluster has told."""

    def nodes(self) -> tuple[Node, ...]:
        return REAL.nodes

    def partitions(self) -> tuple[Partition, ...]:
        return REAL.partitions


def test_without_commands_there_is_no_trial() -> None:
    facts = gather(FAR, Real("RUNNING"), None, FakeClock())
    assert (facts.user, facts.release) == ("ann", "22.05.8")
    assert facts.accounts is None
    found = diagnose(with_nodes(FAR, facts.cluster), facts)
    assert [one.check for one in found if one.state == "ok"] == ["slurm", "partition", "devices"]
    assert [one.check for one in found if one.state == "warn"] == ["nodes", "time limit"]
    assert "siteb-n3: idle+drain: bad fan (root)" in found[3].found


def test_a_slurm_that_is_away_is_asked_nothing_more() -> None:
    slurm = Real("RUNNING")
    slurm.is_away = True
    facts = gather(FAR, slurm, None, FakeClock())
    assert facts.trouble == "Connection refused"
    assert facts.cluster.nodes == ()
    with pytest.raises(AwayError):
        slurm.jobs()


def test_a_user_with_a_number_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    facts = gather(SITE, Real("RUNNING"), None, FakeClock())
    assert facts.user == str(os.getuid())
