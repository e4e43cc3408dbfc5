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
from gridloom.base.errors import BrokenError
from gridloom.control.loop import ControlLoop
from gridloom.control.restore import catch_up, repeat, replayed, restore
from gridloom.core.machine import Machine
from gridloom.model.action import CloseJob
from gridloom.model.event import AnyEvent, InventoryChanged, JobSubmitted
from gridloom.model.life import JobState
from gridloom.ports.journal import Record


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
            Record(seq=seq, now_s=float(seq), seed=seq, events=events, actions=tuple(actions))
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
    assert taken[0] >= 64
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
