"""What is asked of a Slurm that only its slurmrestd tells of."""

import os
import pwd
from collections.abc import Collection, Mapping, Sequence

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock
from tests.unit.sites.slurm.test_inventory import REAL
from tests.unit.sites.slurm.test_probe import SITE, Played

from gridloom.base.errors import SiteError
from gridloom.model.inventory import SlurmAccess, SlurmRest
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.diagnose import diagnose
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.facts import Facts
from gridloom.sites.slurm.gather import Commands, gather, tried
from gridloom.sites.slurm.inventory import with_nodes
from gridloom.sites.slurm.records import Job, Node, Partition, Reservation

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


def test_what_slurm_will_not_tell_hides_nothing_else() -> None:
    class Private(Real):
        def reservations(self) -> tuple[Reservation, ...]:
            raise SiteError("Access/permission denied")

        def jobs(self, slurm_ids: Collection[int] = ()) -> tuple[Job, ...]:
            raise SiteError("Invalid user id")

    facts = gather(FAR, Private("RUNNING"), None, FakeClock())
    assert facts.untold == {"reservations": "Access/permission denied", "jobs": "Invalid user id"}
    assert (facts.trouble, facts.cluster.nodes) == ("", REAL.nodes)


def test_a_slurm_that_tells_neither_nodes_nor_partitions_tells_nothing() -> None:
    class Shut(Real):
        def nodes(self) -> tuple[Node, ...]:
            raise SiteError("Access/permission denied")

        def partitions(self) -> tuple[Partition, ...]:
            raise SiteError("Access/permission denied")

    facts = gather(FAR, Shut("RUNNING"), None, FakeClock())
    assert facts == Facts(trouble="Access/permission denied")


def test_jobs_are_tried_again_without_what_is_wrong() -> None:
    class Strict(SlurmClient):
        def notes(
            self, argv: Sequence[str], environment: Mapping[str, str], stdin: str = ""
        ) -> str:
            if "--reservation" in stdin:
                raise SiteError("Requested reservation is invalid")
            return "sbatch: Job 1 to start at 2026-11-30T20:39:59 using 1 processors"

    commands = Commands(Strict(), {})
    gone = replace(SITE, slurm=SlurmAccess(reservation="gone", account="physics"))
    assert [one.is_taken for one in tried(gone, commands)] == [False]
    both = tried(gone, commands, {"reservation"})
    assert [(one.is_taken, one.without) for one in both] == [
        (False, ()),
        (True, ("reservation",)),
    ]
    assert len(tried(gone, commands, {"reservation", "partition"})) == 1
    well = replace(gone, slurm=SlurmAccess(account="physics"))
    assert len(tried(well, commands, {"account"})) == 1


def test_a_job_that_cannot_be_written_down_is_not_taken() -> None:
    site = replace(SITE, slurm=SlurmAccess(constraint="a\nb"))
    (only,) = tried(site, Commands(SlurmClient(), {}))
    assert "end of line" in only.said
