"""A journal in memory, and the crash of a control plane between two calls."""

from collections.abc import Sequence
from typing import Any

from gridloom.base.codec import decode, encode
from gridloom.base.errors import StaleWriterError
from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent
from gridloom.ports.journal import Journal, Letter, Record, Snapshot


class MemoryJournal:
    """Plays `gridloom.ports.journal.Journal`; what it keeps outlives the control planes over it."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._letters: dict[int, bytes] = {}
        self._outbox: dict[int, bytes] = {}
        self._snapshot: Snapshot | None = None
        self._given = 0

    def post(self, events: Sequence[AnyEvent]) -> None:
        for fact in events:
            self._given += 1
            self._letters[self._given] = encode(fact)

    def letters(self) -> list[Letter]:
        event: Any = AnyEvent
        return [
            Letter(letter_id=number, event=decode(body, event))
            for number, body in self._letters.items()
        ]

    def append(self, record: Record, letters: Sequence[Letter], snapshot: bytes | None) -> None:
        if record.seq != len(self._records) + 1:
            raise StaleWriterError(f"record {record.seq} is not the next one")
        self._records.append(encode(record))
        for action in record.actions:
            self._given += 1
            self._outbox[self._given] = encode(action)
        for letter in letters:
            self._letters.pop(letter.letter_id, None)
        if snapshot is not None:
            self._snapshot = Snapshot(seq=record.seq, state=snapshot, rules=record.rules)

    def last_seq(self) -> int:
        return len(self._records)

    def records(self, after: int = 0) -> list[Record]:
        return [decode(body, Record) for body in self._records[after:]]

    def records_of(self, job_id: str) -> list[Record]:
        return [record for record in self.records() if job_id.encode() in encode(record)]

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def leave(self, snapshot: Snapshot) -> None:
        if snapshot.seq != len(self._records):
            raise StaleWriterError(f"record {snapshot.seq} is not the last one")
        self._snapshot = snapshot

    def outbox(self) -> list[tuple[int, AnyAction]]:
        action: Any = AnyAction
        return [(number, decode(body, action)) for number, body in self._outbox.items()]

    def done(self, action_ids: Sequence[int], events: Sequence[AnyEvent] = ()) -> None:
        self.post(events)
        for number in action_ids:
            self._outbox.pop(number, None)


class CrashError(Exception):
    """The control plane was killed."""


class Tripwire:
    """Kills the control plane just before its call number ``at``, from 1; 0 for never."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.calls = 0

    def step(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise CrashError(f"killed before call {self.at}")


class MortalJournal:
    """Plays `Journal` in front of another one, over a tripwire at everything that writes."""

    def __init__(self, journal: Journal, wire: Tripwire) -> None:
        self._journal = journal
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def post(self, events: Sequence[AnyEvent]) -> None:
        self._wire.step()
        self._journal.post(events)

    def append(self, record: Record, letters: Sequence[Letter], snapshot: bytes | None) -> None:
        self._wire.step()
        self._journal.append(record, letters, snapshot)

    def leave(self, snapshot: Snapshot) -> None:
        self._wire.step()
        self._journal.leave(snapshot)

    def done(self, action_ids: Sequence[int], events: Sequence[AnyEvent] = ()) -> None:
        self._wire.step()
        self._journal.done(action_ids, events)
