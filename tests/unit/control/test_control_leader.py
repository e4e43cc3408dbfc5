"""One writer at a time, whatever dies."""

import subprocess
import sys
from pathlib import Path

import pytest

from gridloom.control.leader import Leadership

HOLD = """
import sys
from pathlib import Path
from gridloom.control.leader import Leadership
lead = Leadership(Path(sys.argv[1]))
print(lead.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.lock"


def holder(path: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    return process


def test_only_one_process_leads_and_death_by_sigkill_frees_it(path: Path) -> None:
    with holder(path) as other:
        lead = Leadership(path)
        assert not lead.acquire()
        assert lead.taken()
        assert not lead.held
        other.kill()
        other.wait()
        assert not lead.taken()
        assert lead.acquire()
        lead.release()


def test_release_lets_another_one_lead(path: Path) -> None:
    lead = Leadership(path)
    assert lead.acquire()
    assert lead.acquire()  # again does no harm
    assert lead.taken()
    lead.release()
    lead.release()
    with holder(path) as other:
        assert not lead.acquire()
        other.communicate(b"")
    assert lead.acquire()
    lead.release()


def test_looking_is_not_disturbed_by_others_that_look(path: Path) -> None:
    lead = Leadership(path)
    assert not lead.taken()  # not even a file
    assert not path.exists()
    path.touch()
    import fcntl  # noqa: PLC0415

    with path.open("rb") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert not lead.taken()


def test_a_lock_that_was_removed_or_replaced_is_held_no_more(path: Path) -> None:
    lead = Leadership(path)
    assert not lead.intact()
    lead.acquire()
    assert lead.intact()
    path.unlink()
    assert not lead.intact()
    path.touch()
    assert not lead.intact()
    lead.release()
