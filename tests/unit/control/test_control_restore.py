"""The journal leads to the state, or says that it does not."""

import random
from pathlib import Path

import msgspec
import pytest
from tests.fakes.clock import FakeClock
from tests.fakes.driver import Program, World
from tests.fakes.journal import MemoryJournal
from tests.unit.control.nouns import GRID, spec
from tests.world.stage import Stage

from gridloom.base.codec import encode
from gridloom.base.errors import BrokenError, SiteError, StaleWriterError
from gridloom.control.loop import ControlLoop
from gridloom.control.restore import catch_up, repeat, replayed, restore
from gridloom.core.machine import RULES, Machine
from gridloom.model.action import CloseJob
from gridloom.model.event import AnyEvent, CancelRequested, InventoryChanged, JobSubmitted
from gridloom.model.life import JobState
from gridloom.ports.journal import Record, Snapshot


def recorded() -> list[Record]:
    machine = Machine()
    records = []
    facts: list[AnyEvent] = [
        InventoryChanged(inventory=GRID),
        JobSubmitted(job_id="job-1", spec=spec(), submitted_s=1.0),
    ]
    for seq, fact in enumerate(facts, start=1):
        events = (fact,)
        actions = machine.step(events, float(seq), random.Random(seq))
        records.append(
            Record(
                seq=seq,
                now_s=float(seq),
                seed=seq,
                events=events,
                actions=tuple(actions),
                rules=RULES,
            )
        )
    return records


def journal_of(records: list[Record], snapshot: bytes | None = None) -> MemoryJournal:
    journal = MemoryJournal()
    for record in records:
        journal.append(record, [], snapshot if record is records[-1] else None)
    return journal


def test_a_machine_comes_back_from_records_alone() -> None:
    machine, seq = restore(journal_of(recorded()))
    assert seq == 2
    assert machine.state.jobs["job-1"].state is JobState.STARTING


def test_a_machine_catches_up_with_newer_records_only() -> None:
    records = recorded()
    journal = journal_of(records[:1])
    machine, seq = restore(journal)
    assert catch_up(machine, seq, journal) == 1
    journal.append(records[1], [], None)
    assert catch_up(machine, seq, journal) == 2
    assert encode(machine.state) == replayed(records)


def test_a_tampered_record_is_named() -> None:
    first, second = recorded()
    false = msgspec.structs.replace(
        second, actions=(CloseJob(job_id="job-1", state=JobState.FAILED),)
    )
    with pytest.raises(BrokenError, match="record 2 of the journal does not replay"):
        restore(journal_of([first, false]))
    with pytest.raises(BrokenError, match="record 2"):
        replayed([first, false])
    repeat(Machine(), first)


def test_a_snapshot_that_cannot_be_read_is_a_sentence() -> None:
    with pytest.raises(BrokenError, match="snapshot in the journal cannot be read"):
        restore(journal_of(recorded(), snapshot=b'{"jobs": 3}'))


def test_a_long_journal_is_restored_from_its_snapshot(tmp_path: Path) -> None:
    journal = MemoryJournal()
    stage = Stage(journal, tmp_path, World(FakeClock(), Program(steps=200)))
    stage.submit("j-1")
    stage.run(300)
    taken = journal.snapshot()
    assert taken is not None
    assert taken.seq >= 64
    assert taken.rules == RULES
    stage.check_end()


def test_a_loop_is_idle_when_all_is_over_and_nobody_has_written(tmp_path: Path) -> None:
    journal = MemoryJournal()
    stage = Stage(journal, tmp_path, World(FakeClock()))
    stage.run(0.1)
    loop = stage._loop
    assert isinstance(loop, ControlLoop)
    assert loop.idle()
    assert not loop.beat()
    stage.submit("j-1")
    assert not loop.idle()
    assert loop.beat()
    assert loop.troubles == []


def test_a_loop_goes_on_to_close_jobs_that_are_over_at_once(tmp_path: Path) -> None:
    """It is not idle before, and needs no fact to go on."""
    journal = MemoryJournal()
    stage = Stage(journal, tmp_path, World(FakeClock()))
    names = [f"j-{number:02}" for number in range(40)]
    stage.submit(*names)
    for name in names:
        journal.post([CancelRequested(job_id=name)])
    stage.run(60)
    assert sorted(stage.closed) == names
    assert journal.outbox() == []
    stage.check_end()


# ----- other rules than ours


