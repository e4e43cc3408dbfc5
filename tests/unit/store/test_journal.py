"""The journal: what is acknowledged stays, whole and in order, whoever is killed when."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridloom.base.errors import BrokenError, SiteError, StaleWriterError
from gridloom.base.system import SystemClock
from gridloom.model.action import CloseJob, RenewLease
from gridloom.model.event import AnyEvent, CancelRequested, StepReported, StopRequested
from gridloom.model.life import JobState
from gridloom.ports.journal import Journal, Letter, Record, Snapshot
from gridloom.store.journal import SqlJournal

CLOSE = CloseJob(job_id="j", state=JobState.STOPPED)
RENEW = RenewLease(job_id="j", attempt=1, epoch=1, domain="a/n", lease_until_s=6.5)


def record(seq: int, *actions: Any, events: tuple[Any, ...] = ()) -> Record:
    return Record(seq=seq, now_s=float(seq), seed=seq, events=events, actions=actions)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> SqlJournal:
    return SqlJournal(path)


def test_a_new_journal_is_empty(journal: SqlJournal) -> None:
    assert (journal.last_seq(), journal.snapshot()) == (0, None)
    assert journal.records() == []
    assert journal.letters() == []
    assert journal.outbox() == []
    journal.post([])
    journal.done([])
    journal.append(record(1), [], None)


def test_what_was_written_is_read_by_everybody(journal: SqlJournal, path: Path) -> None:
    facts = (StopRequested(job_id="j"), CancelRequested(job_id="j"))
    first, second = record(1, CLOSE, events=facts), record(2, RENEW)
    journal.append(first, [], b"state 1")
    journal.append(second, [], None)
    for reader in (journal, SqlJournal(path)):
        port: Journal = reader
        assert port.records() == [first, second]
        assert port.records(after=1) == [second]
        assert port.last_seq() == 2
        assert port.snapshot() == Snapshot(seq=1, state=b"state 1")
        assert port.outbox() == [(1, CLOSE), (2, RENEW)]


def test_a_snapshot_takes_the_place_of_the_older(journal: SqlJournal) -> None:
    journal.append(record(1), [], b"one")
    journal.append(record(2), [], b"\x00\xfftwo")
    assert journal.snapshot() == Snapshot(seq=2, state=b"\x00\xfftwo")


def test_a_snapshot_is_of_the_rules_of_its_record(journal: SqlJournal, path: Path) -> None:
    journal.append(msgspec.structs.replace(record(1), rules=7), [], b"one")
    assert SqlJournal(path).snapshot() == Snapshot(seq=1, state=b"one", rules=7)
    assert [found.rules for found in journal.records()] == [7]
    journal.append(record(2), [], b"two")
    assert SqlJournal(path).snapshot() == Snapshot(seq=2, state=b"two", rules=1)


def test_a_snapshot_is_left_after_the_newest_record_only(journal: SqlJournal, path: Path) -> None:
    journal.append(record(1), [], b"one")
    other = SqlJournal(path)
    other.leave(Snapshot(seq=1, state=b"again", rules=3))
    assert journal.snapshot() == Snapshot(seq=1, state=b"again", rules=3)
    journal.append(record(2), [], None)
    with pytest.raises(StaleWriterError, match="has written record 2"):
        other.leave(Snapshot(seq=1, state=b"late", rules=3))
    assert journal.snapshot() == Snapshot(seq=1, state=b"again", rules=3)
    other.leave(Snapshot(seq=2, state=b"two", rules=4))
    assert journal.snapshot() == Snapshot(seq=2, state=b"two", rules=4)


def test_a_home_of_before_is_read_and_its_snapshot_is_of_the_first_rules(path: Path) -> None:
    """Records did not say by which rules, and there was no table for those of a snapshot."""
    path.parent.mkdir()
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE records (seq INTEGER NOT NULL PRIMARY KEY, body BLOB NOT NULL)")
        old.execute("CREATE TABLE snapshots (seq INTEGER NOT NULL PRIMARY KEY, state BLOB)")
        body = b'{"seq":1,"now_s":1.0,"seed":1,"events":[],"actions":[],"version":1}'
        old.execute("INSERT INTO records VALUES (1, ?)", (body,))
        old.execute("INSERT INTO snapshots VALUES (1, ?)", (b"old",))
    old.close()
    journal = SqlJournal(path)
    assert journal.records() == [record(1)]
    assert journal.snapshot() == Snapshot(seq=1, state=b"old", rules=1)
    journal.append(msgspec.structs.replace(record(2), rules=2), [], b"new")
    assert journal.snapshot() == Snapshot(seq=2, state=b"new", rules=2)
    # and a version of before, should it come back, writes what it knows
    with sqlite3.connect(path) as old:
        old.execute("DELETE FROM snapshots")
        old.execute("INSERT INTO snapshots VALUES (3, ?)", (b"older",))
    old.close()
    assert journal.snapshot() == Snapshot(seq=3, state=b"older", rules=1)


def test_letters_wait_in_order_until_a_record_contains_them(journal: SqlJournal) -> None:
    facts: list[AnyEvent] = [StopRequested(job_id=name) for name in ("a", "b", "c")]
    journal.post(facts[:2])
    journal.post(facts[2:])
    letters = journal.letters()
    assert [letter.event for letter in letters] == facts
    assert [letter.letter_id for letter in letters] == [1, 2, 3]
    journal.append(record(1), letters[:2], None)
    assert journal.letters() == letters[2:]
    journal.append(record(2), letters[2:], None)
    assert journal.letters() == []
    journal.post(facts[:1])
    assert [letter.letter_id for letter in journal.letters()] == [4]


def test_an_action_leaves_the_outbox_when_it_was_carried_out(journal: SqlJournal) -> None:
    journal.append(record(1, CLOSE, RENEW, CLOSE), [], None)
    journal.done([1, 3, 77])
    assert journal.outbox() == [(2, RENEW)]
    journal.done([2])
    journal.done([2])
    assert journal.outbox() == []


def test_what_came_of_an_action_is_handed_in_as_it_leaves_the_outbox(journal: SqlJournal) -> None:
    journal.append(record(1, CLOSE, RENEW), [], None)
    assert journal.letters() == []
    fact = CancelRequested(job_id="j-1")
    journal.done([1], [fact])
    assert journal.outbox() == [(2, RENEW)]
    assert [letter.event for letter in journal.letters()] == [fact]


def test_the_number_of_an_action_never_names_another(journal: SqlJournal) -> None:
    """Or a stale writer that notes what it carried out would strike off what nobody did."""
    journal.append(record(1, CLOSE), [], None)
    journal.done([1])
    journal.append(record(2, RENEW), [], None)
    journal.done([1])
    assert journal.outbox() == [(2, RENEW)]


def test_a_second_writer_is_told_and_changes_nothing(journal: SqlJournal, path: Path) -> None:
    other = SqlJournal(path)
    other.post([StopRequested(job_id="j")])
    letters = other.letters()
    journal.append(record(1, CLOSE), [], b"ours")
    with pytest.raises(StaleWriterError, match="has written record 1"):
        other.append(record(1, RENEW, RENEW), letters, b"theirs")
    assert journal.records() == [record(1, CLOSE)]
    assert journal.outbox() == [(1, CLOSE)]
    assert journal.letters() == letters
    assert journal.snapshot() == Snapshot(seq=1, state=b"ours")


@pytest.mark.parametrize("seq", [3, 0, -1])
def test_a_record_that_is_not_the_next_is_a_fault_of_ours(journal: SqlJournal, seq: int) -> None:
    journal.append(record(1), [], None)
    with pytest.raises(BrokenError, match=f"record {seq} cannot follow record"):
        journal.append(record(seq, CLOSE), [], b"s")
    assert (journal.last_seq(), journal.outbox(), journal.snapshot()) == (1, [], None)


@pytest.mark.unmeasured
def test_more_letters_and_actions_than_a_statement_holds(journal: SqlJournal) -> None:
    count = 33_000
    fact = StepReported(job_id="j", attempt=1, epoch=1, domain="a/n", step=1)
    journal.post([fact] * count)
    letters = journal.letters()
    assert len(letters) == count
    journal.append(record(1, *[RENEW] * count), letters, None)
    assert journal.letters() == []
    journal.done([number for number, _ in journal.outbox()])
    assert journal.outbox() == []


# ----- places that are no place for a journal


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"no database, but long enough to have a header" * 100)
    with pytest.raises(SiteError, match="journal: not a usable journal: file is not a database"):
        SqlJournal(tmp_path / "journal")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SiteError, match="file"):
        SqlJournal(tmp_path / "file" / "journal")
    (tmp_path / "directory").mkdir()
    with pytest.raises(SiteError, match="unable to open"):
        SqlJournal(tmp_path / "directory")


def test_a_full_disk_is_told_with_what_helps(journal: SqlJournal, path: Path) -> None:
    with journal._engine.connect() as connection:  # SQLite then says what it says of a full disk
        connection.exec_driver_sql("PRAGMA max_page_count=1")
    with pytest.raises(SiteError, match=r"the disk is full: free space there, then `gridloom res"):
        journal.post([StopRequested(job_id="j" * 1_000_000)])
    assert SqlJournal(path).letters() == []


@pytest.mark.parametrize("name", ["100%", "what?", "a#b", "a b", "ä", "file:x", ":memory:x"])
def test_a_path_means_what_it_says(tmp_path: Path, name: str) -> None:
    SqlJournal(tmp_path / name / name).append(record(1), [], None)
    assert (tmp_path / name / name).is_file()
    assert SqlJournal(tmp_path / name / name).last_seq() == 1


VERBS: dict[str, Callable[[SqlJournal], object]] = {
    "post": lambda journal: journal.post([StopRequested(job_id="j")]),
    "letters": lambda journal: journal.letters(),
    "append": lambda journal: journal.append(record(1, CLOSE), [], b""),
    "last_seq": lambda journal: journal.last_seq(),
    "records": lambda journal: journal.records(),
    "records_of": lambda journal: journal.records_of("j"),
    "snapshot": lambda journal: journal.snapshot(),
    "leave": lambda journal: journal.leave(Snapshot(seq=journal.last_seq(), state=b"")),
    "outbox": lambda journal: journal.outbox(),
    "done": lambda journal: journal.done([1]),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_a_journal_that_went_bad_is_a_fault_of_the_site(
    journal: SqlJournal, path: Path, verb: Callable[[SqlJournal], object]
) -> None:
    with sqlite3.connect(path) as other:
        for table in ("records", "snapshots", "letters", "outbox"):
            other.execute(f"DROP TABLE {table}")
    other.close()
    with pytest.raises(SiteError, match=r"journal\.sqlite: "):
        verb(journal)


@pytest.mark.parametrize("table", ["records", "letters", "outbox"])
@pytest.mark.parametrize("body", [b"{}", b"", b'{"type": "Tomorrow"}'])
def test_what_another_version_wrote_is_told(
    journal: SqlJournal, path: Path, table: str, body: bytes
) -> None:
    journal.append(record(1, CLOSE), [], None)
    journal.post([StopRequested(job_id="j")])
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {table} SET body = ?", (body,))
    connection.close()
    with pytest.raises(SiteError, match="damaged, or written by another version"):
        VERBS[table](journal)


# ----- many processes


def python(code: str, *args: object) -> "subprocess.Popen[bytes]":
    prelude = """
