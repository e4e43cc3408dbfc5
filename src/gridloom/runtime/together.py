"""What the ranks of a site do together: all of them succeed, or all of them give up."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from gridloom.runtime.failure import StorageError, peers_guarded

T = TypeVar("T")


class Together:
    """The ranks of a site, with connections of their own beside those that training uses.

    Attributes:
        group: Their process group, over which only the CPU's memory is sent; ``None`` for one rank.
        rank: This rank.
        size: Ranks of the site.
    """

    def __init__(self, rank: int, size: int, timeout_s: float) -> None:
        """Connect; all ranks of the site do so at the same time.

        Args:
            rank: This rank in the site.
            size: Ranks of the site.
            timeout_s: How long to wait for a silent rank.
        """
        self.rank, self.size = rank, size
        self.group: dist.ProcessGroup | None = None
        if size > 1:
            with peers_guarded():
                self.group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))

    def gather(self, value: T) -> list[T]:
        """Return the value of every rank, in their order."""
        if self.group is None:
            return [value]
        values = [value] * self.size
        with peers_guarded():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def do(self, action: Callable[[], T], failing: str, remedy: str) -> T:
        """Return what ``action`` returns here, once it has succeeded on every rank.

        Raises:
            StorageError: It raised ``OSError`` on some rank; raised on all.
        """
        results: list[T] = []
        problem = ""
        try:
            results.append(action())
        except OSError as error:
            problem = f"rank {self.rank}: {error.strerror or error}"
        problems = [found for found in self.gather(problem) if found]
        if problems:
            raise StorageError(f"{failing}: {problems[0]}", remedy)
        return results[0]

    @contextmanager
    def guarded(self, failing: str, remedy: str) -> Iterator[None]:
        """Turn what ``torch.distributed.checkpoint`` raises on all ranks into ``StorageError``."""
        try:
            with peers_guarded(), warnings.catch_warnings():
                # it would say that there is one process, each time
                warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
                yield
        except CheckpointException as error:
            rank, (cause, _) = min(error.failures.items(), key=lambda item: item[0])
            first_line = str(cause).partition("\n")[0]
            told = f"{failing}: rank {rank}: {type(cause).__name__}: {first_line}"
            raise StorageError(told, remedy) from error
