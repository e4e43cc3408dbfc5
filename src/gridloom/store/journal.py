"""The journal over SQL: records, snapshot, letter box and outbox in one SQLite file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import SingletonThreadPool
from sqlalchemy.schema import CreateTable

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError, SiteError, StaleWriterError
from gridloom.base.files import cause_of, disk_is_full
from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent, StepReported, TaskRunning, TaskWaiting
from gridloom.ports.journal import Letter, Record, Snapshot

_BUSY_MS = 20_000
_ROUTINE = (TaskRunning, TaskWaiting, StepReported)

_METADATA = MetaData()
_RECORDS = Table(
    "records",
    _METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
_SNAPSHOTS = Table(
    "snapshots",
    _METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),
)
_SNAPSHOT_RULES = Table(  # apart: homes of before have snapshots without it, of the first rules
    "snapshot_rules",
    _METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("rules", Integer, nullable=False),
)
_LETTERS = Table(
    "letters",
    _METADATA,
    Column("letter_id", Integer, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("seq", Integer),  # the record that contains it; null while none does
)
_OUTBOX = Table(
    "outbox",
    _METADATA,
    Column("action_id", Integer, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    sqlite_autoincrement=True,  # or the number of a deleted action would name a new one
)


class SqlJournal:
    """Plays `gridloom.ports.journal.Journal` over a SQLite file.

    Any number of processes may read and post; one at a time appends, and a second one that tries
    is told so, because two records cannot have one number.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, creating it and its tables when they are missing.

        Raises:
            SiteError: It cannot be opened, or is not a journal.
        """
        self._path = path
        # Not a URL in text, in which a `?` or `%` of the path would mean something
        url = URL.create("sqlite", database=str(path))
        # One connection, kept open: the control loop looks ten times a second
        self._engine = create_engine(url, poolclass=SingletonThreadPool)
        self._letters: tuple[int, list[Letter]] | None = None
        event.listen(self._engine, "connect", _set_pragmas)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SiteError(f"{path.parent}: {cause_of(error)}") from error
        with self._trouble("not a usable journal: "), self._engine.begin() as connection:
            for table in _METADATA.sorted_tables:  # several processes may do this at once
                connection.execute(CreateTable(table, if_not_exists=True))

    def post(self, events: Sequence[AnyEvent]) -> None:
        """Hand in facts from outside the control loop."""
        self._letters = None
        with self._trouble(), self._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA synchronous=FULL")
            _post(connection, events)

    def letters(self) -> list[Letter]:
        """Return the facts that no record contains yet."""
        query = select(_LETTERS.c.letter_id, _LETTERS.c.body).where(_LETTERS.c.seq.is_(None))
        with self._trouble(), self._engine.connect() as connection:
            # Moves when another connection has written; what we write ourselves, we know
            version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
            if self._letters is None or self._letters[0] != version:
                rows = connection.execute(query.order_by(_LETTERS.c.letter_id)).all()
                letters = [
                    Letter(letter_id=row[0], event=_decode(row[1], AnyEvent)) for row in rows
                ]
                self._letters = (version, letters)
            return list(self._letters[1])

    def append(self, record: Record, letters: Sequence[Letter], snapshot: bytes | None) -> None:
        """Commit a record with its actions and the letters it used up."""
        self._letters = None
        # A lease must not lapse because a disk is busy with a checkpoint: heartbeats, which nobody
        # needs after a power cut, do not wait for it. The next record that does syncs them, too.
        routine = not letters and all(isinstance(fact, _ROUTINE) for fact in record.events)
        try:
            with self._trouble(), self._engine.begin() as connection:
                connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if routine else 'FULL'}")
                self._append(connection, record, letters)
                if snapshot is not None:
                    _replace(
                        connection,
                        Snapshot(seq=record.seq, state=snapshot, rules=record.rules),
                    )
        except IntegrityError as error:
            raise StaleWriterError(
                f"{self._path}: another control plane has written record {record.seq}"
            ) from error

    def last_seq(self) -> int:
        """Return the number of the newest record."""
        with self._trouble(), self._engine.connect() as connection:
            return connection.execute(select(func.max(_RECORDS.c.seq))).scalar() or 0

    def records(self, after: int = 0) -> list[Record]:
        """Return the records after number ``after``."""
        query = select(_RECORDS.c.body).where(_RECORDS.c.seq > after).order_by(_RECORDS.c.seq)
        with self._trouble(), self._engine.connect() as connection:
            return [decode(row[0], Record) for row in connection.execute(query)]

    def records_of(self, job_id: str) -> list[Record]:
        """Return the records in whose text ``job_id`` occurs."""
        occurs = func.instr(_RECORDS.c.body, job_id.encode()) > 0
        query = select(_RECORDS.c.body).where(occurs).order_by(_RECORDS.c.seq)
        with self._trouble(), self._engine.connect() as connection:
            return [decode(row[0], Record) for row in connection.execute(query)]

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot."""
        rules = func.coalesce(_SNAPSHOT_RULES.c.rules, 1)
        query = (
            select(_SNAPSHOTS.c.seq, _SNAPSHOTS.c.state, rules)
            .join_from(
                _SNAPSHOTS,
                _SNAPSHOT_RULES,
                _SNAPSHOTS.c.seq == _SNAPSHOT_RULES.c.seq,
                isouter=True,
            )
            .order_by(_SNAPSHOTS.c.seq.desc())
        )
        with self._trouble(), self._engine.connect() as connection:
            row = connection.execute(query.limit(1)).first()
        return Snapshot(seq=row[0], state=row[1], rules=row[2]) if row is not None else None

    def leave(self, snapshot: Snapshot) -> None:
        """Put a snapshot after the newest record in place of the one that is there."""
        with self._trouble(), self._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA synchronous=FULL")
            _replace(connection, snapshot)  # first: nobody else writes from here on
            last = connection.execute(select(func.max(_RECORDS.c.seq))).scalar() or 0
            if last != snapshot.seq:
                raise StaleWriterError(
                    f"{self._path}: another control plane has written record {last}"
                )

    def outbox(self) -> list[tuple[int, AnyAction]]:
        """Return actions that were not carried out yet."""
        query = select(_OUTBOX.c.action_id, _OUTBOX.c.body)
        with self._trouble(), self._engine.connect() as connection:
            rows = connection.execute(query.order_by(_OUTBOX.c.action_id)).all()
            return [(row[0], _decode(row[1], AnyAction)) for row in rows]

    def done(self, action_ids: Sequence[int], events: Sequence[AnyEvent] = ()) -> None:
        """Note that these actions were carried out, and hand in what came of them, together."""
        gone = delete(_OUTBOX).where(_OUTBOX.c.action_id == bindparam("gone"))
        rows = [{"gone": action_id} for action_id in action_ids]
        if events:
            self._letters = None
        with self._trouble(), self._engine.begin() as connection:
            # Not worth waiting for without facts: what was done twice has done no harm
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if events else 'NORMAL'}")
            _post(connection, events)
            if rows:
                connection.execute(gone, rows)

    def _append(self, connection: Connection, record: Record, letters: Sequence[Letter]) -> None:
        connection.execute(insert(_RECORDS).values(seq=record.seq, body=encode(record)))
        before = select(func.max(_RECORDS.c.seq)).where(_RECORDS.c.seq < record.seq)
        last = connection.execute(before).scalar() or 0
        if last != record.seq - 1:
            raise BrokenError(f"{self._path}: record {record.seq} cannot follow record {last}")
        # Row by row, not by one long list: a statement holds a limited number of values
        if actions := [{"seq": record.seq, "body": encode(action)} for action in record.actions]:
            connection.execute(insert(_OUTBOX), actions)
        used = update(_LETTERS).where(_LETTERS.c.letter_id == bindparam("used"))
        if rows := [{"used": letter.letter_id} for letter in letters]:
            connection.execute(used.values(seq=record.seq), rows)

    @contextmanager
    def _trouble(self, what: str = "") -> Iterator[None]:
        """Tell what the database, or what is in it, does wrong."""
        try:
            yield
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            if _no_room(error) or (_unsaid(error) and disk_is_full(self._path)):
                raise SiteError(
                    f"{self._path}: the disk is full: free space there, then `gridloom resume JOB`"
                ) from error
            raise SiteError(f"{self._path}: {what}{_cause(error)}") from error
        except msgspec.MsgspecError as error:
            raise SiteError(
                f"{self._path}: damaged, or written by another version of gridloom: {error}"
            ) from error