import sys
from pathlib import Path
from gridloom.store.journal import SqlJournal
from gridloom.model.event import StopRequested
from gridloom.model.action import CloseJob
from gridloom.model.life import JobState
from gridloom.ports.journal import Record
journal = SqlJournal(Path(sys.argv[1]))
def append(letters=()):
    seq = journal.last_seq() + 1
    events = tuple(letter.event for letter in letters)
    actions = (CloseJob(job_id=str(seq), state=JobState.STOPPED),) * 3
    record = Record(seq=seq, now_s=float(seq), seed=seq, events=events, actions=actions)
    journal.append(record, letters, str(seq).encode() * 1000)
    return seq
"""
    argv = [sys.executable, "-c", prelude + code, *map(str, args)]
    # Killed before it could write its coverage, and slower with it
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}  # noqa: TID251
    return subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)


def said(process: "subprocess.Popen[bytes]", lines: int | None = None) -> list[int]:
    """Return what a process acknowledged: its next lines, or all to its end but a cut one."""
    assert process.stdout is not None
    told = [*process.stdout] if lines is None else [process.stdout.readline() for _ in range(lines)]
    return [int(line) for line in told if line.endswith(b"\n")]


WRITER = """
while True:
    print(append(journal.letters()), flush=True)
"""
POSTER = """
number = int(sys.argv[2])
while True:
    journal.post([StopRequested(job_id=str(number))] * 2)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(path: Path) -> None:
    clock = SystemClock()
    appended: list[int] = []
    posted: list[int] = []
    for round_ in range(5):
        first = 1_000_000 * round_
        with python(WRITER, path) as writer, python(POSTER, path, first) as poster:
            appended += said(writer, lines=1)
            posted += said(poster, lines=1)
            clock.sleep(0.011 * round_)
            writer.kill()
            poster.kill()
            appended += said(writer)
            posted += said(poster)
        check(SqlJournal(path), appended, posted)
    assert len(appended) > 6
    assert len(posted) > 6


