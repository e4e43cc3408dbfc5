"""The contract of drivers on a real Slurm that is asked by its commands.

Left out is what the contract says of supervisors alone, which are the same everywhere, of ports,
which only a task that has come up can tell of, and of processes that hide when both supervisor and
guardian are lost: that is Slurm's to see to, and a bed without cgroups does not.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.beds.test_slurm import SLURM, Cluster
from tests.contract.harness import (
    CLOCK,
    DriverHarness,
)
from tests.contract.test_driver_leaves_nothing import test_nothing_survives  # noqa: F401
from tests.contract.test_driver_life import *  # noqa: F403
from tests.contract.test_driver_ranks import (  # noqa: F401
    test_ranks_that_are_to_meet_wait_until_they_are_told_where,
    test_what_waits_for_others_can_be_cancelled,
)

from gridloom.model.inventory import Site, SlurmAccess, SlurmRest
from gridloom.ports.driver import Driver
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.driver import SlurmDriver
from gridloom.sites.slurm.engines import Engines
from gridloom.sites.ssh.hosts import SshHosts
from gridloom.sites.threads import DaemonExecutor
from gridloom.wire.agent import TaskOrder, TaskRef, gang_directory

pytestmark = [pytest.mark.bed, pytest.mark.timeout(120)]

PORT = 26000


class WithRest(Cluster):
    """A Slurm of our own with a slurmrestd."""

    def __init__(self, place: Path) -> None:
        self.place, self.name = place / "sitc", "sitc"
        self.up = [
            str(SLURM / "slurm_up.sh"), "--dir", str(self.place), "--name", "sitc",
            "--base-port", str(PORT), "--nodes", "2", "--gpus-per-node", "0",
            "--cpus-per-node", "64",
        ]  # fmt: skip
        self.start()

    def access(self, rest: SlurmRest | None = None) -> SlurmAccess:
        environment = {"SLURM_CONF": self.conf}
        return SlurmAccess(
            environment=environment, rest=rest, network="127.0.0.0/8", partition="low"
        )

    def rest(self) -> SlurmRest:
        token = self.place.parent / "token"
        token.write_text(self.says("scontrol", "token", "lifespan=3600"))
        url = f"http://127.0.0.1:{PORT + 3}"
        return SlurmRest(url=url, user="root", token_file=str(token))


@pytest.fixture(scope="module")
def cluster() -> Iterator[WithRest]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)  # slurmrestd will not be root
        made = WithRest(place)
        try:
            yield made
        finally:
            made.stop()


class SlurmHarness(DriverHarness):
    """A Slurm whose nodes are this machine."""

    def __init__(self, home: Path, cluster: WithRest, access: SlurmAccess) -> None:
        super().__init__(home)
        self._cluster = cluster
        self.site = Site(name="here", kind="slurm", nodes=(), slurm=access)
        self._eyes = self.driver()

    def driver(self) -> Driver:
        engines = Engines(lambda _: SlurmClient(), CLOCK)
        return SlurmDriver(self.runs, CLOCK, engines.of, DaemonExecutor(), SshHosts(CLOCK).of)

    def look(self, order: TaskOrder) -> None:
        self._eyes.observe([order.task])

    def watched(self, task: TaskRef) -> str:
        return str(gang_directory(self.runs, task))

    def spoil(self, order: TaskOrder) -> None:
        directory = Path(gang_directory(self.runs, order.task))
        directory.parent.parent.mkdir(parents=True)
        directory.parent.write_text("a file where a directory should be")

    def close(self) -> None:
        self._cluster.says("scancel", "--user=root", "--signal=KILL", "--full")
        self._cluster.says("scancel", "--user=root")
        super().close()


@pytest.fixture
def harness(tmp_path: Path, cluster: WithRest) -> Iterator[SlurmHarness]:
    made = SlurmHarness(tmp_path, cluster, cluster.access())
    yield made
    made.close()
