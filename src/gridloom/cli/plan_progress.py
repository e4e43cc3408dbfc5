"""A bar on standard error for what takes longer than a moment; only a person's terminal sees it."""

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gridloom.base.system import SystemClock
from gridloom.cli.output import console

WAIT_S = 2.0
"""What is done sooner shows no bar."""

Report = Callable[[float, float], None]
"""Told how much is done, and of how much."""


@contextlib.contextmanager
def reported(what: str) -> Iterator[Report]:
    """Yield a function to be told of progress; the bar appears once `WAIT_S` have passed."""
    out = console(stderr=True)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=out, transient=True)
    task = bar.add_task(what, total=None)
    shown = False

    def report(done: float, total: float) -> None:
        nonlocal shown
        if not out.is_terminal:
            return
        bar.update(task, completed=done, total=total)
        if not shown and clock.monotonic_s() - began_s > WAIT_S:
            shown = True
            bar.start()

    try:
        yield report
    finally:
        if shown:
            bar.stop()
