"""Reads the logs of the ranks of a job and prints what is new in them."""

import sys
from collections.abc import Iterator
from pathlib import Path

from gridloom.cli.output import emit
from gridloom.control.orders import log_path

_BLOCK_BYTES = 1 << 20


class LogReader:
    """Knows how far each rank's log was shown.

    Attributes:
        has_shown: Whether there was anything to show.
    """

    def __init__(
        self, run_dir: Path, *, rank: int | None, attempt: int | None, as_json: bool
    ) -> None:
        """Read under ``run_dir``, of one rank or of all, of one attempt or of the newest."""
        self._run_dir = run_dir
        self._rank = rank
        self._attempt = attempt
        self._as_json = as_json
        self._tails: dict[Path, _Tail] = {}
        self._newest = 0
        self._first = True
        self.has_shown = False

    def show(self, newest: int, tail: int | None, *, over: bool) -> None:
        """Print what is new; at the first look only the last ``tail`` lines of each rank.

        Args:
            newest: The job's newest attempt. Those that came between two looks are shown, too.
            tail: None for all lines.
            over: Nothing will be added, so that a last line without its end is shown as well.
        """
        newest = self._attempt or newest
        for attempt in range(self._newest or newest, newest + 1):
            for rank, path in self._logs(attempt):
                if path not in self._tails:
                    self._tails[path] = _Tail(path, tail if self._first else None)
                ended = over or attempt < newest
                for line in self._tails[path].lines(rest=ended):
                    self._print(attempt, rank, line.decode(errors="replace"))
        self._newest, self._first = newest, False
        sys.stdout.flush()

    def has_rank(self) -> bool:
        """Return whether the rank that was asked for has a log."""
        return bool(self._tails)

    def _logs(self, attempt: int) -> list[tuple[int, Path]]:
        directory = Path(log_path(self._run_dir, attempt, 0)).parent
        found = []
        for path in directory.glob("rank-*.log"):
            rank = int(path.stem.removeprefix("rank-"))
            if self._rank is None or rank == self._rank:
                found.append((rank, path))
        return sorted(found)

    def _print(self, attempt: int, rank: int, text: str) -> None:
        self.has_shown = True
        if self._as_json:
            emit({"attempt": attempt, "rank": rank, "line": text})
        elif self._rank is None:
            sys.stdout.write(f"[{rank}] {text}\n")
        else:
            sys.stdout.write(f"{text}\n")


class _Tail:
    """The lines of one file that may grow, in blocks: a log can be larger than memory."""

    def __init__(self, path: Path, last: int | None) -> None:
        self._path = path
        self._offset = 0 if last is None else _start_of_last(path, last)

    def lines(self, *, rest: bool) -> Iterator[bytes]:
        """Yield new lines; with ``rest`` also what stands after the last line's end."""
        left = b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while block := file.read(_BLOCK_BYTES):
                *whole, left = (left + block).split(b"\n")
                for line in whole:
                    self._offset += len(line) + 1
                    yield line
        if rest and left:
            self._offset += len(left)
            yield left


def _start_of_last(path: Path, count: int) -> int:
    """Return where the last ``count`` lines begin, read from the end."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        if not count:
            return end
        file.seek(max(0, end - 1))
        wanted = count + (file.read(1) == b"\n")  # the end of the last line begins no other
        at = end
        while at > 0:
            start = max(0, at - _BLOCK_BYTES)
            file.seek(start)
            block = file.read(at - start)
            found = block.count(b"\n")
            if found >= wanted:
                for _ in range(wanted - 1):
                    block = block[: block.rindex(b"\n")]
                return start + block.rindex(b"\n") + 1
            wanted -= found
            at = start
    return 0
