"""Disks that die, or refuse, at a chosen operation."""

from pathlib import Path

from gridloom.runtime.disk import Disk


class Crash(BaseException):
    """The machine stops here."""


class DyingDisk(Disk):
    """Stops at its ``last``-th operation: before it, or in the middle of a write."""

    def __init__(self, last: int, *, partial: bool, error: BaseException | None = None) -> None:
        self.left, self.partial, self.error = last, partial, error or Crash()

    def next_dies(self) -> bool:
        self.left -= 1
        return self.left < 0

    def make_directory(self, path: Path) -> None:
        if self.next_dies():
            raise self.error
        super().make_directory(path)

    def write(self, path: Path, data: bytes) -> None:
        if self.next_dies():
            if self.partial:
                path.write_bytes(data[: len(data) // 2])
            raise self.error
        super().write(path, data)

    def sync_directory(self, path: Path) -> None:
        if self.next_dies():
            raise self.error
        super().sync_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        if self.next_dies():
            raise self.error
        super().rename(old, new)

    def remove_file(self, path: Path) -> None:
        if self.next_dies():
            raise self.error
        super().remove_file(path)

    def remove_directory(self, path: Path) -> None:
        if self.next_dies():
            raise self.error
        super().remove_directory(path)
