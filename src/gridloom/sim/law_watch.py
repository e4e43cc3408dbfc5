"""The core's laws in a simulation: of everything after each step, or of what the step changed."""

from collections.abc import Callable
from typing import cast

from gridloom.core.laws_step import Laws, Mode
from gridloom.core.machine import Machine
from gridloom.ports.journal import Record


def law_watch(machine: Machine, how: str) -> Callable[[Record], None] | None:
    """Return what checks the laws ``full``, ``incremental`` or not at all (``off``).

    It is given the record of each step, and raises ``BrokenError`` if a law is broken; the message
    names the law and the culprit.
    """
    if how == "off":
        return None
    laws = Laws(cast("Mode", how), machine)
    return lambda record: laws.observe(record.events, record.actions, record.now_s)
