"""Recorded journals of real runs: what was decided then is decided now, in every process."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from gridloom.base.codec import decode
from gridloom.control.restore import replayed
from gridloom.ports.journal import Record

JOURNALS = sorted(Path(__file__).parent.glob("*.jsonl"))
DIGEST = """
import sys
from pathlib import Path
from tests.journals.test_replay import digest
print(digest(Path(sys.argv[1])))
"""


def digest(path: Path) -> str:
    """Return the digest of the state that a journal leads to, its actions compared on the way."""
    records = [decode(line, Record) for line in path.read_bytes().splitlines()]
    return hashlib.sha256(replayed(records)).hexdigest()


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