def by(rules: int, record: Record) -> Record:
    return msgspec.structs.replace(record, rules=rules)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (1, "by an older version .*; let that version end its jobs, and set GRIDLOOM_HOME"),
        (RULES + 1, "by a newer version .*; use that version"),
    ],
)
def test_a_record_of_other_rules_is_refused_with_what_helps(rules: int, said: str) -> None:
    first, second = recorded()
    with pytest.raises(SiteError, match=f"record 2 of the journal was decided {said}"):
        restore(journal_of([first, by(rules, second)]))
    machine, seq = restore(journal_of([first]))
    journal = journal_of([first, by(rules, second)])
    with pytest.raises(SiteError, match="record 2"):  # a view is open while another version leads
        catch_up(machine, seq, journal)
    with pytest.raises(SiteError, match="record 2"):
        replayed([first, by(rules, second)])


def test_a_version_that_leaves_a_snapshot_when_it_stops_is_to_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = recorded()
    monkeypatch.setattr("gridloom.control.restore.RULES", RULES + 1)
    with pytest.raises(SiteError, match=r"record 1 .*`gridloom control --until-idle` once"):
        restore(journal_of([first, second]))


def test_a_snapshot_of_newer_rules_is_refused_and_one_of_older_is_not() -> None:
    first, second = recorded()
    machine, _ = restore(journal_of([first, second]))
    state = encode(machine.state)
    newer = journal_of([by(RULES + 1, first), by(RULES + 1, second)], state)
    with pytest.raises(SiteError, match="snapshot in the journal is of a newer version"):
        restore(newer)
    older = journal_of([by(1, first), by(1, second)], state)
    found, seq = restore(older)
    assert (seq, encode(found.state)) == (2, state)


def stage_of(journal: MemoryJournal, tmp_path: Path) -> Stage:
    return Stage(journal, tmp_path, World(FakeClock(), Program(steps=20)))


def test_who_takes_over_from_other_rules_leaves_a_snapshot_of_its_own(tmp_path: Path) -> None:
    """So what it decides from there on can be replayed, and what was before need not be."""
    first, second = recorded()
    machine, _ = restore(journal_of([first, second]))
    journal = journal_of([by(1, first), by(1, second)], encode(machine.state))
    stage_of(journal, tmp_path).run(0.1)
    taken = journal.snapshot()
    assert taken is not None
    assert (taken.seq, taken.rules) == (2, RULES)
    assert taken.state == encode(machine.state)


def test_who_takes_over_from_its_own_rules_leaves_the_snapshot_alone(tmp_path: Path) -> None:
    first, second = recorded()
    machine, _ = restore(journal_of([first, second]))
    journal = journal_of([first, second], encode(machine.state))
    before = journal.snapshot()
    stage_of(journal, tmp_path).run(0.1)
    assert journal.snapshot() is before


def test_a_loop_that_stops_leaves_a_snapshot_from_which_other_rules_go_on(tmp_path: Path) -> None:
    journal = MemoryJournal()
    stage = stage_of(journal, tmp_path)
    stage.submit("j-1")
    stage.run(300)
    assert journal.snapshot() is None
    loop = stage._loop
    assert isinstance(loop, ControlLoop)
    loop.leave()
    taken = journal.snapshot()
    assert taken == Snapshot(seq=journal.last_seq(), state=encode(loop.state), rules=RULES)
    loop.leave()
    assert journal.snapshot() is taken, "nothing has happened since"
    journal._records = [encode(by(1, record)) for record in journal.records()]
    assert restore(journal)[0].state == loop.state


def test_a_loop_over_nothing_leaves_nothing(tmp_path: Path) -> None:
    journal = MemoryJournal()
    stage = stage_of(journal, tmp_path)
    stage.run(0.1)
    assert isinstance(stage._loop, ControlLoop)
    stage._loop.leave()
    assert journal.snapshot() is None


def test_a_loop_that_is_not_the_writer_any_more_leaves_nothing(tmp_path: Path) -> None:
    journal = MemoryJournal()
    stage = stage_of(journal, tmp_path)
    stage.submit("j-1")
    stage.run(5)
    assert isinstance(stage._loop, ControlLoop)
    last = journal.records()[-1]
    journal.append(msgspec.structs.replace(last, seq=last.seq + 1), [], None)
    with pytest.raises(StaleWriterError):
        stage._loop.leave()
    assert journal.snapshot() is None
