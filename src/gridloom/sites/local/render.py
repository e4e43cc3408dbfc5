"""From an order to the command line and the files of its supervisor (pure)."""

from pathlib import PurePath

from gridloom.base.codec import encode
from gridloom.wire.agent import ORDER_FILE, TaskOrder


def supervisor_argv(python: str, directory: PurePath) -> tuple[str, ...]:
    """Return the command line of the supervisor of a task's directory."""
    return (python, "-P", "-m", "gridloom.agent", str(directory))


def files(order: TaskOrder) -> dict[str, bytes]:
    """Return the files, by name, that a supervisor must find before it starts."""
    return {ORDER_FILE: encode(order)}
