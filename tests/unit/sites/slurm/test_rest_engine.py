"""A Slurm behind a slurmrestd, beside answers of real ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.slurmrestd import Slurmrestd, slurmrestd
from tests.unit.sites.slurm.samples import text
from tests.unit.sites.slurm.tokens import token

from gridloom.base.errors import InputError, SiteError
from gridloom.model.inventory import SlurmAccess, SlurmRest
from gridloom.sites.slurm.answer import SlurmError
from gridloom.sites.slurm.client import SlurmClient
from gridloom.sites.slurm.engine import AwayError, SlurmEngine
from gridloom.sites.slurm.engines import Engines
from gridloom.sites.slurm.submission import Component, Submission
from gridloom.sites.slurm.usage import Used

JOBS = json.loads(text("squeue-22.05.json"))
UNSPECIFIED = {"error_number": -1, "error": "Unspecified error", "description": "Failed"}
"""What 22.05 says of a controller that is away, and of a token that has expired."""


@pytest.fixture
def server() -> Iterator[Slurmrestd]:
    with slurmrestd() as fake:
        yield fake


def engine_of(place: Path, url: str) -> SlurmEngine:
    file = place / "token"
    file.write_text(token())
    rest = SlurmRest(url=url, user="alice", token_file=str(file))
    engines = Engines(lambda _: SlurmClient(), FakeClock())
    assert engines.of(SlurmAccess(rest=rest)) is engines.of(SlurmAccess(rest=rest, qos="high"))
    return engines.of(SlurmAccess(rest=rest))


@pytest.fixture
def engine(tmp_path: Path, server: Slurmrestd) -> SlurmEngine:
    return engine_of(tmp_path, server.url)


def errors(*said: dict[str, Any]) -> dict[str, Any]:
    return {"errors": [*said]}


def test_a_job_is_handed_in(engine: SlurmEngine, server: Slurmrestd) -> None:
    server.answers["POST", "job/submit"] = (200, {"errors": [], "job_id": 7})
    assert engine.hand_in(Submission(name="x"), "#!/bin/sh\n") == 7
    assert server.bodies[0]["script"] == "#!/bin/sh\n"
    assert server.bodies[0]["job"]["name"] == "x"
    pinned = Submission(components=(Component(nodelist=("n1",)),))
    with pytest.raises(InputError, match=r"v0\.0\.38 cannot be asked for this"):
        engine.hand_in(pinned, "")
    refusal = {"error_code": 2000, "error": "Invalid partition name specified"}
    server.answers["POST", "job/submit"] = (500, errors(refusal))
    with pytest.raises(SlurmError, match="Slurm error 2000, Invalid partition name specified"):
        engine.hand_in(Submission(), "")


def test_one_call_tells_of_many_jobs(engine: SlurmEngine, server: Slurmrestd) -> None:
    server.answers["GET", "jobs"] = (200, JOBS)
    everybody = engine.jobs()
    assert len(everybody) == len(JOBS["jobs"])
    some = {job.job_id for job in everybody[:3]}
    assert {job.job_id for job in engine.jobs(some)} >= some
    assert len(engine.jobs([99999])) == 0
    parts = [row | {"job_id": 70 + at, "het_job_id": 70} for at, row in enumerate(JOBS["jobs"][:2])]
    server.answers["GET", "jobs"] = (200, {"jobs": parts})
    assert [job.job_id for job in engine.jobs([70])] == [70, 71], "all of a heterogeneous job"
    assert server.asked == [("GET", "jobs")] * 4
    assert "preempt_time" in JOBS["jobs"][0]
    assert all(job.preempted_s is not None for job in everybody)


def test_what_there_is(engine: SlurmEngine, server: Slurmrestd) -> None:
    server.answers["GET", "nodes"] = (200, json.loads(text("sinfo-22.05.json")))
    server.answers["GET", "partitions"] = (200, json.loads(text("partitions-22.05.json")))
    server.answers["GET", "reservations"] = (200, {"reservations": [{"name": "r"}]})
    server.answers["GET", "licenses"] = (200, {"licenses": [{"LicenseName": "ansys"}]})
    assert len(engine.nodes()) > 1
    assert len(engine.partitions()) > 1
    assert [one.name for one in engine.reservations()] == ["r"]
    assert [one.name for one in engine.licences()] == ["ansys"]


def test_what_jobs_have_used(engine: SlurmEngine, server: Slurmrestd) -> None:
    with pytest.raises(SiteError, match="slurmrestd knows of no accounts"):
        engine.accounted([7])
    told = {"job_id": 7, "state": {"current": "COMPLETED"}, "time": {"elapsed": 9}, "steps": []}
    server.answers["GET", "job/7"] = (200, {"errors": [], "jobs": [told]})
    nothing = {"error_number": 9003, "error": "Nothing found"}
    server.answers["GET", "job/8"] = (200, {"errors": [nothing], "jobs": []})
    assert engine.accounted([7, 8]) == {7: Used(is_over=True, elapsed_s=9)}


@pytest.mark.parametrize(("state", "is_deleted"), [("PENDING", True), ("RUNNING", False)])
def test_only_what_waits_is_cancelled(
    engine: SlurmEngine, server: Slurmrestd, state: str, is_deleted: bool
) -> None:
    job = {"job_id": 7, "job_state": state, "state_reason": "JobHeldUser"}
    server.answers["POST", "job/7"] = (200, errors())
    server.answers["GET", "job/7"] = (200, {"errors": [], "jobs": [job]})
    server.answers["DELETE", "job/7"] = (200, errors())
    engine.cancel(7)
    assert server.bodies == [{"hold": True}]
    assert (("DELETE", "job/7") in server.asked) is is_deleted


def test_what_is_gone_need_not_be_cancelled(engine: SlurmEngine, server: Slurmrestd) -> None:
    gone = {"error_number": 2017, "error": "Invalid job id specified"}
    server.answers["POST", "job/7"] = (500, errors(gone))
    engine.cancel(7)
    server.answers["POST", "job/7"] = (500, errors(gone | {"error_number": 2002}))
    with pytest.raises(SlurmError):
        engine.cancel(7)


@pytest.mark.parametrize("version", ["v0.0.36", "v0.0.40", "v0.0.44"])
def test_the_newest_version_is_found_by_asking(tmp_path: Path, version: str) -> None:
    with slurmrestd(version) as fake:
        fake.answers["GET", "jobs"] = (200, {"jobs": []})
        engine = engine_of(tmp_path, fake.url)
        for _ in range(2):
            assert engine.jobs() == ()
        assert len(fake.asked) == 2
        fake.version = "v0.0.41"  # a new release
        with pytest.raises(SiteError, match="slurmrestd has no jobs in its version of today"):
            engine.jobs()
        assert engine.jobs() == ()


def test_a_version_that_nobody_knows(tmp_path: Path) -> None:
    with slurmrestd("v0.0.99") as fake:
        engine = engine_of(tmp_path, fake.url)
        with pytest.raises(SiteError, match=r"none of the versions v0\.0\.36 to v0\.0\.44"):
            engine.jobs()


@pytest.mark.parametrize(
    "error",
    [
        UNSPECIFIED,
        {"error_code": 1800, "error": "Unable to contact slurm controller (connect failure)"},
        {"error_number": 5005, "error": "Zero Bytes were transmitted or received"},
        {"error": "Resource temporarily unavailable"},
        {"error_number": 104, "error": "Connection reset by peer"},
        {"error_number": 1000, "error": "Unexpected message received"},
    ],
)
def test_a_controller_that_is_away(
    engine: SlurmEngine, server: Slurmrestd, error: dict[str, Any]
) -> None:
    server.answers["GET", "jobs"] = (500, errors(error))
    with pytest.raises(AwayError, match="the controller is away, or does not accept the token"):
        engine.jobs()
    server.answers["GET", "ping"] = (500, errors(error))
    server.answers["GET", "jobs"] = (200, {"jobs": []})
    assert engine.jobs() == (), "its version is known already"


def test_a_token_that_slurm_finds_wrong(
    tmp_path: Path, engine: SlurmEngine, server: Slurmrestd
) -> None:
    """As 24.11 says it."""
    error = {"error_number": 1007, "error": "Protocol authentication error"}
    server.answers["POST", "job/submit"] = (500, errors(error))
    with pytest.raises(SiteError, match="does not accept user alice with the token of") as raised:
        engine.hand_in(Submission(), "")
    assert not isinstance(raised.value, AwayError)
    (tmp_path / "token").write_text(token(expires_s=5.0))
    with pytest.raises(AwayError, match="has expired at"):
        engine.hand_in(Submission(), "")


def test_while_the_controller_is_away_no_version_is_settled(
    engine: SlurmEngine, server: Slurmrestd
) -> None:
    server.answers["GET", "ping"] = (500, errors(UNSPECIFIED))
    with pytest.raises(AwayError):
        engine.jobs()


def test_a_no_is_not_mistaken_for_silence(engine: SlurmEngine, server: Slurmrestd) -> None:
    parts = ({"error_code": -1, "error": "Invalid x"}, {"error_code": 9001, "error": "Failure"})
    server.answers["POST", "job/submit"] = (400, errors(*parts))
    with pytest.raises(SlurmError, match="Slurm error -1, Invalid x; Slurm error 9001, Failure"):
        engine.hand_in(Submission(), "")


def test_what_cannot_be_read_is_told_with_its_status(
    engine: SlurmEngine, server: Slurmrestd
) -> None:
    server.answers["GET", "jobs"] = (500, "<html>")
    with pytest.raises(SiteError, match="slurmrestd answers HTTP 500: Slurm's answer is not JSON"):
        engine.jobs()
    server.answers["GET", "jobs"] = (200, "<html>")
    with pytest.raises(SiteError, match=r"^Slurm's answer is not JSON"):
        engine.jobs()
