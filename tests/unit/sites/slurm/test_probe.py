"""A probe as a job of a Slurm that is played: its node is this machine."""

import threading
from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.fakes.clock import FakeClock

from gridloom.agent.probe import probe as run_probe
from gridloom.base.errors import SiteError
from gridloom.base.system import SystemClock
from gridloom.model.inventory import Node, Site, SlurmAccess
from gridloom.sites.slurm.engine import AwayError
from gridloom.sites.slurm.gang import LOG_FILE
from gridloom.sites.slurm.probe import probe
from gridloom.sites.slurm.records import Gres, Job, Licence, Partition, Reservation
from gridloom.sites.slurm.records import Node as SlurmNode
from gridloom.sites.slurm.submission import Submission
from gridloom.sites.slurm.usage import Used

SITE = Site(
    name="hpc",
    kind="slurm",
    nodes=(Node(name="n1", address="", accelerator="a100", count=8),),
    slurm=SlurmAccess(network="127.0.0.0/8", partition="gpu", gres={"a100": "gpu:a100"}),
)
JOB = Job(job_id=7, nodes=("n1",), started_s=1000.0)


class Played:
    """Plays a SlurmEngine with one job, in the state that it is given."""

    def __init__(self, *states: str, reason: str = "", log: str | None = None) -> None:
        self.job = replace(JOB, states=states, reason=reason)
        self.log = log
        self.refusal: SiteError | None = None
        self.is_away = False
        self.node_clock: SystemClock | None = None
        self.asked: Submission | None = None
        self.cancelled: list[int] = []
        self.node: threading.Thread | None = None

    def hand_in(self, asked: Submission, script: str) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.asked = asked
        assert "gridloom.agent.probe" in script
        directory = Path(asked.directory)
        if self.log is not None:
            (directory / LOG_FILE).write_text(self.log)
        if self.node_clock is not None:
            arguments = (directory, "127.0.0.0/8", self.node_clock)
            self.node = threading.Thread(target=run_probe, args=arguments)
            self.node.start()
        return 7

    def accounted(self, slurm_ids: Collection[int]) -> dict[int, Used]:
        return {}

    def jobs(self, slurm_ids: Collection[int] = ()) -> tuple[Job, ...]:
        if self.is_away:
            raise AwayError("Connection refused")
        return (self.job,)

    def cancel(self, slurm_id: int) -> None:
        self.cancelled.append(slurm_id)

    def nodes(self) -> tuple[SlurmNode, ...]:
        return ()

    def partitions(self) -> tuple[Partition, ...]:
        return ()

    def reservations(self) -> tuple[Reservation, ...]:
        return ()

    def licences(self) -> tuple[Licence, ...]:
        return ()


def test_a_probe_that_comes_up(tmp_path: Path) -> None:
    slurm = Played("RUNNING")
    slurm.node_clock = SystemClock()
    place = tmp_path / "probes" / "p"
    found = probe(SITE, slurm, place, timeout_s=20.0, clock=SystemClock())
    assert slurm.node is not None
    slurm.node.join()
    assert found.seen is not None
    assert found.seen.heard_s is not None
    assert found.heard_s is not None
    assert found.answered_s is not None
    assert found.answered_s <= found.seen.heard_s <= found.heard_s
    assert found.started_s == 1000.0
    assert slurm.asked is not None
    (part,) = slurm.asked.components
    assert (part.nodes, part.partition) == (1, "gpu")
    assert part.gres == (Gres(name="gpu", type="a100", count=1),)
    assert not place.exists()
    assert slurm.cancelled == [7]


@pytest.mark.parametrize(
    ("slurm", "field", "words"),
    [
        (Played("PENDING", reason="Priority"), "waits", "higher priority"),
        (Played("PENDING", reason="PartitionDown"), "waits", "closed; name another partition"),
        (Played("FAILED", log=None), "ended", "job 7 on n1, is failed"),
        (Played("FAILED", log="No module named gridloom"), "log", "No module"),
        (Played("RUNNING", log="hm"), "log", "hm"),
    ],
)
def test_a_probe_that_says_nothing(tmp_path: Path, slurm: Played, field: str, words: str) -> None:
    found = probe(SITE, slurm, tmp_path / "p", timeout_s=30.0, clock=FakeClock())
    assert found.seen is None
    assert words in getattr(found, field)
    assert slurm.cancelled == [7]
    assert not (tmp_path / "p").exists()


def test_a_slurm_that_goes_away(tmp_path: Path) -> None:
    slurm = Played("PENDING")
    slurm.is_away = True
    found = probe(SITE, slurm, tmp_path / "p", timeout_s=30.0, clock=FakeClock())
    assert found.waits == "Slurm does not say why"


def test_a_refused_probe(tmp_path: Path) -> None:
    slurm = Played("PENDING")
    slurm.refusal = SiteError("Invalid qos")
    cpus = replace(SITE, nodes=(), slurm=None)
    found = probe(cpus, slurm, tmp_path / "p", timeout_s=30.0, clock=FakeClock())
    assert found.refusal == "Invalid qos"
    assert slurm.cancelled == []
    assert not (tmp_path / "p").exists()
