"""From a task's directory to the command line of its supervisor (pure)."""

from pathlib import PurePath


def supervisor_argv(python: str, directory: PurePath) -> tuple[str, ...]:
    """Return the command line of the supervisor of a task's directory."""
    return (python, "-P", "-m", "gridloom.agent", str(directory))
