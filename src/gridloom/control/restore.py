"""From the journal back to the scheduler's state, and the proof that it leads there."""

import random
from collections.abc import Sequence

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError, SiteError
from gridloom.core.machine import RULES, Machine
from gridloom.core.state import State
from gridloom.ports.journal import Journal, Record, Snapshot

_STOP_IT = (
    "run `gridloom control --until-idle` once with the version that wrote it: it leaves a snapshot"
    " when it stops, from which this one goes on"
)
_ANEW = "let that version end its jobs, and set GRIDLOOM_HOME to another directory for this one"
_NEWER = "use that version, or set GRIDLOOM_HOME to another directory for this one"

_RULES_THAT_LEAVE_NONE = 1
"""Versions that decide by these leave no snapshot when they stop."""


def restore(journal: Journal) -> tuple[Machine, int]:
    """Return the machine as the journal left it, and the number of the last record in it.

    Raises:
        BrokenError: The journal was tampered with.
        SiteError: A version of gridloom that decides by other rules wrote what must be replayed.
    """
    taken = journal.snapshot()
    if taken is None:
        return (machine := Machine()), catch_up(machine, 0, journal)
    if taken.rules > RULES:
        raise SiteError(f"the snapshot in the journal is of {_others(taken.rules)}; {_NEWER}")
    machine = Machine(_state(taken.state))
    return machine, catch_up(machine, taken.seq, journal)


def snapshot_of(machine: Machine, seq: int) -> Snapshot:
    """Return what ``machine``, at record ``seq``, goes on from another time."""
    return Snapshot(seq=seq, state=encode(machine.state), rules=RULES)


def catch_up(machine: Machine, seq: int, journal: Journal) -> int:
    """Let ``machine``, at record ``seq``, repeat the newer records; return the last one's number.

    Raises:
        BrokenError: A record does not replay.
        SiteError: It was decided by other rules.
    """
    for record in journal.records(after=seq):
        repeat(machine, record)
        seq = record.seq
    return seq


def repeat(machine: Machine, record: Record) -> None:
    """Step ``machine`` as the record says.

    Raises:
        BrokenError: Other actions came out than those that were recorded.
        SiteError: It was decided by other rules.
    """
    if record.rules != RULES:
        remedy = _NEWER if record.rules > RULES else _STOP_IT
        if record.rules == _RULES_THAT_LEAVE_NONE:
            remedy = _ANEW
        raise SiteError(
            f"record {record.seq} of the journal was decided by {_others(record.rules)}; {remedy}"
        )
    actions = tuple(machine.step(record.events, record.now_s, random.Random(record.seed)))
    if actions != record.actions:
        raise BrokenError(
            f"record {record.seq} of the journal does not replay: it holds "
            f"{len(record.actions)} actions and now gives {len(actions)} or others"
        )


def replayed(records: Sequence[Record]) -> bytes:
    """Return the encoded state that a whole journal leads to.

    Raises:
        BrokenError: A record does not replay.
        SiteError: One was decided by other rules.
    """
    machine = Machine()
    for record in records:
        repeat(machine, record)
    return encode(machine.state)


def _others(rules: int) -> str:
    age = "a newer" if rules > RULES else "an older"
    return f"{age} version of gridloom, by other rules ({rules}; this one's are {RULES})"


def _state(snapshot: bytes) -> State:
    try:
        return decode(snapshot, State)
    except msgspec.MsgspecError as error:
        raise BrokenError(f"the snapshot in the journal cannot be read: {error}") from error