def check(journal: SqlJournal, appended: list[int], posted: list[int]) -> None:
    records = journal.records()
    assert [record.seq for record in records] == list(range(1, journal.last_seq() + 1))
    assert set(appended) <= {record.seq for record in records}
    snapshot = journal.snapshot()
    if records:
        last = records[-1].seq
        assert snapshot == Snapshot(seq=last, state=str(last).encode() * 1000)
    outbox = [(number, action) for number, action in journal.outbox()]
    assert [number for number, _ in outbox] == list(range(1, 3 * len(records) + 1))
    facts = [fact for record in records for fact in record.events]
    facts += [letter.event for letter in journal.letters()]
    found = [int(fact.job_id) for fact in facts if isinstance(fact, StopRequested)]
    assert sorted(found) == found, "in the order in which they were handed in"
    assert found[::2] == found[1::2], "what was handed in together arrived together, and once"
    assert set(posted) <= set(found)


@pytest.mark.slow
def test_of_many_writers_one_wins_each_record_and_the_others_are_told(path: Path) -> None:
    """They also open the file at once, when it does not exist yet."""
    code = """
from gridloom.base.errors import StaleWriterError
won = 0
while journal.last_seq() < 30:
    try:
        append()
        won += 1
    except StaleWriterError:
        pass
print(won)
"""
    writers = [python(code, path) for _ in range(4)]
    reader = SqlJournal(path)
    while any(writer.poll() is None for writer in writers):
        seqs = [record.seq for record in reader.records()]
        assert seqs == list(range(1, len(seqs) + 1)), "a reader sees whole records beside writers"
    for writer in writers:
        assert writer.returncode == 0
    wins = [said(writer)[0] for writer in writers]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    assert sum(wins) == reader.last_seq() >= 30
    assert len(reader.outbox()) == 3 * reader.last_seq()


