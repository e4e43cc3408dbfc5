"""The port that facts and intentions are kept behind."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gridloom.model.action import AnyAction
from gridloom.model.event import AnyEvent

RECORD_VERSION = 1
"""Version of the record's layout; a reader upgrades older ones."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the core's door: enough to repeat it exactly.

    Attributes:
        seq: From 1, without gaps.
        now_s: The time that was handed in.
        seed: Seed of the random source that was handed in.
        events: The facts.
        actions: The intentions that came out.
        version: Layout of the record.
        rules: Generation of the core's rules that decided; records that do not say are of the
            first.
    """

    seq: int
    now_s: float
    seed: int
    events: tuple[AnyEvent, ...]
    actions: tuple[AnyAction, ...]
    version: int = RECORD_VERSION
    rules: int = 1


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's state after a record, from which newer records go on.

    Attributes:
        seq: Number of the record.
        state: The encoded state.
        rules: Generation of the core's rules that came to it, and that decides what follows.
    """

    seq: int
    state: bytes
    rules: int = 1


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that another process handed in.

    Attributes:
        letter_id: Number in the order of arrival.
        event: The fact.
    """

    letter_id: int
    event: AnyEvent


class Journal(Protocol):
    """An ordered log of records, a snapshot, a letter box and an outbox, in one place."""

    def post(self, events: Sequence[AnyEvent]) -> None:
        """Hand in facts from outside the control loop; durable when this returns."""
        ...

    def letters(self) -> list[Letter]:
        """Return the facts that no record contains yet, oldest first."""
        ...

    def append(self, record: Record, letters: Sequence[Letter], snapshot: bytes | None) -> None:
        """Commit a record, its actions as outbox entries, and the letters it used up, together.

        Args:
            record: Its ``seq`` must be the next one.
            letters: Those whose facts the record contains.
            snapshot: The encoded state after the record, when one is due; by the record's rules.

        Raises:
            StaleWriterError: Another writer has appended meanwhile.
        """
        ...

    def last_seq(self) -> int:
        """Return the number of the newest record; 0 when there is none."""
        ...

    def records(self, after: int = 0) -> list[Record]:
        """Return all records with a higher number than ``after``, in order."""
        ...

    def records_of(self, job_id: str) -> list[Record]:
        """Return the records that speak of a job (and perhaps some others), in order."""
        ...

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot."""
        ...

    def leave(self, snapshot: Snapshot) -> None:
        """Put a snapshot after the newest record in place of the one that is there.

        Raises:
            StaleWriterError: Another writer has appended meanwhile.
        """
        ...

    def outbox(self) -> list[tuple[int, AnyAction]]:
        """Return actions that were not carried out yet, with their numbers, oldest first."""
        ...

    def done(self, action_ids: Sequence[int], events: Sequence[AnyEvent] = ()) -> None:
        """Note that these actions were carried out, and hand in what came of them, together."""
        ...
