"""The disk and the processes of this machine, as far as the local driver needs them."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gridloom.base.files import LineTail
from gridloom.wire.agent import LOCK_FILE, REPORTS_FILE

SUPERVISOR_LOG = "supervisor.log"


class LocalClient:
    """Starts supervisors and reads their reports."""

    def __init__(self) -> None:
        self._tails: dict[Path, LineTail] = {}
        self._supervisors: set[int] = set()

    def start(self, argv: Sequence[str], directory: Path) -> None:
        """Start a supervisor in a session of its own, out of reach of the terminal's signals.

        Raises:
            OSError: It could not be started.
        """
        with (directory / SUPERVISOR_LOG).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module under our own interpreter
                list(argv),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process.returncode = 0  # it may outlive us: reaped by `alive`, not by Popen's destructor
        self._supervisors.add(process.pid)

    def started(self, directory: Path) -> bool:
        """Return whether a supervisor ever started here; it holds its lock before it has."""
        return (directory / REPORTS_FILE).exists()

    def lines(self, directory: Path) -> list[bytes]:
        """Return the report lines that this client has not returned before."""
        tail = self._tails.setdefault(directory, LineTail(directory / REPORTS_FILE))
        return tail.lines()

    def alive(self, directory: Path) -> bool:
        """Return whether the supervisor or its guardian still holds the directory's lock."""
        self._reap()
        try:
            with (directory / LOCK_FILE).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def forbid(self, directory: Path) -> bool:
        """See to it that no supervisor starts here any more; return False when one lives."""
        try:
            with (directory / LOCK_FILE).open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (directory / REPORTS_FILE).touch()
        except BlockingIOError:
            return False
        except OSError:
            pass  # where we cannot write, no supervisor can
        return True

    def _reap(self) -> None:
        for pid in tuple(self._supervisors):
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            self._supervisors.discard(pid)