def test_letters_are_numbered_by_their_arrival(journal: SqlJournal, path: Path) -> None:
    other = SqlJournal(path)
    for number in range(6):
        (journal, other)[number % 2].post([StopRequested(job_id=str(number))])
    arrived = [Letter(letter_id=n + 1, event=StopRequested(job_id=str(n))) for n in range(6)]
    assert journal.letters() == other.letters() == arrived


def test_descriptors_do_not_pile_up(journal: SqlJournal) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for verb in VERBS.values():
        verb(journal)
    with pytest.raises(StaleWriterError):
        journal.append(record(1), [], None)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_records_of_a_job_are_those_that_speak_of_it(journal: SqlJournal) -> None:
    journal.append(record(1, CLOSE), [], None)
    journal.append(record(2), [], None)
    assert [found.seq for found in journal.records_of(CLOSE.job_id)] == [1]
    assert journal.records_of("nobody") == []


def test_letters_of_others_and_our_own_are_seen_at_once(journal: SqlJournal, path: Path) -> None:
    other = SqlJournal(path)
    for number in range(1, 4):
        (journal if number % 2 else other).post([StopRequested(job_id=str(number))])
        for reader in (journal, other):
            assert len(reader.letters()) == number
    letters = journal.letters()
    other.append(record(1), letters, None)
    assert journal.letters() == other.letters() == []


def test_only_what_a_power_cut_must_not_undo_waits_for_the_disk(journal: SqlJournal) -> None:
    def waits() -> bool:
        with journal._engine.connect() as connection:
            return bool(connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2)

    step = StepReported(job_id="j", attempt=1, epoch=1, domain="a/n", step=1)
    stop = StopRequested(job_id="j")
    journal.append(record(1, events=(step,)), [], None)
    assert not waits()
    journal.append(record(2, events=(step, stop)), [], None)
    assert waits()
    journal.append(record(3, RENEW, events=(step,)), [], None)
    assert not waits()
    journal.post([stop])
    assert waits()
    journal.append(record(4, events=(step, stop)), journal.letters(), None)
    assert waits()
    journal.done([1])
    assert not waits()
