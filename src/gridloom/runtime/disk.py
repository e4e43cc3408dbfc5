"""Every change that the runtime makes to the checkpoint directory goes through one door.

Each method is one step that a crash may come before, or (for ``write``) in the middle of, so a
test can die at each of them.
"""

import os
from pathlib import Path


class Disk:
    """The file system; every method raises ``OSError`` when it cannot."""

    def make_directory(self, path: Path) -> None:
        """Create ``path`` and what leads to it, unless it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace the file ``path``, and return when its content is on the disk."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory ``path`` are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory a new name at once."""
        old.rename(new)

    def remove_file(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()
