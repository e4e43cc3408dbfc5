"""From the journal back to the scheduler's state, and the proof that it leads there."""

import random
from collections.abc import Sequence

import msgspec

from gridloom.base.codec import decode, encode
from gridloom.base.errors import BrokenError
from gridloom.core.machine import Machine
from gridloom.core.state import State
from gridloom.ports.journal import Journal, Record


def restore(journal: Journal) -> tuple[Machine, int]:
    """Return the machine as the journal left it, and the number of the last record in it.

    Raises:
        BrokenError: The journal was tampered with, or another version of gridloom wrote it.
    """
    taken = journal.snapshot()
    seq = taken[0] if taken else 0
    machine = Machine(_state(taken[1])) if taken else Machine()
    return machine, catch_up(machine, seq, journal)


def catch_up(machine: Machine, seq: int, journal: Journal) -> int:
    """Let ``machine``, at record ``seq``, repeat the newer records; return the last one's number.

    Raises:
        BrokenError: A record does not replay.
    """
    for record in journal.records(after=seq):
        repeat(machine, record)
        seq = record.seq
    return seq


def repeat(machine: Machine, record: Record) -> None:
    """Step ``machine`` as the record says.

    Raises:
        BrokenError: Other actions came out than those that were recorded.
    """
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
    """
    machine = Machine()
    for record in records:
        repeat(machine, record)
    return encode(machine.state)


def _state(snapshot: bytes) -> State:
    try:
        return decode(snapshot, State)
    except msgspec.MsgspecError as error:
        raise BrokenError(f"the snapshot in the journal cannot be read: {error}") from error
