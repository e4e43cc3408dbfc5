"""Jobs that wait or that nobody looks after, in a journal written for the purpose."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Answer
from tests.world.stage import GRID, job_spec

from gridloom.cli import settings
from gridloom.cli.lookup import all_jobs
from gridloom.cli.wiring import Plane
from gridloom.core.machine import Machine
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
    made.append(Record(seq=1, now_s=now_s, seed=1, events=events, actions=actions), [], None)
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
    assert call("why", "first").out == "first-222222 is starting\n"


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
    newer = Record(seq=2, now_s=record.now_s + 1, seed=2, events=(event,), actions=actions)
    journal.append(newer, [], None)
    assert "third-222222" in plane.state().jobs
