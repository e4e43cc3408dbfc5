"""Who may write: one process at a time, decided by a lock that the kernel gives back at death."""

import fcntl
import os
from pathlib import Path
from typing import IO


class Leadership:
    """The right to run the control loop over one state directory."""

    def __init__(self, path: Path) -> None:
        """Use ``path`` as the lock; nothing is locked yet."""
        self._path = path
        self._file: IO[bytes] | None = None

    @property
    def held(self) -> bool:
        """Whether this process is the one writer."""
        return self._file is not None

    def acquire(self) -> bool:
        """Try to become the one writer; return whether this process is it now."""
        if self._file is None:
            file = self._path.open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            self._file = file
        return True

    def release(self) -> None:
        """Let another process become the one writer."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def intact(self) -> bool:
        """Return whether the lock that is held is still the one that others would find."""
        if self._file is None:
            return False
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        held = os.fstat(self._file.fileno())
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def taken(self) -> bool:
        """Return whether any process, this one included, is the one writer.

        The look takes a shared lock for a moment: any number of processes may look at once, but
        one that tries to become the writer in that moment fails and must try again.
        """
        if self.held:
            return True
        try:
            with self._path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False
