"""A Slurm asked by its commands, beside commands that print what real ones did."""

from collections.abc import Mapping, Sequence

import pytest
from tests.fakes.clock import FakeClock
from tests.unit.sites.slurm.samples import text

from gridloom.model.inventory import SlurmAccess
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.command_engine import CommandEngine
from gridloom.sites.slurm.engines import Engines


class Printed(SlurmClient):
    """Plays commands: prints for each what it is told to, by its last or first words."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self.said = said
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
        self.asked.append(" ".join(argv[:2] if argv[0] == "squeue" else argv))
        return next(said for word, said in self.said.items() if argv[-1].startswith(word))


@pytest.fixture
def printed() -> Printed:
    names = {"node": "nodes", "partition": "partitions", "reservation": "reservations"}
    said = {name: text(f"scontrol-{file}-22.05.txt") for name, file in names.items()}
    licence = "LicenseName=ansys Total=10 Used=0 Free=10 Reserved=0 Remote=no\n"
    queue = {"--format": text("squeue-22.05.txt"), "--Format": "12 N/A\n10 2026-11-29T13:38:10\n"}
    return Printed(said | {"lic": licence} | queue)


def test_what_there_is(printed: Printed) -> None:
    engine = CommandEngine(printed, {})
    assert len(engine.nodes()) > 1
    assert len(engine.partitions()) > 1
    assert len(engine.reservations()) >= 1
    assert [licence.name for licence in engine.licences()] == ["ansys"]


def test_of_ended_jobs_it_is_asked_once_whether_they_were_preempted(printed: Printed) -> None:
    engine = CommandEngine(printed, {})
    everything = engine.jobs()
    assert {job.preempted_s for job in everything} == {None}
    for _ in range(2):
        told = {
            job.job_id: job.preempted_s for job in engine.jobs([job.job_id for job in everything])
        }
        over = {one: when for one, when in told.items() if when is not None}
        assert over.keys() >= {10, 12}
        assert (over[12], over[10]) == (0.0, 1795959490.0)
    assert printed.asked == ["squeue --noheader"] * 4, "one for all, two that look, one that asks"


def test_what_jobs_have_used() -> None:
    printed = Printed({"--format=JobID,": "52|COMPLETED|9|00:03.514||0\n"})
    assert CommandEngine(printed, {}).accounted([52, 53])[52].cpu_s == 3.514
    assert "--jobs=52,53" in printed.asked[0]


def test_sites_under_one_slurm_have_one_engine() -> None:
    engines = Engines(lambda _: SlurmClient(), FakeClock())
    here = SlurmAccess(environment={"SLURM_CONF": "/a"})
    assert engines.of(here) is engines.of(SlurmAccess(partition="b", environment=here.environment))
    assert engines.of(here) is not engines.of(SlurmAccess())
