"""Jobs that wait or that nobody looks after, in a journal written for the purpose."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer
from tests.world.stage import GRID, job_spec

from gridloom.cli import settings
from gridloom.cli.lookup import all_jobs
from gridloom.cli.views import up_to_now
from gridloom.cli.wiring import Plane
from gridloom.core.machine import RULES, Machine
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted
from gridloom.model.spec import Budget
from gridloom.ports.journal import Record
from gridloom.store.journal import SqlJournal

Call = Callable[..., Answer]


@pytest.fixture
def journal(home: Path) -> SqlJournal:
    """`first` holds the whole grid and `second` waits; no control plane runs."""
    made = SqlJournal(home / "journal.sqlite")
    now_s = Plane(settings.read()).clock.now_s()
    spec = job_spec(ranks=8)
    events: tuple[AnyEvent, ...] = (
        InventoryChanged(inventory=GRID),
        JobSubmitted(job_id="first-222222", spec=spec, submitted_s=now_s - 2),
        JobSubmitted(job_id="second-222222", spec=spec, submitted_s=now_s - 1),
    )
    actions = tuple(Machine().step(events, now_s, random.Random(1)))
    made.append(
        Record(seq=1, now_s=now_s, seed=1, events=events, actions=actions, rules=RULES), [], None
    )
    return made


def test_why_tells_what_every_site_lacks(call: Call, journal: SqlJournal) -> None:
    assert journal.last_seq() == 1
    out = call("why", "second").out
    assert "second-222222 is queued" in out
    assert "first rule that failed" in out
    assert "a/n" in out
    domains = call("why", "second", "--json").json()["reason"]["domains"]
    assert {"a", "b"} <= {one["domain"] for one in domains}
    assert all(one.keys() == {"domain", "code", "sentence", "wanted", "found"} for one in domains)
    first = " ".join(call("why", "first").out.split())
    assert first.startswith("first-222222 is starting on a/n")
    assert ": attempt 1, placed at 20" in first
    assert first.endswith("ago")


def test_ps_and_doctor_say_that_nobody_looks_after_the_jobs(
    call: Call, journal: SqlJournal
) -> None:
    answer = call("ps")
    assert [line.split()[:2] for line in answer.out.splitlines()[2:]] == [
        ["first-222222", "starting"],
        ["second-222222", "queued"],
    ]
    assert "no control plane runs" in answer.err
    answer = call("doctor")
    assert answer.code == 1
    assert "gridloom resume first-222222" in answer.out


def test_status_of_a_job_that_waits(call: Call, journal: SqlJournal) -> None:
    found = call("status", "second", "--json").json()
    assert (found["state"], found["attempt"], found["sites"]) == ("queued", 0, {})
    assert found["reason"]["sentence"] in " ".join(call("status", "second").out.split())


def test_logs_of_a_job_that_waits_are_empty(call: Call, journal: SqlJournal) -> None:
    assert (call("logs", "second").code, call("logs", "second").out) == (0, "")


def test_a_job_that_was_only_handed_in_is_seen(call: Call, journal: SqlJournal) -> None:
    spec = job_spec()
    journal.post([JobSubmitted(job_id="third-222222", spec=spec, submitted_s=9e9)])
    assert list(all_jobs(Plane(settings.read())))[-1] == "third-222222"
    assert call("status", "third", "--json").json()["state"] == "queued"


def test_doctor_sees_a_job_that_nobody_has_taken_up(call: Call, home: Path) -> None:
    made = SqlJournal(home / "journal.sqlite")
    now_s = Plane(settings.read()).clock.now_s()
    made.post([JobSubmitted(job_id="lost-222222", spec=job_spec(), submitted_s=now_s - 60)])
    checks = {one["check"]: one for one in call("doctor", "--json").json()["checks"]}
    assert checks["control plane"]["state"] == "bad"
    assert checks["control plane"]["found"] == "none, but lost-222222 is queued"
    assert checks["control plane"]["remedy"] == "gridloom resume lost-222222"
    assert "no control plane runs" in call("ps").err


def test_status_counts_the_present_attempt_as_ps_does(call: Call, journal: SqlJournal) -> None:
    assert journal.last_seq() == 1
    plane = Plane(settings.read())
    job = plane.state().jobs["first-222222"]
    assert job.attempt is not None
    later = up_to_now(job, job.attempt.started_s + 3600)
    assert (later.run_s, later.cost) == (3600.0, job.attempt.placement.price_per_hour)
    assert up_to_now(plane.state().jobs["second-222222"], 9e9).run_s == 0
    found = call("status", "first", "--json").json()
    assert found["run_s"] > 0
    assert found["summary"]["run_s"] == pytest.approx(found["run_s"], abs=0.001)
    assert found["summary"]["cost"]["amount"] == pytest.approx(found["cost"], abs=1e-6)


@pytest.mark.parametrize("verb", ["stop", "cancel", "resume"])
def test_a_name_of_several_unfinished_jobs_is_refused(
    call: Call, journal: SqlJournal, verb: str
) -> None:
    spec = job_spec(ranks=8)
    journal.post([JobSubmitted(job_id="third-222222", spec=spec, submitted_s=9e9)])
    answer = call(verb, spec.name)
    assert answer.code == 2
    for listed in ("first-222222 (starting)", "second-222222 (queued)", "third-222222 (queued)"):
        assert listed in answer.err
    assert call("status", spec.name, "--json").json()["job"] == "third-222222"


def test_a_view_of_the_journal_catches_up(journal: SqlJournal) -> None:
    plane = Plane(settings.read())
    machine = Machine()
    (record,) = journal.records()
    machine.step(record.events, record.now_s, random.Random(1))
    assert set(plane.state().jobs) == {"first-222222", "second-222222"}
    spec = job_spec()
    event = JobSubmitted(job_id="third-222222", spec=spec, submitted_s=9e9)
    assert spec.budget == Budget()
    actions = tuple(machine.step([event], record.now_s + 1, random.Random(2)))
    newer = Record(
        seq=2, now_s=record.now_s + 1, seed=2, events=(event,), actions=actions, rules=RULES
    )
    journal.append(newer, [], None)
    assert "third-222222" in plane.state().jobs


def test_logs_of_a_job_that_waits_say_so(call: Call, journal: SqlJournal) -> None:
    assert journal.last_seq() == 1
    answer = call("logs", "second")
    assert (answer.code, answer.out) == (0, "")
    assert "second-222222 has printed nothing yet: it is queued; `gridloom why" in answer.err
    assert call("logs", "second", "--json").err == ""