def _post(connection: Connection, events: Sequence[AnyEvent]) -> None:
    rows = [{"body": encode(fact)} for fact in events]
    if rows:
        connection.execute(insert(_LETTERS), rows)


def _replace(connection: Connection, snapshot: Snapshot) -> None:
    connection.execute(delete(_SNAPSHOTS))
    connection.execute(delete(_SNAPSHOT_RULES))
    connection.execute(insert(_SNAPSHOTS).values(seq=snapshot.seq, state=snapshot.state))
    connection.execute(insert(_SNAPSHOT_RULES).values(seq=snapshot.seq, rules=snapshot.rules))


def _set_pragmas(connection: Any, _record: object) -> None:
    # WAL: readers never wait for the writer. FULL: what was acknowledged survives a power cut.
    # The timeout first: to turn WAL on may have to wait.
    for pragma in (f"busy_timeout={_BUSY_MS}", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _decode(body: bytes, union: Any) -> Any:
    return decode(body, union)


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error)


def _no_room(error: SQLAlchemyError) -> bool:
    return "is full" in _cause(error)


def _unsaid(error: SQLAlchemyError) -> bool:
    """Whether SQLite tells only that something failed, as it does when a disk is full."""
    return any(said in _cause(error) for said in ("disk I/O error", "unable to open"))
