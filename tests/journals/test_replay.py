"""Recorded journals of real runs: what was decided then is decided now, in every process.

Both are of two sites of CPU slots on one machine: a job over both, of which a rank is killed, small
ones behind it, then a stop, a resume and a cancel by the command line. The second has queues, an
array, a booking that is dropped, and a site that is drained and restored; it was recorded by rules
2, by rules 3 and 4 the same was decided, and it is marked as theirs. A journal by rules that have
changed since cannot be replayed, and says so.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from gridloom.base.codec import decode
from gridloom.base.errors import SiteError
from gridloom.control.restore import replayed
from gridloom.core.machine import RULES
from gridloom.ports.journal import Record


def records(path: Path) -> list[Record]:
    """Return the records of a journal."""
    return [decode(line, Record) for line in path.read_bytes().splitlines()]


ALL = sorted(Path(__file__).parent.glob("*.jsonl"))
JOURNALS = [path for path in ALL if {record.rules for record in records(path)} == {RULES}]
OLDER = [path for path in ALL if path not in JOURNALS]
DIGEST = """
import sys
from pathlib import Path
from tests.journals.test_replay import digest
print(digest(Path(sys.argv[1])))
"""


def digest(path: Path) -> str:
    """Return the digest of the state that a journal leads to, its actions compared on the way."""
    return hashlib.sha256(replayed(records(path))).hexdigest()


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_recorded_journal_replays_whatever_the_hash_seed(path: Path) -> None:
    digests = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST, str(path)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert digests == {f"{digest(path)}\n"}


def test_there_is_a_journal_of_the_present_rules_and_one_of_the_first() -> None:
    assert "killed-stopped-resumed" in [path.stem for path in OLDER]
    assert JOURNALS, "the rules have changed: record another run"


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_a_journal_of_other_rules_is_refused_with_what_helps(path: Path) -> None:
    with pytest.raises(SiteError, match=r"record 1 .* by an older version of gridloom, .*; "):
        replayed(records(path))
