"""Values of nested settings by dotted path, every fault at once, and what nobody asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from gridloom.base.errors import InputError, Problem


class Reader:
    """Looks values up by dotted path, and remembers which were never looked at."""

    def __init__(self, config: Mapping[str, Any], ours: Sequence[str] = ()) -> None:
        """Hold ``config``; paths in ``ours`` are known although nobody asks for them."""
        self._config = config
        self._asked: set[str] = set(ours)
        self._problems: list[Problem] = []

    @property
    def unread(self) -> tuple[str, ...]:
        """Paths of values that nobody asked for, in their order."""
        return tuple(path for path in _paths(self._config, "") if path not in self._asked)

    def value(self, path: str) -> Any:
        """Return what stands at ``path``; None when nothing does, or only ``auto``."""
        self._asked.add(path)
        found: Any = self._config
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return None if found == "auto" else found  # Transformers fills these in

    def number(self, path: str, default: int, least: int = 0) -> int:
        """Return the whole number at ``path``, or ``default`` when there is none."""
        found = self.value(path)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or found != int(found):
            self.fault(path, f"{found!r} is not a whole number")
            return default
        if found < least:
            self.fault(path, f"{found} is below {least}")
            return default
        return int(found)

    def flag(self, path: str) -> bool:
        """Return whether ``path`` is true."""
        return self.value(path) is True

    def word(self, path: str, choices: Sequence[str], default: str) -> str:
        """Return the word at ``path``, which must be one of ``choices``."""
        found = self.value(path)
        if found is None:
            return default
        if found not in choices:
            self.fault(path, f"{found!r} is not one of {', '.join(choices)}")
            return default
        return str(found)

    def fault(self, path: str, message: str, remedy: str = "") -> None:
        """Remember that what stands at ``path`` cannot be."""
        self._problems.append(Problem(message=message, remedy=remedy, field=path))

    def end(self) -> None:
        """Do nothing when nothing was wrong.

        Raises:
            InputError: Something was; carries all of it.
        """
        if self._problems:
            raise InputError(self._problems)


def _paths(config: Mapping[str, Any], above: str) -> list[str]:
    paths: list[str] = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            paths.extend(_paths(value, f"{above}{key}."))
        else:
            paths.append(f"{above}{key}")
    return paths
