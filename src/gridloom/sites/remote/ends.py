"""The two ends between which files are carried."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from gridloom.base.clock import Clock
from gridloom.sites.remote.host import Host


@dataclass(frozen=True)
class Ends:
    """Run directories here and there, and what carries between them.

    Attributes:
        here: Directory of all run directories.
        there: The same at the other end.
        host: Returns the login host; raises ``SiteError`` if that cannot be.
        clock: Where the time comes from.
        executor: Where files are carried: nobody waits for that.
    """

    here: Path
    there: str
    host: Callable[[], Host]
    clock: Clock
    executor: Executor
